"""What a cached ``costmodel.matmul`` costs the CPU; prints JSON.

With a GPU: a call's time beside the prepared kernel's and torch's, kernels compiled for
M = 1 to 512, a CUDA graph and four threads, each checked against torch. Without one: the time of
everything but the kernels, which are stubs. ``python data/results/matmul_overhead.py``
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

import costmodel as cm
from costmodel.dropin.op import dispatcher
from costmodel.dropin.plan import Plan
from costmodel.kernels import launch

CALLS, REPEATS = 300, 15
N, K = 4096, 4096
#: few rows are read by pointers on an H200, many through descriptors
ROWS = (16, 64, 256, 512)
#: products whose K is split, which need workspace
LONG_K = ((8, 2112, 7168),)
THREADS = 4


def operands(m: int, device: str, n: int = N, k: int = K) -> tuple[torch.Tensor, torch.Tensor]:
    """A [M, K] and B [K, N] of a linear layer, fp16."""
    a = torch.randn(m, k, device=device).to(torch.float16)
    return a, torch.randn(n, k, device=device).to(torch.float16).t()


def call_us(function: Callable[[], Any], settle: Callable[[], Any] = lambda: None) -> float:
    """Host time of one call in us: the median of means, the queue empty before each."""
    function()
    means = []
    for _ in range(REPEATS):
        settle()
        start = time.perf_counter()
        for _ in range(CALLS):
            function()
        means.append((time.perf_counter() - start) / CALLS * 1e6)
    return round(statistics.median(means), 2)


class Stub:
    """Stands for a kernel: takes a grid and arguments and does nothing."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **constants: None


def without_gpu() -> dict[str, Any]:
    """Times of ``matmul`` with stubs for kernels, by template."""
    chooser = dispatcher()
    chooser.on, chooser._profile = ("cpu",), cm.load_profile("h200-sxm")
    bound = Plan._step
    stub = Stub()
    Plan._step = lambda *given: replace(bound(*given), kernel=stub)  # type: ignore[method-assign]
    found: dict[str, Any] = {}
    for m, n, k in (*((m, N, K) for m in ROWS), *LONG_K):
        a, b = operands(m, "cpu", n, k)
        decision = cm.explain_matmul(a, b, choose="triton")
        took = call_us(lambda a=a, b=b: cm.matmul(a, b, choose="triton"))
        plan = next(reversed(chooser._runs.values())).__self__
        found[str(decision.config)] = {"us": took, "of_that_allocating_us": allocating_us(plan)}
    return {"device": None, "call_without_kernel": found}


def allocating_us(plan: Plan) -> float:
    """Time to allocate C and workspace; only a CPU's allocator maps large ones anew."""
    return call_us(
        lambda: [
            torch.empty(plan.shape, dtype=plan.dtype),
            *(
                (torch.zeros if room.zeroed else torch.empty)(room.count, dtype=room.dtype)
                for room in plan.workspaces
            ),
        ]
    )


def compiled() -> int:
    """Kernels that Triton holds for the current device."""
    device = torch.cuda.current_device()
    return sum(len(kernel.device_caches[device][0]) for kernel in launch.kernels())


def close(mine: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether a product is torch's within a few roundings of fp16."""
    theirs = torch.matmul(a, b).float()
    return bool((mine.float() - theirs).norm() <= 2e-3 * theirs.norm())


def compilations() -> dict[str, Any]:
    """Kernels compiled while M goes from 1 to 512, for several layers."""
    counts = {}
    for n, k in ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336)):
        every, b = operands(512, "cuda", n, k)
        dispatcher().forget()
        for kernel in launch.kernels():
            kernel.device_caches.clear()  # or what another layer compiled would not count
        start = time.perf_counter()
        right = all(
            close(cm.matmul(every[:m], b, choose="triton"), every[:m], b) for m in range(1, 513)
        )
        took = time.perf_counter() - start
        counts[f"{n}x{k}"] = {
            "compiled": compiled(), "correct": right, "seconds": round(took, 1),
        }  # fmt: skip
    return counts


def captured() -> bool:
    """Whether a graph that was captured around a product follows new operands."""
    a, b = operands(16, "cuda")
    split, c = operands(8, "cuda", 4096, 14336)
    for x, y in ((a, b), (split, c)):
        cm.matmul(x, y, choose="triton")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = cm.matmul(a, b, choose="triton")
        second = cm.matmul(split, c, choose="triton")
    right = True
    for _ in range(3):
        a.normal_()
        split.normal_()
        graph.replay()
        right &= close(first, a, b) and close(second, split, c)
    return right


def threaded() -> bool:
    """Whether threads with streams of their own each get their own product."""
    dispatcher().forget()
    wrong: list[Any] = []

    def work(seed: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for turn in range(50):
                    a, b = operands(1 + (seed * 7 + turn) % 40, "cuda", 2112, 7168)
                    if not close(cm.matmul(a, b, choose="triton"), a, b):
                        wrong.append((seed, turn))
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return not wrong


def with_gpu() -> dict[str, Any]:
    """Host time a call, compilations, graph and threads."""
    settle = torch.cuda.synchronize
    times = {}
    for m, n, k in (*((m, N, K) for m in ROWS), *LONG_K):
        a, b = operands(m, "cuda", n, k)
        decision = cm.explain_matmul(a, b, choose="triton")
        assert decision.config is not None
        prepared = launch.prepare(a, b, decision.config, sized_for=(decision.bucket or m, n))
        times[f"{m}x{n}x{k}"] = {
            "config": str(decision.config),
            "matmul_us": call_us(lambda a=a, b=b: cm.matmul(a, b, choose="triton"), settle),
            "prepared_kernel_us": call_us(prepared.run, settle),
            "prepare_and_run_us": call_us(
                lambda a=a, b=b, c=decision.config: launch.gemm(a, b, c), settle
            ),
            "torch_us": call_us(lambda a=a, b=b: torch.matmul(a, b), settle),
        }
    facts = {"device": torch.cuda.get_device_name(), "calls": times}
    facts |= {"compilations": compilations(), "graph_correct": captured()}
    return facts | {"threads_correct": threaded(), "remembered": len(dispatcher()._runs)}


if __name__ == "__main__":
    facts = with_gpu() if torch.cuda.is_available() else without_gpu()
    print(json.dumps(facts | {"torch": torch.__version__}, indent=1))
