"""Rules and candidates of templates "warp_specialized", "packed" and "matvec"."""

from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.resources.footprint import footprint_columns
from costmodel.resources.legality import RULES
from costmodel.resources.occupancy import occupancy_columns
from costmodel.resources.warp_groups import is_specialized, warp_group_tile
from costmodel.space.candidates import candidates
from costmodel.space.prune import broken_rule, prune, repairs

H200 = load_profile("h200-sxm")
A100, MI300X, B200 = (load_profile(name) for name in ("a100-sxm-80gb", "mi300x", "b200"))
SQUARE = Gemm(4096, 4096, 4096)
ODD = Gemm(1001, 999, 777)
COLUMN = Gemm(4096, 1, 4096)
WS = KernelConfig("warp_specialized", 128, 64, 64, num_warps=8)
PACKED = replace(WS, template="packed")
MATVEC = KernelConfig("matvec", 4, 1, 512, num_stages=1)
KNOBS = [field.name for field in fields(KernelConfig)]
NEW = ("warp_specialized", "packed", "matvec")


def rule(problem, config, profile=H200):
    """Name of the first rule that is broken, or None."""
    found = broken_rule(problem, config, profile)
    return None if found is None else found.name


def rows(table):
    return list(zip(*(getattr(table, knob).tolist() for knob in KNOBS), strict=True))


def of_template(table, name):
    return table[np.flatnonzero(table.is_template(name))]


# --- rules, by hand ------------------------------------------------------------------------------


@pytest.mark.parametrize(("template", "problem"), [(WS, SQUARE), (PACKED, ODD)], ids=["ws", "pack"])
def test_only_a_chip_with_wgmma_runs_warp_groups(template, problem):
    assert rule(problem, template) is None
    for profile in (A100, MI300X, B200):
        assert rule(problem, template, profile) == "warp_groups"


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (replace(SQUARE, dtype="bf16", out_dtype="bf16"), None),
        (replace(SQUARE, out_dtype="fp32"), None),
        (replace(SQUARE, alpha=0.5), None),
        (replace(SQUARE, batch=2), "warp_groups"),
        (replace(SQUARE, beta=0.5), None),
        (replace(SQUARE, epilogue="bias+gelu"), None),
        (Gemm(4096, 4096, 4096, dtype="int8"), "warp_groups"),
        (Gemm(4096, 4096, 4096, dtype="fp8_e4m3"), None),
        (Gemm(4096, 4096, 4096, dtype="fp8_e5m2"), None),
        (Gemm(4096, 4096, 4096, dtype="fp32"), None),  # tf32, where it is not said
        (Gemm(4096, 4096, 4096, dtype="fp32", precision="tf32"), None),
        (Gemm(4096, 4096, 4096, dtype="fp32", precision="ieee"), "warp_groups"),
        (Gemm(4096, 4096, 4096, dtype="fp32", precision="tf32x3"), "warp_groups"),
    ],
    ids=str,
)
def test_what_the_warp_groups_multiply(problem, expected):
    assert rule(problem, WS) == expected


@pytest.mark.parametrize("dtype", ["fp8_e4m3", "fp32"])
@pytest.mark.parametrize("layout", ["nn", "tn", "tt"])
@pytest.mark.parametrize("swap", [False, True])
def test_wgmma_takes_8_and_32_bits_along_k_alone(dtype, layout, swap):
    config = KernelConfig("warp_specialized", 64, 64, 64, swap=swap)
    assert rule(Gemm(1024, 1024, 1024, dtype=dtype, layout=layout), config) == "warp_groups"
    assert rule(Gemm(1024, 1024, 1024, dtype=dtype), config) is None


@pytest.mark.parametrize("template", ["warp_specialized", "packed"])
@pytest.mark.parametrize("columns", [8, 24, 72, 96, 136, 200, 208])
def test_narrow_runs_are_legal_only_where_columns_lie_along_k(template, columns):
    plain = KernelConfig(template, 64, columns, 64)
    swapped = KernelConfig(template, columns, 64, 64, swap=True)
    # B holds the columns, and A where operands are swapped
    for layout, legal in (("nt", True), ("tt", True), ("nn", False), ("tn", False)):
        assert (rule(replace(SQUARE, layout=layout), plain) is None) == legal
    for layout, legal in (("nt", True), ("nn", True), ("tt", False), ("tn", False)):
        assert (rule(replace(SQUARE, layout=layout), swapped) is None) == legal


@pytest.mark.parametrize("columns", [64, 128, 192, 256, 320])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_runs_of_whole_swizzles_are_legal_in_any_layout(columns, layout):
    problem = replace(SQUARE, layout=layout)
    assert rule(problem, KernelConfig("warp_specialized", 64, columns, 64, num_stages=2)) is None
    swapped = KernelConfig("warp_specialized", columns, 64, 64, num_stages=2, swap=True)
    assert rule(problem, swapped) is None


def test_a_single_step_of_k_lies_along_both_axes_of_b():
    # its tensor is [1, N] in either layout, and the launcher reads it as "nn"
    assert rule(Gemm(100, 100, 1), KernelConfig("packed", 64, 72, 64)) == "warp_groups"
    assert rule(Gemm(100, 100, 1), KernelConfig("packed", 64, 64, 64)) is None
    assert rule(Gemm(100, 100, 2), KernelConfig("packed", 64, 72, 64)) is None


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({}, None),
        ({"block_n": 136}, None),  # no power of two
        ({"block_m": 192, "num_warps": 12}, None),
        ({"block_m": 96}, "warp_groups"),
        ({"block_n": 120}, "warp_groups"),
        ({"num_warps": 4, "block_m": 256}, "warp_groups"),
        ({"num_warps": 6}, "warp_groups"),
        ({"num_warps": None}, "warp_groups"),
        ({"num_stages": 1}, "warp_groups"),  # loads and products would wait for each other
        ({"num_stages": None}, None),
        ({"block_k": 48}, "power_of_two"),
        ({"block_k": 8}, "smallest_dot"),
        ({"block_k": 16}, None),
        ({"epilogue_parts": 2}, None),
        ({"epilogue_parts": 3}, "epilogue_parts"),
        ({"split_k": 64}, None),  # 4096 / 64 steps
        ({"split_k": 65}, "split_k"),
        ({"block_n": 256, "num_stages": 4}, None),  # 4 * (128 + 256) * 64 * 2 are 196608
        ({"block_n": 256, "num_stages": 5}, "shared_memory"),
    ],
    ids=str,
)
def test_knobs_of_warp_groups(knobs, expected):
    problem = replace(SQUARE, out_dtype="fp16")
    if knobs.get("block_n") == 256:
        knobs = knobs | {"epilogue_parts": 2}  # 32 KiB of staging
    assert rule(problem, replace(WS, **knobs)) == expected


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (Gemm(64, 64, 104), None),  # rows of 208 bytes
        (Gemm(64, 64, 100), "aligned_rows"),
        (Gemm(64, 100, 64), "aligned_rows"),  # C's
        (Gemm(1, 100, 64), None),  # C has one row
        (Gemm(100, 64, 64, layout="tn"), "aligned_rows"),  # A's
    ],
    ids=str,
)
def test_packed_takes_the_rows_that_warp_specialized_does_not(problem, expected):
    assert rule(problem, KernelConfig("warp_specialized", 64, 64, 64)) == expected
    assert rule(problem, KernelConfig("packed", 64, 64, 64)) is None


@pytest.mark.parametrize(
    "problem",
    [Gemm(101, 101, 101, dtype="fp8_e4m3"), Gemm(101, 101, 101, dtype="fp32")],
    ids=str,
)
def test_packed_copies_16_bits_alone(problem):
    assert rule(problem, KernelConfig("packed", 64, 64, 64)) == "packed"


@pytest.mark.parametrize(
    ("problem", "knobs", "expected"),
    [
        (COLUMN, {}, None),
        (replace(COLUMN, n=2), {}, "matvec"),  # a block of one column
        (replace(COLUMN, n=2), {"block_n": 2}, None),
        (COLUMN, {"block_n": 2}, "matvec"),
        (replace(COLUMN, n=4), {"block_n": 4}, None),
        (replace(COLUMN, n=3), {"block_n": 4}, None),
        (replace(COLUMN, n=3), {"block_n": 2}, "matvec"),
        (replace(COLUMN, n=4), {"block_n": 8}, "matvec"),
        (replace(COLUMN, n=8), {"block_n": 8}, None),  # 16 elements have 128 sums
        (replace(COLUMN, n=8), {"block_n": 8, "block_m": 8}, "matvec"),
        (replace(COLUMN, n=9), {"block_n": 16, "block_m": 1}, "matvec"),
        (Gemm(1, 4096, 4096), {"block_m": 1, "block_n": 4, "swap": True}, None),
        (Gemm(2, 4096, 4096), {"block_m": 2, "block_n": 4, "swap": True}, None),
        (Gemm(1, 4096, 4096), {"block_m": 1, "block_n": 4}, "matvec"),
        (Gemm(1, 1, 4096), {}, None),
        (COLUMN, {"block_m": 16}, None),  # 16 * 512 / 128 threads are 64 elements
        (COLUMN, {"block_m": 32}, "matvec"),
        (COLUMN, {"block_m": 32, "num_warps": 8}, None),
        (COLUMN, {"block_m": 3}, "power_of_two"),
        (COLUMN, {"load_bits": 7}, "power_of_two"),
        (COLUMN, {"split_k": 2}, "split_k"),
        (COLUMN, {"epilogue_parts": 2}, "epilogue_parts"),
        (replace(COLUMN, batch=3), {}, None),
        (replace(COLUMN, batch=65536), {}, "batch"),
        (replace(COLUMN, beta=0.5), {}, None),
        (Gemm(4096, 1, 4096, dtype="fp32", precision="ieee"), {}, None),
        (Gemm(4096, 1, 4096, dtype="fp32", precision="tf32x3"), {}, "matvec"),
        (Gemm(4096, 1, 4096, dtype="fp8_e4m3"), {}, "matvec"),
        (Gemm(4096, 1, 4096, dtype="int8"), {}, "matvec"),
        (Gemm(4097, 1, 4095), {}, None),
    ],
    ids=str,
)
def test_what_matvec_takes(problem, knobs, expected):
    assert rule(problem, replace(MATVEC, **knobs)) == expected


@pytest.mark.parametrize("profile", [A100, B200, H200], ids=lambda p: p.name)
def test_matvec_needs_no_matrix_unit_and_no_copy_engine(profile):
    assert rule(COLUMN, MATVEC, profile) is None


def test_matvec_on_wavefronts_of_64_holds_half_as_much_a_thread():
    full = replace(MATVEC, block_m=32)  # 32 * 512 over 4 * 64 threads are 64 elements
    assert rule(COLUMN, full, MI300X) is None
    assert rule(COLUMN, full, H200) == "matvec"


def test_each_new_rule_says_what_it_protects():
    assert {"warp_groups", "packed", "matvec"} <= {r.name for r in RULES}
    for name, problem, config in (
        ("warp_groups", SQUARE, replace(WS, block_m=96)),
        ("packed", Gemm(101, 101, 101, dtype="fp32"), KernelConfig("packed", 64, 64, 64)),
        ("matvec", SQUARE, MATVEC),
    ):
        _, found = prune(problem, [KernelConfig("tile", 64, 64, 64), config], H200)
        assert [one.reason for one in found] == [name]
        assert next(r.meaning for r in RULES if r.name == name) in str(found[0])


# --- repairs -------------------------------------------------------------------------------------

CONFIGS = st.builds(
    KernelConfig,
    template=st.sampled_from(NEW),
    block_m=st.sampled_from([1, 2, 8, 64, 128, 192, 256, 384]) | st.integers(1, 400),
    block_n=st.sampled_from([1, 2, 8, 64, 72, 128, 136, 192, 256]) | st.integers(1, 400),
    block_k=st.sampled_from([16, 32, 64, 128, 256, 512, 1024]),
    split_k=st.sampled_from([1, 1, 2, 4, 7]),
    num_warps=st.sampled_from([None, 2, 4, 6, 8, 12, 16]),
    num_stages=st.integers(1, 12),
    swap=st.booleans(),
    epilogue_parts=st.integers(1, 3),
)
PROBLEMS = st.builds(
    Gemm,
    m=st.sampled_from([1, 2, 64, 1024, 4096]) | st.integers(1, 3000),
    n=st.sampled_from([1, 2, 64, 1024, 4096]) | st.integers(1, 3000),
    k=st.sampled_from([64, 1024, 4096]) | st.integers(1, 5000),
    dtype=st.sampled_from(["fp16", "bf16", "fp32", "fp8_e4m3", "int8"]),
    layout=st.sampled_from(["nn", "nt", "tn", "tt"]),
    batch=st.sampled_from([1, 1, 1, 2]),
)


@settings(max_examples=60, deadline=None)
@given(PROBLEMS, CONFIGS)
def test_every_repair_is_legal_and_none_leads_to_one_stage(problem, config):
    for repair in repairs(problem, config, H200):
        assert broken_rule(problem, repair, H200) is None
        if is_specialized(ConfigTable.of(repair))[0]:
            assert repair.num_stages >= 2


def test_too_many_stages_are_repaired_by_fewer_or_by_one_staging_buffer():
    over = replace(WS, block_n=136, num_stages=6)
    # 6 * (128 + 136) * 64 * 2 are 202752, C's 128 * 136 * 2 are 34816: 237568 of 232448
    assert rule(SQUARE, over) == "shared_memory"
    found = repairs(SQUARE, over, H200)
    assert replace(over, num_stages=5) in found
    assert replace(over, block_k=32) in found
    # one buffer of 128 * 128 * 2: 235520, still too much
    assert all(repair.epilogue_parts == 1 for repair in found)


# --- candidates ----------------------------------------------------------------------------------

SHAPES = {
    "decode": Gemm(16, 4096, 4096),
    "decode of one": Gemm(1, 4096, 4096),
    "prefill": Gemm(2048, 8192, 8192),
    "square": SQUARE,
    "small square": Gemm(512, 512, 512),
    "odd": ODD,
    "unaligned columns": Gemm(512, 1001, 1024),
    "unaligned rows": Gemm(513, 512, 1000, layout="tn"),
    "short k": Gemm(512, 512, 64),
    "long k": Gemm(64, 64, 100000),
    "two columns": Gemm(5000, 2, 3000, layout="tn"),
    "column": COLUMN,
    "bias-like": Gemm(4096, 8, 64, layout="nn"),
    "transposed": Gemm(640, 8, 8192, layout="tt"),
    "one": Gemm(1, 1, 1),
}
shapes = pytest.mark.parametrize("problem", SHAPES.values(), ids=SHAPES)


@shapes
def test_no_candidate_comes_twice(problem):
    found = Counter(rows(candidates(problem, H200)))
    assert max(found.values()) == 1


@shapes
def test_every_candidate_of_warp_groups_fits_once_it_is_kept(problem):
    table = candidates(problem, H200)
    kept, rejections = prune(problem, table, H200)
    reasons = {r.reason for r in rejections if is_specialized(ConfigTable.of(r.config))[0]}
    # their stages are chosen to fit: only runs across K are sorted out later
    assert reasons <= {"warp_groups"}
    mine = kept[np.flatnonzero(is_specialized(kept))]
    assert len(mine)
    assert (footprint_columns(problem, mine, H200).shared_bytes <= 232448).all()
    assert (occupancy_columns(problem, mine, H200).blocks >= 1).all()
    assert warp_group_tile(mine).is_sound.all()
    assert (mine.num_stages >= 2).all()
    assert (mine.split_k <= -(-problem.k // mine.block_k)).all()


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("decode", "warp_specialized"),
        ("decode of one", "warp_specialized"),
        ("decode of one", "matvec"),
        ("prefill", "warp_specialized"),
        ("square", "warp_specialized"),
        ("odd", "packed"),
        ("unaligned columns", "packed"),
        ("unaligned rows", "packed"),
        ("two columns", "packed"),  # A's rows are 5000 long, C's are of two elements
        ("two columns", "matvec"),
        ("column", "matvec"),
    ],
)
def test_the_new_templates_are_among_what_is_kept(name, template):
    problem = SHAPES[name]
    kept, _ = prune(problem, candidates(problem, H200), H200)
    assert len(of_template(kept, template)) >= 20


@shapes
def test_a_problem_gets_warp_specialized_or_packed_by_its_rows_and_never_both(problem):
    table = candidates(problem, H200)
    aligned = not any(problem.odd_row_bytes(operand, 16) for operand in "abc")
    assert table.is_template("warp_specialized").any() == aligned
    assert table.is_template("packed").any() == (not aligned)


@shapes
def test_matvec_is_offered_for_eight_columns_or_rows_at_most(problem):
    table = of_template(candidates(problem, H200), "matvec")
    assert bool(len(table)) == (min(problem.m, problem.n) <= 8)
    kept, _ = prune(problem, candidates(problem, H200), H200)
    assert len(of_template(kept, "matvec")) == len(table)


@pytest.mark.parametrize(
    ("problem", "profile"),
    [(SQUARE, A100), (SQUARE, MI300X), (SQUARE, B200), (replace(SQUARE, batch=2), H200)],
    ids=str,
)
def test_no_warp_groups_are_offered_without_wgmma_or_for_a_batch(problem, profile):
    assert not is_specialized(candidates(problem, profile)).any()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PROBLEMS)
def test_whatever_the_problem_candidates_are_distinct_and_kept_ones_fit(problem):
    table = candidates(problem, H200)
    assert max(Counter(rows(table)).values()) == 1
    kept, _ = prune(problem, table, H200)
    mine = kept[np.flatnonzero(is_specialized(kept))]
    assert (footprint_columns(problem, mine, H200).shared_bytes <= 232448).all()
    assert (occupancy_columns(problem, mine, H200).blocks >= 1).all()
