"""Several problems of one kind as columns: what the estimate asks of a ``Gemm``, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.problem import Gemm

Column = NDArray[np.float64]

#: figures that differ between problems of one kind; whole numbers, exact up to 2^53
_FIGURES = ("m", "n", "k", "batch", "flops", "compulsory_bytes")


class Sizes:
    """Problems that differ in M, N, K and batch alone, one entry a row; else it is their first.

    Arithmetic that a ``Gemm`` does on its sizes it does on columns: ``counts`` are the rows of
    each problem.
    """

    m: Column
    n: Column
    k: Column
    batch: Column
    flops: Column
    compulsory_bytes: Column

    def __init__(self, problems: Sequence[Gemm], counts: Sequence[int]) -> None:
        self.first = problems[0]
        figures = [[getattr(problem, name) for name in _FIGURES] for problem in problems]
        table = np.array(figures, dtype=np.float64).T
        for name, row in zip(_FIGURES, np.repeat(table, counts, axis=1), strict=True):
            setattr(self, name, row)

    def take(self, rows: NDArray[np.int64]) -> Sizes:
        """Those of some rows."""
        taken = object.__new__(Sizes)
        taken.first = self.first
        for name in _FIGURES:
            setattr(taken, name, getattr(self, name)[rows])
        return taken

    def __getattr__(self, name: str) -> Any:
        # types, layout and alignment are the kind's, and one problem's are all problems'
        if name == "first":
            raise AttributeError(name)
        return getattr(self.first, name)


def one_of(problem: Gemm | Sizes) -> Gemm:
    """A problem of the kind: what is not a size is the same for all."""
    return problem.first if isinstance(problem, Sizes) else problem
