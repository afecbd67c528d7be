"""Main of the process that asks the profiler which kernels the vendor's library launches.

Started by ``vendor.vendor_kernel`` with a problem as JSON on standard input; answers with the
trace's kernel events. A process of its own: a profiler that was once on can leave callbacks in
the driver, and no time is taken where they are.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from costmodel.problem import Gemm

#: the library picks its kernel and loads it on the first call
_WARM_UPS = 2
#: what the parent reads of an event
_KEPT = ("cat", "name", "ts", "dur", "args")


def traced_kernels(problem: Gemm, device: int) -> list[dict[str, Any]]:
    """Kernel events of one call of the vendor's GEMM, as torch's profiler writes them."""
    import torch

    from costmodel.kernels.operands import epilogue_options, make_operands
    from costmodel.measure.vendor import vendor_launch

    torch.cuda.set_device(device)
    a, b, out = make_operands(problem, torch.device("cuda", device))
    bias = epilogue_options(problem, out.device).get("bias")
    launch = vendor_launch(problem, a, b, out, bias)
    for _ in range(_WARM_UPS):
        launch()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        launch()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8", errors="replace"))["traceEvents"]
    return [
        {key: event[key] for key in _KEPT if key in event}
        for event in events
        if event.get("cat") == "kernel"
    ]


def main() -> None:
    """Read one job, write one answer; what libraries print goes to standard error."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = json.load(sys.stdin)
    json.dump(traced_kernels(Gemm(**job["problem"]), job["device"]), answer)
    answer.close()


if __name__ == "__main__":
    main()
