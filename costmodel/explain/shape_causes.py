"""Causes that the shape dictates on a chip: memory, too few tiles, a long K, waves, odd rows."""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.config import KernelConfig
from costmodel.explain.case import Case, Cause, last_round_fill
from costmodel.physics.estimate import EstimateColumns
from costmodel.physics.roofline import copy_bandwidth_gb_s, peak_of
from costmodel.space.schema import has_template

#: K is long where even a square of this ratio leaves few tiles: the starting-block tables that
#: engineers use switch to a deeper BLOCK_K at the same ratio
LONG_K_RATIO = 4
#: a shorter loop is fewer than 64 steps of 64: small beside the launch and the epilogue
LONG_K_LEAST = 4096
#: with five rounds or more, even an empty last one costs at most a fifth of the time
PARTIAL_WAVE_ROUNDS = 4
#: of two rounds, a last one that is fuller than this wastes at most a fifth
PARTIAL_WAVE_FILL = 0.6
#: widest vector load and store of NVIDIA and AMD GPUs, and the pitch that descriptors ask for
WIDE_BYTES = 16
#: traffic that takes a smaller share of the time bounds nothing
_LEAST_SHARE = 0.1


def memory_bound(case: Case) -> Iterator[Cause]:
    """Compulsory traffic takes longer than the arithmetic: the share of bandwidth reached."""
    roof, problem = case.physics.roofline, case.problem
    # where the launch is all there is, no traffic bounds anything
    if roof.memory_us <= roof.compute_us or roof.memory_us < _LEAST_SHARE * case.time_us:
        return
    bandwidth = copy_bandwidth_gb_s(case.profile)
    ridge = peak_of(problem, case.profile) * 1e3 / bandwidth
    yield Cause(
        "memory_bound",
        f"{problem.arithmetic_intensity:.1f} FLOP a byte, and the ridge is at {ridge:.0f}: "
        f"{problem.compulsory_bytes / 1e6:.1f} MB at {bandwidth:.0f} GB/s take "
        f"{roof.memory_us:.2f} us, the arithmetic {roof.compute_us:.2f} us; in "
        f"{case.time_us:.2f} us that is {_bandwidth_share(case):.0%} of the bandwidth",
        "no configuration moves fewer bytes: multiply more rows at once, fuse with the neighbours, "
        "or store the operands in a smaller type",
    )


def low_block_count(case: Case) -> Iterator[Cause]:
    """Fewer tiles than units: some units have no work."""
    if case.tiles >= case.profile.units:
        return
    yield Cause(
        "low_block_count",
        f"{case.tiles} tile{'s' * (case.tiles != 1)} of {case.config.block_m}x"
        f"{case.config.block_n} for {case.unit_names}",
        _split_remedy(case) or _no_split(case),
    )


def long_k(case: Case) -> Iterator[Cause]:
    """K is long beside C: each tile's sum is a long chain."""
    problem, config = case.problem, case.config
    side = max(problem.m, problem.n)
    if problem.k < max(LONG_K_RATIO * side, LONG_K_LEAST):
        return
    steps = -(-problem.k // config.block_k)
    yield Cause(
        "long_k",
        f"K = {problem.k} is {problem.k / side:.1f} times the longer side of C, {side}: without "
        f"splitting, each tile takes {steps} steps of {config.block_k} in turn",
        _split_remedy(case)
        or "C has tiles enough for every unit: keep the pipeline deep "
        "(num_stages) and the steps wide (block_k)",
    )


def _split_remedy(case: Case) -> str:
    """What splitting K gives: the chosen split, else the one that comes nearest to all units."""
    config = case.config
    if not has_template(case.profile, "split_k"):
        return ""
    if config.split_k > 1:
        programs = case.tiles * config.split_k
        return f"split K, as chosen: split_k={config.split_k} gives {programs} programs"
    steps = -(-case.problem.k // config.block_k)
    most = min(case.profile.units // case.tiles, steps)
    if most < 2:
        return ""
    split = 1 << (most.bit_length() - 1)
    return f"split K: split_k={split} gives {case.tiles * split} programs"


def _no_split(case: Case) -> str:
    """What is left where splitting K does not help."""
    if not has_template(case.profile, "split_k"):
        return "take smaller blocks: no kernel of this chip splits K"
    if case.problem.k < 2 * case.config.block_k:
        return "K is too short to split: take smaller blocks"
    return "take smaller blocks: splitting K in two would make more than one round"


def partial_wave(case: Case) -> Iterator[Cause]:
    """The last round of tiles is nearly empty, or would be with the best plain tile."""
    if _is_partial(case.unsplit_physics):
        yield Cause(
            "partial_wave", _rounds_told(case.unsplit, case.unsplit_physics),
            "blocks of another size, or split K, so that the last round is full or there is one "
            "less",
        )  # fmt: skip
        return
    roof = case.physics.roofline
    if _is_partial(case.even_physics) and roof.compute_us >= roof.memory_us:
        yield Cause(
            "partial_wave",
            "the tile that would be fastest if rounds divided evenly leaves "
            + _rounds_told(case.even, case.even_physics),
            "another tile, as chosen: " + _rounds_told(case.config, case.physics),
        )


def _is_partial(physics: EstimateColumns) -> bool:
    few = 2 <= int(physics.waves.rounds[0]) <= PARTIAL_WAVE_ROUNDS
    return few and last_round_fill(physics) < PARTIAL_WAVE_FILL


def _rounds_told(config: KernelConfig, physics: EstimateColumns) -> str:
    waves = physics.waves
    slots, programs, rounds = (int(n[0]) for n in (waves.slots, waves.programs, waves.rounds))
    noun = "tiles" if config.split_k == 1 else "parts of tiles"
    last = programs - (rounds - 1) * slots
    where = f"{rounds} rounds of {slots}: the last has {last}" if rounds > 1 else (
        f"one round of {slots}"
    )  # fmt: skip
    return (
        f"{programs} {noun} of {config.block_m}x{config.block_n} in {where} "
        f"({last_round_fill(physics):.0%} full)"
    )


def _bandwidth_share(case: Case) -> float:
    return case.problem.compulsory_bytes / (case.time_us * copy_bandwidth_gb_s(case.profile) * 1e3)


def unaligned_rows(case: Case) -> Iterator[Cause]:
    """Rows that are no multiple of 16 bytes: no wide loads, no descriptors."""
    problem = case.problem
    a_rows_along_m, b_rows_along_k = (letter == "n" for letter in problem.layout)
    operands = (
        ("A", "K" if a_rows_along_m else "M", problem.m if a_rows_along_m else problem.k),
        ("B", "N" if b_rows_along_k else "K", problem.k if b_rows_along_k else problem.n),
        ("C", "N", problem.m),
    )
    found: list[str] = []
    repairs: dict[str, int] = {}
    for name, dimension, rows in operands:
        size = problem.out_bytes if name == "C" else problem.element_bytes
        elements = problem.row_elements(name.lower())
        odd = elements * size % WIDE_BYTES
        if rows > 1 and odd:  # one row alone has no step to the next
            found.append(f"{name}'s rows of {elements * size} bytes are {odd} past a multiple")
            grain = WIDE_BYTES // size
            padded = -(-elements // grain) * grain
            repairs[dimension] = max(padded, repairs.get(dimension, 0))
    if found:
        pads = " and ".join(f"{name} to {size}" for name, size in repairs.items())
        yield Cause(
            "unaligned_rows",
            f"loads and stores of {WIDE_BYTES} bytes need rows of a multiple of {WIDE_BYTES}: "
            + "; ".join(found),
            f"pad {pads}, or allocate rows with that leading dimension",
        )
