"""The vendor's GEMM: the call itself, and on which measured shapes it is the faster one."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from costmodel.paths import packaged

#: a measured shape speaks for one whose every size is within this share of it
_NEAR = 0.15
#: the vendor's time must be shorter by this share: two medians of one kernel differ by less
MARGIN = 0.02


def is_faster(vendor_us: float, ours_us: float) -> bool:
    """Whether the vendor's time is shorter by more than the margin."""
    return vendor_us * (1 + MARGIN) < ours_us


def out_dtype(dtype: torch.dtype) -> torch.dtype:
    """The product's type: the operands', int32 for int8 and bf16 for fp8 as ``Gemm`` has it."""
    if dtype == torch.int8:
        return torch.int32
    narrow = dtype.is_floating_point and dtype.itemsize == 1
    return torch.bfloat16 if narrow else dtype


def vendor_product(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None = None,
    c: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> torch.Tensor:
    """``torch.addmm`` where there is a ``c``, else ``torch.matmul``, with its errors.

    int8 and fp8 matrices, which torch does not multiply into wider types, take torch's own
    function for them, or are widened first.
    """
    if c is not None:
        extra = {} if out is None else {"out": out}
        return torch.addmm(c, a, b, beta=beta, alpha=alpha, **extra)
    plain = a.dim() == b.dim() == 2 and a.dtype == b.dtype and a.shape[1] == b.shape[0]
    if plain and out_dtype(a.dtype) != a.dtype:
        product = _narrow(a, b)
        return product if out is None else out.copy_(product)
    return torch.matmul(a, b) if out is None else torch.matmul(a, b, out=out)


def _narrow(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dtype == torch.int8:
        # sums of int8 products are whole numbers far below 2**53; CUDA has no integer product
        wide = torch.float64 if a.is_cuda else torch.int32
        return torch.mm(a.to(wide), b.to(wide)).to(torch.int32)
    # every fp8 value is a bf16 value
    return torch.mm(a.to(torch.bfloat16), b.to(torch.bfloat16))


@dataclass(frozen=True)
class Measured:
    """A measured shape (m, n, k) with the vendor's time and that of our first choice, in us."""

    shape: tuple[int, int, int]
    vendor_us: float
    ours_us: float


class VendorTable:
    """Measured shapes as columns: m, n, k, element_bytes, vendor_us, ours_us."""

    def __init__(self, **columns: Any) -> None:
        sizes = np.stack([np.asarray(columns[name], dtype=np.float64) for name in "mnk"])
        self._logs: NDArray[np.float64] = np.log(sizes)
        self._sizes = sizes.astype(np.int64)
        self._bytes = np.asarray(columns["element_bytes"])
        self._vendor = np.asarray(columns["vendor_us"], dtype=np.float64)
        self._ours = np.asarray(columns["ours_us"], dtype=np.float64)

    def nearest(self, m: int, n: int, k: int, element_bytes: int) -> Measured | None:
        """The measured shape nearest in log sizes, or None where none is near in all three."""
        away = np.abs(self._logs - np.log([[m], [n], [k]]))
        near = (away <= np.log1p(_NEAR)).all(axis=0) & (self._bytes == element_bytes)
        if not near.any():
            return None
        row = int(np.where(near, (away**2).sum(axis=0), np.inf).argmin())
        sizes = self._sizes[:, row]
        return Measured(
            (int(sizes[0]), int(sizes[1]), int(sizes[2])),
            float(self._vendor[row]),
            float(self._ours[row]),
        )


@cache
def vendor_table(profile: str) -> VendorTable | None:
    """The shipped table of a chip, or None where its vendor's GEMM was not measured."""
    file = packaged("models").joinpath(f"vendor_{profile}.npz")
    try:
        data = file.read_bytes()
    except OSError:
        return None
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return VendorTable(**arrays)
