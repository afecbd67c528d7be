"""The four layers, one knob at a time, and a knob forced: hand arithmetic and the public cases."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import ConfigError, CostModelError, UnknownNameError
from costmodel.explain.knobs import changed, forced, neighbours, parse_settings
from costmodel.explain.layers import Row, layers
from costmodel.explain.rejected import RejectedReport
from costmodel.explain.report import report
from costmodel.physics.banks import bank_ways, meets_one_channel
from costmodel.physics.estimate import estimate_columns
from costmodel.predict import predict_best
from costmodel.price import price
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, load_profile
from costmodel.ranking.cascade import SHORTLIST
from costmodel.space.prune import Rejection, broken_rule

CHIP = "h200-sxm"
TILE = KernelConfig("tile", 128, 128, 64, num_warps=8, num_stages=4)


@pytest.fixture(autouse=True)
def _no_answers_or_models_of_a_user(monkeypatch, tmp_path):
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))


def figures(shape, config=TILE, chip=CHIP, **options):
    problem = Gemm.of(shape, **options)
    profile = chip if isinstance(chip, HardwareProfile) else load_profile(chip)
    physics = estimate_columns(problem, ConfigTable.of(config), profile)
    found = layers(Row(problem, config, profile, physics))
    return {name: value for layer in found for name, value in layer.figures.items()}


def test_a_ring_of_four_stages_of_two_128x64_fp16_tiles_takes_128_kib():
    f = figures((4096, 4096, 4096))
    assert f["operand_ring_bytes"] == 4 * 2 * 128 * 64 * 2 == f["shared_bytes"]
    assert f["shared_limit_bytes"] == 232448 and f["blocks_per_unit"] == 1
    assert f["limiter"] == "shared_memory"
    assert f["instruction"] == "wgmma"
    assert f["load_bytes_a"] == f["load_bytes_b"] == f["store_bytes_c"] == 16
    assert f["copy"] == "cp.async"


def test_traffic_grows_from_dram_to_l2_by_the_tiles_reuse():
    f = figures((4096, 4096, 4096))
    # every tile column reads A anew and every tile row B: 32 times 2 x 32 MiB
    assert f["l2_bytes"] == 32 * 2 * 4096 * 4096 * 2
    assert f["intensity_in_l2"] == pytest.approx(2 * 4096**3 / f["l2_bytes"])  # 64 FLOP a byte
    assert f["intensity_in_l2"] < f["intensity_in_dram"] <= f["arithmetic_intensity"]


def test_wave_tail_320_tiles_on_256_units_are_two_rounds_the_second_25_percent_full():
    from dataclasses import replace

    chip = replace(load_profile(CHIP), units=256)
    config = KernelConfig("persistent_tma", 256, 256, 64, num_warps=8, num_stages=3)
    f = figures((1024, 20480, 6144), config, chip)
    assert (f["tiles"], f["slots"], f["rounds"]) == (320, 256, 2)
    assert f["waves"] == 1.25 and f["last_round_fill"] == 0.25


def test_a_pipeline_of_four_stages_has_three_steps_in_flight():
    f = figures((4096, 4096, 4096))
    assert f["k_steps"] == 64 and f["steps_ahead"] == 3
    assert f["pipeline_fill"] == 4 / 64
    # 132 blocks, 3 steps ahead, two tiles of 128x64 fp16; DRAM asks for 4300 GB/s x 0.7 us
    assert f["bytes_in_flight"] == 132 * 3 * 2 * 128 * 64 * 2
    assert f["bytes_to_cover_latency"] == pytest.approx(4300e3 * 0.7)


def test_without_hints_loads_go_through_registers_and_nothing_is_ahead():
    f = figures((4096, 4096, 4096), KernelConfig("tile", 128, 128, 64, load_bits=16))
    assert f["load_bytes_a"] == 2 and f["copy"] == "registers" and f["steps_ahead"] == 1


@pytest.mark.parametrize(
    ("pitch", "ways"),
    [
        (16, 1),  # 8 rows of 16 bytes fill the 128 bytes of all banks
        (64, 4),  # BLOCK_K 32 in fp16: rows 0, 2, 4, 6 start at bank 0
        (128, 8),  # BLOCK_K 64: every row does
        (256, 8),
        (144, 1),  # padded by 16 bytes
    ],
)
def test_bank_conflicts_of_rows_read_eight_at_a_time(pitch, ways):
    starts = [row * pitch % 128 for row in range(8)]
    assert bank_ways(pitch) == ways == max(starts.count(start) for start in starts)


def test_rows_of_8192_fp16_meet_one_channel_and_padded_ones_do_not():
    assert meets_one_channel(2 * 8192) and not meets_one_channel(2 * (8192 + 8))


@pytest.mark.parametrize("chip", [CHIP, "a100-sxm-80gb", "mi300x", "rtx-4090"])
@pytest.mark.parametrize("shape", [(1, 4096, 4096), (512, 512, 8192), (1000, 999, 33)])
def test_every_neighbour_differs_in_one_knob_and_is_priced_or_rejected(chip, shape):
    prediction = predict_best(shape, chip)
    found = neighbours(prediction)
    assert {"block_m", "block_n", "block_k", "split_k", "swap"} <= {n.knob for n in found}
    for near in found:
        config = KernelConfig.parse(near.config)
        differing = {
            k for k, v in config.as_dict().items() if v != prediction.config.as_dict()[k]
        } - {"template"}
        assert differing == {near.knob}
        broken = broken_rule(prediction.problem, config, prediction.profile)
        assert (near.change is None) == (near.rejection is not None) == (broken is not None)


def test_the_price_of_a_neighbour_is_what_the_ranking_says():
    prediction = predict_best((4096, 4096, 4096), CHIP)
    # the model has its say on the shortlist alone
    rows = {row.config: row.time_us for row in list(prediction.ranking)[:SHORTLIST]}
    for near in neighbours(prediction):
        time_us = rows.get(KernelConfig.parse(near.config))
        if time_us is not None and near.time_us is not None and time_us < 400:
            assert near.time_us == pytest.approx(time_us)


def test_a_forced_knob_is_priced_beside_the_best():
    best = predict_best((512, 512, 8192), CHIP)
    wanted = changed(best.config, parse_settings(["num_stages=3"]))
    answer = forced(best, wanted)
    assert answer.config.num_stages == 3 and answer.time_us >= best.time_us
    found = report(answer, best=best)
    assert found.instead_of.config == str(best.config)
    assert "forcing costs +" in found.text()


def test_forcing_what_does_not_fit_says_by_how_much_and_what_repairs_it():
    # the public case: 128x256x64 fp16, 8 warps, 4 stages on an L40S takes 147456 of 101376 bytes
    best = predict_best((4096, 4096, 4096), "l40s")
    config = KernelConfig("tile", 128, 256, 64, num_warps=8, num_stages=4)
    answer = forced(best, config)
    assert isinstance(answer, Rejection)
    refused = RejectedReport.of(best, answer)
    assert (refused.reason, refused.needed, refused.limit) == ("shared_memory", 147456, 101376)
    assert "46080 too many" in refused.causes[0].evidence
    offered = [KernelConfig.parse(r.config) for r in refused.repairs]
    assert any(c.num_stages == 3 and c.block_n == 256 for c in offered)
    assert any(c.num_stages == 4 and c.block_n == 128 for c in offered)
    assert all(broken_rule(best.problem, c, best.profile) is None for c in offered)
    assert max(map(len, refused.text().splitlines())) <= 100
    assert {"bound", "causes"} <= set(json.loads(json.dumps(refused.as_dict())))


def test_splitting_k_of_a_plain_tile_takes_the_template_that_can():
    assert changed(TILE, {"split_k": 4}).template == "split_k"
    assert changed(changed(TILE, {"split_k": 4}), {"split_k": 1}) == TILE


@pytest.mark.parametrize(
    ("setting", "error"),
    [("num_stages", ConfigError), ("num_stages=x", ConfigError), ("stages=3", UnknownNameError),
     ("swap=5", ConfigError), ("template=tiles", UnknownNameError), ("num_stages=", ConfigError)],
)  # fmt: skip
def test_a_setting_that_is_none_is_named(setting, error):
    with pytest.raises(error, match=r"stages|swap|tiles|setting"):
        parse_settings([setting])


KNOB = st.integers(1, 512)


@given(
    st.builds(
        KernelConfig, st.sampled_from(["tile", "split_k", "packed"]), KNOB, KNOB, KNOB,
        group_m=KNOB, split_k=KNOB, num_warps=KNOB, num_stages=KNOB,
        load_bits=st.sampled_from([16, 64, 128]), swap=st.booleans(),
        epilogue_parts=st.integers(1, 2),
    )
)  # fmt: skip
def test_a_configuration_is_read_as_it_is_written(config):
    assert KernelConfig.parse(str(config)) == config


@given(st.text())
def test_what_is_no_configuration_is_an_error_of_ours(text):
    try:
        assert isinstance(KernelConfig.parse(text), KernelConfig)
    except CostModelError:
        pass


def test_price_gives_each_configuration_a_time_or_a_rejection():
    problem, chip = Gemm(4096, 4096, 4096), load_profile(CHIP)
    fits, not_fits = TILE, KernelConfig("tile", 256, 256, 64, num_stages=5)
    priced = price(problem, [fits, not_fits], chip)
    assert set(priced.time_us) == {fits} and set(priced.rejections) == {not_fits}
