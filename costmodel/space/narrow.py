"""Candidates of template "matvec": up to eight columns (or rows) of C."""

from __future__ import annotations

import numpy as np

from costmodel.config import TEMPLATES, ConfigTable
from costmodel.problem import Gemm
from costmodel.resources.legality import (
    MATVEC_COLUMNS,
    MATVEC_ELEMENTS,
    MATVEC_SUMS,
    matvec_columns,
)

_ROWS = (1, 2, 4, 8, 16, 32)
_DEPTHS = (512, 1024, 2048, 4096)
_WARPS = (2, 4, 8)
#: elements a thread loads at once: fewer leave the memory idle
_LEAST_ELEMENTS = 8


def matvec_candidates(problem: Gemm) -> ConfigTable:
    """Every block of rows and depth that gives a thread 8 elements or more; none for wide C."""
    narrow = min(problem.m, problem.n)
    block = int(matvec_columns(narrow))
    rows, depth, warps = (
        part.ravel() for part in np.meshgrid(_ROWS, _DEPTHS, _WARPS, indexing="ij")
    )
    elements = rows * depth // (warps * 32)
    keep = (elements >= _LEAST_ELEMENTS) & (elements <= MATVEC_ELEMENTS)
    keep &= elements * block <= MATVEC_SUMS
    keep &= narrow <= MATVEC_COLUMNS
    rows, depth, warps = rows[keep], depth[keep], warps[keep]
    swap = problem.m < problem.n or problem.m == 1
    held = np.full(len(rows), block)
    return ConfigTable(
        template=[TEMPLATES.index("matvec")] * len(rows),
        block_m=held if swap else rows,
        block_n=rows if swap else held,
        block_k=depth,
        group_m=1,
        split_k=1,
        num_warps=warps,
        num_stages=1,
        load_bits=128,
        swap=int(swap),
        epilogue_parts=1,
    )
