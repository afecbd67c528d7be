"""``predict_best``: the cases that people met, where the answer comes from, and what it refuses.

Times come from the shipped model, which is fitted anew now and then: no test asks for an exact one.
"""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import (
    NoCandidateError,
    ProblemError,
    UnknownNameError,
    UnsupportedError,
)
from costmodel.physics.estimate import BOUNDS, estimate
from costmodel.predict import predict_best, shortlisted_times
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.ranking.baselines import default_config
from costmodel.ranking.cascade import SHORTLIST
from costmodel.ranking.ranker import default_ranker
from costmodel.records import answers
from costmodel.records.answers import Answer, recall, remember
from costmodel.space.candidates import candidates
from costmodel.space.prune import prune

CHIP = "h200-sxm"
H200 = load_profile(CHIP)
SQUARE = (4096, 4096, 4096)
TILE = KernelConfig("tile", 128, 128, 64, num_warps=8, num_stages=3)
OTHER = KernelConfig("tile", 64, 64, 64, num_warps=4, num_stages=3)


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A user's folder without models and answers."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))
    return tmp_path


def answer(config=TILE, time_us=12.5):
    return Answer(config, time_us, 12.0, 13.0, 11.0, "2026-12-01T00:00:00Z")


# --- cases from the field -------------------------------------------------------------------------


def test_one_row_times_1792_columns_puts_a_block_on_most_of_the_sms():
    found = predict_best((1, 1792, 5120), CHIP)
    assert found.source == "model"
    programs = -(-1792 // found.config.block_n) * found.config.split_k
    assert programs >= 0.5 * 132


@pytest.mark.parametrize(
    "shape",
    [SQUARE, (8192, 8192, 8192), (2048, 4096, 8192), (1024, 20480, 6144), (512, 7168, 2048)],
)
def test_128x256_by_4_warps_is_never_in_the_first_ten_where_8_warps_may_do_it(shape):
    found = predict_best(shape, CHIP)
    legal = set(found.ranking.configs)
    spilling = {
        c for c in legal
        if {c.block_m, c.block_n} == {128, 256} and c.num_warps == 4
        and replace(c, num_warps=8) in legal
    }  # fmt: skip
    assert spilling  # it is legal, and it is predicted to be slow
    assert not spilling & {found.ranking[i].config for i in range(10)}


def test_16_rows_keep_blocks_of_64_rows_among_the_candidates_of_hopper():
    configs = predict_best((16, 4096, 4096), CHIP).ranking.configs
    assert {16, 64} <= set(configs.block_m.tolist())


def test_an_answer_for_64_rows_is_not_given_for_4096():
    for m in (1, 16, 64):
        remember(Gemm(m, 4096, 4096), H200, answer())
    found = predict_best(SQUARE, CHIP)
    assert found.source == "model"
    assert found.time_us > 100  # 139 us is the roofline; the answers say 12.5


# --- where an answer comes from -------------------------------------------------------------------


@pytest.mark.parametrize("chip", ["rtx-4090", "mi300x", "a100-sxm-80gb"])
def test_a_chip_of_an_architecture_that_was_not_measured_is_ranked_by_physics(chip):
    found = predict_best(SQUARE, chip)
    assert found.source == "physics"
    best = estimate(found.problem, found.config, found.profile)
    assert found.time_us == pytest.approx(best.time_us)
    assert found.bound == best.bound


def test_a_type_that_was_not_measured_is_ranked_by_physics():
    assert predict_best(SQUARE, CHIP, dtype="int8").source == "physics"
    assert predict_best(SQUARE, CHIP, dtype="bf16").source == "model"


def test_physics_may_be_asked_for_and_a_ranker_may_be_given():
    physics = predict_best(SQUARE, CHIP, model="physics")
    assert physics.source == "physics"
    ranker = default_ranker()
    given = predict_best(SQUARE, CHIP, model=ranker)
    assert given.source == "model"
    assert given.config == predict_best(SQUARE, CHIP).config
    assert predict_best(SQUARE, "a100-sxm-80gb", model=ranker).source == "model"


def test_a_tuned_answer_is_given_back_with_its_own_spread():
    problem = Gemm(*SQUARE)
    remember(problem, H200, answer())
    found = predict_best(SQUARE, CHIP)
    assert (found.source, found.config, found.time_us) == ("measured", TILE, 12.5)
    assert found.interval == (12.0, 13.0)
    assert found.bound == estimate(problem, TILE, H200).bound
    assert len(found.ranking) > 100  # the model's ranking stays at hand
    assert predict_best(SQUARE, CHIP, use_measured=False).source == "model"


@pytest.mark.parametrize(
    "options", [{"dtype": "bf16"}, {"layout": "nn"}, {"batch": 2}, {"beta": 1.0}]
)
def test_an_answer_is_for_its_very_problem_alone(options):
    remember(Gemm(*SQUARE), H200, answer())
    assert predict_best(SQUARE, CHIP, **options).source in ("model", "physics")


def test_an_answer_is_for_its_chip_and_its_number_of_units_alone():
    remember(Gemm(*SQUARE), H200, answer())
    assert predict_best(SQUARE, "h100-sxm").source == "model"
    assert predict_best(SQUARE, replace(H200, units=60)).source == "model"


def test_given_configurations_are_ranked_and_no_answer_from_elsewhere_comes_between():
    remember(Gemm(*SQUARE), H200, answer(config=KernelConfig("tile", 64, 128, 64)))
    found = predict_best(SQUARE, CHIP, configs=[OTHER, TILE])
    assert found.source == "model"
    assert {row.config for row in found.ranking} == {OTHER, TILE}
    assert found.config in (OTHER, TILE)


def test_a_profile_with_which_no_time_can_be_computed_gets_the_starting_table():
    broken = replace(H200, bandwidth_gb_s=float("nan"), copy_bandwidth_gb_s=None)
    found = predict_best(SQUARE, broken)
    assert found.source == "default"
    assert default_config(found.problem) in found.ranking.configs
    assert found.config == default_config(found.problem)


# --- remembered answers ---------------------------------------------------------------------------


def test_the_last_answer_for_a_problem_counts():
    problem = Gemm(*SQUARE)
    remember(problem, H200, answer())
    remember(problem, H200, answer(OTHER, 11.0))
    assert recall(problem, H200) == answer(OTHER, 11.0)


def test_an_answer_of_an_earlier_kernel_is_forgotten(monkeypatch):
    problem = Gemm(*SQUARE)
    with monkeypatch.context() as patch:
        patch.setattr(answers, "kernel_hash", lambda template: "0" * 12)
        remember(problem, H200, answer())
    assert recall(problem, H200) is None
    remember(problem, H200, answer())
    assert recall(problem, H200) == answer()


def test_torn_and_foreign_lines_are_no_answers_and_hide_none(home):
    problem = Gemm(*SQUARE)
    remember(problem, H200, answer())
    path = answers.answers_path()
    whole = path.read_bytes()
    assert path == home / "answers.jsonl" and whole.endswith(b"}\n")
    noise = [whole[:100], b"[1]", b"3", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"problem": 1}']
    path.write_bytes(b"\n".join([*noise, whole]))
    assert recall(problem, H200) == answer()


@pytest.mark.parametrize("time_us", ["NaN", "Infinity", "0", "-5.0"])
def test_a_time_that_no_clock_shows_is_no_answer(time_us):
    problem = Gemm(*SQUARE)
    remember(problem, H200, answer())
    path = answers.answers_path()
    path.write_text(path.read_text().replace("12.5", time_us))
    assert recall(problem, H200) is None


def test_a_folder_in_the_place_of_the_answers_is_no_answer():
    answers.answers_path().mkdir()
    assert recall(Gemm(*SQUARE), H200) is None


def test_without_a_file_there_is_no_answer(home):
    assert recall(Gemm(*SQUARE), H200) is None
    assert not list(home.iterdir())


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 1, 1), (4, -1, 4), (1.5, 2, 2), (1, 2), "abc", 7])
def test_a_shape_that_is_none_is_a_problem_error(shape):
    with pytest.raises(ProblemError):
        predict_best(shape, CHIP)


def test_names_with_a_typo_are_answered_with_the_close_ones():
    with pytest.raises(UnknownNameError, match="'h200-sxm'"):
        predict_best(SQUARE, "h20O-sxm")
    with pytest.raises(UnknownNameError, match="did you mean"):
        predict_best(SQUARE, CHIP, dtype="float61")


def test_a_type_that_the_chip_lacks_is_refused_and_the_chips_types_are_named():
    with pytest.raises(UnsupportedError, match=r"a100-sxm-80gb cannot run fp8_e4m3.*fp16, bf16"):
        predict_best(SQUARE, "a100-sxm-80gb", dtype="fp8_e4m3")


def test_where_every_configuration_is_rejected_the_limit_and_the_excess_are_named():
    huge = KernelConfig("tile", 256, 256, 256, num_warps=8, num_stages=5)
    # 5 * 2 * 256 * 256 * 2 bytes; 1,310,720 - 232,448
    with pytest.raises(NoCandidateError, match=r"232448 bytes.*exceeds it by 1078272"):
        predict_best(SQUARE, CHIP, configs=[huge])


def test_no_configurations_at_all_is_an_error_of_ours():
    with pytest.raises(NoCandidateError):
        predict_best(SQUARE, CHIP, configs=[])


# --- the ranking ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [SQUARE, (1, 1, 1), (17, 33, 65), (1, 1792, 5120)])
def test_the_ranking_is_sorted_and_led_by_the_answer(shape):
    found = predict_best(shape, CHIP)
    times = found.ranking.time_us
    assert (np.diff(times) >= 0).all() and np.isfinite(times).all()
    first = found.ranking[0]
    assert (first.config, first.time_us, first.interval) == (
        found.config, found.time_us, found.interval,
    )  # fmt: skip
    low, high = found.interval
    assert low < found.time_us < high
    assert found.bound in BOUNDS


def test_ranked_and_rejected_together_are_all_candidates():
    problem = Gemm(*SQUARE)
    found = predict_best(problem, CHIP)
    table = candidates(problem, H200)
    assert len(found.ranking) + len(found.rejections) == len(table)
    kept, _ = prune(problem, table, H200)
    assert set(found.ranking.configs) == set(kept)
    assert sorted(found.ranking.order.tolist()) == list(range(len(kept)))


def test_what_the_trees_do_not_see_stands_behind_in_the_order_of_physics():
    problem = Gemm(1, 1792, 5120)
    from costmodel.physics.estimate import estimate_columns

    kept, _ = prune(problem, candidates(problem, H200), H200)
    assert len(kept) > SHORTLIST
    physics = estimate_columns(problem, kept, H200)
    ranker = default_ranker()
    times = shortlisted_times(problem, kept, H200, physics, ranker)
    seen = np.argsort(physics.time_us, kind="stable")[:SHORTLIST]
    behind = np.setdiff1d(np.arange(len(kept)), seen)
    assert times[behind].min() >= times[seen].max() * (1 - 1e-9)
    few = kept[seen]
    whole = ranker.times_us(problem, few, H200, estimate_columns(problem, few, H200))
    assert times[seen] == pytest.approx(whole)


def test_the_rate_is_the_flop_over_the_time():
    found = predict_best(SQUARE, CHIP)
    assert found.tflops == pytest.approx(2 * 4096**3 / found.time_us / 1e6)
    assert 100 < found.tflops < 989.4


def test_the_same_question_has_the_same_answer_and_a_gemm_asks_as_a_tuple_does():
    one, two = predict_best(SQUARE, CHIP), predict_best(Gemm(*SQUARE), H200)
    assert one.as_dict(top=50) == two.as_dict(top=50)
    assert one.ranking.order.tolist() == two.ranking.order.tolist()


def test_plain_values_count_what_was_rejected_and_show_as_many_rows_as_asked():
    plain = predict_best(SQUARE, CHIP).as_dict(top=3)
    assert len(plain["ranking"]) == 3
    assert plain["ranking"][0]["config"] == plain["config"]
    assert sum(plain["rejections"].values()) < plain["candidates"]
    assert plain["source"] == "model" and plain["profile"] == CHIP


def test_a_table_of_configurations_is_taken_as_several_are():
    table = ConfigTable.of([OTHER, TILE])
    one = predict_best(SQUARE, CHIP, configs=table)
    assert one.as_dict() == predict_best(SQUARE, CHIP, configs=iter([OTHER, TILE])).as_dict()


def test_predicting_imports_none_of_the_heavy_libraries(tmp_path):
    code = (
        "import sys, costmodel as cm\n"
        "found = cm.predict_best((4096, 4096, 4096), 'h200-sxm')\n"
        "assert found.source == 'model'\n"
        "cm.predict_best((64, 64, 64), 'rtx-4090')\n"
        "heavy = {'sklearn', 'scipy', 'pandas', 'pyarrow', 'torch', 'triton', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    environment = os.environ | {"COSTMODEL_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_spread_of_physics_is_that_of_the_shipped_manifest():
    from costmodel.predict import _PHYSICS_SPREAD

    ranker = default_ranker()
    assert ranker is not None
    assert np.allclose(_PHYSICS_SPREAD, ranker.manifest["physics_spread"], atol=0.01)
