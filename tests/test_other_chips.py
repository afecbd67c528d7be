"""Chips that name their own memories and knobs, and every shipped profile put to use."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import NoCandidateError
from costmodel.explain.report import report
from costmodel.physics.estimate import estimate, estimate_columns
from costmodel.predict import predict_best
from costmodel.problem import Gemm
from costmodel.profile import list_profiles, load_profile
from costmodel.profile.memory import Memory
from costmodel.resources.footprint import footprint
from costmodel.resources.matrix_unit import MatrixUnit
from costmodel.resources.memories import memory_bytes, memory_uses
from costmodel.space.candidates import candidates
from costmodel.space.prune import prune

ASCEND = load_profile("ascend-910b2")
SQUARE = Gemm(4096, 4096, 4096)
#: the block of triton-ascend's matmul tutorial
RECIPE = KernelConfig(
    "tile", 128, 256, 256, num_warps=None, num_stages=None, load_bits=None
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _own_home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSTMODEL_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def uses(config, problem=SQUARE, chip=ASCEND):
    return {use.name: use for use in memory_uses(problem, config, chip)}


def rejection(config, problem=SQUARE, chip=ASCEND):
    with pytest.raises(NoCandidateError) as caught:
        prune(problem, [config], chip)
    _, rejections = prune(problem, [config, RECIPE], chip)
    return rejections[0], str(caught.value)


# --- Ascend 910B ----------------------------------------------------------------------------------


def test_the_public_recipe_is_legal_and_fills_l0c_exactly():
    kept, rejections = prune(SQUARE, [RECIPE], ASCEND)
    assert len(kept) == 1 and not len(rejections)
    found = uses(RECIPE)
    assert (found["L0C"].needed_bytes, found["L0C"].capacity_bytes) == (131_072, 131_072)
    assert found["L0C"].needed_bytes == 128 * 256 * 4
    assert [name for name, use in found.items() if use.binds] == ["L0C"]


def test_l1_holds_two_buffers_of_a_step_of_both_operands():
    found = uses(RECIPE)["L1"]
    assert (found.needed_bytes, found.capacity_bytes) == (393_216, 524_288)
    assert found.needed_bytes == 2 * (128 * 256 + 256 * 256) * 2
    assert footprint(SQUARE, RECIPE, ASCEND).shared_bytes == 393_216


def test_a_tile_of_256x256_is_rejected_with_l0c_named():
    found, message = rejection(replace(RECIPE, block_m=256))
    assert (found.reason, found.needed, found.limit) == ("L0C", 262_144, 131_072)
    assert "accumulator of a block in L0C" in str(found) and "L0C" in message
    assert all(rule in str(found.repairs) for rule in ("block_m=128", "block_n=128"))


def test_a_step_too_deep_is_rejected_with_l1_named():
    found, _ = rejection(replace(RECIPE, block_k=512))
    assert (found.reason, found.needed, found.limit) == ("L1", 786_432, 524_288)


def test_l0a_and_l0b_cut_the_step_and_never_reject_it():
    # half of 64 KiB holds 128 rows of 128 elements of 2 bytes, or 256 columns of 64
    found = uses(RECIPE)
    assert (found["L0A"].inner_step, found["L0B"].inner_step) == (128, 64)
    assert found["L0A"].needed_bytes == found["L0B"].needed_bytes == 65_536
    # 16 rows could hold 1,024 elements: the whole step goes in
    assert uses(replace(RECIPE, block_m=16))["L0A"].inner_step == 256
    # the least step of 16 would not fit only past 1,024 rows
    table = ConfigTable.of(replace(RECIPE, block_m=1024, block_n=16))
    assert memory_bytes(SQUARE, table, ASCEND.memories[1])[0] == 65_536


def test_ub_is_used_by_a_fused_epilogue_alone():
    assert uses(RECIPE)["UB"].needed_bytes == 0
    # each of the two vector cores has half of the tile, twice, in fp32
    fused = uses(RECIPE, Gemm(4096, 4096, 4096, epilogue="bias+gelu"))["UB"]
    assert fused.needed_bytes == 128 * 256 * 4 and fused.capacity_bytes == 196_608
    assert uses(RECIPE, Gemm(4096, 4096, 4096, beta=1.0))["UB"].needed_bytes == 131_072


def test_the_answer_for_an_ascend_has_neither_warps_nor_stages():
    found = predict_best((4096, 4096, 4096), "ascend-910b2")
    assert (found.config.block_m, found.config.block_n) in ((128, 256), (256, 128))
    assert found.config.num_warps is found.config.num_stages is found.config.load_bits is None
    assert "w4" not in str(found.config) and found.source == "physics"
    for row in found.ranking:
        assert row.config.num_warps is None and row.config.template == "tile"


def test_warps_asked_of_a_chip_without_them_are_rejected():
    found, _ = rejection(replace(RECIPE, num_warps=8))
    assert (found.reason, found.needed) == ("knobs", 1)
    assert "this chip takes template tile, num_warps None, num_stages None" in str(found)
    assert found.repairs == [RECIPE]
    assert rejection(replace(RECIPE, template="split_k", split_k=2))[0].reason == "knobs"


def test_the_explanation_says_which_memory_binds():
    prediction = predict_best((4096, 4096, 4096), "ascend-910b2")
    text = " ".join(prediction.explain().split())
    assert "L0C 131072 of 131072 bytes a block (accumulator), exactly full" in text
    assert "L0C binds the block" in text and "L0B binds the step inside, 64 of K" in text
    assert "registers" not in text and "warps" not in text
    found = report(prediction).as_dict()["resources"]
    assert found["instruction"] == "cube"
    assert {use["name"]: use["needed_bytes"] for use in found["memories"]}["L1"] == 393_216
    assert json.dumps(found)


def test_a_persistent_grid_has_no_more_programs_than_the_chip_has_cores():
    # 512 x 1024 tiles of 128 x 256: a grid of one program each would pass 65,535
    huge = Gemm(65536, 262144, 64)
    tile = replace(RECIPE, block_k=64)
    assert len(prune(huge, [tile], ASCEND)[0]) == 1
    with pytest.raises(NoCandidateError, match=r"largest size \(65535 programs\).*by 458753"):
        prune(huge, [tile], replace(ASCEND, persistent_grid=False))  # 512 * 1024 - 65535


def test_int8_sums_are_as_wide_as_fp32s_and_its_operands_half():
    assert uses(RECIPE, Gemm(512, 512, 512, dtype="int8"))["L0C"].needed_bytes == 131_072
    assert uses(RECIPE, Gemm(512, 512, 512, dtype="int8"))["L1"].needed_bytes == 196_608


# --- other memories -------------------------------------------------------------------------------


def test_a_register_file_counts_for_each_warp():
    # 256 x 256 sums of 4 bytes over 32 threads are 8 KiB each, and 16 KiB over 16
    stack = load_profile("max-1550-stack")
    table = ConfigTable.of(
        [KernelConfig("tile", 256, 256, 32, num_warps=w, load_bits=None) for w in (32, 16)]
    )
    inner = (256 + 256) * 32  # 16 elements of both sides
    needed = memory_bytes(SQUARE, table, stack.memories[0]).tolist()
    assert needed == [(256 * 256 * 4 + inner) // 32, (256 * 256 * 4 + inner) // 16]
    kept, rejected = prune(SQUARE, table, stack)
    assert kept[0].num_warps == 32 and rejected[0].reason == "GRF"


def test_buffers_that_are_fixed_count_as_the_pipelines_depth():
    one, two = (
        replace(ASCEND, memories=tuple(replace(m, buffers=n) for m in ASCEND.memories))
        for n in (1, 2)
    )
    assert estimate(SQUARE, RECIPE, two).latency_us < estimate(SQUARE, RECIPE, one).latency_us


def test_another_vendors_matrix_unit_is_none_of_ours():
    columns = estimate_columns(SQUARE, ConfigTable.of(RECIPE), ASCEND)
    assert columns.unit.tolist() == [MatrixUnit.OTHER]
    assert columns.matrix_share.tolist() == [1.0]


def test_a_memory_without_operands_first_stands_in_for_shared_memory():
    only = Memory(name="GRF", capacity_bytes=16384, holds=("accumulator",))
    assert replace(ASCEND, memories=(only,)).block_memory == only
    assert ASCEND.block_memory.name == "L1"
    assert load_profile("h200-sxm").block_memory is None


@pytest.mark.parametrize(
    "knobs",
    [
        {"num_warps": (1, 4), "num_stages": (1,)},  # Cambricon's tasks; Moore Threads without TME
        {"num_warps": (16,), "num_stages": (4, 6), "block_k": (256,)},
        {"num_warps": (), "num_stages": (), "group_m": ()},
        {"template": ("split_k",), "swap": (True,)},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(64, 64, 1024), (4096, 4096, 4096), (8, 512, 8192)])
def test_what_a_chip_holds_fixed_is_what_its_candidates_have(knobs, shape):
    # room enough that no block is too large
    chip = replace(load_profile("l40s"), knobs=knobs, shared_per_block_bytes=2**22)
    if "split_k" in knobs.get("template", ()):
        shape = (64, 64, 8192)  # K is long enough to be split, and C small enough
    kept, rejected = prune(Gemm(*shape), candidates(Gemm(*shape), chip), chip)
    assert len(kept) and "knobs" not in rejected.counts()
    for name, values in knobs.items():
        found = {getattr(config, name) for config in kept[:: max(len(kept) // 50, 1)]}
        assert found <= set(values or (None,))


# --- cases from the field -------------------------------------------------------------------------


def test_a_tail_of_320_tiles_on_256_units_is_two_rounds_the_second_a_quarter_full():
    chip = replace(load_profile("h200-sxm"), units=256)
    config = KernelConfig("tile", 256, 256, 64, num_warps=8, num_stages=2)
    problem = Gemm(1024, 20480, 6144)
    found = predict_best(problem, chip, configs=[config], use_measured=False)
    work = report(found).work
    assert (work.tiles, work.slots, work.rounds, work.last_round_fill) == (320, 256, 2, 0.25)
    text = " ".join(found.explain().split())
    assert "320 tiles on 256 slots: 2 rounds, the last 25% full" in text


def test_a_chip_without_a_known_l2_is_answered_and_the_answer_says_so():
    chip = load_profile("kunlunxin-p800")
    assert chip.l2_bytes is None
    found = predict_best((4096, 4096, 4096), chip)
    assert found.source == "physics" and not found.calibrated
    text = " ".join(found.explain().split())
    assert "the profile does not know L2's size (4 MiB assumed)" in text


# --- every shipped profile ------------------------------------------------------------------------


def shapes(count):
    """Seeded shapes from one row to large, even and odd."""
    draw = random.Random(20)
    sizes = (1, 7, 16, 64, 100, 333, 512, 1000, 2048, 4096, 6144, 8192)
    return [tuple(draw.choice(sizes) for _ in range(3)) for _ in range(count)]


@pytest.mark.parametrize("name", list_profiles())
def test_every_shipped_profile_answers_twenty_shapes_with_legal_configurations(name):
    chip = load_profile(name)
    for shape in shapes(20):
        problem = Gemm(*shape)
        table = candidates(problem, chip)
        # some 60 rows of the grid stand for all of it
        few = table[:: max(len(table) // 60, 1)]
        found = predict_best(problem, chip, configs=few, use_measured=False)
        assert np.isfinite(found.time_us) and found.time_us > 0
        kept, rejections = prune(problem, [found.config], chip)
        assert len(kept) == 1 and not len(rejections)
        for knob, values in chip.knobs.items():
            if knob not in ("block_m", "block_n", "block_k"):
                assert getattr(found.config, knob) in (values or (None,))
