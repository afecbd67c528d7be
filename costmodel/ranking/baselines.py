"""Answers that need no model: the starting-block table, and what stands in when all else fails."""

from __future__ import annotations

import numpy as np

from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm


def starting_blocks(problem: Gemm) -> tuple[int, int, int]:
    """BLOCK_M, BLOCK_N, BLOCK_K of the table that engineers start tuning from.

    By the larger side of C: 5120 and up 128,128,32; 512 and up 64,64,32; below 32,32,64; and
    128,128,64 where K is at least 4 times the larger side.
    """
    side = max(problem.m, problem.n)
    if problem.k >= 4 * side:
        return 128, 128, 64
    if side >= 5120:
        return 128, 128, 32
    if side >= 512:
        return 64, 64, 32
    return 32, 32, 64


def default_config(problem: Gemm) -> KernelConfig:
    """The starting table's configuration: template "tile", 4 warps, 3 stages, groups of 8."""
    return KernelConfig("tile", *starting_blocks(problem))


def nearest_row(table: ConfigTable, wanted: KernelConfig) -> int:
    """The row of a table closest to a configuration: knobs compared in octaves, template first.

    Judging a fixed recipe on measured rows needs this: 128 rows of block were never measured for
    a product of one row, and 64 is then the recipe's own nearest choice.
    """
    target = ConfigTable.of(wanted)
    distance = 100.0 * (table.template != target.template) + 10.0 * (table.swap != target.swap)
    knobs = ("block_m", "block_n", "block_k", "num_warps", "num_stages", "split_k", "group_m")
    for name in knobs:
        ours = np.maximum(getattr(table, name), 1)
        theirs = np.maximum(getattr(target, name), 1)
        distance = distance + np.abs(np.log2(ours / theirs))
    return int(np.argmin(distance))
