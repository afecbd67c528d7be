"""Explanations: each cause and figure on a shape whose numbers can be worked out by hand.

Where a test fixes the configuration, the trained model has no say in it.
"""

import dataclasses
import json

import pytest

from costmodel.config import KernelConfig
from costmodel.explain.causes import causes
from costmodel.explain.layers import us
from costmodel.explain.report import report
from costmodel.physics.estimate import estimate
from costmodel.predict import predict_best
from costmodel.profile import load_profile

CHIP = "h200-sxm"  # 132 SMs, 989.4 TFLOPS in fp16, copies at 4300 GB/s, launch floor 2.7 us
TILE = KernelConfig("tile", 128, 128, 64, num_warps=8, num_stages=4)


@pytest.fixture(autouse=True)
def _no_answers_or_models_of_a_user(monkeypatch, tmp_path):
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))


def explained(shape, config=TILE, chip=CHIP, **options):
    return {c.name: c for c in causes(predict_best(shape, chip, configs=[config], **options))}


def test_a_small_c_with_a_long_k_has_too_few_tiles_and_splitting_k_is_proposed():
    found = explained((512, 512, 8192))
    # 4 x 4 tiles of 128; 8 parts of each are the most that 132 SMs hold at once
    assert found["low_block_count"].evidence == "16 tiles of 128x128 for 132 SMs"
    assert found["low_block_count"].remedy == "split K: split_k=8 gives 128 programs"
    # 8192 / 512 = 16, and 8192 / 64 = 128 steps
    assert "K = 8192 is 16.0 times the longer side of C, 512" in found["long_k"].evidence
    assert "128 steps of 64" in found["long_k"].evidence
    assert "split_k=8" in found["long_k"].remedy
    assert set(found) == {"low_block_count", "long_k"}


def test_the_chosen_configuration_of_that_shape_splits_k_and_the_remedy_says_so():
    prediction = predict_best((512, 512, 8192), CHIP)
    found = {c.name: c for c in causes(prediction)}
    assert prediction.config.split_k > 1
    assert {"low_block_count", "long_k"} <= set(found)
    assert f"split_k={prediction.config.split_k} gives" in found["low_block_count"].remedy


def test_a_k_of_one_step_cannot_be_split():
    found = explained((128, 128, 64))
    assert found["low_block_count"].evidence == "1 tile of 128x128 for 132 SMs"
    assert "too short to split" in found["low_block_count"].remedy


def test_one_row_times_a_matrix_is_memory_bound():
    found = explained((1, 4096, 4096))["memory_bound"]
    # 2 * 4096 * 4096 FLOP over 2 * (4096 + 4096 * 4096 + 4096) bytes; 989.4e12 / 4300e9 = 230
    assert "1.0 FLOP a byte, and the ridge is at 230" in found.evidence
    # 33.57 MB / 4.3 TB/s = 7.81 us; 33.55 MFLOP / 989.4 TFLOPS = 0.034 us
    assert "33.6 MB at 4300 GB/s take 7.81 us, the arithmetic 0.03 us" in found.evidence


def test_a_large_square_is_not_memory_bound():
    assert explained((4096, 4096, 4096)) == {}


def test_25_tiles_in_the_last_of_three_rounds_are_a_partial_wave():
    # 17 x 17 tiles, 2 * 132 of them in full rounds; 128 KB of SRAM let one block into an SM
    config = KernelConfig("persistent_tma", 128, 128, 64, num_warps=4, num_stages=4)
    found = explained((2176, 2176, 2048), config)["partial_wave"]
    assert found.evidence == "289 tiles of 128x128 in 3 rounds of 132: the last has 25 (19% full)"


@pytest.mark.parametrize(
    ("side", "partial"),
    [
        (1408, False),  # 121 tiles: one round
        (1536, True),  # 144 tiles: 12 in the second
        (1920, False),  # 225 tiles: 93 in the second, 70 %
        (2944, False),  # 529 tiles: five rounds, 1 in the last
    ],
)
def test_a_partial_wave_needs_two_to_four_rounds_and_a_last_one_under_60_percent(side, partial):
    config = KernelConfig("persistent_tma", 128, 128, 64, num_warps=4, num_stages=4)
    assert ("partial_wave" in explained((side, side, 2048), config)) is partial


def test_rows_of_4095_fp16_are_14_bytes_past_a_multiple_of_16():
    found = explained((4095, 4095, 4095))["unaligned_rows"]
    # 4095 * 2 = 8190 = 511 * 16 + 14
    for name in "ABC":
        assert f"{name}'s rows of 8190 bytes are 14 past a multiple" in found.evidence
    assert found.remedy.startswith("pad K to 4096 and N to 4096")


def test_only_the_operands_with_odd_rows_are_named():
    # layout nt: rows of A and B have K elements; N = 100 fp16 are 200 = 12 * 16 + 8 bytes
    found = explained((256, 100, 4096))["unaligned_rows"]
    assert "C's rows of 200 bytes are 8 past a multiple" in found.evidence
    assert "A's" not in found.evidence and "B's" not in found.evidence
    assert found.remedy.startswith("pad N to 104,")
    # layout tn: A is stored [K, M], so its rows have M elements
    found = explained((100, 256, 4096), layout="tn")["unaligned_rows"]
    assert "A's rows of 200 bytes" in found.evidence
    assert found.remedy.startswith("pad M to 104,")


def test_a_single_row_has_no_step_that_could_be_odd():
    assert "unaligned_rows" not in explained((1, 4096, 4096))
    found = explained((1, 4095, 4096))
    assert "unaligned_rows" not in found  # C is one row of 4095; A and B have rows of 4096


def test_a_128x256_accumulator_does_not_fit_four_warps_registers():
    # 128 * 256 / (4 * 32) = 256 sums a thread, of 255 registers
    wide = KernelConfig("tile", 128, 256, 64, num_warps=4, num_stages=3)
    found = explained((4096, 4096, 4096), wide)["spill"]
    assert "may have 255" in found.evidence
    assert "spill" not in explained(
        (4096, 4096, 4096), KernelConfig("tile", 128, 256, 64, num_warps=8, num_stages=3)
    )


def test_a_tiny_product_is_bound_by_the_launch():
    prediction = predict_best((64, 64, 64), CHIP)
    found = {c.name: c for c in causes(prediction)}["launch_bound"]
    assert f"takes 2.7 of the {prediction.time_us:.1f} us" in found.evidence
    assert "launch_bound" not in explained((4096, 4096, 4096))


def test_blocks_of_32_rows_miss_hoppers_fast_instruction():
    short = KernelConfig("tile", 32, 128, 64, num_warps=4, num_stages=4)
    found = explained((4096, 4096, 4096), short)["slow_instruction"]
    assert "mma.sync on 32x128 blocks" in found.evidence and "62%" in found.evidence
    # swapped, the kernel's rows are the problem's columns
    assert "slow_instruction" not in explained(
        (4096, 4096, 4096), dataclasses.replace(short, swap=True, block_n=128, block_m=128)
    )


def test_fp32_without_rounding_has_no_matrix_instruction():
    small = KernelConfig("tile", 64, 64, 32, num_warps=4, num_stages=3)
    found = explained((1024, 1024, 1024), small, dtype="fp32", precision="ieee")
    assert "67 TFLOPS" in found["slow_instruction"].evidence
    assert "tf32" in found["slow_instruction"].remedy


def test_a_chip_whose_matrix_unit_triton_leaves_alone_is_said_to_multiply_slowly():
    t4 = load_profile("t4")
    small = KernelConfig("tile", 64, 64, 16, num_warps=4, num_stages=2)
    found = explained((4096, 4096, 4096), small, t4)["slow_instruction"]
    # 8.1 TFLOPS of fp32 beside 65 of fp16
    assert "12% of the peak of 65 TFLOPS" in found.evidence and "block_k" in found.remedy
    # one row reads the weights in 105 us, and multiplies in 4
    assert "slow_instruction" not in explained((1, 4096, 4096), small, t4)


def test_the_parts_of_the_time_add_up_to_the_estimate():
    for shape, config in (
        ((4096, 4096, 4096), TILE),
        ((512, 512, 8192), dataclasses.replace(TILE, template="split_k", split_k=8)),
        ((16384, 64, 64), dataclasses.replace(TILE, block_n=64)),
    ):
        found = report(predict_best(shape, CHIP, configs=[config]))
        p = found.parts
        total = p.start_us + p.loop_us + p.epilogue_us + p.split_us + p.dram_wait_us
        total += p.unhidden_us
        problem = predict_best(shape, CHIP, configs=[config])
        assert total == pytest.approx(p.total_us)
        assert p.total_us == estimate(problem.problem, config, problem.profile).time_us
        # the launch floor and the first load's latency, and what a descriptor's first use takes
        assert p.start_us == pytest.approx(2.7 + 0.7, abs=1e-9)
        assert p.dram_wait_us >= 0 and p.unhidden_us > 0


def test_the_roofline_figures_are_the_hand_computed_ones():
    roof = report(predict_best((4096, 4096, 4096), CHIP, configs=[TILE])).roofline
    assert roof.compute_us == pytest.approx(2 * 4096**3 / 989.4e6)  # 138.9 us
    assert roof.memory_us == pytest.approx(3 * 2 * 4096**2 / 4300e3)  # 23.4 us
    assert roof.arithmetic_intensity == pytest.approx(4096 / 3)
    assert roof.ridge == pytest.approx(989.4e3 / 4300)
    assert roof.bound == "compute" and roof.floor_us == 2.7


def test_the_runners_up_are_the_next_of_the_ranking_and_no_faster():
    prediction = predict_best((4096, 4096, 4096), CHIP)
    found = report(prediction)
    assert [r.config for r in found.runners_up] == [
        str(prediction.ranking[i].config) for i in (1, 2, 3)
    ]
    assert all(r.slower >= 0 for r in found.runners_up)
    assert len(report(prediction, top=7).runners_up) == 7


def test_each_rejection_reason_has_the_nearest_miss_and_a_repair():
    prediction = predict_best((4096, 4096, 4096), CHIP)
    found = report(prediction)
    assert {g.reason: g.count for g in found.rejections} == prediction.rejections.counts()
    for group in found.rejections:
        assert group.needed > group.limit and group.repair
    memory = next(g for g in found.rejections if g.reason == "shared_memory")
    of_rule = [r.needed for r in prediction.rejections if r.reason == "shared_memory"]
    assert memory.limit == 232448 and memory.needed == min(of_rule)


@pytest.mark.parametrize("chip", ["a100-sxm-80gb", "h100-sxm", CHIP, "mi300x", "rtx-4090"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (4095, 17, 8191), (2**17, 4096, 2**15)])
def test_every_report_is_plain_text_of_100_columns_and_json(chip, shape):
    found = report(predict_best(shape, chip))
    text = found.text()
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text and found.config in " ".join(text.split())
    again = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert again["config"] == found.config
    assert [c["name"] for c in again["causes"]] == [c.name for c in found.causes]


def test_prediction_explains_itself_with_the_report():
    prediction = predict_best((512, 512, 8192), CHIP)
    assert prediction.explain() == report(prediction).text()
    assert "low_block_count: " in prediction.explain()


def test_a_measured_answer_is_explained_though_the_ranking_expected_otherwise():
    from costmodel.records.answers import Answer, now, remember

    before = predict_best((512, 512, 8192), CHIP)
    chosen = before.ranking[4].config
    time_us = before.time_us * 2
    remember(before.problem, before.profile, Answer(chosen, time_us, 1.0, 99.0, None, now()))
    found = report(predict_best((512, 512, 8192), CHIP))
    assert found.source == "measured" and found.config == str(chosen)
    assert "measured on this chip before" in found.text()
    # a prediction is compared with a prediction, not with what the answer took
    assert found.runners_up[0].config == str(before.config)
    predicted = before.time_us / before.ranking[4].time_us - 1
    assert found.runners_up[0].slower == pytest.approx(predicted)


def test_times_keep_three_digits_or_so():
    assert [us(x) for x in (2.704, 18.88, 2500.4)] == ["2.70 us", "18.9 us", "2500 us"]


def test_one_token_in_fp16_is_not_told_to_use_tf32():
    causes = report(predict_best((1, 4096, 4096), "h200-sxm", use_measured=False)).causes
    assert not [cause for cause in causes if cause.name == "slow_instruction"]


def test_where_the_launch_is_all_there_is_no_traffic_bounds_anything():
    names = {cause.name for cause in report(predict_best((1, 1, 1), CHIP)).causes}
    assert "memory_bound" not in names
    assert "memory_bound" in {
        cause.name for cause in report(predict_best((1, 4096, 4096), CHIP)).causes
    }
