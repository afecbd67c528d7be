"""Which configurations are compiled to machine code, to learn registers and spills from.

Most random configurations are far from a register limit. These are drawn so that many are near
one, on either side: large tiles by few warps, deep steps, and such as would fit the chip's shared
memory, since the rest never run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, load_profile
from costmodel.resources.legality import RULES
from costmodel.resources.survey import TARGETS, Draw, draw_problem

#: sums that a thread holds, and how often a draw that holds so many is kept: a file gives a
#: thread 255 registers (NVIDIA) or 512 (AMD)
_KEPT = {"cuda": {32: 0.15, 64: 0.4, 128: 1.0, 256: 1.0, 512: 0.12},
         "hip": {32: 0.1, 64: 0.3, 128: 0.6, 256: 1.0, 512: 0.4}}  # fmt: skip
_KEPT_OTHERWISE = 0.03
#: elements of operands a thread loads in one step: more take minutes to compile
_MOST_LOADS = 512


def register_draws(target: str, count: int, seed: int) -> list[Draw]:
    """The first ``count`` distinct draws for a target; a larger count only adds to them."""
    found: dict[str, Draw] = {}
    for draw in _draws(target, seed):
        found.setdefault(draw.key(), draw)
        if len(found) == count:
            break
    return list(found.values())


def _draws(target: str, seed: int) -> Iterator[Draw]:
    number = int.from_bytes(target.encode(), "big") % 2**32
    rng = np.random.default_rng([seed, number])
    profile = load_profile(TARGETS[target])
    while True:
        problem = _problem(rng, profile)
        config = _config(rng, profile)
        sums = config.block_m * config.block_n // (profile.warp_size * (config.num_warps or 4))
        keep = rng.random() < _KEPT[profile.backend].get(sums, _KEPT_OTHERWISE)
        if keep and sums <= 512 and _runs(problem, config, profile):
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
        block_k=int(rng.choice([16, 32, 64, 128], p=(0.1, 0.35, 0.4, 0.15))),
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
