"""What decides the kernels for a product, apart from M, and tensors that stand in for its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from costmodel.kernels.matrix import Matrix
from costmodel.problem import Gemm

#: widest access of a kernel and unit of the copy engine: alignment past it changes nothing
_WIDEST_BYTES = 16
#: up to here every bucket's kernels are chosen together
SMALL_BUCKETS: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def bucket_of(m: int) -> int:
    """The size that M is rounded up to when a kernel is chosen: the next power of two."""
    return 1 << (m - 1).bit_length()


@dataclass(frozen=True)
class Operand:
    """A matrix as stored: ``transposed``, so that rows are contiguous, or not.

    ``step_bytes`` is the largest power of two, up to 16, that divides the step from one stored
    row to the next (the row's length where there is but one); ``offset_bytes`` what its address
    is past a multiple of 16.
    """

    transposed: bool
    step_bytes: int
    offset_bytes: int

    @classmethod
    def of(cls, tensor: torch.Tensor, name: str) -> Operand:
        """Raises ``ConfigError`` where neither axis is contiguous."""
        matrix = Matrix.of(tensor, name)
        # a single row's step means nothing: taken as that of the same matrix with more rows
        height, width = matrix.stored.shape
        step = (matrix.leading if height > 1 else width) * tensor.element_size()
        return cls(
            matrix.transposed,
            min(step & -step, _WIDEST_BYTES),
            int(tensor.data_ptr()) % _WIDEST_BYTES,
        )

    def stand_in(
        self, rows: int, cols: int, dtype: torch.dtype, leading: int | None = None
    ) -> torch.Tensor:
        """[rows, cols] on device "meta", stored alike; ``leading`` elements from row to row.

        A meta tensor's address is its offset into its storage: it is aligned as ours is.
        """
        height, width = (cols, rows) if self.transposed else (rows, cols)
        if leading is None or height == 1:
            unit = max(self.step_bytes // dtype.itemsize, 1)
            units = -(-width // unit)
            # one unit more where the step would divide by more than it should
            leading = unit * (units + (self.step_bytes < _WIDEST_BYTES and units % 2 == 0))
        start = self.offset_bytes // dtype.itemsize
        storage = torch.empty(start + height * leading, dtype=dtype, device="meta")
        stored = storage.as_strided((height, width), (leading, 1), start)
        return stored.transpose(0, 1) if self.transposed else stored


@dataclass(frozen=True)
class Case:
    """A product apart from its M. ``scaled``: alpha is not 1; ``adds``: beta is not 0.

    ``dtype`` is torch's, of both operands; ``precision`` "tf32" or "ieee" for fp32, else None.
    """

    n: int
    k: int
    dtype: torch.dtype
    out_dtype: torch.dtype
    a: Operand
    b: Operand
    out: Operand
    precision: str | None = None
    scaled: bool = False
    adds: bool = False

    def problem(self, m: int, alpha: float | None = None, beta: float | None = None) -> Gemm:
        """The problem to price; alpha and beta matter to a price only as 1 or not, 0 or not."""
        return Gemm(
            m,
            self.n,
            self.k,
            dtype=str(self.dtype),
            layout="nt"[self.a.transposed] + "nt"[self.b.transposed],
            # a Gemm's None is tf32 where the chip has it, and what is tuned says None
            precision="ieee" if self.precision == "ieee" else None,
            alpha=alpha if alpha is not None else 2.0 if self.scaled else 1.0,
            beta=beta if beta is not None else 1.0 if self.adds else 0.0,
        )

    def stand_ins(self, m: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A [M, K], B [K, N] and C [M, N] on device "meta", aligned as this case's are."""
        return (
            self.a.stand_in(m, self.k, self.dtype),
            self.b.stand_in(self.k, self.n, self.dtype),
            self.out.stand_in(m, self.n, self.out_dtype),
        )

    def options(self, m: int, units: int) -> dict[str, Any]:
        """What ``prepare`` is told beside tensors and configuration, whatever M of a bucket."""
        return {
            "precision": self.precision,
            "units": units,
            "sized_for": (bucket_of(m), self.n),
        }
