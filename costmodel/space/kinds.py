"""Kinds of problems: those whose configurations take the same resources, whatever their sizes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Generic, TypeVar

from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.legality import MATVEC_COLUMNS

#: the deepest block of K that loads by pointers: past it K's remainder masks nothing more
_DEEPEST_BLOCK = 128
_ROW_BYTES = 16  # the copy engine's rows are multiples of it (CUDA driver API)
#: kinds that are kept for a chip, some 5 MB each; a list of random shapes has 30 to 36
_MOST_KINDS = 40
_MOST_CHIPS = 4

Made = TypeVar("Made")


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


def groups_kind_of(problem: Gemm) -> Hashable:
    """What of a problem the templates of warp groups depend on.

    They lay out their own buffers and registers, and copy rows that are not aligned: of the
    alignment, they know no more than whether there are any.
    """
    return (
        problem.dtype, problem.layout, problem.out_dtype, problem.precision, problem.accumulate,
        problem.alpha != 1, problem.beta != 0, problem.epilogue, problem.batch == 1,
        problem.k == 1, any(problem.odd_row_bytes(operand, _ROW_BYTES) for operand in "abc"),
    )  # fmt: skip


class ByKind(Generic[Made]):
    """What is made once a kind of problem and a chip, and kept for those that came last."""

    def __init__(
        self,
        make: Callable[[Gemm, HardwareProfile], Made],
        kind_of: Callable[[Gemm], Hashable] = kind_of,
    ) -> None:
        self._make, self._kind_of = make, kind_of
        # the profile is hashed by its figures: two that are equal share what is kept
        self._of_chip = lru_cache(maxsize=_MOST_CHIPS)(self._new)

    def _new(self, profile: HardwareProfile) -> dict[Hashable, Made]:
        return {}

    def of(self, problem: Gemm, profile: HardwareProfile) -> Made:
        """What is kept for a problem's kind; made from this very problem where there is none."""
        kept, kind = self._of_chip(profile), self._kind_of(problem)
        made = kept.pop(kind, None)
        if made is None:
            made = self._make(problem, profile)
        kept[kind] = made
        while len(kept) > _MOST_KINDS:
            kept.pop(next(iter(kept)), None)
        return made
