"""Hardware profiles: the shipped figures, the file format, look-up by name, and detection."""

import copy
import math
import os
import pickle
import subprocess
import sys
import tomllib
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.errors import ProfileError, UnknownNameError
from costmodel.profile import (
    HardwareProfile,
    list_profiles,
    load_profile,
    parse_profile,
    resolve_profile,
)

#: FLOP a clock and unit, fp16 into fp32, of every generation of each vendor's matrix unit
FLOP_PER_CLOCK = {
    1024: ["v100-sxm2-32gb", "t4", "a10", "a40", "rtx-a6000", "l4", "l40s", "rtx-6000-ada", "h20",
           "mi210", "mi250x"],
    512: ["rtx-3090", "rtx-4090", "rtx-5090", "rx-7900-xtx"],  # a GeForce's 1024 halved
    2048: ["a100-sxm-40gb", "a100-sxm-80gb", "a30", "mi300x", "mi325x", "arc-b580"],
    4096: ["h100-sxm", "h100-pcie", "h200-sxm", "mi350x", "mi355x", "max-1550-stack"],
    8192: ["b200", "ascend-910b1", "ascend-910b2", "ascend-910b3", "ascend-910b4", "ascend-910c"],
}  # fmt: skip
#: chips whose clock nobody knows
WITHOUT_CLOCK = ["kunlunxin-p800", "kunlunxin-r300"]
SHIPPED = sorted([name for names in FLOP_PER_CLOCK.values() for name in names] + WITHOUT_CLOCK)
NVIDIA = [name for name in SHIPPED if load_profile(name).vendor == "nvidia"]
AMD = [name for name in SHIPPED if load_profile(name).vendor == "amd"]
PLAIN = {("compute", key) for key in ("unit_name", "mma", "async_copy")}


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """A user folder with nothing in it, so that a developer's own profiles play no part."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "profiles"


def shipped_text(name):
    file = resources.files("costmodel.data").joinpath("profiles", f"{name}.toml")
    return file.read_text(encoding="utf-8")


def document(name="h200-sxm"):
    return tomllib.loads(shipped_text(name))


def confidence(chip):
    return chip.evidence["peak_tflops.fp16"].confidence


def figure_of(chip, attribute):
    """The value of a figure by the name that its evidence has."""
    if attribute.startswith("memories."):
        _, name, key = attribute.split(".")
        return getattr(next(memory for memory in chip.memories if memory.name == name), key)
    if attribute.startswith("peak_tflops."):
        return chip.peak_tflops[attribute.removeprefix("peak_tflops.")]
    return getattr(chip, attribute)


def figures(content):
    """(section, key, entry) of every figure in a parsed profile."""
    for section, keys in content.items():
        if section in ("schema", "identity", "sources"):
            continue
        if section == "memories":
            for name, memory in keys.items():
                for key, entry in memory.items():
                    if key not in ("holds", "per"):
                        yield f"memories.{name}", key, entry
            continue
        for key, entry in keys.items():
            if (section, key) not in PLAIN and section != "knobs":
                yield section, key, entry


# --- the shipped figures -------------------------------------------------------------------------


def test_the_shipped_profiles_are_these_35_of_five_vendors():
    assert list_profiles() == SHIPPED
    assert len(SHIPPED) == 35
    vendors = {load_profile(name).vendor for name in SHIPPED}
    assert vendors == {"nvidia", "amd", "intel", "huawei", "kunlunxin"}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_file_is_named_after_its_profile(name):
    assert load_profile(name).name == name


@pytest.mark.parametrize(
    ("name", "flop_per_clock"),
    [(name, rate) for rate, names in FLOP_PER_CLOCK.items() for name in names],
)
def test_fp16_peak_is_a_power_of_two_of_flop_a_clock_a_unit(name, flop_per_clock):
    chip = load_profile(name)
    rate = chip.peak("fp16") * 1e12 / (chip.units * chip.peak_clock_mhz * 1e6)
    assert rate == pytest.approx(flop_per_clock, rel=0.005)
    assert math.log2(flop_per_clock).is_integer()


@pytest.mark.parametrize("name", WITHOUT_CLOCK)
def test_a_rate_without_a_clock_is_not_vouched_for(name):
    chip = load_profile(name)
    assert chip.peak_clock_mhz is None
    assert chip.evidence["peak_tflops.fp16"].confidence == "reported"


@pytest.mark.parametrize("name", SHIPPED)
def test_what_was_recalled_is_reported_at_best(name):
    for evidence in load_profile(name).evidence.values():
        if "recalled" in evidence.source and "not looked up" in evidence.source:
            assert evidence.confidence in ("reported", "inferred")


KNOWN_BAD = [
    # figures that public tables print for a chip, and that are another's, sparse, or made up
    ("h100-sxm", "peak_tflops.fp16", 1979),  # sparse
    ("h100-sxm", "peak_tflops.fp8_e4m3", 3958),  # sparse
    ("h100-sxm", "peak_tflops.tf32", 156),  # the A100's
    ("l4", "peak_tflops.fp16", 242),  # sparse
    ("l4", "peak_tflops.int8", 485),  # sparse
    ("l4", "bandwidth_gb_s", 3350),  # the H100's
    ("mi210", "peak_tflops.fp8_e4m3", 181),  # it has no fp8
    ("a100-sxm-80gb", "peak_tflops.fp8_e4m3", 624),  # nor has an A100
    ("a100-sxm-80gb", "bandwidth_gb_s", 4000),
    ("rtx-5090", "peak_tflops.fp16", 838),  # sparse, and accumulated in fp16
    ("h200-sxm", "l2_bytes", 50 * 2**20),  # the H100's
    ("mi250x", "peak_tflops.fp16", 383),  # both dies of the card
    ("ascend-910b2", "peak_tflops.fp16", 376),  # marketing: 24 cores would need 1.91 GHz
]


@pytest.mark.parametrize(("name", "figure", "bad"), KNOWN_BAD)
def test_the_known_bad_figures_of_public_tables_are_not_repeated(name, figure, bad):
    chip = load_profile(name)
    if figure.startswith("peak_tflops."):
        found = chip.peak_tflops.get(figure.removeprefix("peak_tflops."))
    else:
        found = getattr(chip, figure)
    assert found is None or abs(found / bad - 1) > 0.02


@pytest.mark.parametrize("name", SHIPPED)
def test_rates_double_from_tf32_to_16_bit_and_from_16_bit_to_fp8(name):
    chip = load_profile(name)
    # a GeForce 3090's rates are printed as 35.6 and 71; an L40S's are quoted at two clocks
    tolerance = {"rtx-3090": 0.003, "l40s": 2520 / 2490 - 1 + 0.001}.get(name, 0.002)
    if confidence(chip) == "reported":  # public figures are rounded to two or three digits
        tolerance = 0.01
    assert chip.peak("bf16") in (chip.peak("fp16"), None)
    if "tf32" in chip.peak_tflops:
        assert chip.peak("fp16") == pytest.approx(2 * chip.peak("fp32", "tf32"), rel=tolerance)
    for dtype in set(chip.peak_tflops) & {"fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz"}:
        assert chip.peak(dtype) == pytest.approx(2 * chip.peak("fp16"), rel=tolerance)


@pytest.mark.parametrize(
    ("name", "lanes", "issue"),
    [
        ("a100-sxm-80gb", 64, 1),
        ("h100-sxm", 128, 1),
        ("h200-sxm", 128, 1),
        ("l40s", 128, 1),
        ("rtx-3090", 128, 1),
        ("rtx-4090", 128, 1),
        ("rtx-5090", 128, 1),
        ("mi250x", 64, 2),  # packed fp32
        ("mi300x", 64, 2),
        ("mi355x", 64, 2),
    ],
)
def test_fp32_peak_is_two_flop_a_lane_at_the_boost_clock(name, lanes, issue):
    chip = load_profile(name)
    expected = chip.units * lanes * issue * 2 * chip.boost_clock_mhz * 1e6 / 1e12
    assert chip.peak("fp32", "ieee") == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_known_figure_has_a_sentence_and_a_confidence(name):
    content = document(name)
    chip = load_profile(name)
    known = [entry for *_, entry in figures(content) if entry["value"] != "unknown"]
    assert all(entry["source"] in content["sources"] for entry in known)
    assert len(chip.evidence) == len(known)
    for attribute, evidence in chip.evidence.items():
        assert evidence.value == figure_of(chip, attribute)
        assert evidence.source.endswith(".") and len(evidence.source) > 30
        assert evidence.confidence in ("documented", "reported", "inferred", "measured")


@pytest.mark.parametrize("name", SHIPPED)
def test_every_sentence_of_a_shipped_file_is_used(name):
    content = document(name)
    used = {entry.get("source") for *_, entry in figures(content)}
    assert set(content["sources"]) == used - {None}


@pytest.mark.parametrize("name", NVIDIA)
def test_nvidia_keeps_one_kibibyte_a_block_above_the_opt_in_limit_since_8_0(name):
    chip = load_profile(name)
    kept = 1024 if chip.compute_capability >= 80 else 0
    assert chip.shared_reserved_bytes == kept
    assert chip.shared_per_block_bytes + kept == chip.shared_per_unit_bytes


def test_two_blocks_fit_a_hopper_sm_up_to_115712_bytes_each():
    chip = load_profile("h100-sxm")
    assert chip.shared_per_unit_bytes // 2 - chip.shared_reserved_bytes == 115712


def test_an_h200_has_60_mebibytes_of_l2_and_an_h100_has_50():
    assert load_profile("h200-sxm").l2_bytes == 60 * 2**20
    assert load_profile("h100-sxm").l2_bytes == 50 * 2**20


@pytest.mark.parametrize("name", ["mi300x", "mi325x", "mi350x", "mi355x"])
def test_a_chip_of_eight_dies_has_eight_l2_caches_of_4_mebibytes_behind_a_256_mebibyte_one(name):
    chip = load_profile(name)
    assert chip.l2_partitions * chip.l2_bytes == 32 * 2**20
    assert chip.mall_bytes == 256 * 2**20


@pytest.mark.parametrize("name", [name for name in AMD if name.startswith("mi")])
def test_cdna_register_file_is_512_registers_a_lane_on_four_simds(name):
    chip = load_profile(name)
    lanes = chip.subpartitions * chip.warp_size
    assert chip.registers_per_unit == chip.max_registers_per_thread * lanes


def test_fp8_stands_where_the_chip_multiplies_it_natively():
    assert load_profile("a100-sxm-80gb").peak("fp8_e4m3") is None
    assert load_profile("mi300x").peak("fp8_e4m3") is None
    assert load_profile("mi300x").peak("fp8_e4m3fnuz") == 2614.9
    assert load_profile("rtx-4090").peak("fp8_e4m3") == 330.3
    for name in ("rtx-3090", "mi250x"):
        assert not [dtype for dtype in load_profile(name).peak_tflops if dtype.startswith("fp8")]


def test_fp8_is_of_the_ocp_kind_on_mi355x_and_of_the_fnuz_kind_on_mi300x():
    mi355x, mi300x = load_profile("mi355x"), load_profile("mi300x")
    assert mi355x.peak("fp8_e4m3") == mi355x.peak("fp8_e5m2") == 5033.2
    assert mi355x.peak("fp8_e4m3fnuz") is None
    assert mi300x.peak("fp8_e5m2") is None


def test_of_the_amd_chips_only_those_of_gfx942_have_tf32():
    having = [name for name in AMD if load_profile(name).peak("fp32", "tf32")]
    assert having == ["mi300x", "mi325x"]
    assert load_profile("mi250x").peak("fp32") == 47.85  # falls back to ieee


@pytest.mark.parametrize(
    ("name", "advertised"),
    [
        ("rtx-3090", 142),  # white paper: fp16 with fp16 accumulation, dense
        ("rtx-4090", 330.3),
        ("rtx-5090", 419),
    ],
)
def test_a_geforce_has_half_its_advertised_fp16_rate(name, advertised):
    assert load_profile(name).peak("fp16") == pytest.approx(advertised / 2, rel=0.001)


def test_mi250x_is_one_of_the_two_dies_of_a_card():
    die = load_profile("mi250x")
    assert 2 * die.units == 220
    assert 2 * die.peak("fp16") == 383
    assert 2 * die.bandwidth_gb_s == pytest.approx(3276.8)
    assert 2 * die.memory_bytes == 128 * 2**30


@pytest.mark.parametrize(
    ("name", "matrix_unit", "copies_by_descriptor"),
    [
        ("rtx-3090", "mma.sync", False),
        ("l40s", "mma.sync", False),
        ("h200-sxm", "wgmma", True),
        ("b200", "tcgen05", True),
        ("rtx-5090", "mma.sync", True),  # Blackwell without tcgen05
        ("mi355x", "mfma", False),
    ],
)
def test_the_first_matrix_unit_and_the_copy_engine_are_those_of_the_chip(
    name, matrix_unit, copies_by_descriptor
):
    chip = load_profile(name)
    assert chip.mma[0] == matrix_unit
    assert ("tma" in chip.async_copy) is copies_by_descriptor


def test_a_figure_that_sources_disagree_on_stays_unknown():
    assert load_profile("b200").boost_clock_mhz is None  # 1965 or 1980 MHz
    assert "boost_clock_mhz" not in load_profile("b200").evidence


def test_only_cuda_has_a_compute_capability():
    assert load_profile("rtx-4090").compute_capability == 89
    assert load_profile("b200").compute_capability == 100
    assert load_profile("rtx-5090").compute_capability == 120
    assert load_profile("mi300x").compute_capability is None


# --- the object ----------------------------------------------------------------------------------


def test_fp32_defaults_to_tf32_where_the_chip_has_it():
    chip = load_profile("a100-sxm-80gb")
    assert chip.peak("fp32") == 156
    assert chip.peak("fp32", "ieee") == 19.5
    without = copy.deepcopy(document("a100-sxm-80gb"))
    del without["peak_tflops"]["tf32"]
    bare = parse_profile(without, "a.toml")
    assert bare.peak("fp32") == 19.5
    assert bare.peak("fp32", "tf32") is None
    assert bare.peak("fp32", "tf32x3") is None


def test_tf32x3_has_a_third_of_the_rate_of_tf32():
    assert load_profile("a100-sxm-80gb").peak("fp32", "tf32x3") == 52


def test_an_unknown_precision_is_an_error_that_lists_close_names():
    with pytest.raises(UnknownNameError, match="tf32"):
        load_profile("h100-sxm").peak("fp32", "tf23")


def test_equal_profiles_hash_alike_and_evidence_does_not_count():
    chip = load_profile("h200-sxm")
    other = copy.deepcopy(chip)
    object.__setattr__(other, "evidence", {})
    assert other == chip and hash(other) == hash(chip)
    assert len({chip, other, load_profile("h100-sxm")}) == 2


def test_a_profile_with_another_rate_is_another_profile():
    content = document()
    content["peak_tflops"]["fp16"]["value"] = 148
    assert parse_profile(content, "a.toml") != load_profile("h200-sxm")


def test_a_profile_survives_the_trip_to_another_process():
    chip = load_profile("mi300x")
    back = pickle.loads(pickle.dumps(chip))  # noqa: S301 - what multiprocessing does
    assert back == chip and back.evidence == chip.evidence


def test_rates_cannot_be_written_to():
    with pytest.raises(TypeError):
        load_profile("h200-sxm").peak_tflops["fp16"] = 1.0


def test_reading_a_profile_imports_neither_torch_nor_pandas():
    code = (
        "import sys, costmodel.profile as p; p.load_profile('h200-sxm');"
        "print([m for m in ('torch', 'triton', 'pandas', 'scipy', 'sklearn') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


# --- look-up -------------------------------------------------------------------------------------


def test_a_name_is_found_in_any_case_and_read_once():
    assert load_profile("H200-SXM") is load_profile("h200-sxm")


def test_a_typing_error_lists_the_closest_names():
    with pytest.raises(UnknownNameError, match="'h20O-sxm'.*did you mean.*'h200-sxm'"):
        load_profile("h20O-sxm")


def test_a_profile_is_given_back_as_it_is():
    chip = load_profile("mi300x")
    assert load_profile(chip) is chip
    assert resolve_profile(chip) is chip


def test_the_users_own_file_comes_before_the_shipped_one(own_home):
    own_home.mkdir(parents=True)
    text = shipped_text("h200-sxm")
    (own_home / "H200-SXM.toml").write_text(text.replace("value = 132", "value = 78"))
    (own_home / "mine.toml").write_text(text)
    assert load_profile("h200-sxm").units == 78
    assert list_profiles() == sorted([*SHIPPED, "mine"])


def test_a_path_may_be_a_text_or_a_path_object(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(shipped_text("rtx-4090"))
    assert load_profile(path) == load_profile(str(path)) == load_profile("rtx-4090")


@pytest.mark.parametrize("given_", ["some/where", "some\\where", os.path.join("..", "h200-sxm")])
def test_a_path_without_toml_at_its_end_is_an_error(given_):
    with pytest.raises(ProfileError, match=r"ends in \.toml"):
        load_profile(given_)


def test_a_file_that_is_not_there_or_not_toml_is_named(tmp_path):
    with pytest.raises(ProfileError, match=r"gone\.toml: cannot be read"):
        load_profile(tmp_path / "gone.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("units = = 3")
    with pytest.raises(ProfileError, match=r"bad\.toml: not a TOML file.*line 1"):
        load_profile(bad)
    bad.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match=r"bad\.toml: not a TOML file"):
        load_profile(bad)


@pytest.mark.parametrize("given_", [None, 200, b"h200-sxm"])
def test_something_else_than_a_name_is_an_error(given_):
    with pytest.raises(ProfileError, match="a profile is a name, a path or"):
        load_profile(given_)


# --- the format ----------------------------------------------------------------------------------

BAD = [
    # section, key, what to put there, what the error says
    ("memory", "bandwidth_gb_s", {"value": "fast"}, "expected a number, got 'fast'"),
    ("memory", "bandwidth_gb_s", {"value": True}, "expected a number, got True"),
    ("memory", "bandwidth_gb_s", {"value": -1.0}, "expected a number above 0, got -1.0"),
    ("memory", "bandwidth_gb_s", {"value": math.nan}, "expected a number above 0, got nan"),
    ("memory", "bandwidth_gb_s", {"value": math.inf}, "expected a number above 0, got inf"),
    ("memory", "bandwidth_gb_s", {"value": 10**400}, "expected a number above 0"),
    ("memory", "bandwidth_gb_s", {"value": "unknown"}, "is needed"),
    ("memory", "bandwidth_gb_s", 4800, "expected { value, source, confidence }, got 4800"),
    ("memory", "mall_bytes", {"value": -1}, "expected a whole number 0 or more, got -1"),
    ("compute", "units", {"value": 132.5}, "expected a whole number, got 132.5"),
    ("compute", "units", {"value": 0}, "expected a whole number above 0, got 0"),
    ("compute", "units", {"confidence": "sure"}, "confidence 'sure' is not one of documented"),
    ("compute", "units", {"source": "a friend"}, "source 'a friend' is not a key of [sources]"),
    ("compute", "units", {"unit": "SM"}, "unknown entry 'unit'"),
    ("compute", "unit_name", 3, "expected a text, got 3"),
    ("compute", "mma", "wgmma", "expected a list of texts, got 'wgmma'"),
    ("identity", "backend", "cdua", "unknown backend 'cdua'; did you mean 'cuda'"),
    ("identity", "target", "sm_90", "expected digits such as \"90\", got 'sm_90'"),
    ("sources", "guide", "", "expected a text, got ''"),
]


@pytest.mark.parametrize(("section", "key", "bad", "message"), BAD)
def test_a_bad_entry_is_named_by_file_section_and_key(section, key, bad, message):
    content = document()
    if isinstance(bad, dict):
        content[section][key].update(bad)
    else:
        content[section][key] = bad
    with pytest.raises(ProfileError) as caught:
        parse_profile(content, "a.toml")
    assert str(caught.value).startswith(f"a.toml: [{section}] {key}: {message}")


def required_entries():
    content = document()
    left_out = {("identity", "device_names"), ("measured", "achievable_tflops_fp16")}
    for section in set(content) - {"schema", "sources", "peak_tflops"}:
        for key in content[section]:
            if (section, key) not in left_out:
                yield section, key


@pytest.mark.parametrize(("section", "key"), sorted(required_entries()))
def test_a_missing_key_is_named(section, key):
    content = document()
    del content[section][key]
    with pytest.raises(ProfileError) as caught:
        parse_profile(content, "a.toml")
    assert str(caught.value) == f"a.toml: [{section}] {key}: is missing"


def test_a_wrong_unit_in_the_key_brings_up_the_right_one():
    content = document()
    content["memory"]["bandwidth_tb_s"] = content["memory"].pop("bandwidth_gb_s")
    with pytest.raises(
        ProfileError, match=r"\[memory\] bandwidth_tb_s: unknown key.*bandwidth_gb_s"
    ):
        parse_profile(content, "a.toml")


def test_an_unknown_or_missing_section_is_named():
    content = document()
    content["memry"] = content.pop("memory")
    with pytest.raises(ProfileError, match="a.toml: unknown section 'memry'.*'memory'"):
        parse_profile(content, "a.toml")
    del content["memry"]
    with pytest.raises(ProfileError, match=r"a.toml: section \[memory\] is missing"):
        parse_profile(content, "a.toml")
    content["memory"] = 3
    with pytest.raises(ProfileError, match=r"a.toml: \[memory\] must be a table"):
        parse_profile(content, "a.toml")


@pytest.mark.parametrize("schema", [2, "1", True, None])
def test_another_schema_is_refused(schema):
    with pytest.raises(ProfileError, match="a.toml: schema: expected 1"):
        parse_profile({**document(), "schema": schema}, "a.toml")


def test_a_chip_without_any_rate_is_refused():
    with pytest.raises(ProfileError, match=r"\[peak_tflops\] needs a rate"):
        parse_profile({**document(), "peak_tflops": {}}, "a.toml")


def test_unknown_becomes_none_and_leaves_no_evidence():
    content = document()
    content["memory"]["l2_bytes"] = {"value": "unknown"}
    chip = parse_profile(content, "a.toml")
    assert chip.l2_bytes is None
    assert "l2_bytes" not in chip.evidence


def test_two_keys_may_be_left_out():
    content = document()
    del content["identity"]["device_names"]
    del content["measured"]["achievable_tflops_fp16"]
    chip = parse_profile(content, "a.toml")
    assert chip.device_names == () and chip.achievable_tflops_fp16 is None


def test_the_file_reaches_every_attribute():
    chip = load_profile("h200-sxm")
    unknown = {name for name in chip.__dataclass_fields__ if getattr(chip, name) is None}
    # it has no such cache and no limit, and of rates fp16's alone was measured
    unmeasured = {f"achievable_tflops_{kind}" for kind in ("bf16", "fp8", "tf32", "int8")}
    assert unknown == {"mall_bandwidth_gb_s", "max_programs"} | unmeasured


LEAVES = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["unknown", "documented", "datasheet", "cuda"]),
    st.dates(),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
TOP_KEYS = st.sampled_from([*document(), "other"])


@given(st.dictionaries(TOP_KEYS | st.text(max_size=8), VALUES))
def test_any_document_is_refused_with_a_profile_error(content):
    with pytest.raises(ProfileError, match=r"^a\.toml: "):
        parse_profile(content, "a.toml")


@settings(max_examples=300)
@given(st.data())
def test_a_profile_with_one_entry_replaced_is_read_or_refused(data):
    content = document(data.draw(st.sampled_from(["h200-sxm", "ascend-910b2"])))
    section = data.draw(st.sampled_from(sorted(set(content) - {"schema"})))
    part = content[section]
    if section == "memories" and data.draw(st.booleans()):
        part = part["L1"]  # one memory's own keys
    key = data.draw(st.sampled_from(sorted(part)))
    entry = part[key]
    if isinstance(entry, dict) and data.draw(st.booleans()):
        entry[data.draw(st.sampled_from(["value", "source", "confidence"]))] = data.draw(VALUES)
    else:
        part[key] = data.draw(VALUES)
    try:
        chip = parse_profile(content, "a.toml")
    except ProfileError as error:
        assert str(error).startswith("a.toml: ")
    else:
        assert isinstance(chip, HardwareProfile)
        assert isinstance(hash(chip), int)
        assert chip.compute_capability is None or chip.compute_capability >= 0
