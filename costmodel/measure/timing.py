"""The timing protocol: cold L2, the GPU held until the CPU is ahead, median with p10 and p90.

An event pair around a launch reads the CPU's launch latency whenever the CPU falls behind the
GPU. So the stream is held behind a spin kernel until every launch of a measurement is queued, and
the measurement is repeated with a longer spin if the GPU still caught up. Before each launch L2
is filled with clean lines of another buffer: operands come from DRAM, as they do for weights in a
model larger than L2, and no dirty line is written back on the measured kernel's account.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.errors import DeviceError


@dataclass(frozen=True)
class Protocol:
    """How a time is taken. ``name`` goes into every row: times of two protocols do not compare."""

    name: str = "cold-l2-clean/1"
    #: timed launches: as many as fit ``budget_us`` of kernel time, within these bounds
    least_repeats: int = 5
    most_repeats: int = 15
    budget_us: float = 2_000.0
    #: the buffer that evicts L2 is this many times its size: L2's replacement is not strictly LRU
    flush_factor: float = 2.0


@dataclass(frozen=True)
class Timing:
    """One kernel's times in microseconds, over ``count`` launches."""

    median_us: float
    p10_us: float
    p90_us: float
    count: int


#: cycles a microsecond of torch's spin kernel at most: the H200's highest clock, 1,980 MHz
_SPIN_CYCLES_PER_US = 2_000
_SPIN_LIMIT_US = 200_000.0
#: the spin outlasts the queueing seen last time by this much
_SPIN_MARGIN = 1.4


class Stopwatch:
    """Times launches on one CUDA device by one protocol. Needs torch, triton and a GPU.

    All of it runs on the stream that is torch's current one: a slice's, within a slice.
    """

    def __init__(self, device: int = 0, protocol: Protocol | None = None) -> None:
        import torch

        if not torch.cuda.is_available():
            raise DeviceError("measuring needs a GPU that torch can see; there is none here")
        self.protocol = protocol or Protocol()
        self.device = torch.device("cuda", device)
        properties = torch.cuda.get_device_properties(self.device)
        self._words = int(properties.L2_cache_size * self.protocol.flush_factor) // 4
        self._flush_buffer = torch.zeros(self._words, dtype=torch.int32, device=self.device)
        self._sink = torch.zeros(1, dtype=torch.int32, device=self.device)
        self._events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(self.protocol.most_repeats)
        ]
        self._spin_end = torch.cuda.Event()
        self._queue_us = 100.0  # the CPU's time to queue one repeat, corrected by each batch
        self._torch = torch
        self._flush_graph = self._captured_flush()

    def flush(self) -> None:
        """Evict everything from L2 by reading another buffer through it."""
        self._flush_graph.replay()

    def _captured_flush(self) -> Any:
        """The flush as a CUDA graph: a replay costs the CPU a fifth of a Triton launch."""
        from costmodel.kernels.upkeep import READ_BLOCK, read_through_kernel

        torch = self._torch

        def read() -> None:
            read_through_kernel[(-(-self._words // READ_BLOCK),)](
                self._flush_buffer, self._sink, self._words, BLOCK=READ_BLOCK, num_warps=8
            )

        read()  # compiled before the capture
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream(self.device)
        if stream == torch.cuda.default_stream(self.device):
            stream = None  # it cannot be captured: torch takes one of its own
        # a captured kernel keeps to the multiprocessors of the stream that it was captured on
        with torch.cuda.graph(graph, stream=stream):
            read()
        return graph

    def time(self, launch: Callable[[], Any]) -> Timing:
        """Time ``launch``, which must already be compiled and warm."""
        estimate = self._batch(launch, 1)[0]
        wanted = int(self.protocol.budget_us / max(estimate, 1.0))
        count = min(max(wanted, self.protocol.least_repeats), self.protocol.most_repeats)
        times = self._batch(launch, count)
        low, middle, high = np.percentile(times, (10, 50, 90))
        return Timing(float(middle), float(low), float(high), count)

    def floor(self) -> Timing:
        """What the protocol reads around an empty kernel."""
        from costmodel.kernels.upkeep import empty_kernel

        empty_kernel[(1,)]()
        return self.time(lambda: empty_kernel[(1,)]())

    def _batch(self, launch: Callable[[], Any], count: int) -> list[float]:
        """Times of ``count`` launches in microseconds, all queued before the first one ran."""
        torch = self._torch
        spin_us = _SPIN_MARGIN * self._queue_us * count
        while True:
            torch.cuda._sleep(int(spin_us * _SPIN_CYCLES_PER_US))
            self._spin_end.record()
            begun = time.perf_counter()
            for start, end in self._events[:count]:
                self.flush()
                start.record()
                launch()
                end.record()
            ahead = not self._spin_end.query()
            self._queue_us = (time.perf_counter() - begun) * 1e6 / count
            self._events[count - 1][1].synchronize()
            if ahead or spin_us >= _SPIN_LIMIT_US:
                break
            spin_us *= 2
        return [start.elapsed_time(end) * 1e3 for start, end in self._events[:count]]

    def warm_up(self, seconds: float = 0.5) -> None:
        """Bring clocks up from idle with matrix products; a cold chip reads slow."""
        torch = self._torch
        a = torch.randn(4096, 4096, device=self.device, dtype=torch.float16)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(10):
                torch.matmul(a, a)
            torch.cuda.synchronize(self.device)


def pin_cpu(core: int) -> bool:
    """Keep this process on one core, so that launches are not migrated. False where it can't."""
    import os

    if not hasattr(os, "sched_setaffinity"):
        return False
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        return False
    return True
