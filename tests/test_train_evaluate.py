"""Fitting and judging: what takes part, how a share is counted, and what the shipped runs reach.

Groups, shares and folds are proved on small hand-made ones; the shipped runs are judged once.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import CostModelError, ModelError, RecordError
from costmodel.learning import evaluate as judging
from costmodel.learning import split
from costmodel.learning import train as fitting
from costmodel.learning.evaluate import evaluate
from costmodel.learning.shares import TOPS, best_row, shares_of, summary
from costmodel.learning.split import heldout_shapes, judging_shapes, training_groups
from costmodel.learning.train import prepare, train
from costmodel.physics.estimate import estimate_columns
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.ranking.features import FEATURES
from costmodel.ranking.ranker import load_ranker, own_model_path
from costmodel.records.groups import Group, groups_of
from costmodel.records.log import RunLog
from costmodel.records.schema import make_row, problem_of
from costmodel.records.source_hash import kernel_hash
from costmodel.records.store import frame_rows, packaged_runs, read_runs, write_shards
from costmodel.shapes import read_shapes

H200 = load_profile("h200-sxm")
PROBLEM = Gemm(512, 512, 512)
CONFIGS = [KernelConfig("tile", m, 64, 64) for m in (16, 32, 64, 128)]
FORCED = {"shipped": False, "force": True}
PLACE = {"protocol": "p/1", "device": "h200-sxm", "device_name": "NVIDIA H200", "units": 132}


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A user's folder without models and answers."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def shipped():
    """Every shipped row."""
    return packaged_runs()


@pytest.fixture(scope="module")
def judged_runs(shipped, tmp_path_factory):
    """The shipped model's scorecard on the shipped runs, and the training groups; computed once.

    Reading and grouping the rows takes seconds: judged and training shapes share one grouping.
    """
    groups = groups_of(shipped, "h200-sxm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSTMODEL_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr(judging, "packaged_runs", lambda: shipped)
        for module in (judging, split):
            patch.setattr(module, "groups_of", lambda frame, name, source=None: groups)
        found = evaluate()
        return found, training_groups(shipped, "h200-sxm")


@pytest.fixture
def card(judged_runs):
    return judged_runs[0]


def row(config, time_us, *, problem=PROBLEM, sequence=0, minute=0, run="a", **facts):
    place = PLACE | {"timestamp": f"2026-12-01T00:{minute:02d}:00Z", "run": run}
    return make_row(
        problem, config, backend="triton" if config else "origin",
        sequence=sequence, time_us=time_us, **(place | facts),
    )  # fmt: skip


def frame_of(rows, folder):
    return read_runs(write_shards(rows, folder, "own"))


def group(times, remeasured=None, problem=PROBLEM):
    table = ConfigTable.of([KernelConfig("tile", 16, 16, 16, num_stages=i + 1)
                            for i in range(len(times))])  # fmt: skip
    again = np.zeros(len(times), bool) if remeasured is None else np.array(remeasured)
    return Group(problem, "h200-sxm", table, np.array(times, float), again, float("nan"))


# --- groups ---------------------------------------------------------------------------------------


def test_a_configuration_measured_again_has_the_median_of_its_later_times(tmp_path):
    lucky, steady, once, _ = CONFIGS
    rows = [row(lucky, 8.0), row(steady, 10.0, sequence=1), row(once, 11.0, sequence=2)]
    for minute, (a, b) in enumerate([(12.0, 9.9), (14.0, 10.3), (12.5, 10.1)], start=1):
        rows += [row(lucky, a, minute=minute), row(steady, b, minute=minute, sequence=1)]
    (found,) = groups_of(frame_of(rows, tmp_path))
    times = dict(zip(found.table, found.time_us.tolist(), strict=True))
    # the first times of 8 and 10 no longer count
    assert times == {lucky: 12.5, steady: 10.1, once: 11.0}
    again = dict(zip(found.table, found.remeasured.tolist(), strict=True))
    assert again == {lucky: True, steady: True, once: False}


def test_the_first_time_is_the_earliest_and_not_the_first_row(tmp_path):
    rows = [row(CONFIGS[0], 20.0, minute=5), row(CONFIGS[0], 10.0, minute=1)]
    (found,) = groups_of(frame_of(rows, tmp_path))
    assert found.time_us.tolist() == [20.0]


def test_failures_take_no_part_and_the_vendors_time_is_its_median(tmp_path):
    rows = [
        row(CONFIGS[0], 10.0),
        row(CONFIGS[1], 1.0, sequence=1, invalidity="correctness", reason="relative error 1"),
        row(CONFIGS[2], None, sequence=2, invalidity="compile", reason="ptxas"),
        *[row(None, t, sequence=3 + i) for i, t in enumerate((7.0, 9.0, 8.0))],
    ]
    (found,) = groups_of(frame_of(rows, tmp_path))
    assert list(found.table) == [CONFIGS[0]]
    assert (found.vendor_us, found.problem, found.shape) == (8.0, PROBLEM, (512, 512, 512))


def test_older_kernels_speak_only_where_todays_ran_nothing_of_a_problem(tmp_path):
    bf16 = replace(PROBLEM, dtype="bf16", out_dtype="bf16")
    now = kernel_hash(CONFIGS[0].template)
    rows = [
        row(CONFIGS[0], 10.0, kernel_hash=now),
        row(CONFIGS[0], 12.0, kernel_hash="0" * 12, minute=1),
        row(CONFIGS[1], 9.0, kernel_hash="0" * 12),
        row(CONFIGS[0], 11.0, kernel_hash="0" * 12, problem=bf16),
    ]
    found = {g.problem: g.time_us.tolist() for g in groups_of(frame_of(rows, tmp_path))}
    assert found == {PROBLEM: [10.0], bf16: [11.0]}


def test_each_problem_is_its_own_group_and_a_foreign_chip_is_left_out(tmp_path):
    bf16 = replace(PROBLEM, dtype="bf16", out_dtype="bf16")
    rows = [row(CONFIGS[0], 10.0), row(CONFIGS[0], 11.0, problem=bf16)]
    rows += [row(CONFIGS[0], 99.0, device="h100-sxm")]
    frame = frame_of(rows, tmp_path)
    found = {g.problem: g.time_us.tolist() for g in groups_of(frame, "h200-sxm")}
    assert found == {PROBLEM: [10.0], bf16: [11.0]}
    assert len(groups_of(frame)) == 3
    with pytest.raises(RecordError, match="no correct runs to learn from on a100-sxm-80gb"):
        groups_of(frame, "a100-sxm-80gb")


def test_a_problem_of_which_only_the_vendor_was_measured_is_no_group(tmp_path):
    rows = [row(None, 5.0), row(CONFIGS[0], 10.0, problem=Gemm(64, 64, 64))]
    assert [g.shape for g in groups_of(frame_of(rows, tmp_path))] == [(64, 64, 64)]


def test_knobs_that_a_chip_lacks_come_back_as_none(tmp_path):
    config = KernelConfig("tile", 64, 64, 64, group_m=None, num_warps=None, num_stages=None)
    (found,) = groups_of(frame_of([row(config, 10.0)], tmp_path))
    assert list(found.table) == [config]


# --- what is fitted -------------------------------------------------------------------------------


def test_held_out_shapes_take_no_part_in_training(tmp_path):
    held = read_shapes("heldout")[0].problem
    other = replace(held, dtype="bf16", out_dtype="bf16")  # the shape counts, in any type
    rows = [row(CONFIGS[0], 10.0, problem=p) for p in (held, other, Gemm(8, 8, 8))]
    assert [g.shape for g in training_groups(frame_of(rows, tmp_path))] == [(8, 8, 8)]


def test_no_training_group_of_the_shipped_runs_is_held_out(judged_runs):
    _, groups = judged_runs
    assert not {g.shape for g in groups} & heldout_shapes()
    assert len({g.shape for g in groups}) > 300


def test_the_target_is_the_log_of_the_time_over_the_estimate():
    found = group([10.0, 20.0])
    (item,) = prepare([found])
    physics = estimate_columns(PROBLEM, found.table, H200).time_us
    assert item.target.tolist() == pytest.approx([np.log(t / p) for t, p in zip(
        (10.0, 20.0), physics, strict=True)])  # fmt: skip
    assert item.features.shape == (2, len(FEATURES))


def test_all_groups_of_one_shape_fall_into_one_fold_and_each_is_tested_once():
    problems = [
        Gemm(8 * i, 64, 64, dtype=d, layout=lay)
        for i in range(1, 12)
        for d, lay in (("fp16", "nt"), ("bf16", "nt"), ("fp16", "nn"))
    ]
    data = prepare([group([10.0, 20.0], problem=p) for p in problems])
    tested = []
    for test, learn in fitting._folds(data, 5):
        mine, others = ({item.group.shape for item in part} for part in (test, learn))
        assert mine and not mine & others
        assert len(test) + len(learn) == len(data)
        tested += [item.group.problem for item in test]
    assert sorted(map(str, tested)) == sorted(map(str, problems))


def test_one_shape_alone_has_no_folds():
    assert list(fitting._folds(prepare([group([10.0, 20.0])]), 1)) == []


# --- training -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slice_of_runs(shipped, tmp_path_factory):
    """A shard with the correct runs of 20 training shapes, at most 60 of each."""
    sizes = ["m", "n", "k"]
    held = heldout_shapes()
    good = shipped[(shipped["invalidity"] == "correct") & (shipped["backend"] == "triton")]
    shapes = [s for s in good[sizes].drop_duplicates().itertuples(index=False, name=None)
              if s not in held][:20]  # fmt: skip
    keys = set(shapes)
    part = good[[key in keys for key in zip(*(good[n] for n in sizes), strict=True)]]
    part = part.groupby(sizes, sort=False).head(60)
    return write_shards(part, tmp_path_factory.mktemp("slice"), "slice")[0]


@pytest.fixture
def quick(monkeypatch, shipped):
    """Few trees, on one thread: beside other work, two threads wait for each other for seconds.

    Two held-out shapes stand for the shipped runs. Such models are worse than the shipped one:
    ``force`` installs them.
    """
    few = shipped.merge(pd.DataFrame(sorted(heldout_shapes())[:2], columns=["m", "n", "k"]))
    monkeypatch.setattr(fitting, "packaged_runs", lambda: few)
    monkeypatch.setitem(fitting.PARAMETERS, "max_iter", 10)
    with threadpool_limits(1):
        yield


def test_a_model_trained_on_20_shapes_is_written_loads_and_says_what_it_saw(
    quick, slice_of_runs, tmp_path, home
):
    out = tmp_path / "mine.npz"
    report = train([slice_of_runs], out=out, seeds=(0,), **FORCED)
    shapes = {(p.m, p.n, p.k) for p in map(problem_of, frame_rows(read_runs(slice_of_runs)))}
    learned = len(shapes - judging_shapes(shapes))
    assert len(shapes) == 20 and 10 < learned < 20
    assert (report.path, report.shapes) == (out, learned)
    assert not home.exists()  # only the file asked for
    loaded = load_ranker(out)
    assert loaded.manifest == json.loads(json.dumps(report.manifest))
    manifest = loaded.manifest
    assert (manifest["problems"], manifest["seeds"]) == (learned, [0])
    assert (manifest["devices"], manifest["architectures"]) == (["h200-sxm"], ["hopper"])
    assert manifest["rows"] == report.rows > 250
    assert manifest["parameters"]["max_iter"] == 10
    assert 0 < manifest["scores"]["cv_top1_min"] <= manifest["scores"]["cv_top1_geomean"] <= 1
    assert loaded.low < loaded.high
    layout = manifest["layouts"][0]
    problems = (Gemm(1, 1, 1, dtype=d, layout=layout) for d in manifest["dtypes"])
    assert all(loaded.applies(problem, H200) for problem in problems)


def test_the_same_runs_give_the_same_model(quick, slice_of_runs, tmp_path):
    one, two = (
        train([slice_of_runs], install=False, seeds=(0,), shipped=False).ranker for _ in range(2)
    )
    assert (one.low, one.high, one.manifest) == (two.low, two.high, two.manifest)
    for name, array in one.trees.arrays().items():
        assert np.array_equal(array, two.trees.arrays()[name]), name


def test_a_model_goes_to_the_users_folder_by_default_and_nowhere_when_not_installed(
    quick, tmp_path, home
):
    log = RunLog(tmp_path / "log.jsonl")
    free = Gemm(40, 40, 40)  # far from every held-out shape, and it judges nothing
    log.append_many([row(c, 10.0 + i, problem=free, sequence=i) for i, c in enumerate(CONFIGS)])
    report = train([log.path], install=False, seeds=(0,), shipped=False)
    assert report.path is None and not home.exists()
    assert (report.rows, report.shapes) == (4, 1)
    report = train([log.path], seeds=(0,), **FORCED)
    assert report.path == own_model_path() and own_model_path().exists()


def test_logs_without_a_correct_run_are_refused(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(RecordError, match="no measured rows"):
        train([empty], out=tmp_path / "mine.npz")
    failed = RunLog(tmp_path / "failed.jsonl")
    failed.append(row(CONFIGS[0], None, invalidity="compile", reason="ptxas"))
    with pytest.raises(RecordError, match="no correct runs to learn from"):
        train([failed.path], out=tmp_path / "mine.npz")
    with pytest.raises(RecordError, match=r"there is no log, shard or folder at .*nowhere\.jsonl"):
        train([tmp_path / "nowhere.jsonl"], out=tmp_path / "mine.npz")
    assert not (tmp_path / "mine.npz").exists()


def test_logs_of_held_out_shapes_alone_are_refused_before_anything_is_fitted(tmp_path):
    log = RunLog(tmp_path / "log.jsonl")
    log.append(row(CONFIGS[0], 100.0, problem=read_shapes("heldout")[0].problem))
    with pytest.raises(RecordError, match="every shape of these runs is held out"):
        train([log.path], out=tmp_path / "mine.npz")


def test_runs_of_a_device_without_a_profile_are_refused_with_the_drivers_name(tmp_path):
    log = RunLog(tmp_path / "log.jsonl")
    log.append(row(CONFIGS[0], 10.0, device=None, device_name="NVIDIA X1"))
    with pytest.raises(CostModelError, match="NVIDIA X1"):
        train([log.path], out=tmp_path / "mine.npz")


# --- shares ---------------------------------------------------------------------------------------


def test_a_share_is_the_best_time_over_the_best_of_the_first_k():
    times = [40.0, 20.0, 16.0, 10.0] + [50.0] * 12
    found = shares_of(group(times), np.arange(16))
    # first 1: 40; first 3: 16; first 5 and more: 10
    assert TOPS == (1, 3, 5, 8, 16)
    assert found == (10 / 40, 10 / 16, 1.0, 1.0, 1.0)


def test_the_best_is_the_fastest_of_those_measured_again():
    # 9.6 us was measured once; of those measured again 10 is the least
    found = group([9.6, 12.0, 10.0], [False, True, True])
    assert best_row(found) == 2
    assert best_row(group([9.6, 12.0, 10.0])) == 0
    # choosing the one of 9.6 us is no better than the best
    assert shares_of(found, np.array([0, 1, 2]))[0] == 1.0


def test_what_two_logs_both_hold_is_no_winner():
    # the second row was measured twice by chance: 20 us are not the best of 10 and 20
    assert best_row(group([10.0, 20.0, 30.0], [False, True, False])) == 0


def test_a_summary_is_geometric_mean_tenth_percentile_and_minimum():
    assert summary(np.array([0.25, 1.0])) == {"geomean": 0.5, "p10": 0.325, "min": 0.25}


def test_the_nearest_training_shape_is_the_least_of_the_largest_differences():
    held = [group([1.0], problem=Gemm(100, 100, 100)), group([1.0], problem=Gemm(1000, 8, 8))]
    seen = np.array([[100, 100, 150], [100, 120, 110], [1000, 80, 8]])
    # 100 to 120 is 20 %, 100 to 110 is 10 %: the larger counts
    assert judging._nearest(held, seen) == pytest.approx(0.20)
    assert judging._nearest(held, np.empty((0, 3), np.int64)) == float("inf")


# --- the shipped runs -----------------------------------------------------------------------------


def test_at_least_40_shapes_with_a_median_of_500_configurations_are_judged(card):
    plain = card.as_dict()
    assert plain["n_shapes"] >= 40
    assert plain["configs_per_shape_median"] >= 500
    assert {j.group.shape for j in card.judged} <= heldout_shapes()


def test_no_judged_shape_is_within_a_tenth_of_a_training_shape(card):
    assert card.as_dict()["nearest_training_shape"] > 0.10


def test_pruning_rejects_no_best_configuration(card):
    assert card.as_dict()["prune_recall"] == 1.0


def test_the_model_is_better_than_physics_and_physics_than_chance(card):
    plain = card.as_dict()
    baselines = plain["baselines"]
    assert plain["ranked_by"] == "model"
    assert baselines["random"]["geomean"] < 0.6
    assert baselines["random"]["geomean"] < baselines["physics"]["geomean"]
    assert baselines["physics"]["geomean"] < plain["top"]["1"]["geomean"]
    assert baselines["starting_table"]["geomean"] < plain["top"]["1"]["geomean"]


def test_more_configurations_tried_never_lower_a_share(card):
    for judged in card.judged:
        assert list(judged.shares) == sorted(judged.shares)
        assert all(0 < share <= 1 for share in judged.shares)
    means = [card.as_dict()["top"][str(k)]["geomean"] for k in TOPS]
    assert means == sorted(means)


def test_the_scorecard_can_be_written_as_json_and_names_the_worst_shapes(card):
    plain = json.loads(json.dumps(card.as_dict(), allow_nan=False))
    assert list(plain["top"]) == ["1", "3", "5", "8", "16"]
    assert set(plain["top"]["1"]) == {"geomean", "p10", "min"}
    assert len(plain["worst"]) == 5
    assert plain["worst"][0]["share"] == plain["top"]["1"]["min"]
    assert 0 < plain["kendall_tau"] < 1 and 0 < plain["interval_coverage"] <= 1


def test_runs_without_a_held_out_shape_cannot_judge(slice_of_runs):
    with pytest.raises(RecordError, match="no held-out shape on h200-sxm"):
        evaluate([slice_of_runs])


def test_a_model_file_that_is_none_is_refused(tmp_path):
    log = RunLog(tmp_path / "log.jsonl")
    log.append(row(CONFIGS[0], 100.0, problem=read_shapes("heldout")[0].problem))
    path = tmp_path / "noise.npz"
    path.write_bytes(b"noise")
    path.with_suffix(".json").write_text("{}")
    with pytest.raises(ModelError, match="not a model file"):
        evaluate([log.path], model=path)
