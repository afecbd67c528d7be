"""Backend "origin": the vendor's own GEMM, through torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from costmodel.problem import Gemm


def vendor_launch(problem: Gemm, a: Any, b: Any, out: Any) -> Callable[[], Any]:
    """A call that computes ``problem`` into ``out`` with the vendor's library, no copies."""
    import torch

    if problem.beta or problem.alpha != 1.0:
        function = torch.addmm if a.ndim == 2 else torch.baddbmm
        return lambda: function(out, a, b, beta=problem.beta, alpha=problem.alpha, out=out)
    return lambda: torch.matmul(a, b, out=out)
