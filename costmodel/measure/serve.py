"""Main of the measuring process: jobs come as JSON lines on standard input, rows go back as such.

Started as ``python -m costmodel.measure.serve`` by ``worker``, which owns the other end. What
libraries print goes to standard error: standard output carries messages alone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from costmodel.config import KernelConfig
from costmodel.measure.timing import Protocol
from costmodel.problem import Gemm


def main() -> None:
    """Serve until standard input closes."""
    import torch

    from costmodel.measure.bench import ProblemBench
    from costmodel.measure.environment import environment
    from costmodel.measure.slices import enter
    from costmodel.measure.timing import Stopwatch, pin_cpu

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(kind: str, **content: Any) -> None:
        messages.write(json.dumps({"kind": kind} | content) + "\n")
        messages.flush()

    options = json.loads(sys.stdin.readline())
    if options["cpu"] is not None:
        pin_cpu(options["cpu"])
    device = options["device"]
    torch.cuda.set_device(device)
    units = None if options["units"] is None else enter(options["units"], device)
    stopwatch = Stopwatch(device, Protocol(**options["protocol"]))
    stopwatch.warm_up()
    facts = environment(device, units) | {"run": options["run"]}
    send("ready", facts=facts, floor=vars(stopwatch.floor()))
    for line in sys.stdin:
        job = json.loads(line)
        try:
            shared = facts | {"sequence": job["sequence"]}
            bench = ProblemBench(Gemm(**job["problem"]), stopwatch, shared)
        except torch.cuda.OutOfMemoryError as error:
            send("refused", why=str(error).split("\n", 1)[0])
            continue
        for index, config in enumerate(job["configs"]):
            send("begin", index=index)
            row = bench.measure(KernelConfig(**config)) if config else bench.measure_vendor()
            send("row", index=index, row=row)
            if "CUDA error" in (row["reason"] or ""):
                send("lost")
                return  # the context is gone: every later call would fail too
        send("done")
        del bench
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
