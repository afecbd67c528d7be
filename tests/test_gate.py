"""A fitted model replaces the one in use only where it is not worse, and in one step.

A part of the shipped runs stands for all of them, and the models have few trees: what is proved is
what the gate decides, through the same code as any training.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from costmodel.errors import ModelError
from costmodel.learning import gate
from costmodel.learning import train as fitting
from costmodel.learning.gate import RefusedModelError, Verdict, contradictions, install, judge
from costmodel.learning.split import heldout_shapes, judging_shapes
from costmodel.learning.train import train
from costmodel.predict import predict_best
from costmodel.ranking.ranker import default_ranker, load_ranker, own_model_path
from costmodel.records.groups import groups_of
from costmodel.records.log import RunLog
from costmodel.records.store import frame_rows, packaged_runs

SIZES = ["m", "n", "k"]
SEEDS: dict[str, Any] = {"seeds": (0,)}


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def parts() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs that stand for the shipped ones, and runs of 15 shapes that are not among them."""
    frame = packaged_runs()
    frame = frame[(frame["invalidity"] == "correct") & (frame["backend"] == "triton")]
    held = heldout_shapes()
    shapes = frame[SIZES].drop_duplicates()
    kept = [shape in held for shape in shapes.itertuples(index=False, name=None)]
    others = shapes[~np.array(kept)].sample(45, random_state=0)
    few = frame.groupby(SIZES, sort=False).head(40)
    judges = frame.groupby(SIZES, sort=False).head(200).merge(shapes[kept].iloc[:10])
    known = pd.concat([judges, few.merge(others.iloc[:30])], ignore_index=True)
    return known, few.merge(others.iloc[30:])


@contextmanager
def as_shipped(frame: pd.DataFrame) -> Iterator[None]:
    """A part of the runs as if it were all that is shipped; few trees, on one thread."""
    with pytest.MonkeyPatch.context() as patch, threadpool_limits(1):
        patch.setattr(fitting, "packaged_runs", lambda: frame)
        patch.setitem(fitting.PARAMETERS, "max_iter", 25)
        yield


@pytest.fixture
def shipped(parts: tuple[pd.DataFrame, pd.DataFrame]) -> Iterator[pd.DataFrame]:
    with as_shipped(parts[0]):
        yield parts[0]


@pytest.fixture(scope="module")
def fitted(
    parts: tuple[pd.DataFrame, pd.DataFrame], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A model of the shipped runs alone."""
    out = tmp_path_factory.mktemp("fitted") / "ranker.npz"
    with as_shipped(parts[0]):
        train(out=out, force=True, **SEEDS)
    return out


@pytest.fixture
def own_model(fitted: Path, shipped: pd.DataFrame) -> Path:
    """That model as the user's own."""
    install(load_ranker(fitted), own_model_path())
    return own_model_path()


def log_of(frame: pd.DataFrame, path: Path) -> Path:
    RunLog(path).append_many(frame_rows(frame))
    return path


def shuffled(frame: pd.DataFrame) -> pd.DataFrame:
    """Each shape's times in another order, their quantiles with them."""
    draw = np.random.default_rng(0)
    times = ["time_us", "p10_us", "p90_us"]
    mixed = frame.copy()
    for _, part in frame.groupby(SIZES, sort=False):
        mixed.loc[part.index, times] = part[times].to_numpy()[draw.permutation(len(part))]
    return mixed


# --- what is installed, and what is not


def test_a_good_log_of_new_shapes_is_merged_and_its_model_installed_the_old_one_kept(
    own_model: Path, parts: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path
) -> None:
    before = own_model.read_bytes()
    report = train([log_of(parts[1], tmp_path / "good.jsonl")], **SEEDS)
    assert report.path == own_model and own_model.read_bytes() != before
    assert report.kept is not None and report.kept.read_bytes() == before
    assert load_ranker(report.kept).manifest["rows"] < report.rows
    verdict = report.verdict
    assert verdict.reasons == [] and verdict.agreement is not None
    assert verdict.agreement > gate.LEAST_TAU
    # the manifest says what was learned from and how it did
    manifest = load_ranker(own_model).manifest
    assert manifest["gate"] == json.loads(json.dumps(verdict.as_dict()))
    assert (manifest["logs"], manifest["merged_with_shipped"]) == (["good.jsonl"], True)
    assert {"rows", "features", "versions", "scores", "left_out"} <= set(manifest)


def test_a_log_with_shuffled_times_is_refused_with_both_scores_and_the_old_model_stays(
    own_model: Path, parts: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path
) -> None:
    before = own_model.read_bytes()
    poisoned = log_of(shuffled(parts[1]), tmp_path / "poisoned.jsonl")
    with pytest.raises(RefusedModelError) as refused:
        train([poisoned], **SEEDS)
    verdict = refused.value.verdict
    assert verdict.agreement is not None and abs(verdict.agreement) < gate.LEAST_TAU
    text = str(refused.value)
    for scores in (verdict.new, verdict.old):
        assert f"{scores['geomean']:.3f} " in text + " "
    assert "in no order that anything predicts" in text and "--force" in text
    assert own_model.read_bytes() == before
    assert not own_model.with_name("ranker.old.npz").exists()
    report = train([poisoned], force=True, **SEEDS)
    assert report.path == own_model and own_model.read_bytes() != before


def test_a_model_that_chooses_worse_is_refused(
    own_model: Path, parts: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path
) -> None:
    poisoned = log_of(shuffled(parts[0]), tmp_path / "poisoned.jsonl")
    with pytest.raises(RefusedModelError, match="it orders worse than the old one"):
        train([poisoned], shipped=False, **SEEDS)


def test_a_log_that_contradicts_what_is_known_is_refused(
    own_model: Path, parts: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path
) -> None:
    slower = parts[0].assign(
        time_us=parts[0]["time_us"] * 1.3, p90_us=parts[0]["p90_us"] * 1.3, run="later"
    )
    assert contradictions(parts[0], slower) == 1.0
    assert contradictions(parts[0], parts[0]) == 0.0
    assert contradictions(parts[0], parts[1]) is None
    ranker = load_ranker(own_model)
    verdict = judge(ranker, ranker, groups_of(parts[0])[:3], contradicted=1.0)
    assert verdict.reasons == [
        "100% of the log's measurements that are known already differ by over 10%"
    ]


def test_the_same_model_is_no_worse_than_itself_and_nothing_to_compare_is_no_reason(
    own_model: Path, shipped: pd.DataFrame
) -> None:
    ranker = load_ranker(own_model)
    verdict = judge(ranker, ranker, groups_of(shipped)[:5])
    assert verdict.new == verdict.old and verdict.reasons == []
    assert judge(ranker, None, []).reasons == []


def test_a_row_above_the_roofline_is_reported_and_takes_no_part(
    own_model: Path, parts: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path
) -> None:
    path = log_of(parts[1], tmp_path / "good.jsonl")
    row = frame_rows(parts[1].iloc[:1])[0]
    RunLog(path).append(row | {"time_us": 0.01, "p10_us": 0.01, "p90_us": 0.01})
    report = train([path], install=False, **SEEDS)
    ((file, problem),) = report.problems
    assert (file, problem.line_number) == (str(path), len(parts[1]) + 1)
    assert problem.reason.startswith("above the roofline")
    assert report.manifest["left_out"] == 1


def test_a_model_of_another_tools_kernel_goes_to_a_file_of_its_own(
    shipped: pd.DataFrame, parts: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path
) -> None:
    foreign = log_of(parts[1].assign(source="flaggems/mm"), tmp_path / "foreign.jsonl")
    with pytest.raises(ModelError, match="say with --out where it goes"):
        train([foreign], source="flaggems/mm")
    with pytest.raises(Exception, match="there are runs of other kernels: flaggems/mm"):
        train([foreign], **SEEDS)
    out = tmp_path / "flaggems.npz"
    report = train([foreign], source="flaggems/mm", out=out, force=True, **SEEDS)
    assert report.path == out and load_ranker(out).manifest["source"] == "flaggems/mm"
    assert report.manifest["merged_with_shipped"] is False


# --- who judges


def test_a_fifth_of_new_shapes_judges_and_the_same_ones_each_time() -> None:
    shapes = {(m, 512, 64 * k) for m in range(1, 41) for k in range(1, 26)}
    aside = judging_shapes(shapes)
    assert 150 < len(aside) < 250  # of 1,000
    half = set(sorted(shapes)[::2])
    assert judging_shapes(half) == aside & half


def test_shapes_set_aside_are_not_learned_from_and_shapes_learned_from_before_do_not_judge(
    shipped: pd.DataFrame, parts: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path
) -> None:
    known, log = parts
    judges = fitting._judges(known, pd.concat([known, log]), None)
    held = heldout_shapes()
    assert {group.shape for group in judges.shipped} <= held
    fresh = {group.shape for group in groups_of(log)}
    own = {group.shape for group in judges.own}
    assert own and own == judging_shapes(fresh - held)
    report = train([log_of(log, tmp_path / "log.jsonl")], install=False, **SEEDS)
    shapes = {group.shape for group in groups_of(pd.concat([known, log]))}
    assert report.shapes <= len(shapes - own - held)


# --- in one step


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from costmodel.learning.gate import install
from costmodel.ranking.ranker import load_ranker
real, step = os.replace, 0

def replace(*paths):
    global step
    if step == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    step += 1
    real(*paths)

os.replace = replace
install(load_ranker(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kills with SIGKILL")
def test_an_install_killed_at_any_step_leaves_the_old_model_or_the_new_one_working(
    own_model: Path, shipped: pd.DataFrame, tmp_path: Path
) -> None:
    old = load_ranker(own_model)
    new_path = tmp_path / "new.npz"
    out = shipped[shipped["m"] > 64]
    new = train(
        [log_of(out, tmp_path / "log.jsonl")], out=new_path, shipped=False, force=True, **SEEDS
    ).ranker
    assert new.manifest["rows"] != old.manifest["rows"]
    outcomes = []
    for step in range(4):
        install(old, own_model)
        command = [sys.executable, "-c", INTERRUPTED, str(new_path), str(own_model), str(step)]
        done = subprocess.run(command, env=os.environ, cwd=tmp_path)
        assert done.returncode == -signal.SIGKILL
        found = default_ranker()
        assert found is not None
        which = old if found.manifest["rows"] == old.manifest["rows"] else new
        assert found.manifest == json.loads(json.dumps(which.manifest))
        for name, array in found.trees.arrays().items():
            assert np.array_equal(array, which.trees.arrays()[name])
        assert predict_best((512, 512, 512), "h200-sxm").source == "model"
        outcomes.append("old" if which is old else "new")
    # kept: model, manifest; then the new model itself, and last its manifest
    assert outcomes == ["old", "old", "old", "new"]


def test_a_verdict_says_when_there_is_nothing_to_compare() -> None:
    assert "no old model" in Verdict({"geomean": 0.9}, {}, 3).scores()
    assert list(Verdict({}, {}, 0).as_dict()) == [
        "new", "old", "shapes", "agreement", "contradicted", "reasons",
    ]  # fmt: skip
