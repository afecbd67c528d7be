"""The ranker's features: their names and order, and the figures against hand arithmetic."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.config import ConfigTable, KernelConfig
from costmodel.dtypes import LAYOUTS
from costmodel.errors import UnsupportedError
from costmodel.physics.estimate import estimate_columns
from costmodel.problem import Gemm
from costmodel.profile import list_profiles, load_profile
from costmodel.ranking.features import FEATURES, Context, feature_matrix
from costmodel.resources.legality import check_problem
from costmodel.space.candidates import candidates

H200 = load_profile("h200-sxm")
PROBLEM = Gemm(1000, 2000, 4096)
CONFIG = KernelConfig("tile", 128, 256, 64, group_m=4, num_warps=8, num_stages=4)


def feature(name, problem=PROBLEM, config=CONFIG, chip=H200):
    """One feature of one configuration."""
    table = ConfigTable.of(config)
    physics = estimate_columns(problem, table, chip)
    return float(FEATURES[name](Context(problem, table, chip, physics))[0])


def test_the_features_and_their_order_are_those_that_models_are_fitted_on():
    assert list(FEATURES) == [
        "programs_per_unit", "rounds", "fill", "tile_use", "blocks_per_unit", "resident_blocks",
        "tiles_along_m", "tiles_along_n", "group_share", "last_round", "row_use", "column_use",
        "a_is_transposed", "b_is_transposed", "element_bytes", "is_tile", "is_split_k",
        "is_persistent_tma", "is_warp_specialized", "is_matvec", "is_packed", "rows_of_c",
        "columns_of_c", "depth_of_k", "steps", "pipeline_fill", "bytes_in_flight",
        "step_over_latency", "stages", "step_depth", "depth_use", "ring_bytes", "loads_per_thread",
        "tall_block", "wide_block", "warps", "matrix_share", "matrix_instruction",
        "registers_wanted", "registers_held", "registers_spilled", "shared_share", "occupancy",
        "splits", "swapped", "parts_of_epilogue",
        "sums_per_thread", "estimate_over_roofline", "compute_over_roofline",
        "memory_over_roofline", "latency_over_roofline", "epilogue_over_roofline",
        "split_over_roofline", "floor_share", "intensity_over_ridge", "roofline_us", "estimate_us",
        "compute_us", "memory_us", "latency_us", "step_us", "dram_over_compulsory",
        "l2_over_compulsory",
        "parts_over_compulsory", "operands_over_l2", "narrowest_load", "store_width", "load_of_a",
        "load_of_b", "whole_lines", "divisor_of_m", "divisor_of_n", "divisor_of_k",
    ]  # fmt: skip


def test_each_feature_says_what_it_is_and_gives_one_number_a_configuration():
    table = ConfigTable.of([CONFIG, replace(CONFIG, block_m=64), replace(CONFIG, num_stages=2)])
    context = Context(PROBLEM, table, H200, estimate_columns(PROBLEM, table, H200))
    for name, function in FEATURES.items():
        assert function.__name__ == name
        assert function.__doc__ and function.__doc__.endswith(".")
        assert function(context).shape == (3,), name


def test_the_matrix_holds_each_feature_in_its_column():
    table = candidates(PROBLEM, H200)[:50]
    physics = estimate_columns(PROBLEM, table, H200)
    matrix = feature_matrix(PROBLEM, table, H200, physics)
    assert matrix.shape == (50, len(FEATURES)) and matrix.dtype == np.float32
    context = Context(PROBLEM, table, H200, physics)
    for column, function in enumerate(FEATURES.values()):
        assert matrix[:, column].tolist() == function(context).astype(np.float32).tolist()
    assert np.array_equal(matrix, feature_matrix(PROBLEM, table, H200, None))


# PROBLEM in tiles of 128 x 256: ceil(7.8) = 8 rows, ceil(7.8) = 8 columns, 4096 / 64 = 64 steps
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tiles_along_m", 3.0),
        ("tiles_along_n", 3.0),
        ("programs_per_unit", math.log2(64 / 132)),
        ("rounds", 0.0),
        ("fill", 64 / 132),
        ("tile_use", 1000 * 2000 / (1024 * 2048)),
        ("group_share", 4 / 8),
        ("steps", 6.0),
        ("pipeline_fill", 4 / 64),
        ("stages", 2.0),
        ("step_depth", 7.0),  # 64 * 2 bytes
        ("warps", 3.0),
        ("splits", 0.0),
        ("is_tile", 1.0),
        ("is_split_k", 0.0),
        ("element_bytes", 2.0),
        ("rows_of_c", math.log2(1000)),
        ("columns_of_c", math.log2(2000)),
        ("depth_of_k", 12.0),
        # 64 programs where one block fits a unit: 64 of 132 slots
        ("last_round", 64 / 132),
        ("row_use", 1000 / 1024),
        ("column_use", 2000 / 2048),
        ("depth_use", 1.0),
        ("ring_bytes", math.log2(4 * 49152)),
        # 49152 bytes a step by 256 threads of 16 bytes: 12
        ("loads_per_thread", math.log2(12)),
        # 128 * 256 sums by 256 threads
        ("sums_per_thread", 7.0),
        ("load_of_a", 4.0),
        ("load_of_b", 4.0),
        ("whole_lines", 1.0),  # 4096 * 2 bytes are 64 lines of 128
        ("swapped", 0.0),
        ("parts_of_epilogue", 1.0),
        ("tall_block", 7.0),
        ("wide_block", 8.0),
        ("matrix_instruction", 2.0),  # wgmma
        ("a_is_transposed", 0.0),
        ("b_is_transposed", 1.0),
        ("narrowest_load", 4.0),  # rows of 4096 elements: 16 bytes
        # 2000 = 16 * 125: stores of 16 bytes
        ("store_width", 4.0),
        # 4 stages of (128 + 256) * 64 * 2 bytes
        ("shared_share", 4 * 49152 / 232448),
        ("operands_over_l2", math.log2(3000 * 4096 * 2 / 62914560)),
        # A for each of 8 columns of tiles, B for each of 8 rows
        ("l2_over_compulsory", math.log2(8 * 24576000 / (24576000 + 4000000))),
        ("parts_over_compulsory", -8.0),
        # 1000 = 8 * 125, 2000 = 16 * 125, 4096 = 128 * 32
        ("divisor_of_m", 3.0),
        ("divisor_of_n", 4.0),
        ("divisor_of_k", 7.0),
        ("registers_spilled", 0.0),
    ],
)
def test_a_feature_is_what_the_hand_computes(name, expected):
    assert feature(name) == pytest.approx(expected)


def test_the_roofline_is_the_measure_of_every_time():
    table = ConfigTable.of(CONFIG)
    physics = estimate_columns(PROBLEM, table, H200)
    # 2 * 1000 * 2000 * 4096 FLOP at 989.4e6 a us = 16.56; 28,576,000 bytes at 4.3e6 = 6.65
    roof = 16.384e9 / 989.4e6 + 2.7
    assert feature("estimate_over_roofline") == pytest.approx(math.log2(physics.time_us[0] / roof))
    assert feature("floor_share") == pytest.approx(2.7 / roof)
    assert feature("roofline_us") == pytest.approx(math.log2(roof))
    assert feature("estimate_us") == pytest.approx(math.log2(physics.time_us[0]))
    for name in ("compute", "memory", "latency"):
        over = feature(f"{name}_over_roofline")
        assert feature(f"{name}_us") == pytest.approx(over + math.log2(roof))
    assert feature("intensity_over_ridge") == pytest.approx(
        math.log2((16.384e9 / 989.4e6) / (28.576e6 / 4.3e6))
    )


def test_swapping_exchanges_the_blocks_that_the_matrix_unit_sees():
    swap = replace(CONFIG, block_m=16, swap=True)
    assert feature("tall_block", config=swap) == 8.0
    assert feature("wide_block", config=swap) == 4.0
    assert feature("swapped", config=swap) == 1.0


def test_an_odd_k_narrows_loads_to_one_element():
    assert feature("narrowest_load", problem=Gemm(1000, 2000, 4095)) == 1.0  # 2 bytes
    assert feature("store_width", problem=Gemm(1000, 2001, 4096)) == 1.0
    # rows of B stored [K, N] follow N alone
    assert feature("load_of_b", problem=Gemm(1000, 2002, 4096, layout="nn")) == 2.0
    assert feature("load_of_a", problem=Gemm(1000, 2002, 4096, layout="nn")) == 4.0
    assert feature("whole_lines", problem=Gemm(1000, 2000, 4100)) == 0.0
    assert feature("depth_use", problem=Gemm(1000, 2000, 4000)) == 4000 / 4032


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 300_000) | st.sampled_from([1, 2**31 - 2**16])] * 3),
    dtype=st.sampled_from(["fp16", "bf16", "fp32", "int8"]),
    layout=st.sampled_from(LAYOUTS),
    batch=st.integers(1, 1000),
    chip=st.sampled_from(list_profiles()),
)
def test_no_problem_gives_a_feature_that_is_not_a_number(sizes, dtype, layout, batch, chip):
    profile = load_profile(chip)
    problem = Gemm(*sizes, dtype=dtype, layout=layout, batch=batch)
    try:
        check_problem(problem, profile)
    except UnsupportedError:
        return
    table = candidates(problem, profile)
    matrix = feature_matrix(problem, table[:: max(len(table) // 50, 1)], profile, None)
    assert np.isfinite(matrix).all()
