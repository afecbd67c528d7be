"""Which configurations are compiled to machine code, to learn registers and spills from.

Most random configurations are far from a register limit. These are drawn so that many are near
one, on either side: large tiles by few warps, deep steps, and such as would fit the chip's shared
memory, since the rest never run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from costmodel.compiler.survey import REGISTER_TARGETS, Draw, draw_problem
from costmodel.config import ConfigTable, KernelConfig
from costmodel.dtypes import OPERANDS
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, load_profile
from costmodel.resources.legality import RULES
from costmodel.resources.matrix_unit import compute_dtype
from costmodel.space.candidates import candidates

#: the share of a thread's registers that its sums would take, and how often such a draw is kept:
#: at a half, all else decides
_KEPT = {1 / 8: 0.15, 1 / 4: 0.4, 1 / 2: 1.0, 1: 0.35, 2: 0.06}
_KEPT_OTHERWISE = 0.03
#: a thread's registers where few warps share the file, in round numbers
_MOST_REGISTERS = {"cuda": 256, "hip": 512}
#: elements of operands a thread loads in one step: more take minutes to compile
_MOST_LOADS = 512


#: of each target: most, and twice as many where a matrix instruction has one target alone
COUNTS = {target: 280 if target in ("sm_90", "sm_100") else 140 for target in REGISTER_TARGETS}
CONVERTED_COUNT = 25


def all_register_draws(target: str, seed: int = 1) -> list[Draw]:
    """What the committed rows were drawn from, for one target."""
    return [
        *register_draws(target, COUNTS[target], seed),
        *register_draws(target, CONVERTED_COUNT, seed, converted=True),
    ]


#: shapes whose candidates are sampled as they are: square, long K, few rows, small K
_SHAPES = ((4096, 4096, 4096), (1024, 1024, 8192), (64, 4096, 4096), (512, 3072, 768))
_CANDIDATES_A_SHAPE = 4


def candidate_draws(target: str, seed: int = 1) -> list[Draw]:
    """Candidates as they come, for four shapes in fp16: what spills where nothing is enriched."""
    number = int.from_bytes(target.encode(), "big") % 2**32
    rng = np.random.default_rng([seed, number, 2])
    profile = load_profile(REGISTER_TARGETS[target])
    found = []
    for shape in _SHAPES:
        problem = Gemm(*shape)
        table = candidates(problem, profile)
        order = (table[int(row)] for row in rng.permutation(len(table)))
        running = (config for config in order if _runs(problem, config, profile))
        found += [Draw(target, problem, c) for c in islice(running, _CANDIDATES_A_SHAPE)]
    return found


def register_draws(target: str, count: int, seed: int, *, converted: bool = False) -> list[Draw]:
    """The first ``count`` distinct draws for a target; a larger count only adds to them.

    ``converted``: of the types that are widened to fp16 on that target; none where there are none.
    """
    profile = load_profile(REGISTER_TARGETS[target])
    dtypes = [
        d for d in OPERANDS if compute_dtype(Gemm(1, 1, 1, dtype=d), profile) not in (d, None)
    ]
    if converted and not dtypes:
        return []
    found: dict[str, Draw] = {}
    for draw in _draws(target, seed, dtypes if converted else []):
        found.setdefault(draw.key(), draw)
        if len(found) == count:
            break
    return list(found.values())


def _draws(target: str, seed: int, dtypes: list[str]) -> Iterator[Draw]:
    number = int.from_bytes(target.encode(), "big") % 2**32
    rng = np.random.default_rng([seed, number] + ([1] if dtypes else []))
    profile = load_profile(REGISTER_TARGETS[target])
    while True:
        problem = _problem(rng, profile)
        if dtypes:
            problem = Gemm.of(problem, dtype=str(rng.choice(dtypes)))
        config = _config(rng, profile)
        threads = profile.warp_size * (config.num_warps or 4)
        file = (profile.registers_per_unit or 65536) // threads
        most = min(_MOST_REGISTERS[profile.backend], file)
        share = config.block_m * config.block_n / threads / most
        keep = rng.random() < _KEPT.get(share, _KEPT_OTHERWISE)
        if keep and share <= 2 and _runs(problem, config, profile):
            yield Draw(target, problem, config)


def _problem(rng: np.random.Generator, profile: HardwareProfile) -> Gemm:
    problem = draw_problem(rng, profile)
    # rows that allow full vectors are what people have; a third stays as it was drawn
    return replace(problem, m=4096, n=4096, k=4096) if rng.random() < 0.67 else problem


def _config(rng: np.random.Generator, profile: HardwareProfile) -> KernelConfig:
    templates = ["tile", "split_k"] + (["persistent_tma"] if "tma" in profile.async_copy else [])
    template = str(rng.choice(templates))
    return KernelConfig(
        template,
        block_m=int(rng.choice([16, 32, 64, 128, 256], p=(0.05, 0.1, 0.25, 0.35, 0.25))),
        block_n=int(rng.choice([16, 32, 64, 128, 256], p=(0.05, 0.1, 0.25, 0.35, 0.25))),
        block_k=int(rng.choice([16, 32, 64, 128], p=(0.1, 0.3, 0.35, 0.25))),
        split_k=4 if template == "split_k" else 1,
        num_warps=int(rng.choice([1, 2, 4, 8, 16], p=(0.05, 0.12, 0.43, 0.33, 0.07))),
        num_stages=int(rng.choice([1, 2, 3, 4], p=(0.15, 0.35, 0.35, 0.15))),
        swap=bool(rng.random() < 0.2),
        epilogue_parts=2 if template == "persistent_tma" and rng.random() < 0.4 else 1,
    )  # fmt: skip


def _runs(problem: Gemm, config: KernelConfig, profile: HardwareProfile) -> bool:
    """Whether it could be launched, near enough, by rules that no better footprint will change."""
    threads = profile.warp_size * (config.num_warps or 4)
    loads = (config.block_m + config.block_n) * config.block_k
    ring_bytes = loads * problem.element_bytes * max((config.num_stages or 3) - 1, 1)
    table = ConfigTable.of(config)
    broken = any(
        np.any(np.greater(*np.broadcast_arrays(*rule.needs(problem, table, profile))))
        for rule in RULES
        if rule.name != "shared_memory"
    )
    fits = ring_bytes <= profile.shared_per_block_bytes
    return fits and loads <= _MOST_LOADS * threads and not broken
