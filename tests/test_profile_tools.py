"""profiles list, show, diff, validate and new; overlays; what is suggested for a slip."""

import json
import sys
import tomllib
from importlib import import_module, resources

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from costmodel.cli import app as frame
from costmodel.errors import ProfileError, UnknownNameError
from costmodel.predict import predict_best
from costmodel.profile import check_file, list_profiles, load_profile, parse_profile, write_overlay
from costmodel.profile.check import doubts, flop_per_clock
from costmodel.profile.overlay import PROVENANCE, overlaid

RUN = {
    "device": "NVIDIA H200",
    "versions": "torch 2.11.0, Triton 3.6.0",
    "date": "2026-11-30",
    "command": "costmodel profiles calibrate",
}


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """The user's folder of profiles, empty."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "profiles"
    folder.mkdir(parents=True)
    return folder


def run(*arguments, answers=None):
    for name in frame.COMMANDS:
        import_module(f"costmodel.cli.{name}")
    result = CliRunner().invoke(frame.app, [str(each) for each in arguments], input=answers)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def shipped_text(name):
    file = resources.files("costmodel.data").joinpath("profiles", f"{name}.toml")
    return file.read_text(encoding="utf-8")


def edited(tmp_path, *changes, name="h200-sxm"):
    """A file with a shipped profile's text in which some pieces are replaced."""
    text = shipped_text(name)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


# --- list and show --------------------------------------------------------------------------------


def test_a_broken_file_of_the_users_is_listed_with_its_reason_and_stops_nothing(own_home):
    (own_home / "half.toml").write_text('schema = 1\n[identity]\nname = "half"\n')
    (own_home / "torn.toml").write_text("units = = 3")
    found = run("profiles", "list")
    assert found.exit_code == 0 and "h200-sxm" in found.stdout
    assert "broken: half: " in found.stdout and "section [peak_tflops] is missing" in found.stdout
    assert "broken: torn: " in found.stdout and "not a TOML file" in found.stdout
    as_json = run("profiles", "list", "--json")
    assert set(json.loads(as_json.stdout)) == set(list_profiles()) - {"half", "torn"}
    assert "broken: torn" in as_json.stderr
    assert predict_best((64, 64, 64), "a10").config  # others are answered as before


def test_the_memories_and_knobs_of_a_chip_are_shown_with_their_evidence():
    found = json.loads(run("profiles", "show", "ascend-910b2", "--json").stdout)
    assert found["figures"]["memories.L0C.capacity_bytes"] == 131_072
    assert found["figures"]["knobs.num_warps"] == []
    assert found["evidence"]["memories.L0C.capacity_bytes"]["confidence"] == "documented"
    text = run("profiles", "show", "ascend-910b2").stdout
    assert "memories.L1.holds" in text and "operands" in text


def test_show_without_a_name_is_the_gpu_at_hand(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ProfileError, match="cannot look for a GPU without torch"):
        run("profiles", "show")


# --- diff -----------------------------------------------------------------------------------------


def test_diff_gives_the_second_over_the_first_for_what_differs_alone():
    rows = json.loads(run("profiles", "diff", "a100-sxm-40gb", "a100-sxm-80gb", "--json").stdout)
    ratios = {row["figure"]: row["ratio"] for row in rows}
    assert ratios["memory_bytes"] == 2.0
    assert ratios["bandwidth_gb_s"] == pytest.approx(2039 / 1555)
    assert "units" not in ratios and ratios["name"] is None
    text = run("profiles", "diff", "a100-sxm-40gb", "a100-sxm-80gb").stdout
    assert "1.31" in text and "bandwidth_gb_s" in text


# --- validate -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list_profiles())
def test_every_shipped_file_has_no_fault(name, tmp_path):
    path = tmp_path / f"{name}.toml"
    path.write_text(shipped_text(name), encoding="utf-8")
    assert check_file(path) == []


FAULTS = [
    # what to replace, by what, the place, what is said, what to do
    ("bandwidth_gb_s = { value = 4800", "bandwidth_tb_s = { value = 4.8",
     "[memory] bandwidth_tb_s", "unknown key", ""),
    ("bandwidth_gb_s = { value = 4800", "bandwidth_gb_s = { value = 4.8",
     "[memory] bandwidth_gb_s", "4.8 lies outside", "10^9 bytes a second"),
    ("l2_bytes = { value = 62_914_560", "l2_bytes = { value = 60",
     "[memory] l2_bytes", "60 lies outside", "bytes"),
    ('target = "90"', 'target = "999"',
     "[identity] target", "'999' is no target of 'cuda'", "90"),
    ('name = "h200-sxm"', 'name = "h200-nvl"',
     "[identity] name", "stands in a file named 'h200-sxm'", "h200-nvl.toml"),
    ('architecture = "hopper"', 'architecture = "hoper"',
     "[identity] architecture", "'hoper' is none", "'hopper'"),
    ("fp16 = { value = 989.4", "fp16 = { value = 800",
     "[peak_tflops] fp16", "power of two", "1480 MHz"),
    ("fp16 = { value = 989.4", "fp16 = { value = 989400",
     "[peak_tflops] fp16", "FLOP a clock and unit", ""),
    ("fp8_e4m3 = { value = 1978.9", "fp8_e4m3 = { value = 7915",
     "[peak_tflops] fp8_e4m3", "8.0 times fp16", "dense"),
    ("per_unit_bytes = { value = 233_472", "per_unit_bytes = { value = 131_072",
     "[shared] per_block_bytes", "more than the unit's 131072", "larger"),
    ("copy_bandwidth_gb_s = { value = 4300", "copy_bandwidth_gb_s = { value = 5000",
     "[memory] copy_bandwidth_gb_s", "above the memory's 4800", ""),
    ("max_warps_per_unit = { value = 64", "max_warps_per_unit = { value = 16",
     "[limits] max_threads_per_block", "1024 threads are more than 16 warps", "warp_size"),
    ("[sources]", '[sources]\nspare = "Nobody asks for it."',
     "[sources] spare", "no figure names it", "delete"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "place", "what", "remedy"), FAULTS)
def test_a_fault_is_told_with_its_place_and_its_remedy(tmp_path, old, new, place, what, remedy):
    faults = check_file(edited(tmp_path, (old, new)))
    found = [fault for fault in faults if fault.place == place]
    assert any(what in fault.what and remedy in fault.remedy for fault in found), faults


def test_all_faults_are_told_at_once_and_the_status_is_1(tmp_path):
    path = edited(
        tmp_path,
        ("bandwidth_gb_s = { value = 4800", "bandwidth_tb_s = { value = 4.8"),
        ('confidence = "measured"', 'confidence = "sure"'),
        ('mma = ["wgmma", ', 'mma = ["wgma", '),
        ("[limits]", "[limts]"),
    )
    found = run("profiles", "validate", path)
    assert found.exit_code == 1
    for text in ("bandwidth_tb_s", "[memory] bandwidth_gb_s: is missing", "'sure' is not one of",
                 "'wgma'; did you mean 'wgmma'", "section 'limts'", "section [limits] is missing",
                 "6 faults"):  # fmt: skip
        assert text in found.stdout
    listed = json.loads(run("profiles", "validate", path, "--json").stdout)
    assert len(listed["faults"]) == 6 and {"place", "what", "remedy"} == set(listed["faults"][0])
    with pytest.raises(ProfileError, match=r"and 5 more: costmodel profiles validate"):
        load_profile(path)


def test_a_sound_file_and_a_file_that_is_not_there(tmp_path):
    assert "no faults" in run("profiles", "validate", edited(tmp_path)).stdout
    with pytest.raises(ProfileError, match=r"gone\.toml: cannot be read"):
        run("profiles", "validate", tmp_path / "gone.toml")


MEMORY_FAULTS = [
    ('holds = ["operands"]', 'holds = ["operand"]', "[memories.L1] holds"),
    ('holds = ["operands"]', 'holds = []', "[memories.L1] holds"),
    ('holds = ["operands"]', 'holds = ["operands"]\nper = "core"', "[memories.L1] per"),
    ('holds = ["operands"]', 'holds = ["operands"]\nsize = 3', "[memories.L1] size"),
    ("capacity_bytes = { value = 524_288", "capacity_bytes = { value = -1",
     "[memories.L1] capacity_bytes"),
    ("num_warps = []", "num_warps = [0]", "[knobs] num_warps"),
    ("num_warps = []", "warps = []", "[knobs] warps"),
    ("block_k = [32", "block_k = [true", "[knobs] block_k"),
    ("block_k = [32, 64, 128, 256, 512]", "block_k = []", "[knobs] block_k"),
    ('template = ["tile"]', 'template = ["tiles"]', "[knobs] template"),
    ("swap = [false]", "swap = [0]", "[knobs] swap"),
    ("persistent_grid = true", "persistent_grid = 1", "[knobs] persistent_grid"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "place"), MEMORY_FAULTS)
def test_faults_of_a_chips_own_memories_and_knobs_are_told(tmp_path, old, new, place):
    faults = check_file(edited(tmp_path, (old, new), name="ascend-910b2"))
    assert [fault.place for fault in faults] == [place]


def test_a_chip_with_its_own_memories_has_no_shared_section(tmp_path):
    path = edited(tmp_path, ("[limits]", "[shared]\n[limits]"), name="ascend-910b2")
    assert "unknown section 'shared'" in str(check_file(path)[0])


@pytest.mark.parametrize("name", list_profiles())
def test_no_shipped_rate_is_far_from_a_power_of_two_a_clock(name):
    found = flop_per_clock(load_profile(name))
    assert found is None or abs(np.log2(found) - round(np.log2(found))) < 0.01


# --- new ------------------------------------------------------------------------------------------

FLAGS = [
    "--name", "my-chip", "--vendor", "me", "--model", "My chip", "--architecture", "mine",
    "--backend", "other", "--target", "mine1", "--unit-name", "core", "--units", "32",
    "--warp-size", "32", "--bandwidth-gb-s", "1200", "--shared-per-block-bytes", "131072",
    "--rate", "fp16=64", "--rate", "int8=128", "--peak-clock-mhz", "1000", "--mma", "matrix",
    "--source", "My data sheet, page 3.",
]  # fmt: skip


def test_new_writes_a_commented_file_that_loads_and_answers(own_home):
    found = run("profiles", "new", *FLAGS)
    path = own_home / "my-chip.toml"
    assert found.stdout.strip() == str(path)
    assert "beware: [peak_tflops] fp16" in found.stderr  # 64e12 / (32 * 1e9) is 2000
    text = path.read_text(encoding="utf-8")
    assert "# the memory's peak, in 10^9 bytes a second" in text and "# [memories.L1]" in text
    chip = load_profile("my-chip")
    assert chip.peak("int8") == 128 and chip.l2_bytes is None
    assert chip.evidence["units"] == (32, "My data sheet, page 3.", "reported")
    assert "l2_bytes" not in chip.evidence
    assert predict_best((512, 512, 512), "my-chip").source == "physics"


def test_new_asks_for_what_no_flag_answers(tmp_path):
    path = tmp_path / "asked.toml"
    answers = "asked\nme\nMy chip\nmine\nother\nmine1\ncore\n32\n32\n1200\n131072\nfp16=64\nMine.\n"
    found = run("profiles", "new", "--output", path, answers=answers)
    assert found.exit_code == 0 and load_profile(path).unit_name == "core"
    assert "Memory bandwidth in GB/s" in found.stderr


def test_new_names_the_flags_where_nobody_answers(tmp_path):
    path = tmp_path / "a.toml"
    with pytest.raises(ProfileError, match=r"nobody is there to ask for --vendor, .*--source"):
        run("profiles", "new", "--name", "a", "--output", path)
    assert not path.exists()


def test_new_replaces_no_file_unasked_and_writes_no_broken_one(own_home):
    run("profiles", "new", *FLAGS)
    with pytest.raises(ProfileError, match="is there already: --force"):
        run("profiles", "new", *FLAGS)
    assert run("profiles", "new", *FLAGS, "--force").exit_code == 0
    with pytest.raises(ProfileError, match="unknown backend 'cdua'"):
        run("profiles", "new", *FLAGS, "--backend", "cdua", "--name", "other-chip")
    with pytest.raises(UnknownNameError, match="type of a rate 'fp17'"):
        run("profiles", "new", *FLAGS, "--rate", "fp17=3", "--force")
    assert [path.name for path in own_home.iterdir()] == ["my-chip.toml"]


# --- suggestions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "first"),
    [("h200", "h200-sxm"), ("h20O-sxm", "h200-sxm"), ("ascend-910b", "ascend-910b1"),
     ("rtx4090", "rtx-4090"), ("mi300", "mi300x")],
)  # fmt: skip
def test_the_first_suggestion_for_a_chip(given_, first):
    with pytest.raises(UnknownNameError, match=f"did you mean '{first}'"):
        load_profile(given_)


@pytest.mark.parametrize(("given_", "first"), [("fp8", "fp8_e4m3"), ("float61", "float16")])
def test_the_first_suggestion_for_a_type(given_, first):
    with pytest.raises(UnknownNameError, match=f"did you mean '{first}'"):
        predict_best((64, 64, 64), "h200-sxm", dtype=given_)


# --- overlays -------------------------------------------------------------------------------------


def test_an_overlay_replaces_its_figures_and_nothing_else(tmp_path):
    path = tmp_path / "cal.toml"
    write_overlay(path, "h200-sxm", {"copy_bandwidth_gb_s": 4312.5, "peak_tflops.fp16": 803}, RUN)
    chip, base = load_profile(path), load_profile("h200-sxm")
    assert (chip.copy_bandwidth_gb_s, chip.peak("fp16"), chip.name) == (4312.5, 803, "h200-sxm")
    assert chip.evidence["copy_bandwidth_gb_s"].confidence == "measured"
    assert "NVIDIA H200, 2026-11-30, with torch 2.11.0" in chip.evidence["peak_tflops.fp16"].source
    assert chip.bandwidth_gb_s == base.bandwidth_gb_s and chip.peak("bf16") == base.peak("bf16")
    assert chip.evidence["bandwidth_gb_s"] == base.evidence["bandwidth_gb_s"]
    assert check_file(path) == []


def test_an_overlay_under_its_bases_name_takes_the_shipped_ones_place(own_home):
    write_overlay(own_home / "h200-sxm.toml", "h200-sxm", {"launch_floor_us": 2.5}, RUN)
    assert load_profile("h200-sxm").launch_floor_us == 2.5
    write_overlay(own_home / "lab.toml", "h200-sxm", {"l2_bytes": 2**25}, RUN, name="lab")
    lab = load_profile("lab")  # on the overlay above
    assert (lab.name, lab.l2_bytes, lab.launch_floor_us) == ("lab", 2**25, 2.5)


def test_overlays_that_lean_on_each_other_end_in_an_error(own_home):
    write_overlay(own_home / "a.toml", "b", {"launch_floor_us": 2.5}, RUN)
    write_overlay(own_home / "b.toml", "a", {"launch_floor_us": 2.5}, RUN)
    with pytest.raises(UnknownNameError, match="unknown profile 'a'"):
        load_profile("a")
    assert "broken: a:" in run("profiles", "list").stdout


BAD_OVERLAYS = [
    ({"figures": {"copy_bandwith_gb_s": 1.0}}, r"\[figures\] unknown figure.*copy_bandwidth_gb_s"),
    ({"figures": {"l2_bytes": 1.5}}, r"\[figures\] l2_bytes: expected a whole number above 0"),
    (
        {"figures": {"launch_floor_us": float("nan")}},
        r"\[figures\] launch_floor_us: expected a num",
    ),
    ({"figures": {"launch_floor_us": True}}, r"\[figures\] launch_floor_us: expected a number"),
    ({"provenance": {**RUN, "date": ""}}, r"\[provenance\] date: expected a text"),
    ({"provenance": {**RUN, "who": "me"}}, r"\[provenance\] unknown key 'who'"),
    ({"provenance": None}, r"section \[provenance\] is missing"),
    ({"schema": 2}, "schema: expected 1, got 2"),
    ({"base": 3}, "base: expected a profile's name"),
    ({"figure": {}}, "unknown section of an overlay 'figure'"),
]


@pytest.mark.parametrize(("change", "message"), BAD_OVERLAYS)
def test_a_bad_overlay_is_refused_with_its_place(change, message):
    sound = {"schema": 1, "base": "h200-sxm", "provenance": RUN, "figures": {"l2_bytes": 2**20}}
    with pytest.raises(ProfileError, match=rf"^a\.toml: {message}"):
        overlaid(sound | change, "a.toml", load_profile)


def test_a_bad_overlay_is_not_written(tmp_path):
    path = tmp_path / "a.toml"
    with pytest.raises(ProfileError, match="expected a number above 0"):
        write_overlay(path, "h200-sxm", {"launch_floor_us": -1.0}, RUN)
    assert not path.exists() and not list(tmp_path.glob(".a*"))


@given(st.text(min_size=1).filter(lambda text: text.strip()), st.floats(1e-6, 1e15))
def test_any_provenance_and_figure_survive_the_file(tmp_path_factory, text, figure):
    path = tmp_path_factory.mktemp("o") / "o.toml"
    if any(0xD800 <= ord(letter) <= 0xDFFF for letter in text):
        return  # lone surrogates are no text that UTF-8 can hold
    write_overlay(path, "h200-sxm", {"launch_floor_us": figure}, dict.fromkeys(PROVENANCE, text))
    back = tomllib.loads(path.read_text(encoding="utf-8"))
    assert back["provenance"]["device"] == text
    assert back["figures"]["launch_floor_us"] == figure


def test_a_derived_or_edited_profile_is_doubted_without_a_file():
    document = tomllib.loads(shipped_text("h200-sxm"))
    document["compute"]["units"]["value"] = 100
    assert [fault.place for fault in doubts(parse_profile(document, "a"))] == ["[peak_tflops] fp16"]
