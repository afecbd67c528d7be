"""Backend "origin": the vendor's own GEMM, through torch, and the kernels that it launches."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from costmodel.errors import DeviceError
from costmodel.measure.at_hand import require_gpu
from costmodel.measure.vendor_kernels import VendorGemm, launches_of
from costmodel.problem import Gemm

#: torch's fp8 product sums in the matrix unit's own precision, as ``tl.dot`` does on sm_90; with
#: False it would move sums to fp32 registers every few steps
FP8_FAST_ACCUMULATION = True
#: importing torch, opening the GPU and one traced call take seconds; a hung driver is not awaited
_TRACE_SECONDS = 120.0


def vendor_launch(problem: Gemm, a: Any, b: Any, out: Any, bias: Any = None) -> Callable[[], Any]:
    """A call that computes ``problem`` into ``out`` with the vendor's library, no copies.

    An epilogue is what torch makes of it: a bias with the product, an activation in place after
    it; the old C is then added by a third call. fp8 goes to
    ``torch._scaled_mm`` with tensor-wise scales of 1 and fast accumulation, int8 to
    ``torch._int_mm``.
    """
    import torch

    if problem.dtype.startswith("fp8"):
        one = torch.ones((), device=a.device, dtype=torch.float32)
        return lambda: torch._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=out.dtype,
            use_fast_accum=FP8_FAST_ACCUMULATION, out=out,
        )  # fmt: skip
    if problem.dtype == "int8" and a.ndim == 2 and not (problem.epilogue or problem.beta):
        return lambda: torch._int_mm(a, b, out=out)  # what matmul lacks; of more than 16 rows
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


def vendor_kernel(problem: Gemm, device: int = 0) -> VendorGemm:
    """What the vendor's library launches for ``problem``: kernels, tile, grid, times in us.

    Read by torch's profiler in a process of its own, so that nothing of it is in measured times;
    its times are of a warm L2 and do not compare with a protocol's. Raises ``DeviceError`` where
    there is no GPU, or where the profiler shows no kernel.
    """
    require_gpu()
    job = json.dumps({"problem": asdict(problem), "device": device})
    try:
        child = subprocess.run(
            [sys.executable, "-m", "costmodel.measure.vendor_trace"],
            input=job, capture_output=True, text=True, encoding="utf-8", timeout=_TRACE_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise DeviceError(f"the profiler gave no answer in {_TRACE_SECONDS:.0f} s") from None
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise DeviceError(f"the vendor's GEMM could not be traced: {last}")
    launches = launches_of(json.loads(child.stdout))
    if not launches:
        raise DeviceError("the profiler shows no kernel: it may lack the right to read the GPU")
    return VendorGemm(launches)


def vendor_kernel_if_seen(problem: Gemm, device: int = 0) -> VendorGemm | None:
    """The same, or None: a profiler that is refused must not stop a measurement."""
    try:
        return vendor_kernel(problem, device)
    except DeviceError:
        return None
