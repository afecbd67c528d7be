"""A slice of a GPU: the driver's calls, the names of its rows, and what runs on it.

The calls go to a library that a C compiler makes of cuda.h itself, so sizes, places and orders of
arguments are the header's. It is a GPU of 132 multiprocessors that rounds up to 8, as sm_90 does.
"""

import ctypes
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from costmodel.config import KernelConfig
from costmodel.errors import DeviceError
from costmodel.measure import slices
from costmodel.measure.environment import environment
from costmodel.measure.slices import Driver, Resource, granted_units, green_stream
from costmodel.measure.worker import MeasuringProcess, WorkerOptions
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.records.schema import row_key

FAKE = """
#include <cuda.h>
#include <string.h>
static unsigned asked, made;
CUresult cuInit(unsigned flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (ordinal) return CUDA_ERROR_INVALID_DEVICE;
    *device = 7;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == CUDA_ERROR_INVALID_DEVICE ? "CUDA_ERROR_INVALID_DEVICE"
          : error == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : 0;
    return CUDA_SUCCESS;
}
static void fill(CUdevResource *resource, unsigned count) {
    memset(resource, 0x5a, sizeof *resource);
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    resource->sm.smCount = count;
}
CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *out, CUdevResourceType type) {
    if (device != 7 || type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_VALUE;
    fill(out, 132);
    return CUDA_SUCCESS;
}
CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *groups,
        const CUdevResource *input, CUdevResource *rest, unsigned flags, unsigned least) {
    asked = (least + 7) / 8 * 8;
    if (*groups != 1 || flags || input->sm.smCount != 132 || !rest) return CUDA_ERROR_INVALID_VALUE;
    if (asked > 132) { *groups = 0; return CUDA_SUCCESS; }
    fill(result, asked);
    fill(rest, 132 - asked);
    return CUDA_SUCCESS;
}
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *parts, unsigned count) {
    if (count != 1 || parts->sm.smCount != asked) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdevResourceDesc)0x123456789abc;
    return CUDA_SUCCESS;
}
CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc what, CUdevice device,
        unsigned flags) {
    if (what != (CUdevResourceDesc)0x123456789abc || device != 7) return CUDA_ERROR_INVALID_VALUE;
    if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    made = asked;
    *out = (CUgreenCtx)0xabcdef012340;
    return CUDA_SUCCESS;
}
CUresult cuGreenCtxGetDevResource(CUgreenCtx context, CUdevResource *out, CUdevResourceType type) {
    if (context != (CUgreenCtx)0xabcdef012340 || type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_VALUE;
    fill(out, made);
    return CUDA_SUCCESS;
}
CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx context, unsigned flags, int priority) {
    if (context != (CUgreenCtx)0xabcdef012340 || flags != CU_STREAM_NON_BLOCKING || priority)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUstream)0x7f00deadbee0;
    return CUDA_SUCCESS;
}
"""


def header() -> Path | None:
    """The folder of cuda.h that Triton brings along."""
    found = find_spec("triton")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "backends" / "nvidia" / "include"
    return folder if (folder / "cuda.h").exists() else None


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The stand-in's path."""
    compiler, include = shutil.which("cc"), header()
    if compiler is None or include is None:
        pytest.skip("needs a C compiler and the cuda.h of Triton")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "fake.c").write_text(FAKE)
    command = [compiler, "-shared", "-fPIC", f"-I{include}", "-o", "libfake.so", "fake.c"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return str(folder / "libfake.so")


@pytest.fixture
def driver(library):
    return Driver(library)


# --- the driver's calls ---------------------------------------------------------------------------


def test_a_resource_is_144_bytes_and_its_count_stands_at_96():
    # 4 of the type, 92 of padding, 48 of the union: cuda.h 12.8 and 13.0
    assert ctypes.sizeof(Resource) == 144
    assert Resource.of.offset == 96


@pytest.mark.parametrize(("asked", "granted"), [(1, 8), (32, 32), (64, 64), (78, 80), (132, 132)])
def test_what_the_driver_gives_is_told_before_anything_is_made(driver, asked, granted):
    assert granted_units(asked, 0, driver) == granted


def test_a_slice_is_read_back_and_its_stream_is_an_address_past_32_bits(driver):
    assert green_stream(driver, 78, 0) == (80, 0x7F00DEADBEE0)


@pytest.mark.parametrize("asked", [0, -8, 133])
def test_units_that_the_device_has_not_are_refused_with_what_it_has(driver, asked):
    with pytest.raises(DeviceError, match=f"has 132 multiprocessors: there is no slice of {asked}"):
        granted_units(asked, 0, driver)


def test_a_split_that_gives_no_group_is_an_error_and_no_slice_of_nothing(driver):
    with pytest.raises(DeviceError, match="no slice of 131"):  # 136 of 132
        granted_units(131, 0, driver)


def test_a_call_that_fails_says_which_and_the_drivers_own_word(driver):
    with pytest.raises(DeviceError, match="cuDeviceGet failed: CUDA_ERROR_INVALID_DEVICE"):
        granted_units(64, 3, driver)
    with pytest.raises(DeviceError, match="cuInit failed: CUDA_ERROR_INVALID_VALUE"):
        driver.call("cuInit", 1)


def test_an_old_driver_and_no_driver_are_errors_that_say_what_is_needed(driver):
    with pytest.raises(DeviceError, match=r"no cuFuture: a slice needs one of CUDA 12\.4"):
        driver.call("cuFuture")
    with pytest.raises(DeviceError, match="leave the number of units out"):
        Driver("libnothing-of-that-name.so")


# --- rows -----------------------------------------------------------------------------------------


@pytest.fixture
def h200(monkeypatch):
    """torch sees an H200."""
    torch = pytest.importorskip("torch")
    seen = SimpleNamespace(
        name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, L2_cache_size=62_914_560,
        shared_memory_per_block_optin=232_448, total_memory=151_397_597_184,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: seen)


@pytest.mark.parametrize(
    ("units", "device", "count"),
    [(None, "h200-sxm", 132), (132, "h200-sxm", 132), (80, "h200-sxm-80-units", 80)],
)
def test_a_row_of_a_slice_names_the_part_of_the_chip(h200, units, device, count):
    facts = environment(0, units)
    assert (facts["device"], facts["units"], facts["device_name"]) == (device, count, "NVIDIA H200")
    assert load_profile(facts["device"]).units == count


CHILD = """
import json, sys
options = json.loads(sys.stdin.readline())
facts = {"device": "h200-sxm-80-units", "device_name": "NVIDIA H200", "units": options["units"] + 2,
         "run": options["run"]}
floor = {"median_us": 1.0, "p10_us": 1.0, "p90_us": 1.5, "count": 9}
print(json.dumps({"kind": "ready", "facts": facts, "floor": floor}), flush=True)
sys.stdin.read()
"""


def test_the_measuring_process_is_told_the_units_and_tells_what_it_got(monkeypatch):
    from costmodel.measure import worker

    def popen(command, **options):
        return subprocess.Popen([sys.executable, "-S", "-c", CHILD], **options)

    monkeypatch.setattr(worker, "subprocess", SimpleNamespace(
        Popen=popen, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired,
    ))  # fmt: skip
    config = KernelConfig("tile", 64, 64, 64)
    with MeasuringProcess(WorkerOptions(units=78)) as process:
        row = process.failure(Gemm(64, 64, 64), config, "runtime", "nothing ran")
    assert (row["device"], row["units"]) == ("h200-sxm-80-units", 80)
    # the same run on the whole chip is another measurement
    assert row_key(row) != row_key(row | {"device": "h200-sxm", "units": 132})


def test_persistent_grids_have_the_slices_size():
    from costmodel.compiler.witness import storageless_launch

    problem = Gemm(4096, 4096, 4096)
    config = KernelConfig("persistent_tma", 128, 128, 64, num_warps=8, epilogue_parts=2)
    # 1,024 tiles: as many programs as the slice has units
    assert storageless_launch(problem, config, 80).grid == (80,)
    assert storageless_launch(problem, config, 132).grid == (132,)


def test_a_slice_is_refused_on_a_cluster(monkeypatch):
    from typer.testing import CliRunner

    from costmodel.cli import measuring  # noqa: F401 - adds the command
    from costmodel.cli.app import app

    monkeypatch.setattr("costmodel.measure.at_hand.require_gpu", lambda: None)
    found = CliRunner().invoke(
        app, ["collect", "--units", "64", "--cluster", "--profile", "h200-sxm"]
    )
    assert found.exit_code == 2
    assert "without a cluster" in found.output


# --- on a GPU -------------------------------------------------------------------------------------

ON_A_SLICE = """
import json
import torch
from costmodel.kernels.probes import MOST_UNITS, units_at_work_kernel
from costmodel.measure.slices import enter, units_at_work
from costmodel.measure.timing import Stopwatch

whole = units_at_work()
granted = enter(32)
seen = torch.zeros(MOST_UNITS, dtype=torch.int32, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
    units_at_work_kernel[(8 * whole,)](seen, 50_000, num_warps=1)
graph.replay()
a = torch.randn(512, 512, device="cuda")
stopwatch = Stopwatch()
stopwatch.time(lambda: torch.matmul(a, a))
print(json.dumps([whole, granted, units_at_work(), int(seen.sum()), stopwatch.floor().count]))
"""


@pytest.mark.gpu
def test_what_is_launched_or_replayed_in_a_slice_runs_on_its_units_alone():
    import torch

    if torch.version.hip:
        pytest.skip("green contexts are CUDA's")
    done = subprocess.run(
        [sys.executable, "-P", "-c", ON_A_SLICE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    whole, granted, launched, replayed, count = json.loads(done.stdout)
    assert whole == torch.cuda.get_device_properties(0).multi_processor_count
    assert launched == replayed == granted < whole
    assert count == 15


def test_units_at_work_needs_no_more_places_than_its_kernel_has():
    pytest.importorskip("triton")
    from costmodel.kernels.probes import MOST_UNITS

    # the largest chip that a profile names
    from costmodel.profile import readable_profiles

    assert max(chip.units for chip in readable_profiles()[0].values()) < MOST_UNITS
    assert slices._PROGRAMS_A_UNIT <= 16  # blocks that the smallest of NVIDIA's units holds
