"""Backend "origin": the vendor's own GEMM, through torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from costmodel.problem import Gemm

#: torch's fp8 product sums in the matrix unit's own precision, as ``tl.dot`` does on sm_90; with
#: False it would move sums to fp32 registers every few steps
FP8_FAST_ACCUMULATION = True


def vendor_launch(problem: Gemm, a: Any, b: Any, out: Any, bias: Any = None) -> Callable[[], Any]:
    """A call that computes ``problem`` into ``out`` with the vendor's library, no copies.

    An epilogue is what torch makes of it: a bias with the product, an activation in place after
    it; the old C is then added by a third call. fp8 goes to
    ``torch._scaled_mm`` with tensor-wise scales of 1 and fast accumulation.
    """
    import torch

    if problem.dtype.startswith("fp8"):
        one = torch.ones((), device=a.device, dtype=torch.float32)
        return lambda: torch._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=out.dtype,
            use_fast_accum=FP8_FAST_ACCUMULATION, out=out,
        )  # fmt: skip
    if problem.epilogue:
        return _with_epilogue(problem, a, b, out, bias)
    if problem.beta or problem.alpha != 1.0:
        function = torch.addmm if a.ndim == 2 else torch.baddbmm
        return lambda: function(out, a, b, beta=problem.beta, alpha=problem.alpha, out=out)
    return lambda: torch.matmul(a, b, out=out)


def _with_epilogue(problem: Gemm, a: Any, b: Any, out: Any, bias: Any) -> Callable[[], Any]:
    import torch

    function = torch.addmm if a.ndim == 2 else torch.baddbmm
    activate = getattr(torch.ops.aten, f"{problem.activation}_") if problem.activation else None

    def launch() -> Any:
        before = out * problem.beta if problem.beta else None
        if bias is None:
            torch.matmul(a, b, out=out)
            if problem.alpha != 1.0:
                out.mul_(problem.alpha)
        else:
            function(bias, a, b, alpha=problem.alpha, out=out)
        if activate is not None:
            activate(out)
        return out if before is None else out.add_(before)

    return launch
