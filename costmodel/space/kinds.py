"""Kinds of problems: those whose configurations take the same resources, whatever their sizes."""

from __future__ import annotations

from collections.abc import Hashable

from costmodel.problem import Gemm
from costmodel.resources.legality import MATVEC_COLUMNS

#: the deepest block of K that loads by pointers: past it K's remainder masks nothing more
_DEEPEST_BLOCK = 128


def kind_of(problem: Gemm) -> Hashable:
    """What of a problem shared memory, registers, occupancy and legality depend on.

    Its types, layout, scaling and epilogue; the alignment of stored rows, up to 16 elements; axes
    of one entry, which have no rows to align; how far K divides into blocks, since the rest is
    masked; and for a narrow C the columns that "matvec" holds, with the side they are on.
    """
    narrow = min(problem.m, problem.n)
    held = (narrow - 1).bit_length() if narrow <= MATVEC_COLUMNS else None
    return (
        problem.dtype, problem.layout, problem.out_dtype, problem.precision, problem.accumulate,
        problem.alpha != 1, problem.beta != 0, problem.epilogue, problem.batch == 1,
        problem.m == 1, problem.n == 1, problem.k == 1,
        problem.row_align("a"), problem.row_align("b"), problem.row_align("c"),
        min(problem.k & -problem.k, _DEEPEST_BLOCK),
        held, held is not None and (problem.m < problem.n or problem.m == 1),
    )  # fmt: skip
