"""Compile kernels on all cores ahead of the GPU, into Triton's own cache on disk."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from costmodel.compiler.witness import compiling_for, storageless_launch
from costmodel.config import KernelConfig
from costmodel.errors import ConfigError
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile

_CHUNK = 4
#: a job whose kernels are not compiled after this long goes on without the rest
COMPILE_SECONDS = 60.0

Pending = tuple[Future[int], list[KernelConfig]]


def _prepare(profile: HardwareProfile) -> None:
    """Start of a worker: compile for the profile's chip without opening the GPU."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _STATE["target"] = compiling_for(profile)
    _STATE["target"].__enter__()
    _STATE["units"] = profile.units


_STATE: dict[str, Any] = {}


def _compile_chunk(problem: Gemm, configs: list[KernelConfig]) -> int:
    """Compile each; failures are left for the measuring process to meet and record."""
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

    def submit(self, problem: Gemm, configs: Sequence[KernelConfig]) -> list[Pending]:
        """Start compiling what no earlier call has."""
        fresh = []
        for config in configs:
            try:
                key = storageless_launch(problem, config, self.profile.units).variant
            except ConfigError:  # the measuring process meets it again and records it
                continue
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(config)
        chunks = [fresh[i : i + _CHUNK] for i in range(0, len(fresh), _CHUNK)]
        try:
            return [(self._pool.submit(_compile_chunk, problem, c), c) for c in chunks]
        except BrokenProcessPool:
            self._open()
            return []

    def wait(self, pending: Sequence[Pending]) -> list[KernelConfig]:
        """Wait until the kernels are on disk; returns those that took too long to wait for."""
        done, _ = wait([future for future, _ in pending], timeout=COMPILE_SECONDS)
        if any(isinstance(future.exception(), BrokenProcessPool) for future in done):
            self._open()
        return [config for future, chunk in pending if future not in done for config in chunk]

    def close(self) -> None:
        """Drop what is queued and stop the workers at once: a large tile compiles for minutes."""
        workers = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()
