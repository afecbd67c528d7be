"""Compile kernels on all cores ahead of the GPU, into Triton's own cache on disk."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from costmodel.config import KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile

_CHUNK = 8


def _prepare(profile: HardwareProfile) -> None:
    """Start of a worker: compile for the profile's chip without opening the GPU."""
    from costmodel.resources.witness import compiling_for

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _STATE["target"] = compiling_for(profile)
    _STATE["target"].__enter__()
    _STATE["units"] = profile.units


_STATE: dict[str, Any] = {}


def _compile_chunk(problem: Gemm, configs: list[KernelConfig]) -> int:
    """Compile each; failures are left for the measuring process to meet and record."""
    from costmodel.resources.witness import storageless_launch

    compiled = 0
    for config in configs:
        try:
            storageless_launch(problem, config, _STATE["units"]).compile()
            compiled += 1
        except Exception:  # the measuring process meets the same error and records it
            continue
    return compiled


class CompilePool:
    """Worker processes that fill the kernel cache. A crashed compiler costs nothing but time."""

    def __init__(self, profile: HardwareProfile, workers: int | None = None) -> None:
        self.profile = profile
        self.workers = workers or max(1, (os.cpu_count() or 2) - 2)
        self._seen: set[tuple[object, ...]] = set()
        self._open()

    def _open(self) -> None:
        self._pool = ProcessPoolExecutor(
            self.workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_prepare,
            initargs=(self.profile,),
        )

    def submit(self, problem: Gemm, configs: Sequence[KernelConfig]) -> list[Future[int]]:
        """Start compiling what no earlier call has; the futures end when it is on disk."""
        fresh = []
        for config in configs:
            key = kernel_variant(problem, config)
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(config)
        chunks = [fresh[i : i + _CHUNK] for i in range(0, len(fresh), _CHUNK)]
        try:
            return [self._pool.submit(_compile_chunk, problem, chunk) for chunk in chunks]
        except BrokenProcessPool:
            self._open()
            return []

    def wait(self, futures: Sequence[Future[int]]) -> None:
        for future in futures:
            try:
                future.result()
            except BrokenProcessPool:
                self._open()
                return

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def kernel_variant(problem: Gemm, config: KernelConfig) -> tuple[object, ...]:
    """What decides the compiled code: knobs, types, layout and alignment, but not the sizes.

    Coarser than the compiler's own key would be wrong (a kernel compiled late); finer is only a
    second look at the cache.
    """
    sizes = (problem.m, problem.n, problem.k)
    return (
        config.template, config.block_m, config.block_n, config.block_k, config.num_warps,
        config.num_stages, config.load_bits, config.swap, config.epilogue_parts,
        problem.dtype, problem.layout, problem.out_dtype, problem.precision, problem.batch > 1,
        problem.alpha != 1.0, problem.beta != 0.0,
        problem.k % config.block_k == 0, *(min(size & -size, 16) for size in sizes),
    )  # fmt: skip
