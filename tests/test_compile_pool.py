"""The pool of compiling processes, without a GPU."""

import time
from multiprocessing import connection

import pytest

pytest.importorskip("triton")

from costmodel.config import KernelConfig
from costmodel.measure.compile_pool import CompilePool
from costmodel.problem import Gemm
from costmodel.profile import load_profile


def test_kernels_compile_once_and_a_closed_pool_leaves_no_process(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    pool = CompilePool(load_profile("h200-sxm"), workers=1)
    try:
        small = KernelConfig("tile", 64, 64, 64, num_stages=2)
        pending = pool.submit(Gemm(256, 256, 256), [small])
        assert pool.wait(pending) == []
        assert [future.result() for future, _ in pending] == [1]
        assert list(tmp_path.rglob("*.cubin"))
        # the order of tiles is a run-time argument: the same kernel
        other = KernelConfig("tile", 64, 64, 64, num_stages=2, group_m=4)
        assert pool.submit(Gemm(512, 512, 512), [other]) == []
        workers = list(pool._pool._processes.values())
        pool._pool.submit(time.sleep, 600)  # as a tile that ptxas takes minutes for
    finally:
        pool.close()
    # the executor's own thread collects the exit codes: a pipe that closes says "gone" to us too
    assert all(connection.wait([worker.sentinel], 60) for worker in workers)
