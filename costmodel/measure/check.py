"""Numbers first: a time counts only for a result that is right."""

from __future__ import annotations

import math
from typing import Any

from costmodel.dtypes import DTYPES
from costmodel.problem import Gemm

#: a correct result may be off by this many roundings of its output type; sums are in fp32, so
#: the storing rounding dominates (relative Frobenius error of fp16 GEMMs measures 0.2 to 0.3 eps)
_ROUNDINGS = 2.0
#: products that the matrix unit adds exactly before it rounds to fp16: one instruction's K
_FP16_STEPS = 4.0


def tolerance(problem: Gemm) -> float:
    """Largest relative Frobenius error that counts as correct."""
    out = DTYPES[str(problem.out_dtype)].epsilon
    if problem.dtype == "int8":
        return 0.0
    if problem.dtype == "fp32" and problem.precision != "ieee":
        return max(out, 2.0**-10) * _ROUNDINGS  # tf32 rounds operands to 10 bits
    if problem.accumulate == "fp16":
        # each of K roundings of a growing sum adds its own: they add up as a random walk does
        return out * _ROUNDINGS * max(1.0, math.sqrt(problem.k) / _FP16_STEPS)
    return out * _ROUNDINGS


class Reference:
    """The product in float64 on the operands' own device, and what C held before."""

    def __init__(self, problem: Gemm, a: Any, b: Any, out: Any, bias: Any = None) -> None:
        import torch

        self.problem = problem
        self.before = out.clone() if problem.beta else None
        exact = torch.matmul(a.to(torch.float64), b.to(torch.float64)) * problem.alpha
        if bias is not None:
            exact += bias.to(torch.float64)
        if problem.activation:
            exact = getattr(torch.nn.functional, problem.activation)(exact)
        if self.before is not None:
            exact += problem.beta * self.before.to(torch.float64)
        # half the memory to compare with; 2^-24 of rounding is far below any tolerance here
        precise = problem.out_dtype in ("fp32", "int32")
        self.expected = exact if precise else exact.to(torch.float32)
        self.norm = torch.linalg.vector_norm(self.expected)

    def poison(self, out: Any) -> None:
        """Fill C with what no product holds (or with the C that beta reads)."""
        if self.before is not None:
            out.copy_(self.before)
        elif out.dtype.is_floating_point:
            out.fill_(float("nan"))
        else:
            out.fill_(-(2**31) + 1)

    def error(self, out: Any) -> Any:
        """||out - exact|| / ||exact|| as a tensor on the device: reading it waits for the GPU."""
        import torch

        difference = out.to(self.expected.dtype) - self.expected
        return torch.linalg.vector_norm(difference) / self.norm.clamp_min(1e-30)
