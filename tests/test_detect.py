"""The profile of the GPU at hand, from properties that real devices reported.

torch is a stand-in, since there is no GPU; what it reports was recorded elsewhere: an H200 by
torch 2.11, an MI300X in ROCm/ROCm issue 4203, a T4 by deviceQuery (chiemon.github.io, 2024-12-25),
a B200 in pytorch/ao pull request 4002.
"""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from typer.testing import CliRunner

from costmodel.errors import ProfileError
from costmodel.profile import detect, detect_profile, load_profile, resolve_profile, slice_of

RESULTS = Path(__file__).parents[1] / "data" / "results"

H200 = {
    "name": "NVIDIA H200",
    "major": 9,
    "minor": 0,
    "multi_processor_count": 132,
    "L2_cache_size": 62_914_560,
    "shared_memory_per_block_optin": 232_448,
    "total_memory": 143_156 * 2**20,
    "clock_rate": 1_980_000,
}
MI300X = {
    "name": "AMD Instinct MI300X",
    "major": 9,
    "minor": 4,
    "gcnArchName": "gfx942:sramecc+:xnack-",
    "multi_processor_count": 304,
    "L2_cache_size": 4 * 2**20,
    "total_memory": 196_592 * 2**20,
}
T4 = {
    "name": "Tesla T4",
    "major": 7,
    "minor": 5,
    "multi_processor_count": 40,
    "L2_cache_size": 4_194_304,
    "total_memory": 15_843_721_216,
    "clock_rate": 1_590_000,
    "memory_clock_rate": 5_001_000,
    "memory_bus_width": 256,
}
B200 = {
    "name": "NVIDIA B200",
    "major": 10,
    "minor": 0,
    "multi_processor_count": 148,
    "L2_cache_size": 129_536 * 1024,
    "shared_memory_per_block_optin": 232_448,
    "memory_clock_rate": 3_996_000,
    "memory_bus_width": 7680,
}


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "profiles"


def pretend_torch(monkeypatch, **properties):
    """Put a torch in place that has one GPU of these properties, or none."""
    torch = ModuleType("torch")
    torch.__version__ = "2.99"
    torch.cuda = SimpleNamespace(
        is_available=lambda: bool(properties),
        current_device=lambda: 0,
        get_device_properties=lambda index: SimpleNamespace(**properties),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)


def test_an_h200_is_found_by_its_name_and_differs_from_its_file_in_memory_alone(monkeypatch):
    pretend_torch(monkeypatch, **H200)
    found = detect()
    assert found.profile.name == "h200-sxm" and found.notes == ()
    assert [each.figure for each in found.differences] == ["memory_bytes"]
    assert found.differences[0].device == 143_156 * 2**20
    evidence = found.profile.evidence["memory_bytes"]
    assert evidence.confidence == "measured"
    assert "NVIDIA H200, through torch 2.99" in evidence.source
    assert found.profile.peak_tflops == load_profile("h200-sxm").peak_tflops
    assert resolve_profile(None) == detect_profile() == found.profile


def test_an_mi300x_keeps_its_l2_of_one_die_whatever_rocm_reports(monkeypatch):
    for l2_bytes in (4 * 2**20, 32 * 2**20):
        pretend_torch(monkeypatch, **{**MI300X, "L2_cache_size": l2_bytes})
        chip = detect_profile()
        assert (chip.name, chip.l2_bytes, chip.l2_partitions) == ("mi300x", 4 * 2**20, 8)
        assert chip.shared_per_block_bytes == 65536


@pytest.mark.parametrize(("device", "name"), [(T4, "t4"), (B200, "b200")])
def test_a_t4_and_a_b200_report_what_their_files_say(monkeypatch, device, name):
    pretend_torch(monkeypatch, **device)
    found = detect()
    assert found.profile.name == name
    differing = {each.figure for each in found.differences}
    assert differing <= {"memory_bytes"}


def test_the_command_shows_the_gpu_at_hand_and_where_it_differs(monkeypatch):
    from importlib import import_module

    from costmodel.cli import app as frame

    for name in frame.COMMANDS:
        import_module(f"costmodel.cli.{name}")
    pretend_torch(monkeypatch, **{**H200, "multi_processor_count": 66})
    shown = CliRunner().invoke(frame.app, ["profiles", "show", "--json"])
    found = json.loads(shown.stdout)
    assert {"figure": "units", "profile": 132, "device": 66} in found["differences"]
    assert found["figures"]["name"] == "h200-sxm-66-units" and "66 of 132" in found["notes"][0]
    text = CliRunner().invoke(frame.app, ["profiles", "show"]).stdout
    assert "the device differs" in text and "66 of 132 SMs" in text


def test_half_the_units_are_a_profile_of_their_own_with_half_the_rate(monkeypatch):
    pretend_torch(monkeypatch, **{**H200, "multi_processor_count": 66})
    found = detect()
    chip = found.profile
    assert (chip.name, chip.units) == ("h200-sxm-66-units", 66)
    assert chip.peak("fp16") == pytest.approx(989.4 / 2)
    # the whole chip's power is there for half of its units
    assert chip.achievable_tflops_fp16 == pytest.approx(0.96 * 989.4 / 2)
    assert chip.bandwidth_gb_s == 4800  # all of the memory is there
    assert "66 of 132 SMs" in found.notes[0]
    assert chip.evidence["units"].confidence == "measured"
    assert chip.evidence["peak_tflops.fp16"].confidence == "inferred"


def test_a_mig_slice_has_its_eighths_of_the_bandwidth(monkeypatch):
    # 1g.18gb: 16 SMs and one of eight memory slices
    name = "NVIDIA H200 MIG 1g.18gb"
    sliced = {"name": name, "multi_processor_count": 16, "total_memory": 16_384 * 2**20}
    pretend_torch(monkeypatch, **{**H200, **sliced})
    found = detect()
    chip = found.profile
    assert chip.name == "h200-sxm-16-units-1of8"
    again = load_profile(chip.name)
    assert (again.units, again.bandwidth_gb_s) == (16, 600)
    assert chip.bandwidth_gb_s == 4800 / 8 and chip.copy_bandwidth_gb_s == 4300 / 8
    assert chip.peak("fp16") == pytest.approx(989.4 * 16 / 132)
    assert "0.125 of the memory" in found.notes[0]


def test_a_green_context_is_made_by_hand_since_the_device_does_not_tell():
    whole = load_profile("h200-sxm")
    chip = slice_of(whole, 78)
    assert (chip.name, chip.units, chip.l2_bytes) == ("h200-sxm-78-units", 78, whole.l2_bytes)
    assert chip.peak("fp16") * 132 == pytest.approx(whole.peak("fp16") * 78)
    assert chip.bandwidth_gb_s == whole.bandwidth_gb_s
    assert load_profile("h200-sxm-78-units") == chip
    for name in ("h200-sxm-133-units", "h200-sxm-0-units", "h200-sxm-78-units-9of8"):
        with pytest.raises(ProfileError, match="no part of"):
            load_profile(name)


@pytest.mark.parametrize("units", [32, 64, 80])
def test_a_green_context_reaches_what_was_measured_in_one(units):
    file = RESULTS / f"calibration_h200-sxm-{units}-units.json"
    measured = json.loads(file.read_text(encoding="utf-8"))["figures"]
    chip = slice_of(load_profile("h200-sxm"), units)
    for figure in ("achievable_tflops_fp16", "copy_bandwidth_gb_s"):
        assert getattr(chip, figure) == pytest.approx(measured[figure], rel=0.02), figure


def test_a_partition_of_one_die_has_one_l2():
    assert slice_of(load_profile("mi300x"), 38).l2_partitions == 1


def test_a_gpu_without_a_file_gets_a_profile_derived_from_its_nearest_relative(monkeypatch):
    pretend_torch(monkeypatch, **{**H200, "name": "NVIDIA H200 NVL", "clock_rate": 1_785_000})
    found = detect()
    chip = found.profile
    assert chip.name == "nvidia-h200-nvl" and chip.model == "NVIDIA H200 NVL"
    assert (chip.architecture, chip.target, chip.mma[0]) == ("hopper", "90", "wgmma")
    # 132 SMs of 4096 FLOP a clock at the device's own clock
    assert chip.peak("fp16") == pytest.approx(132 * 4096 * 1.785e9 / 1e12, rel=0.001)
    assert chip.achievable_tflops_fp16 is None and chip.copy_bandwidth_gb_s is None
    assert "derived from h200-sxm" in found.notes[0] and "profiles new" in found.notes[0]
    confidences = {key: each.confidence for key, each in chip.evidence.items()}
    assert confidences["peak_tflops.fp16"] == "inferred"
    assert confidences["boost_clock_mhz"] == "measured"
    assert "documented" not in confidences.values()


def test_a_slice_of_a_gpu_without_a_file_is_derived_from_the_chip_nearest_in_name(monkeypatch):
    # 16 SMs are nearer to an H20's 78, whose SMs do a quarter of the work
    name = "NVIDIA H200 NVL MIG 1g.18gb"
    sliced = {"name": name, "multi_processor_count": 16, "total_memory": 16_384 * 2**20}
    pretend_torch(monkeypatch, **{**H200, **sliced})
    found = detect()
    assert found.derived_from == "h200-sxm"
    assert found.profile.peak("fp16") == pytest.approx(989.4 * 16 / 132)


def test_a_named_gpu_with_more_units_than_its_file_has_more_of_its_rate(monkeypatch):
    pretend_torch(monkeypatch, **{**H200, "multi_processor_count": 144})
    found = detect()
    assert (found.profile.name, found.profile.units) == ("h200-sxm", 144)
    assert found.profile.peak("fp16") == pytest.approx(989.4 * 144 / 132)
    assert "144 SMs" in found.notes[0] and found.derived_from is None


def test_memory_clock_and_bus_width_give_an_unknown_gpus_bandwidth(monkeypatch):
    pretend_torch(monkeypatch, **{**T4, "name": "Quadro RTX 5000"})
    assert detect_profile().bandwidth_gb_s == pytest.approx(2 * 5.001e9 * 256 / 8 / 1e9)
    pretend_torch(monkeypatch, **{**B200, "name": "NVIDIA B100"})
    assert detect_profile().bandwidth_gb_s == pytest.approx(7672.32)


def test_a_radeon_that_counts_pairs_of_cus_keeps_its_units(monkeypatch):
    radeon = {**MI300X, "name": "AMD Radeon RX 7900 XTX", "gcnArchName": "gfx1100"}
    radeon |= {"multi_processor_count": 48, "total_memory": 24_560 * 2**20}
    radeon |= {"L2_cache_size": 6 * 2**20}
    pretend_torch(monkeypatch, **radeon)
    found = detect()
    assert (found.profile.name, found.profile.units) == ("rx-7900-xtx", 96)
    assert "work-group processors" in found.notes[0]


def test_a_gpu_without_any_relative_is_told_what_a_new_file_needs(monkeypatch):
    pretend_torch(monkeypatch, **{**H200, "name": "NVIDIA Next", "major": 13})
    with pytest.raises(ProfileError) as caught:
        detect_profile()
    message = str(caught.value)
    assert "'NVIDIA Next' (target 130, 132 units)" in message
    assert 'device_names = ["NVIDIA Next"]' in message and "costmodel profiles new" in message
    for key in ("[identity] target", "[compute] units", "[memory] bandwidth_gb_s"):
        assert key in message


def test_the_users_own_profile_is_detected_and_a_broken_one_is_skipped(monkeypatch, own_home):
    from importlib import resources

    own_home.mkdir(parents=True)
    shipped = resources.files("costmodel.data").joinpath("profiles", "h200-sxm.toml")
    text = shipped.read_text(encoding="utf-8").replace('"h200-sxm"', '"h200-nvl"')
    (own_home / "h200-nvl.toml").write_text(text.replace('["NVIDIA H200"]', '["NVIDIA H200 NVL"]'))
    (own_home / "broken.toml").write_text("units = = 3")
    pretend_torch(monkeypatch, **{**H200, "name": "NVIDIA H200 NVL"})
    found = detect()
    assert found.profile.name == "h200-nvl"
    assert "broken was skipped" in found.notes[0]


def test_without_a_gpu_or_without_torch_the_names_to_choose_from_are_listed(monkeypatch):
    pretend_torch(monkeypatch)
    with pytest.raises(ProfileError, match="torch sees no GPU; name a profile.*h200-sxm"):
        detect_profile()
    monkeypatch.setitem(sys.modules, "torch", None)  # makes `import torch` raise ImportError
    with pytest.raises(ProfileError, match="without torch.*h200-sxm"):
        resolve_profile(None)
