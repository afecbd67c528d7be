"""Waves, traffic, roofline and estimate against hand arithmetic.

The round chip has 100 units of one TFLOPS each and copies at a megabyte a microsecond. The fitted
constants of the estimate are set to round numbers too, so that the tests prove its arithmetic and
not the day's fit.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import costmodel.physics.estimate as module
from costmodel.config import TEMPLATES, ConfigTable, KernelConfig
from costmodel.physics.estimate import (
    BOUNDS,
    Estimate,
    estimate,
    estimate_columns,
    estimate_row,
    sustained,
)
from costmodel.physics.roofline import peak_of, rate_of, roofline
from costmodel.physics.traffic import line_shares, load_shares, traffic_columns
from costmodel.physics.waves import wave_columns
from costmodel.predict import predict_best
from costmodel.problem import Gemm
from costmodel.profile import list_profiles, load_profile
from costmodel.space.candidates import candidates

H200 = load_profile("h200-sxm")  # 132 SMs, 989.4 TFLOPS in fp16, copies at 4300 GB/s, floor 2.7 us
ROUND = replace(
    H200,
    name="round",
    units=100,
    peak_tflops={"fp16": 100.0, "bf16": 100.0},
    achievable_tflops_fp16=None,
    copy_bandwidth_gb_s=1000.0,
    peak_clock_mhz=1000.0,
    launch_floor_us=2.0,
    mma=("mma.sync",),
    l2_bytes=1 << 40,
    l2_partitions=1,
    mall_bytes=None,
)
TILE = KernelConfig("tile", 128, 128, 64, num_warps=8, num_stages=4)


def waves(problem, config, chip=H200, blocks=1):
    return wave_columns(problem, ConfigTable.of(config), chip, np.array([blocks]))


def traffic(problem, config, chip, blocks=1):
    table = ConfigTable.of(config)
    lines = line_shares(problem, table, chip)
    return traffic_columns(problem, table, chip, waves(problem, config, chip, blocks), lines)


@pytest.fixture(autouse=True, scope="module")
def _no_model_of_a_user(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSTMODEL_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture
def round_constants(monkeypatch):
    """L2 gives a unit 32 bytes a clock, a load takes 1 us, a step 0.05, an epilogue 0.5; products
    wait neither for each other nor for writes to shared memory; of steps and traffic the shorter
    hides.
    """
    for name, value in {
        "_UNHIDDEN": 0.0,
        "_L2_BYTES_PER_CLOCK": 32.0,
        "DRAM_LATENCY_US": 1.0,
        "L2_LATENCY_US": 1.0,
        "_CHAIN_CLOCKS": {},
        "_written_us": lambda problem, table, profile: np.zeros(len(table)),
        "_STEP_US": 0.05,
        "_EPILOGUE_US": 0.5,
        "_SPLIT_US": 2.0,
        "_SPILL_SLOWDOWN": 0.1,
    }.items():
        monkeypatch.setattr(module, name, value)


# --- waves ----------------------------------------------------------------------------------------


def test_nothing_is_faster_than_the_peak_at_the_highest_clock():
    # 989.4 TFLOPS are the data sheet's at 1,830 MHz, and an H200 boosts to 1,980
    bound = roofline(Gemm(4096, 4096, 4096), H200)
    assert bound.compute_us == pytest.approx(2 * 4096**3 / 989.4e6)
    assert bound.least_us == pytest.approx(bound.compute_us * 1830 / 1980)
    unknown = roofline(Gemm(4096, 4096, 4096), replace(H200, boost_clock_mhz=None))
    assert unknown.least_us == unknown.compute_us


def test_1024x20480_in_tiles_of_256_on_256_units_is_320_tiles_in_two_rounds_the_second_25_percent():
    chip = replace(H200, units=256)
    found = waves(Gemm(1024, 20480, 6144), KernelConfig("tile", 256, 256, 64), chip)
    # 1024 / 256 = 4 rows, 20480 / 256 = 80 columns; 320 - 256 = 64 of 256 are left for round two
    assert (found.tiles_m[0], found.tiles_n[0], found.tiles[0]) == (4, 80, 320)
    assert (found.slots[0], found.rounds[0]) == (256, 2)
    assert found.fill[0] == 320 / 512
    assert found.fill[0] * found.rounds[0] - 1 == 0.25
    assert found.steps[0] == 6144 / 64


def test_splitting_k_by_8_makes_8_times_the_programs_with_an_eighth_of_the_steps():
    config = KernelConfig("split_k", 128, 128, 64, split_k=8)
    found = waves(Gemm(512, 512, 8192), config)
    # 4 x 4 tiles; 8192 / 64 = 128 steps in 8 parts
    assert (found.tiles[0], found.programs[0], found.steps[0]) == (16, 128, 16)


def test_a_k_that_does_not_divide_takes_one_more_step_and_its_parts_round_up():
    assert waves(Gemm(128, 128, 65), TILE).steps[0] == 2
    config = KernelConfig("split_k", 128, 128, 64, split_k=2)
    assert waves(Gemm(128, 128, 300), config).steps[0] == 3  # ceil(ceil(300 / 64) / 2)


def test_one_row_of_c_uses_a_64th_of_a_tile_of_64_rows():
    assert waves(Gemm(1, 256, 64), KernelConfig("tile", 64, 128, 64)).tile_use[0] == 1 / 64
    # 129 of 2 * 128 rows, all columns
    assert waves(Gemm(129, 128, 64), TILE).tile_use[0] == 129 / 256


def test_a_persistent_kernel_holds_one_block_a_unit_whatever_would_fit():
    persistent = KernelConfig("persistent_tma", 128, 128, 64)
    assert waves(Gemm(4096, 4096, 64), persistent, blocks=3).slots[0] == 132
    assert waves(Gemm(4096, 4096, 64), TILE, blocks=3).slots[0] == 396


def test_programs_that_all_fit_at_once_fill_by_units_and_not_by_slots():
    # 66 tiles on 132 units of two slots each: half of the units have work
    assert waves(Gemm(128 * 66, 128, 64), TILE, blocks=2).fill[0] == 0.5
    # 132 tiles: each unit has one
    assert waves(Gemm(128 * 132, 128, 64), TILE, blocks=2).fill[0] == 1.0
    # 265 tiles of 264 slots: a second round for one program
    last = waves(Gemm(128 * 265, 128, 64), TILE, blocks=2)
    assert (last.rounds[0], last.fill[0]) == (2, 265 / 528)


def test_a_batch_multiplies_tiles_and_leaves_rows_and_columns():
    found = waves(Gemm(256, 512, 64, batch=5), TILE)
    assert (found.tiles_m[0], found.tiles_n[0], found.tiles[0], found.programs[0]) == (2, 4, 40, 40)
    assert found.tile_use[0] == 1.0


def test_a_configuration_of_which_not_one_block_fits_counts_as_one_a_unit():
    assert waves(SQUARE, TILE, blocks=0).slots[0] == 132


# --- traffic --------------------------------------------------------------------------------------

SQUARE = Gemm(4096, 4096, 4096)
ONE_OPERAND = 4096 * 4096 * 2  # bytes


def test_a_wave_that_holds_all_tiles_reads_each_operand_from_dram_once():
    # 8 x 8 tiles on 100 units: one wave, and groups of 8 rows make it one patch of 8 x 8;
    # an L2 of one byte keeps nothing, and nothing needs to be kept
    problem = Gemm(1024, 1024, 512)
    found = traffic(problem, TILE, replace(ROUND, l2_bytes=1))
    assert found.dram_bytes[0] == 2 * 1024 * 512 * 2


def test_l2_serves_each_operand_once_for_every_row_or_column_of_tiles():
    # 4096 / 128 = 32 columns of tiles for A; 4096 / 256 = 16 rows of tiles for B
    found = traffic(SQUARE, KernelConfig("tile", 256, 128, 64), ROUND)
    assert found.l2_bytes[0] == ONE_OPERAND * 32 + ONE_OPERAND * 16


def test_without_a_cache_each_patch_reads_its_operands_anew():
    # 32 x 32 tiles on 64 units in groups of 8: patches of 8 x 8, so 4 passes over A and 4 over B
    found = traffic(SQUARE, TILE, replace(ROUND, units=64, l2_bytes=1))
    assert found.dram_bytes[0] == pytest.approx(4 * 2 * ONE_OPERAND, rel=1e-6)


def test_operands_that_fit_l2_are_read_from_dram_once():
    found = traffic(SQUARE, TILE, replace(ROUND, units=64, l2_bytes=2 * ONE_OPERAND))
    assert found.dram_bytes[0] == 2 * ONE_OPERAND


def test_an_l2_of_half_the_operands_saves_half_of_the_later_passes():
    # passes 2 to 4 of each operand miss half of the time: 1 + 3 / 2
    found = traffic(SQUARE, TILE, replace(ROUND, units=64, l2_bytes=ONE_OPERAND))
    assert found.dram_bytes[0] == 2.5 * 2 * ONE_OPERAND


def test_each_die_fetches_its_own_copy_into_its_own_l2():
    # a quarter of an operand is an eighth of both: passes 2 to 4 miss 7 times in 8, 1 + 3 * 7 / 8
    dies = replace(ROUND, units=64, l2_bytes=ONE_OPERAND // 4, l2_partitions=2)
    found = traffic(SQUARE, TILE, dies)
    assert found.dies_bytes[0] == 2 * 3.625 * 2 * ONE_OPERAND
    assert found.dram_bytes[0] == found.dies_bytes[0]
    assert traffic(SQUARE, TILE, replace(dies, l2_partitions=1)).dies_bytes[0] == 0


def test_a_cache_on_the_memorys_side_serves_the_dies_copies_and_adds_to_the_capacity():
    # with half an operand more it is three eighths of both: 1 + 3 * 5 / 8
    dies = replace(ROUND, units=64, l2_bytes=ONE_OPERAND // 4, l2_partitions=2)
    found = traffic(SQUARE, TILE, replace(dies, mall_bytes=ONE_OPERAND // 2))
    assert found.dram_bytes[0] == 2.875 * 2 * ONE_OPERAND
    assert found.dies_bytes[0] == 2 * found.dram_bytes[0]


def test_a_slow_cache_in_front_of_dram_holds_the_launch_up():
    # eight dies draw both operands eight times: at 100 GB/s that takes longer than DRAM
    fast = replace(ROUND, units=64, l2_partitions=8, mall_bytes=1 << 40)
    slow = replace(fast, mall_bandwidth_gb_s=100.0)
    drawn = traffic(SQUARE, TILE, slow).dies_bytes[0]
    assert drawn == 8 * 2 * ONE_OPERAND
    assert estimate(SQUARE, TILE, slow).time_us >= drawn / 100e3
    assert estimate(SQUARE, TILE, fast).time_us < drawn / 100e3


def test_c_is_written_once_and_read_too_where_beta_is_not_0():
    out = 100 * 60 * 2
    assert traffic(Gemm(100, 60, 64), TILE, ROUND).store_bytes[0] == out
    assert traffic(Gemm(100, 60, 64, beta=0.5), TILE, ROUND).store_bytes[0] == 2 * out
    assert traffic(Gemm(100, 60, 64, out_dtype="fp32"), TILE, ROUND).store_bytes[0] == 2 * out


def test_parts_of_k_are_whole_tiles_in_fp32_and_no_parts_are_no_bytes():
    config = KernelConfig("split_k", 128, 64, 64, split_k=4)
    # one tile of 128 x 64 holds 100 x 60 of C: 4 parts of 4 bytes an element
    assert traffic(Gemm(100, 60, 1024), config, ROUND).part_bytes[0] == 128 * 64 * 4 * 4
    assert traffic(Gemm(100, 60, 1024), TILE, ROUND).part_bytes[0] == 0


def test_an_unknown_l2_counts_as_4_mib():
    unknown = replace(ROUND, units=64, l2_bytes=None, l2_partitions=None)
    known = replace(ROUND, units=64, l2_bytes=4 * 2**20, l2_partitions=1)
    assert (
        traffic(SQUARE, TILE, unknown).dram_bytes[0] == traffic(SQUARE, TILE, known).dram_bytes[0]
    )


# --- roofline -------------------------------------------------------------------------------------


def test_4096_cubed_on_an_h200_takes_139_us_of_arithmetic_and_23_us_of_traffic():
    found = roofline(SQUARE, H200)
    # 2 * 4096^3 = 137,438,953,472 FLOP at 989.4e6 a us; 3 * 4096^2 * 2 = 100,663,296 bytes at 4.3e6
    assert found.compute_us == pytest.approx(138.911, abs=1e-3)
    assert found.memory_us == pytest.approx(23.410, abs=1e-3)
    assert found.time_us == pytest.approx(138.911 + 2.7, abs=1e-3)


def test_one_row_takes_the_time_of_its_traffic():
    found = roofline(Gemm(1, 1000, 500), ROUND)
    # 2 * 500,000 FLOP at 1e8 a us; (500 + 500,000 + 1,000) * 2 bytes at 1e6 a us
    assert found.compute_us == pytest.approx(0.01)
    assert found.memory_us == pytest.approx(1.003)
    assert found.time_us == pytest.approx(3.003)


def test_unknown_copy_bandwidth_is_the_data_sheets_and_an_unknown_floor_is_0():
    chip = replace(ROUND, copy_bandwidth_gb_s=None, bandwidth_gb_s=2000.0, launch_floor_us=None)
    found = roofline(Gemm(1, 1000, 500), chip)
    assert (found.memory_us, found.floor_us) == (pytest.approx(0.5015), 0.0)


def test_tf32x3_has_a_third_of_the_rate_of_tf32_and_ieee_the_vector_units():
    rates = [peak_of(Gemm(8, 8, 8, "fp32", precision=p), H200) for p in ("tf32", "tf32x3", "ieee")]
    assert rates == [494.7, pytest.approx(164.9), 66.9]
    assert peak_of(Gemm(8, 8, 8, "fp32"), H200) == 494.7


def test_the_sustained_share_is_that_of_the_largest_product_measured_and_1_without_one():
    assert sustained(replace(ROUND, achievable_tflops_fp16=80.0), SQUARE) == 0.8
    assert sustained(replace(ROUND, achievable_tflops_fp16=120.0), SQUARE) == 1.0
    assert sustained(ROUND, SQUARE) == 1.0


@pytest.mark.parametrize(
    ("kind", "figure"),
    [
        ({"dtype": "bf16"}, "achievable_tflops_bf16"),
        ({"dtype": "fp8_e4m3"}, "achievable_tflops_fp8"),
        ({"dtype": "fp8_e5m2"}, "achievable_tflops_fp8"),
        ({"dtype": "fp32"}, "achievable_tflops_tf32"),
        ({"dtype": "fp32", "precision": "tf32x3"}, "achievable_tflops_tf32"),
        ({"dtype": "int8"}, "achievable_tflops_int8"),
    ],
)
def test_a_type_that_was_measured_has_a_share_of_its_own_and_another_that_of_fp16(kind, figure):
    problem = Gemm(4096, 4096, 4096, **kind)
    peak = H200.peak_tflops[rate_of(problem, H200)]
    assert sustained(H200, problem) == 790 / 989.4
    assert sustained(replace(H200, **{figure: 0.6 * peak}), problem) == pytest.approx(0.6)
    assert sustained(replace(H200, **{figure: 0.6 * peak}), SQUARE) == 790 / 989.4


def test_fp32_without_a_matrix_unit_does_not_go_by_tf32():
    problem = Gemm(4096, 4096, 4096, "fp32", precision="ieee")
    assert rate_of(problem, H200) == "fp32"
    assert sustained(replace(H200, achievable_tflops_tf32=100.0), problem) == 790 / 989.4


# --- the estimate ---------------------------------------------------------------------------------

#: 10 x 10 tiles of 128 on 100 units, 6400 / 64 = 100 steps
EVEN = Gemm(1280, 1280, 6400)


def test_one_full_round_takes_its_steps_its_epilogue_the_first_load_and_the_floor(round_constants):
    found = estimate(EVEN, TILE, ROUND)
    # a step: 2 * 128 * 128 * 64 = 2,097,152 FLOP at 1e6 a us, above
    # (128 + 128) * 64 * 2 = 32,768 bytes at 32 * 1000 a us = 1.024, and (1 + 1.024) / 3 stages
    assert found.compute_us == pytest.approx(100 * 2.097152)
    assert found.memory_us == pytest.approx(100 * 1.024)
    # C's tile of 32,768 bytes at twice a unit's share of 1e6 / 100 bytes a us
    assert found.epilogue_us == pytest.approx(0.5 + 32768 / 20000)
    steps = 100 * (2.097152 + 0.05)
    assert found.time_us == pytest.approx(steps + 0.5 + 1.6384 + 1.0 + 2.0)
    assert (found.bound, found.rounds, found.fill, found.tiles) == ("compute", 1, 1.0, 100)


def test_a_part_of_the_shorter_of_steps_and_traffic_does_not_hide(round_constants, monkeypatch):
    hidden = estimate(EVEN, TILE, ROUND).time_us
    monkeypatch.setattr(module, "_UNHIDDEN", 0.25)
    # operands of 1280 x 6400 and C of 1280 x 1280 elements at 1 MB a us
    dram = (2 * 1280 * 6400 + 1280 * 1280) * 2 / 1e6
    assert estimate(EVEN, TILE, ROUND).time_us == pytest.approx(hidden + 0.25 * dram)


def test_parts_for_a_second_kernel_are_written_and_read_as_a_copy_is():
    config = KernelConfig("warp_specialized", 128, 128, 64, num_stages=4, split_k=4)
    table = ConfigTable.of(config)
    found = module.estimate_columns(Gemm(256, 256, 8192), table, H200)
    parts = 4 * 256 * 256 * 4  # bytes
    # a second kernel of 3 us, both ways at 4.3 MB a us, through 132 L2 ports of 80 bytes a clock
    through_l2 = parts / (80.0 * 1830 * 132)
    assert found.split_us[0] == pytest.approx(3.0 + 2 * parts / 4.3e6 + through_l2)


def test_one_tile_more_than_the_slots_takes_a_second_round(round_constants):
    chip = replace(ROUND, shared_per_unit_bytes=ROUND.shared_per_block_bytes + 1024)
    big = replace(TILE, num_stages=6)  # 5 * 32,768 bytes: one block a unit
    one, two = (estimate(Gemm(1280, n, 6400), big, chip) for n in (1280, 1408))
    assert (one.blocks_per_unit, one.rounds, two.rounds) == (1, 1, 2)
    # 110 tiles on 100 units; all but floor and first load takes twice as long
    assert two.time_us - 3.0 == pytest.approx(2 * (one.time_us - 3.0))


def test_a_shallow_pipeline_waits_for_latency(round_constants):
    # two stages of mma.sync are one buffer: a step of 16 x 16 takes its load's latency, 1 us,
    # the transfer of (16 + 16) * 64 * 2 = 4,096 bytes at 32,000 a us, 0.128, and its products:
    # 2 * 16 * 16 * 64 = 32,768 FLOP at 1e6 a us = 0.032768
    small = KernelConfig("tile", 16, 16, 64, num_warps=4, num_stages=2)
    found = estimate(Gemm(160, 160, 6400), small, ROUND)
    assert found.bound == "latency"
    turn = 1.128 + 0.032768
    assert found.time_us == pytest.approx(100 * (turn + 0.05) + 0.5 + 512 / 20000 + 3.0)
    # four stages are three buffers: a third of the turn a step
    deep = estimate(Gemm(160, 160, 6400), replace(small, num_stages=4), ROUND)
    assert deep.time_us == pytest.approx(100 * (turn / 3 + 0.05) + 0.5 + 512 / 20000 + 3.0)


def test_loads_too_narrow_for_the_asynchronous_copy_have_one_buffer(round_constants):
    # K = 6399: rows of an odd number of elements, loads of 2 bytes; nothing overlaps, and they
    # move 16 bytes a clock where L2 would give 32
    found = estimate(Gemm(1280, 1280, 6399), TILE, ROUND)
    assert found.latency_us == pytest.approx(100 * (1.0 + 2 * 1.024 + 2.097152) + 3.0)


@pytest.mark.parametrize(
    ("template", "n", "shares"),
    [
        ("tile", 4096, (80 / 64, 80 / 64)),  # words of 16 bytes: 64 a clock
        ("tile", 1500, (80 / 64, 80 / 32)),  # rows of 3,000 bytes: words of 8
        ("split_k", 1502, (80 / 64, 80 / 16)),
        ("tile", 1501, (80 / 64, 80 / 16)),  # of 2: no slower than those of 4
        ("persistent_tma", 4096, (1.0, 1.0)),
    ],
)
def test_narrow_words_by_pointers_take_longer_than_l2(template, n, shares):
    table = ConfigTable.of(KernelConfig(template, 64, 64, 64, num_warps=4, num_stages=4))
    found = load_shares(Gemm(512, n, 4096, layout="nn"), table, H200, 80.0)
    assert [float(share[0]) for share in found] == list(shares)


def test_a_long_thin_product_takes_what_dram_needs(round_constants):
    # 64 x 6400 by 6400 x 64,000 elements: B of 819.2 MB at 1 MB a us, once
    problem = Gemm(64, 64000, 6400)
    found = estimate(problem, KernelConfig("tile", 64, 256, 64, num_warps=8, num_stages=4), ROUND)
    floor = (64 * 6400 + 64000 * 6400 + 64 * 64000) * 2 / 1e6
    assert found.bound == "memory"
    assert found.time_us == pytest.approx(floor + 3.0)


def test_blocks_that_share_a_unit_share_its_rate(round_constants):
    # 200 tiles on 100 units that hold two blocks each: one round at half the rate
    chip = replace(ROUND, max_blocks_per_unit=2)
    config = replace(TILE, block_m=64, num_stages=2)  # 24,576 bytes and some 90 registers
    one, two = (estimate(Gemm(640, n, 6400), config, chip) for n in (1280, 2560))
    assert (one.blocks_per_unit, one.rounds, two.rounds) == (2, 1, 1)
    assert two.compute_us == pytest.approx(2 * one.compute_us)


def step_us(problem, config, chip=ROUND):
    return float(module.estimate_columns(problem, ConfigTable.of(config), chip).step_us[0])


def test_products_of_a_small_tile_wait_for_each_other(monkeypatch):
    monkeypatch.setattr(module, "_STEP_US", 0.0)
    # 16 x 16 of 128 columns of K: 8 products by mma.sync, 50 clocks each, behind 20 of the loads,
    # at 1000 MHz; two units' worth of stages hide the rest
    deep = KernelConfig("tile", 16, 16, 128, num_warps=4, num_stages=16)
    assert step_us(Gemm(160, 160, 12800), deep) == pytest.approx(0.420)
    half = replace(deep, block_k=64, num_stages=32)
    assert step_us(Gemm(160, 160, 12800), half) == pytest.approx(0.220)
    by_descriptor = replace(deep, template="persistent_tma")
    assert step_us(Gemm(160, 160, 12800), by_descriptor) == pytest.approx(0.600)


def test_what_pointers_load_is_written_where_products_read(monkeypatch):
    monkeypatch.setattr(module, "_STEP_US", 0.0)
    # (128 + 128) * 64 * 2 = 32,768 bytes at 128 a clock are 256 clocks on top of 2.097152 us
    assert step_us(EVEN, TILE) == pytest.approx(2.097152 + 0.256)
    assert step_us(EVEN, replace(TILE, template="persistent_tma")) == pytest.approx(2.097152)


def shares(problem, config):
    return [float(share[0]) for share in line_shares(problem, ConfigTable.of(config), H200)]


def test_a_run_of_half_a_line_comes_twice_by_pointers_and_once_by_descriptor():
    narrow = replace(TILE, block_k=32)  # 64 bytes of fp16, and a line has 128
    assert shares(EVEN, narrow) == [2.0, 2.0]
    assert shares(EVEN, TILE) == [1.0, 1.0]
    assert shares(replace(EVEN, layout="nn"), narrow) == [2.0, 1.0]  # B's runs are 128 columns
    assert shares(replace(EVEN, layout="tt"), narrow) == [1.0, 2.0]
    assert shares(replace(EVEN, dtype="fp8_e4m3"), TILE) == [2.0, 2.0]
    assert shares(EVEN, replace(narrow, template="persistent_tma")) == [1.0, 1.0]
    assert shares(EVEN, replace(narrow, block_k=16)) == [2.0, 2.0]  # no more was measured
    found = traffic(Gemm(1024, 1024, 512), narrow, ROUND)
    assert found.dram_bytes[0] == 2 * (2 * 1024 * 512 * 2)


def test_rows_past_the_end_of_a_narrow_operand_cost_a_descriptor_more_than_rows(monkeypatch):
    monkeypatch.setattr(module, "_L2_BYTES_PER_CLOCK", 1.0)
    monkeypatch.setattr(module, "_STEP_US", 0.0)
    config = KernelConfig("persistent_tma", 64, 64, 64, num_warps=4, num_stages=8)
    # 128 bytes a row at 1 a clock: 64 rows of B, 1 of A and 63 that are filled, 2.6 each
    assert step_us(Gemm(1, 6400, 6400), config) == pytest.approx(0.128 * (64 + 1 + 63 * 2.6))
    assert step_us(Gemm(1, 6400, 6400), replace(config, template="tile")) == pytest.approx(
        0.128 * 65
    )


def test_a_load_that_l2_serves_takes_less_than_one_from_dram(monkeypatch):
    monkeypatch.setattr(module, "_CHAIN_CLOCKS", {})
    monkeypatch.setattr(module, "_STEP_US", 0.0)
    config = KernelConfig("persistent_tma", 16, 16, 64, num_warps=4, num_stages=2)
    # one tile reads all from DRAM; of 10 x 10 tiles, each operand's bytes come 10 times from L2
    alone, many = (step_us(Gemm(n, n, 6400), config) for n in (16, 160))
    rest = 4096 / 80e3 + 0.032768  # transfer at 80 bytes a clock, products at 1e6 FLOP a us
    assert alone == pytest.approx(0.7 + rest)
    assert many == pytest.approx(0.3 + 0.4 / 10 + rest)


def test_blocks_beside_each_other_hide_their_epilogues(round_constants):
    chip = replace(ROUND, max_blocks_per_unit=2)
    config = replace(TILE, block_m=64, num_stages=2)
    # 600 tiles on 200 slots: three rounds, of which the last two's waits are half hidden
    found = estimate(Gemm(64 * 60, 1280, 6400), config, chip)
    stored = 2 * 64 * 128 * 2 / 20000
    assert found.rounds == 3
    assert found.epilogue_us == pytest.approx(0.5 * (1 + 2 / 2) + 3 * stored)


def test_the_first_use_of_descriptors_delays_a_start(round_constants):
    config = replace(TILE, template="persistent_tma")
    assert estimate(EVEN, config, ROUND).time_us == pytest.approx(
        estimate(EVEN, TILE, ROUND).time_us + 1.5
    )


def test_the_addition_of_parts_costs_its_wait_the_last_blocks_reads_and_the_writes(round_constants):
    config = KernelConfig("split_k", 128, 128, 64, split_k=4, num_warps=8, num_stages=4)
    found = estimate(Gemm(640, 640, 6400), config, ROUND)
    # 25 tiles of 65,536 bytes in 4 parts; a unit moves 32,000 bytes a us, all together 3.2e6
    assert found.split_us == pytest.approx(2.0 + 4 * 65536 / 32000 + 25 * 4 * 65536 / 3.2e6)
    assert estimate(Gemm(640, 640, 6400), TILE, ROUND).split_us == 0


def test_each_register_that_spills_slows_the_arithmetic(round_constants):
    problem, table = (
        Gemm(1280, 2560, 6400),
        ConfigTable.of(
            [KernelConfig("tile", 128, 256, 64, num_warps=w, num_stages=3) for w in (4, 8)]
        ),
    )
    found = estimate_columns(problem, table, replace(ROUND, max_blocks_per_unit=1))
    spilled = found.registers.spilled
    # 128 * 256 sums over 128 threads are 256 registers a thread, past 255; over 256, half of it
    assert spilled[0] > 0 and spilled[1] == 0
    assert found.compute_us[0] / found.compute_us[1] == pytest.approx(1 + 0.1 * spilled[0])


def test_an_mma_of_the_older_kind_on_a_chip_with_wgmma_has_a_lower_rate():
    modern = replace(ROUND, mma=("wgmma", "mma.sync"))
    narrow = ConfigTable.of([KernelConfig("tile", 32, 256, 64), KernelConfig("tile", 64, 256, 64)])
    found = estimate_columns(EVEN, narrow, modern)
    assert found.matrix_share.tolist() == [module._MMA_SYNC_SHARE, 1.0]


def test_wgmma_of_16_columns_reads_longer_than_it_multiplies():
    found = estimate_columns(EVEN, ConfigTable.of(KernelConfig("tile", 64, 16, 64)), H200)
    # H200, a clock and SM: 989.4e12 / 132 / 2 / 1830e6 = 2,048 products. 64 * 16 columns * 16 deep
    # take 8 clocks; reading (64 + 16) * 16 * 2 bytes at 128 a clock takes 20
    assert found.matrix_share[0] == pytest.approx(8 / 20, rel=1e-3)


def test_one_call_is_the_column_calls_row():
    table = candidates(SQUARE, H200)
    columns = estimate_columns(SQUARE, table, H200)
    for row in range(0, len(table), 97):
        assert estimate(SQUARE, table[row], H200) == estimate_row(SQUARE, columns, row)


def test_an_estimate_holds_pythons_own_numbers():
    found = estimate(SQUARE, TILE, H200)
    kinds = {field.name: type(getattr(found, field.name)).__name__ for field in fields(Estimate)}
    assert set(kinds.values()) == {"float", "int", "str"}
    assert kinds["bound"] == "str" and kinds["tiles"] == "int" and kinds["time_us"] == "float"


def test_no_estimate_is_below_the_roofline_nor_below_its_own_parts():
    table = candidates(SQUARE, H200)
    found = estimate_columns(SQUARE, table, H200)
    assert (found.time_us >= roofline(SQUARE, H200).time_us).all()
    assert (found.time_us >= found.epilogue_us + found.split_us).all()


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 2**31 - 2**16)] * 3),
    chip=st.sampled_from(list_profiles()),
    config=st.builds(
        KernelConfig,
        st.sampled_from(TEMPLATES),
        *[st.integers(1, 5000)] * 3,
        group_m=st.none() | st.integers(1, 100),
        split_k=st.integers(1, 1000),
        num_warps=st.none() | st.integers(1, 128),
        num_stages=st.none() | st.integers(1, 99),
        load_bits=st.none() | st.integers(8, 256),
        swap=st.booleans(),
        epilogue_parts=st.integers(1, 9),
    ),
)
def test_an_illegal_configuration_is_priced_and_never_raises(sizes, chip, config):
    found = estimate(Gemm(*sizes), config, load_profile(chip))
    assert np.isfinite(found.time_us) and found.time_us > 0
    assert found.bound in BOUNDS


# --- unknown figures ------------------------------------------------------------------------------

UNKNOWN = replace(
    H200,
    name="unknown-chip",
    device_names=(),
    **dict.fromkeys(
        (
            "boost_clock_mhz", "peak_clock_mhz", "copy_bandwidth_gb_s", "l2_bytes",
            "l2_partitions", "mall_bytes", "shared_per_unit_bytes", "shared_reserved_bytes",
            "shared_granularity_bytes", "registers_per_unit", "max_registers_per_thread",
            "register_granularity", "max_warps_per_unit", "max_blocks_per_unit",
            "max_threads_per_block", "subpartitions", "launch_floor_us", "achievable_tflops_fp16",
        )
    ),
)  # fmt: skip


def test_a_chip_of_which_only_sram_bandwidth_and_rates_are_known_is_estimated():
    found = estimate(SQUARE, TILE, UNKNOWN)
    assert 138.9 < found.time_us < 10_000
    assert found.roofline_us == pytest.approx(138.911, abs=1e-3)  # no floor on top


@pytest.mark.parametrize("model", [None, "physics"])
def test_a_chip_of_which_only_sram_bandwidth_and_rates_are_known_gets_an_answer(model):
    found = predict_best(SQUARE, UNKNOWN, model=model, use_measured=False)
    assert found.source in ("model", "physics")
    assert 138.9 < found.time_us < 1000


def test_the_explanation_of_a_chip_says_which_of_its_figures_are_unknown():
    text = predict_best(SQUARE, UNKNOWN, use_measured=False).explain().lower()
    assert "unknown" in text.replace("unknown-chip", "")
    assert "l2" in text and "launch floor" in text
