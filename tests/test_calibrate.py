"""A calibration: what the probes compute, how figures follow from times, and where they go.

Kernels run in Triton's interpreter. A stand-in clock runs each launch and says times chosen here:
the bandwidths and latencies that must come out of them are hand arithmetic.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from costmodel.cli import app as frame
from costmodel.cli.calibrating import table_rows
from costmodel.config import KernelConfig
from costmodel.errors import DeviceError, ProfileError
from costmodel.measure import calibrate as module
from costmodel.measure.calibrate import (
    Calibration,
    Reading,
    calibrate,
    rate_products,
    rate_reading,
    write_calibration,
)
from costmodel.measure.calibration_file import base_of, check_file, default_file
from costmodel.measure.timing import Protocol, Timing
from costmodel.physics.estimate import estimate
from costmodel.predict import predict_best
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, load_profile, part_of, slice_of, write_overlay
from costmodel.profile.keys import FIGURES

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from costmodel.kernels import probes  # noqa: E402 - needs torch and triton
from costmodel.measure import probing  # noqa: E402
from costmodel.measure.bench import ProblemBench  # noqa: E402

H200 = load_profile("h200-sxm")
ON_CPU = pytest.mark.skipif(torch.cuda.is_available(), reason="interprets kernels on the CPU")


class Clock:
    """Runs what it times, and says the next of its times."""

    device = torch.device("cpu")
    protocol = Protocol()

    def __init__(self, *times_us):
        self.times = iter(times_us)

    def time(self, launch):
        launch()
        time_us = next(self.times)
        return Timing(time_us, time_us, time_us, 5)

    def floor(self):
        return Timing(2.5, 2.4, 2.6, 15)


# --- kernels --------------------------------------------------------------------------------------


@ON_CPU
def test_a_copy_ends_where_its_words_end():
    source, target = torch.arange(100, dtype=torch.int32), torch.full((100,), -1, dtype=torch.int32)
    probes.copy_kernel[(2,)](source, target, 90, BLOCK=64)
    assert target.tolist() == [*range(90), *[-1] * 10]


@ON_CPU
@pytest.mark.parametrize(("steps", "end"), [(0, 0), (1, 2), (2, 1), (3, 0), (4, 2)])
def test_a_chase_stands_where_its_links_lead(steps, end):
    following, place = torch.tensor([2, 0, 1], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    probes.chase_kernel[(1,)](following, place, steps)
    assert place.tolist() == [end]


@ON_CPU
@pytest.mark.parametrize(("programs", "laps", "read"), [(2, 1, 2), (2, 2, 4), (2, 3, 6), (3, 2, 6)])
def test_programs_go_round_the_buffer_block_by_block(programs, laps, read):
    # the one sum that is stored shows whether the last block that must be read was read, once
    block, blocks = 16, 4
    for mark in range(blocks):
        buffer = torch.zeros(blocks * block, dtype=torch.int32)
        sink = torch.full((1,), 5, dtype=torch.int32)
        buffer[mark * block] = 0x7FFFFFFF
        probes.read_again_kernel[(programs,)](buffer, sink, blocks, laps, BLOCK=block)
        # program p reads blocks p, p + programs, ...: some program reads the mark exactly once
        visits = [[(p + lap * programs) % blocks for lap in range(laps)] for p in range(programs)]
        once = any(places.count(mark) == 1 for places in visits)
        assert (sink.item() == 0x7FFFFFFF) == once
        assert sum(map(len, visits)) == read


COMPILED = """
import json, torch
from costmodel.compiler.witness import compiling_for
from costmodel.kernels import probes
from costmodel.profile import load_profile
words = torch.empty(1 << 20, dtype=torch.int32, device="meta")
launches = {
    "copy": (probes.copy_kernel, (words, words, 1 << 20),
             {"BLOCK": probes.COPY_BLOCK, "num_warps": 8}),
    "read": (probes.read_again_kernel, (words, words, 128, 64),
             {"BLOCK": probes.COPY_BLOCK, "num_warps": 8}),
    "chase": (probes.chase_kernel, (words, words, 77), {"num_warps": 1}),
    "units": (probes.units_at_work_kernel, (words, 50_000), {"num_warps": 1}),
}
with compiling_for(load_profile("h200-sxm")):
    code = {name: kernel.warmup(*arguments, grid=(1,), **options).asm["ptx"]
            for name, (kernel, arguments, options) in launches.items()}
print(json.dumps(code))
"""


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    """PTX of every probe for an H200, by a process in which kernels are compiled."""
    folder = tmp_path_factory.mktemp("triton")
    done = subprocess.run(
        [sys.executable, "-P", "-c", COMPILED], capture_output=True, text=True, check=False,
        env=os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_a_thread_copies_eight_times_16_bytes(ptx):
    # 8192 words by 256 threads are 32 words each
    assert ptx["copy"].count("ld.global.v4.b32") == ptx["copy"].count("st.global.v4.b32") == 8


def test_reads_from_l2_leave_l1_out(ptx):
    assert ptx["read"].count("ld.global.cg.v4.b32") == 8
    assert ptx["chase"].count("ld.global.cg.b32") == 1


def test_the_chase_is_a_loop_and_the_count_of_units_waits(ptx):
    assert "bra" in ptx["chase"]
    assert "%smid" in ptx["units"] and "%globaltimer" in ptx["units"] and "bra" in ptx["units"]


# --- from times to figures ------------------------------------------------------------------------


@ON_CPU
def test_a_copy_counts_bytes_read_and_bytes_written():
    # L2 of 1 KiB: 32 KiB are copied, 65,536 bytes moved; in 2 us and in 1 us
    found = probing.copy_bandwidth(Clock(2.0, 1.0), 1024, block=256)
    assert found == (32.768, 65.536)


@ON_CPU
def test_a_buffer_is_whole_blocks_and_at_least_one():
    # 32 times 4 bytes are 32 words: one block of 256 words, 2,048 bytes moved
    assert probing.copy_bandwidth(Clock(1.0, 1.0), 4, block=256) == (2.048, 2.048)


class Broken:
    """A kernel that does nothing."""

    def __getitem__(self, grid):
        return lambda *arguments, **options: None


@ON_CPU
def test_a_copy_that_is_wrong_has_no_time(monkeypatch):
    monkeypatch.setattr(probes, "copy_kernel", Broken())
    with pytest.raises(DeviceError, match="wrong copy"):
        probing.copy_bandwidth(Clock(1.0, 1.0), 1024, block=256)


@ON_CPU
def test_l2s_bandwidth_is_of_the_laps_that_the_longer_run_has_more():
    # 2 units: 8 programs read 64 laps of 16 words more, 32,768 bytes in 9 - 5 us
    assert probing.l2_bandwidth(Clock(5.0, 9.0), 1024, 2, block=16) == pytest.approx(8.192)


@ON_CPU
def test_latencies_are_of_the_second_half_round_and_of_the_second_round():
    # 8 links; floor 3 us, DRAM 0.7 us and L2 0.25 us a link
    half, once, twice = 3 + 4 * 0.7, 3 + 8 * 0.7, 3 + 8 * 0.7 + 8 * 0.25
    found = probing.load_latencies(Clock(half, once, twice), links=8)
    assert found == pytest.approx((0.7, 0.25))


@ON_CPU
def test_a_chain_that_is_not_followed_has_no_time(monkeypatch):
    monkeypatch.setattr(probes, "chase_kernel", Broken())
    with pytest.raises(DeviceError, match="not followed"):
        probing.load_latencies(Clock(1.0, 2.0, 3.0), links=6)


# --- rates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("units", [132, 80, 64, 32, 114, 108, 46, 8])
def test_a_rates_product_fills_whole_waves(units):
    products, notes = rate_products(slice_of(H200, units) if units < 132 else H200)
    assert notes == []
    for problem, _ in products.values():
        for side in ((256, 256), (128, 256), (256, 128), (128, 128)):
            assert problem.m * problem.n // (side[0] * side[1]) % units == 0
    assert {name: problem.dtype for name, (problem, _) in products.items()} == {
        "achievable_tflops_fp16": "fp16", "achievable_tflops_bf16": "bf16",
        "achievable_tflops_fp8": "fp8_e4m3", "achievable_tflops_tf32": "fp32",
        "achievable_tflops_int8": "int8",
    }  # fmt: skip
    assert products["achievable_tflops_fp16"][0].m <= 16384


def test_a_type_that_the_chip_does_not_multiply_is_not_measured():
    products, _ = rate_products(load_profile("a100-sxm-80gb"))
    assert "achievable_tflops_fp8" not in products and "achievable_tflops_bf16" in products


def test_configurations_of_a_rate_are_the_first_of_the_prediction():
    problem, configs = rate_products(H200)[0]["achievable_tflops_fp16"]
    ranking = predict_best(problem, H200, use_measured=False).ranking
    assert configs == [row.config for row in list(ranking)[:3]]


FACTS = {"device": "h200-sxm", "device_name": "NVIDIA H200", "run": "a"}
TILE = KernelConfig("tile", 32, 32, 32, num_stages=1)


@ON_CPU
def test_a_rate_is_the_higher_of_ours_and_the_vendors():
    # 2 * 64^3 = 524,288 operations: vendor in 4 us, ours in 2 and 8, vendor again in 5
    bench = ProblemBench(Gemm(64, 64, 64), Clock(4.0, 2.0, 8.0, 5.0), FACTS)
    reading, notes = rate_reading("achievable_tflops_fp16", bench, [TILE, TILE], H200)
    assert reading.ours == pytest.approx(0.262144) and reading.torch == pytest.approx(0.131072)
    assert (reading.value, reading.agreement) == (reading.ours, pytest.approx(2.0))
    assert (reading.sheet, reading.ratio) == (989.4, pytest.approx(0.262144 / 989.4))
    assert notes == []


@ON_CPU
def test_a_configuration_that_fails_is_told_and_the_rest_counts():
    too_wide = KernelConfig("matvec", 1, 4, 32)  # it takes no 64 columns
    bench = ProblemBench(Gemm(64, 64, 64), Clock(4.0, 2.0, 5.0), FACTS)
    reading, notes = rate_reading("achievable_tflops_fp16", bench, [too_wide, TILE], H200)
    assert reading.ours == pytest.approx(0.262144)
    (note,) = notes
    assert "matvec gave no time" in note


@ON_CPU
def test_precision_of_torch_is_as_before():
    before = torch.get_float32_matmul_precision()
    bench = ProblemBench(Gemm(32, 32, 32), Clock(4.0, 2.0, 5.0), FACTS)
    rate_reading("achievable_tflops_fp16", bench, [TILE], H200)
    assert torch.get_float32_matmul_precision() == before


@ON_CPU
def test_the_vendors_product_of_int8_is_exact():
    bench = ProblemBench(Gemm(64, 64, 64, dtype="int8"), Clock(4.0), FACTS)
    row = bench.measure_vendor()
    assert (row["invalidity"], row["error"], row["time_us"]) == ("correct", 0.0, 4.0)


# --- the overlay ----------------------------------------------------------------------------------

RUN = {
    "device": "NVIDIA H200, 132 multiprocessors", "versions": "torch 2.11.0", "date": "2026-11-30",
    "command": "costmodel profiles calibrate",
}  # fmt: skip
RESULTS = Path(__file__).parents[1] / "data" / "results"
READINGS = (
    Reading("launch_floor_us", "us", None, 2.31234),
    Reading("copy_bandwidth_gb_s", "GB/s", 4800.0, 4100.0, 4150.0),
    Reading("l2_bandwidth_gb_s", "GB/s", None, 5600.0, written=False),
    Reading("achievable_tflops_fp16", "TFLOPS", 989.4, 801.06, 790.0),
    Reading("achievable_tflops_bf16", "TFLOPS", 989.4, 780.0, 795.0),
    Reading("achievable_tflops_fp8", "TFLOPS", 1978.9, 1400.0, None),
    Reading("achievable_tflops_tf32", "TFLOPS", 494.7, 400.0, 410.0),
    Reading("achievable_tflops_int8", "TFLOPS", 1978.9, None, 1200.0),
)
FOUND = Calibration("h200-sxm", READINGS, RUN, (), 31.4)
#: a product that each figure is of
OF = {
    "launch_floor_us": {}, "copy_bandwidth_gb_s": {}, "achievable_tflops_fp16": {},
    "achievable_tflops_bf16": {"dtype": "bf16"}, "achievable_tflops_fp8": {"dtype": "fp8_e4m3"},
    "achievable_tflops_tf32": {"dtype": "fp32"}, "achievable_tflops_int8": {"dtype": "int8"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "profiles"


def test_figures_have_four_digits_and_what_no_prediction_uses_is_left_out():
    assert FOUND.figures == {
        "launch_floor_us": 2.312, "copy_bandwidth_gb_s": 4150.0, "achievable_tflops_fp16": 801.1,
        "achievable_tflops_bf16": 795.0, "achievable_tflops_fp8": 1400.0,
        "achievable_tflops_tf32": 410.0, "achievable_tflops_int8": 1200.0,
    }  # fmt: skip
    assert set(FOUND.figures) <= set(FIGURES)


def test_a_calibration_takes_the_chips_place_and_says_what_it_was_measured_on(home):
    assert write_calibration(FOUND) == home / "h200-sxm.toml"
    chip = load_profile("h200-sxm")
    assert chip.name == "h200-sxm" and chip.copy_bandwidth_gb_s == 4150.0
    assert chip.peak("fp16") == 989.4  # the peak stays a peak
    evidence = chip.evidence["copy_bandwidth_gb_s"]
    assert evidence.confidence == "measured" and "2026-11-30" in evidence.source
    write_calibration(replace(FOUND, readings=READINGS[:1]))  # an earlier one is replaced
    assert load_profile("h200-sxm").copy_bandwidth_gb_s == 4300


@pytest.mark.parametrize("figure", list(OF))
def test_every_written_figure_changes_an_estimate(home, figure):
    assert set(FOUND.figures) == set(OF)
    # a tile for arithmetic, and one whose time DRAM decides
    shape = (64, 8192, 8192) if "bandwidth" in figure else (8192, 8192, 8192)
    problem = Gemm(*shape, **OF[figure])
    config = KernelConfig("persistent_tma", 128, 256, 64, num_warps=8, num_stages=4)
    before = estimate(problem, config, H200).time_us
    only = tuple(reading for reading in READINGS if reading.figure == figure)
    write_calibration(replace(FOUND, readings=only))
    chip = load_profile("h200-sxm")
    assert estimate(problem, config, chip).time_us != before
    assert predict_best(problem, use_measured=False, profile="h200-sxm").time_us > 0


def test_a_slice_is_calibrated_on_its_own(home):
    write_calibration(replace(FOUND, base="h200-sxm-80-units"))
    part = load_profile("h200-sxm-80-units")
    assert (part.units, part.copy_bandwidth_gb_s) == (80, 4150.0)
    assert part.peak("fp16") == pytest.approx(989.4 * 80 / 132)
    assert load_profile("h200-sxm").copy_bandwidth_gb_s == 4300


def test_a_slice_at_hand_has_its_own_calibration_or_else_a_part_of_the_chips(home):
    assert part_of(H200, 132) is H200
    assert part_of(H200, 80) == slice_of(H200, 80)
    write_calibration(replace(FOUND, base="h200-sxm-80-units"))
    assert part_of(H200, 80) == load_profile("h200-sxm-80-units") != slice_of(H200, 80)
    assert part_of(H200, 64) == slice_of(H200, 64)


def test_a_calibrated_chip_lends_a_slice_its_rates(home):
    write_calibration(FOUND)
    part = load_profile("h200-sxm-66-units")
    # half of the peak with power to spare, where the whole chip reaches more
    assert part.achievable_tflops_fp16 == pytest.approx(0.96 * 989.4 / 2)
    assert part.achievable_tflops_fp8 == pytest.approx(0.94 * 1978.9 / 2)
    # power does not limit int8: half of what the chip reaches
    assert part.achievable_tflops_int8 == pytest.approx(FOUND.figures["achievable_tflops_int8"] / 2)
    assert part.copy_bandwidth_gb_s == FOUND.figures["copy_bandwidth_gb_s"]
    nearly_all = load_profile("h200-sxm-128-units")
    assert nearly_all.achievable_tflops_fp16 == FOUND.figures["achievable_tflops_fp16"]


@pytest.mark.parametrize("units", [32, 64, 80])
def test_a_slice_of_a_calibrated_chip_reaches_what_was_measured_on_it(home, units):
    def read(name):
        return json.loads((RESULTS / f"calibration_{name}.json").read_text(encoding="utf-8"))

    whole, part = read("h200-sxm"), read(f"h200-sxm-{units}-units")
    write_overlay(home / "h200-sxm.toml", "h200-sxm", whole["figures"], whole["provenance"])
    chip = load_profile(f"h200-sxm-{units}-units")
    for figure, measured in part["figures"].items():
        off = {"achievable_tflops_int8": 0.1, "launch_floor_us": 0.12}.get(figure, 0.03)
        assert getattr(chip, figure) == pytest.approx(measured, rel=off), figure


def test_a_profile_of_ones_own_is_not_overwritten(home, tmp_path):
    own = own_chip(home / "Lab-GPU.toml")
    text = own.read_text()
    assert base_of("lab-gpu", load_profile(own)) == base_of(own, load_profile(own)) == "lab-gpu"
    found = replace(FOUND, base="lab-gpu")
    assert write_calibration(found) == home / "lab-gpu-measured.toml"
    assert own.read_text() == text
    chip = load_profile("lab-gpu-measured")
    assert (chip.name, chip.units, chip.copy_bandwidth_gb_s) == ("lab-gpu", 66, 4150.0)
    # the same again: its base stays the chip, and its file is replaced
    assert base_of("lab-gpu-measured", chip) == "lab-gpu"
    assert write_calibration(replace(found, readings=READINGS[:1])) == default_file("lab-gpu")
    assert load_profile("lab-gpu-measured").copy_bandwidth_gb_s == 4300
    other = write_calibration(replace(FOUND, base="a100-sxm-80gb"), tmp_path / "one.toml")
    with pytest.raises(ProfileError, match="holds other figures.*give --out another file"):
        write_calibration(FOUND, other)


def own_chip(file, name="lab-gpu"):
    """A profile of one's own: an H200 with half of its units."""
    from importlib import resources

    text = resources.files("costmodel.data").joinpath("profiles", "h200-sxm.toml").read_text()
    file.parent.mkdir(parents=True, exist_ok=True)
    text = text.replace('name = "h200-sxm"', f'name = "{name}"')
    file.write_text(text.replace("units = { value = 132", "units = { value = 66"))
    assert (load_profile(file).name, load_profile(file).units) == (name, 66)
    return file


@pytest.mark.parametrize("name", ["lab-gpu", "h200-sxm"])
def test_a_profile_that_no_name_stands_for_is_refused_with_the_folder_that_it_belongs_in(
    home, tmp_path, name
):
    file = own_chip(tmp_path / "mine.toml", name)
    with pytest.raises(ProfileError, match=f"Put the profile's file into {home}"):
        base_of(file, load_profile(file))


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(home, tmp_path):
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "text.toml").write_text("no TOML")
    for out, words in (
        ("folder.toml", "is a folder"), ("one.json", "ends in .toml"),
        ("text.toml", "not replaced"), ("text.toml/one.toml", "cannot be made"),
    ):  # fmt: skip
        with pytest.raises(ProfileError, match=f"{words}.*give --out another file"):
            check_file("h200-sxm", tmp_path / out)
    assert check_file("h200-sxm", tmp_path / "new" / "one.toml").parent.is_dir()
    home.mkdir(parents=True)
    (home / "h200-sxm.toml").mkdir()
    with pytest.raises(ProfileError):
        check_file("h200-sxm")


def test_an_overlay_that_does_not_load_is_not_said_to_be_done(tmp_path):
    with pytest.raises(ProfileError, match="cannot be used: unknown profile 'nowhere'"):
        write_calibration(replace(FOUND, base="nowhere"), tmp_path / "one.toml")


def test_the_table_names_sheet_measured_ratio_and_agreement():
    rows = {row[0].split(" ")[0]: row[1:] for row in table_rows(READINGS)}
    # 4150 of 4800; 4100 against 4150
    assert rows["copy_bandwidth_gb_s"] == ("4800", "4150", "0.865", "0.988", "yes")
    assert rows["l2_bandwidth_gb_s"] == ("", "5600", "", "", "told")
    assert rows["achievable_tflops_int8"] == ("1979", "1200", "0.606", "", "yes")


def test_what_is_told_as_json_holds_both_readings():
    told = json.loads(json.dumps(FOUND.as_dict()))
    copy = told["readings"][1]
    assert (copy["ours"], copy["torch"], copy["value"]) == (4100.0, 4150.0, 4150.0)
    assert told["figures"] == FOUND.figures and told["seconds"] == 31.4


class NoPool:
    """Compiles nothing, and is late with the second configuration that it is given."""

    def __init__(self, profile, workers):
        self.given = []

    def submit(self, problem, configs):
        self.given += configs
        return list(configs)

    def wait(self, pending):
        return self.given[1:2]

    def close(self):
        self.given = None


@ON_CPU
def test_a_calibration_from_end_to_end(monkeypatch, home):
    # small enough for the interpreter: 2 units, L2 of 4 KiB, products of 64^3
    chip = replace(H200, l2_bytes=4096)
    facts = {
        "device": "h200-sxm", "device_name": "NVIDIA H200", "units": 2, "driver": "580.1",
        "torch": "2.11.0", "triton": "3.6.0", "cuda": "13.0", "costmodel": "0.1.0",
    }  # fmt: skip
    # copy: 262,144 bytes moved in 0.1 us and 0.11 us; chain of 8; L2; fp16: vendor, ours, vendor
    clock = Clock(0.1, 0.11, 5.0, 8.0, 10.0, 3.0, 5.0, 1.0, 0.9, 1.1)
    clock.warm_up = lambda: None
    small = {"achievable_tflops_fp16": (Gemm(64, 64, 64), [TILE, replace(TILE, group_m=4)])}
    monkeypatch.setattr(module, "require_gpu", lambda: None)
    monkeypatch.setattr(module, "load_profile", lambda name: chip)
    monkeypatch.setattr(module, "rate_products", lambda profile: (dict(small), ["told first"]))
    monkeypatch.setattr(module, "load_latencies", lambda watch: probing.load_latencies(watch, 8))
    monkeypatch.setattr(probing, "_LAPS", 1)
    monkeypatch.setattr("costmodel.measure.compile_pool.CompilePool", NoPool)
    monkeypatch.setattr("costmodel.measure.environment.environment", lambda *of: dict(facts))
    monkeypatch.setattr("costmodel.measure.timing.Stopwatch", lambda device: clock)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=2)
    )
    for name in frame.COMMANDS:
        import_module(f"costmodel.cli.{name}")
    result = CliRunner().invoke(frame.app, ["profiles", "calibrate", "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    told = json.loads(result.stdout)
    # 8 programs read 32 KiB a lap, one lap more in 2 us; 2 * 64^3 in 0.9 us by ours, once
    assert told["figures"] == {
        "launch_floor_us": 2.5, "copy_bandwidth_gb_s": 2621.0, "achievable_tflops_fp16": 0.5825,
    }  # fmt: skip
    values = {reading["figure"]: reading["value"] for reading in told["readings"]}
    assert values["l2_bandwidth_gb_s"] == pytest.approx(131.072)
    assert values["dram_latency_us"] == pytest.approx(0.75)
    assert values["l2_latency_us"] == pytest.approx(0.25)
    assert told["notes"][0] == "told first"
    # ours is 10 % above torch in copies, 11 % in products
    assert [note.split(":")[0] for note in told["notes"][1:]] == [
        "copy_bandwidth_gb_s", "achievable_tflops_fp16",
    ]  # fmt: skip
    assert told["provenance"]["command"] == "costmodel profiles calibrate"
    assert "protocol cold-l2-clean/1" in told["provenance"]["versions"]
    assert told["file"] == str(home / "h200-sxm.toml")


def test_a_slice_of_a_chip_that_is_named_is_a_chip_of_its_own(home):
    chip_of = module._chip
    at_hand = {"device": "h200-sxm-80-units", "device_name": "NVIDIA H200"}
    assert chip_of("h200-sxm", at_hand, 80).name == "h200-sxm-80-units"
    own_chip(home / "lab-gpu.toml")
    unnamed = {"device": None, "device_name": "LAB"}
    part = chip_of("lab-gpu", unnamed, 60)
    assert (part.name, part.units) == ("lab-gpu-60-units", 60)
    assert base_of(part, part) == "lab-gpu-60-units"
    with pytest.raises(DeviceError, match="not h200-sxm:"):
        chip_of("h200-sxm", at_hand, None)


def test_readings_are_told_even_where_the_file_is_refused(monkeypatch, tmp_path):
    def measured(profile, *, device, units, before):
        before("h200-sxm")
        (tmp_path / "one.toml").mkdir(exist_ok=True)  # what came in between
        return FOUND

    monkeypatch.setattr(module, "calibrate", measured)
    for name in frame.COMMANDS:
        import_module(f"costmodel.cli.{name}")
    command = ["profiles", "calibrate", "--out", str(tmp_path / "one.toml")]
    result = CliRunner().invoke(frame.app, command)
    assert isinstance(result.exception, ProfileError)
    assert "copy_bandwidth_gb_s" in result.stdout and "one.toml" not in result.stdout
    other = tmp_path / "other.toml"
    told = CliRunner().invoke(frame.app, [*command[:-1], str(other)]).stdout
    assert other.exists()
    assert f"used where it is named: --profile {other}" in told
    monkeypatch.setattr(module, "calibrate", lambda *of, **options: FOUND)
    assert "--profile" not in CliRunner().invoke(frame.app, command[:-2]).stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_command_says_what_it_needs():
    with pytest.raises(DeviceError, match="needs a GPU"):
        calibrate()
    for name in frame.COMMANDS:
        import_module(f"costmodel.cli.{name}")
    result = CliRunner().invoke(frame.app, ["profiles", "calibrate"])
    assert isinstance(result.exception, DeviceError)


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_gpu_is_calibrated_and_both_readings_agree():
    found = calibrate()
    assert isinstance(load_profile(found.base), HardwareProfile)
    by_figure = {reading.figure: reading for reading in found.readings}
    for figure in ("copy_bandwidth_gb_s", "achievable_tflops_fp16"):
        assert by_figure[figure].agreement == pytest.approx(1.0, abs=0.05)
        assert by_figure[figure].ratio < 1.0
    assert by_figure["l2_latency_us"].ours < by_figure["dram_latency_us"].ours
