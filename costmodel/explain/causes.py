"""Why a shape cannot reach the roofline on a chip: named causes, each with numbers and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from costmodel.config import ConfigTable, KernelConfig
from costmodel.physics.estimate import EstimateColumns, estimate_columns
from costmodel.physics.roofline import copy_bandwidth_gb_s, peak_of
from costmodel.predict import Prediction
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.matrix_unit import MatrixUnit, kernel_blocks
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
#: with so much of the time gone before a byte moves, the configuration decides little
LAUNCH_SHARE = 0.3
#: an instruction that reaches this share of the peak does not show beside the other losses
INSTRUCTION_SHARE = 0.9
#: widest vector load and store of NVIDIA and AMD GPUs, and the pitch that descriptors ask for
WIDE_BYTES = 16


@dataclass(frozen=True)
class Cause:
    """One reason: a name, the numbers that show it, and what to do about it."""

    name: str
    evidence: str
    remedy: str


@dataclass(frozen=True)
class Case:
    """What the checks look at: the chosen configuration and the best that does not split K."""

    problem: Gemm
    profile: HardwareProfile
    config: KernelConfig
    time_us: float
    physics: EstimateColumns
    unsplit: KernelConfig
    unsplit_physics: EstimateColumns

    @classmethod
    def of(cls, prediction: Prediction) -> Case:
        """Price the two configurations."""
        problem, profile, config = prediction.problem, prediction.profile, prediction.config
        unsplit = _best_unsplit(prediction)
        return cls(
            problem, profile, config, prediction.time_us,
            estimate_columns(problem, ConfigTable.of(config), profile),
            unsplit, estimate_columns(problem, ConfigTable.of(unsplit), profile),
        )  # fmt: skip

    @property
    def tiles(self) -> int:
        """Output tiles of the chosen blocks, K not split."""
        return int(self.physics.waves.tiles[0])

    @property
    def unit_names(self) -> str:
        return f"{self.profile.units} {self.profile.unit_name}s"


def causes(prediction: Prediction) -> tuple[Cause, ...]:
    """Every cause that holds, what the shape dictates first and the configuration's own last."""
    case = Case.of(prediction)
    return tuple(cause for check in CHECKS for cause in check(case))


def last_round_fill(physics: EstimateColumns) -> float:
    """Share of the last round's slots that have a program, for one configuration."""
    waves = physics.waves
    slots = float(waves.slots[0])
    return (float(waves.programs[0]) - (float(waves.rounds[0]) - 1) * slots) / slots


def _memory_bound(case: Case) -> Iterator[Cause]:
    roof, problem = case.physics.roofline, case.problem
    if roof.memory_us <= roof.compute_us:
        return
    bandwidth = copy_bandwidth_gb_s(case.profile)
    ridge = peak_of(problem, case.profile) * 1e3 / bandwidth
    yield Cause(
        "memory_bound",
        f"{problem.arithmetic_intensity:.1f} FLOP a byte, and the ridge is at {ridge:.0f}: "
        f"{problem.compulsory_bytes / 1e6:.1f} MB at {bandwidth:.0f} GB/s take "
        f"{roof.memory_us:.2f} us, the arithmetic {roof.compute_us:.2f} us",
        "no configuration moves fewer bytes: multiply more rows at once, fuse with the neighbours, "
        "or store the operands in a smaller type",
    )


def _low_block_count(case: Case) -> Iterator[Cause]:
    if case.tiles >= case.profile.units:
        return
    yield Cause(
        "low_block_count",
        f"{case.tiles} tile{'s' * (case.tiles != 1)} of {case.config.block_m}x"
        f"{case.config.block_n} for {case.unit_names}",
        _split_remedy(case) or _no_split(case),
    )


def _long_k(case: Case) -> Iterator[Cause]:
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


def _partial_wave(case: Case) -> Iterator[Cause]:
    waves, config = case.unsplit_physics.waves, case.unsplit
    rounds, fill = int(waves.rounds[0]), last_round_fill(case.unsplit_physics)
    if not 2 <= rounds <= PARTIAL_WAVE_ROUNDS or fill >= PARTIAL_WAVE_FILL:
        return
    slots, tiles = int(waves.slots[0]), int(waves.tiles[0])
    yield Cause(
        "partial_wave",
        f"{tiles} tiles of {config.block_m}x{config.block_n} in {rounds} rounds of {slots}: the "
        f"last has {tiles - (rounds - 1) * slots} ({fill:.0%} full)",
        "blocks of another size, or split K, so that the last round is full or there is one less",
    )


def _unaligned_rows(case: Case) -> Iterator[Cause]:
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


def _slow_instruction(case: Case) -> Iterator[Cause]:
    roof, share = case.physics.roofline, float(case.physics.matrix_share[0])
    unit = MatrixUnit(int(case.physics.unit[0]))
    if unit is MatrixUnit.NONE:
        # "matvec" has nothing to multiply twice: no matrix unit would help it
        if case.profile.mma and case.problem.dtype == "fp32" and case.config.template != "matvec":
            yield Cause(
                "slow_instruction",
                f"fp32 in 'ieee' has no matrix instruction: the peak is "
                f"{peak_of(case.problem, case.profile):.0f} TFLOPS",
                "precision='tf32', or 'tf32x3' for nearly fp32's accuracy",
            )
        return
    # where memory takes longer anyway, the instruction's rate is not what holds the shape back
    if share >= INSTRUCTION_SHARE or roof.compute_us / share <= roof.memory_us:
        return
    tall, wide = (int(side[0]) for side in kernel_blocks(ConfigTable.of(case.config)))
    name = unit.name.lower().replace("_", ".")
    yield Cause(
        "slow_instruction",
        f"{name} on {tall}x{wide} blocks of the kernel reaches at most {share:.0%} of the matrix "
        f"unit's peak: {roof.compute_us:.2f} us of arithmetic become "
        f"{roof.compute_us / share:.2f} us",
        "blocks of 64 rows and 128 columns or more with 4 or 8 warps, where C is that large"
        if "wgmma" in case.profile.mma
        else "larger blocks, where C is that large",
    )


def _spill(case: Case) -> Iterator[Cause]:
    registers = case.physics.registers
    spilled = float(registers.spilled[0])
    if spilled <= 0:
        return
    wanted = float(registers.wanted[0])
    yield Cause(
        "spill",
        f"a thread wants {wanted:.0f} registers and may have {wanted - spilled:.0f}: "
        f"{spilled:.0f} go to memory in every step",
        "twice the warps halve the accumulator a thread holds; else a smaller block",
    )


def _launch_bound(case: Case) -> Iterator[Cause]:
    floor = case.physics.roofline.floor_us
    if not np.isfinite(case.time_us) or floor <= LAUNCH_SHARE * case.time_us:
        return
    yield Cause(
        "launch_bound",
        f"an empty kernel takes {floor:.1f} of the {case.time_us:.1f} us "
        f"({floor / case.time_us:.0%})",
        "run several such products in one launch (batch), or fuse with the neighbours",
    )


Check = Callable[[Case], Iterator[Cause]]
CHECKS: tuple[Check, ...] = (
    _memory_bound,
    _low_block_count,
    _long_k,
    _partial_wave,
    _unaligned_rows,
    _slow_instruction,
    _spill,
    _launch_bound,
)


def _best_unsplit(prediction: Prediction) -> KernelConfig:
    """The first of the ranking that keeps K whole; the chosen one where none does."""
    if prediction.config.split_k == 1:
        return prediction.config
    rows = np.flatnonzero(prediction.ranking.configs.split_k == 1)
    return prediction.ranking.configs[int(rows[0])] if len(rows) else prediction.config
