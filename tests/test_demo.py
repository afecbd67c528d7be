"""The demonstration as a user runs it, where there is no GPU."""

import os
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import pytest

from costmodel import demo
from costmodel.errors import DeviceError
from costmodel.predict import predict_best

WITHOUT_TORCH = (
    "import runpy, sys; sys.modules['torch'] = None; sys.modules['triton'] = None; "
    "runpy.run_module('costmodel.demo', run_name='__main__')"
)


@pytest.mark.parametrize(
    "arguments", [["-m", "costmodel.demo"], ["-c", WITHOUT_TORCH]], ids=["module", "no-torch"]
)
def test_the_demo_runs_without_a_gpu_and_without_torch(tmp_path, arguments):
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, text=True, capture_output=True, timeout=120,
        env=os.environ | hidden | {"COSTMODEL_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for shape in ("4096x4096x4096", "16x4096x4096", "512x512x8192"):
        assert f"{shape} fp16 nt on h200-sxm" in done.stdout
    assert done.stdout.count("  5. ") == 3  # five configurations each
    assert done.stdout.count("TFLOPS") == 15
    assert done.stdout.count("candidates rejected") == 3
    assert "memory_bound: " in done.stdout and "low_block_count: " in done.stdout
    assert "nothing was measured" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert not (tmp_path / "home").exists()  # nothing was written


def test_with_a_gpu_each_shape_is_measured_beside_the_vendor(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))
    asked = []

    def fake(problem, *, top_k):
        asked.append((problem, top_k))
        if problem.m == 16:
            raise DeviceError("every candidate failed")
        prediction = predict_best(problem, demo.PROFILE)
        return SimpleNamespace(
            config=prediction.config, time_us=20.0, vendor_us=30.0, rows=[], note="",
            prediction=prediction, vendor=None, default=None, within=None,
        )  # fmt: skip

    monkeypatch.setattr(import_module("costmodel.measure.tune"), "tune", fake)
    monkeypatch.setattr(demo, "gpu_is_there", lambda: True)
    demo.main()
    out = capsys.readouterr().out
    assert asked == [(problem, 8) for problem in demo.SHAPES]
    assert out.count("the vendor's GEMM 30.00 us, 1.50 times as long") == 2
    assert "16x4096x4096 fp16 nt: not measured: every candidate failed" in out
