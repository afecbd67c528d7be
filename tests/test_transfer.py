"""The scripts that measure slices and judge what carries over: draws, shares, and what is learned.

Times are made here. Where they are the estimate's own, physics is right by construction and trees
have nothing to correct, so every share follows from the times alone.
"""

import json
import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from costmodel.config import ConfigTable
from costmodel.errors import DeviceError
from costmodel.learning.split import heldout_shapes, training_groups
from costmodel.measure.collect import CollectReport
from costmodel.physics.estimate import estimate_columns
from costmodel.problem import Gemm
from costmodel.profile import load_profile, write_overlay
from costmodel.records.groups import groups_of
from costmodel.records.log import RunLog
from costmodel.records.schema import make_row
from costmodel.records.store import frame_rows, read_runs, write_shards
from costmodel.shapes import read_shapes
from costmodel.space.candidates import candidates
from costmodel.space.prune import prune

RESULTS = Path(__file__).parent.parent / "data" / "results"
TRANSFER = runpy.run_path(str(RESULTS / "transfer.py"))
SLICES = runpy.run_path(str(RESULTS / "slices.py"))
H200 = load_profile("h200-sxm")
DEVICES = ("h200-sxm", "h200-sxm-80-units", "h200-sxm-32-units")
HELD = [s.problem for s in read_shapes("heldout") if s.problem.dtype == "fp16"][4:8]
LEARNED = [Gemm(1536, 1792, 1280), Gemm(800, 2304, 640), Gemm(3100, 700, 900)]
CONFIGS = 24
MADE_UP = dict.fromkeys(("device", "versions", "date", "command"), "made up for a test")


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))


def table_of(problem):
    legal, _ = prune(problem, candidates(problem, H200), H200)
    return legal[np.linspace(0, len(legal) - 1, CONFIGS).astype(np.int64)]


def estimated(problem, device):
    return estimate_columns(problem, table_of(problem), load_profile(device)).time_us


def frame_of(folder, times=estimated, devices=DEVICES):
    """Rows of every problem on every device, with ``times(problem, device)``."""
    rows = []
    for device in devices:
        facts = {
            "protocol": "p/1", "device": device, "device_name": "NVIDIA H200", "run": "a",
            "units": load_profile(device).units, "driver": "580", "torch": "2.11.0",
            "triton": "3.6.0", "kernel_hash": "a" * 12,
        }  # fmt: skip
        for problem in HELD + LEARNED:
            taken = zip(table_of(problem), times(problem, device), strict=True)
            rows += [
                make_row(problem, config, backend="triton", sequence=number, time_us=float(time_us),
                         **facts)
                for number, (config, time_us) in enumerate(taken)
            ]  # fmt: skip
    return read_runs(write_shards(rows, folder, "made"))


def judged(frame, **options):
    return TRANSFER["transferred"](groups_of(frame), training_groups(frame), **options)


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """The table where physics is right everywhere."""
    return judged(frame_of(tmp_path_factory.mktemp("rows")), added=(50, 5000), draws=1)


def test_the_shapes_here_are_held_out_and_learned_from_as_they_are_named(tmp_path):
    assert {(p.m, p.n, p.k) for p in HELD} <= heldout_shapes()
    learned = {group.problem for group in training_groups(frame_of(tmp_path))}
    assert learned == set(LEARNED)


# --- shares ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_right_physics_reaches_all_of_the_best_and_so_does_a_model_with_nothing_to_correct(
    right, device
):
    perfect = {"geomean": 1.0, "p10": 1.0, "min": 1.0}
    for way in ("physics", "model", "model+50"):
        assert right[device]["ways"][way] == {"top1": perfect, "top3": perfect}
    assert right[device]["shapes"] == len(HELD)


@pytest.mark.parametrize("device", DEVICES)
def test_the_reused_choice_is_the_fastest_of_the_largest_other_slice(right, device):
    reference = DEVICES[1] if device == DEVICES[0] else DEVICES[0]
    assert right[device]["reused_from"] == reference
    shares = []
    for problem in HELD:
        here = np.round(estimated(problem, device), 3)
        there = np.round(estimated(problem, reference), 3)
        shares.append(here.min() / here[np.argmin(there)])
    told = right[device]["ways"]["reused"]["top1"]
    assert told["min"] == pytest.approx(min(shares), abs=1e-4)
    assert told["geomean"] == pytest.approx(np.exp(np.mean(np.log(shares))), abs=1e-4)


def test_some_reused_choice_is_not_the_best_on_a_smaller_slice(right):
    assert right["h200-sxm-32-units"]["ways"]["reused"]["top1"]["min"] < 1.0


def test_runs_are_added_only_where_there_are_as_many(right):
    # three shapes of 24 configurations are 72 runs to add from
    assert set(right["h200-sxm"]["ways"]) == {"physics", "reused", "model", "model+50"}


def test_a_model_knows_nothing_of_the_slice_that_is_left_out(tmp_path):
    odd = "h200-sxm-80-units"

    def times(problem, device):
        factor = 1 + np.random.default_rng(problem.m).exponential(0.5, CONFIGS)
        return estimated(problem, device) * (factor if device == odd else 1.0)

    table = judged(frame_of(tmp_path, times), added=(), draws=1)
    ways = table[odd]["ways"]
    assert ways["physics"]["top1"]["min"] < 0.9
    assert ways["model"] == ways["physics"]  # elsewhere there was nothing to correct
    assert table[odd]["learned_from"] == {"h200-sxm": 3, "h200-sxm-32-units": 3}


def test_what_was_measured_on_one_slice_alone_does_not_count(tmp_path):
    groups = groups_of(frame_of(tmp_path, devices=DEVICES[:2]))
    whole, part = (next(g for g in groups if g.device == name) for name in DEVICES[:2])
    few = TRANSFER["taken"](whole, np.array([3, 7, 11]))
    found, times = TRANSFER["common"](part, few)
    assert list(found.table) == [whole.table[row] for row in (3, 7, 11)]
    assert times.tolist() == whole.time_us[[3, 7, 11]].tolist()


def test_added_runs_are_so_many_different_ones_and_others_for_another_draw(tmp_path):
    groups = groups_of(frame_of(tmp_path, devices=DEVICES[:1]))

    def drawn(count, seed):
        some = TRANSFER["added_runs"](groups, count, seed)
        return [(group.problem, config) for group in some for config in group.table]

    assert len(set(drawn(50, 0))) == len(drawn(50, 0)) == 50
    assert drawn(50, 0) == drawn(50, 0) != drawn(50, 1)
    assert len(drawn(10**6, 0)) == sum(len(group.time_us) for group in groups)


# --- the command ----------------------------------------------------------------------------------


def test_the_table_is_printed_and_written(tmp_path, monkeypatch, capsys):
    frame_of(tmp_path, devices=DEVICES[:2])
    out = tmp_path / "out"
    shards = sorted(map(str, tmp_path.glob("made-*.parquet")))
    write_overlay(
        tmp_path / "h200-sxm-80-units.toml", "h200-sxm-80-units", {"copy_bandwidth_gb_s": 3665.0},
        MADE_UP,
    )  # fmt: skip
    told = {"base": "h200-sxm", "figures": {"copy_bandwidth_gb_s": 4321.0}, "provenance": MADE_UP}
    (tmp_path / "calibration_h200-sxm.json").write_text(json.dumps(told))
    command = ["transfer.py", str(out), "--calibrated", str(tmp_path), "--runs", *shards]
    monkeypatch.setattr(sys, "argv", command)
    TRANSFER["main"]()
    found = json.loads((out / "transfer_calibrated_h200-sxm.json").read_text())
    assert found["profiles"] == "calibrated" and found["runs"]["torch"] == ["2.11.0"]
    part = found["slices"]["h200-sxm-80-units"]
    assert (part["units"], part["shapes"], part["reused_from"]) == (80, 4, "h200-sxm")
    printed = capsys.readouterr().out
    assert f"{part['ways']['reused']['top1']['geomean']:.3f}" in printed
    # the overlay's figure and that of the readings count while the script runs
    assert os.environ["COSTMODEL_HOME"] != str(tmp_path / "home")
    assert load_profile("h200-sxm-80-units").copy_bandwidth_gb_s == 3665.0
    assert load_profile("h200-sxm").copy_bandwidth_gb_s == 4321.0


def test_rows_of_one_device_are_refused_with_what_is_needed(tmp_path, monkeypatch):
    frame_of(tmp_path, devices=DEVICES[:1])
    shards = sorted(map(str, tmp_path.glob("made-*.parquet")))
    monkeypatch.setattr(sys, "argv", ["transfer.py", str(tmp_path / "out"), "--runs", *shards])
    with pytest.raises(SystemExit, match=r"of h200-sxm alone.*slices\.py.*--runs"):
        TRANSFER["main"]()
    assert not (tmp_path / "out").exists()


# --- what is measured on slices -------------------------------------------------------------------

PARTS = [load_profile(name) for name in ("h200-sxm-32-units", "h200-sxm", "h200-sxm-64-units")]


def test_shapes_are_drawn_by_type_and_a_third_of_them_is_held_out():
    shapes = SLICES["drawn_shapes"](PARTS[0], 0)
    problems = [shape.problem for shape in shapes]
    assert shapes == SLICES["drawn_shapes"](PARTS[0], 0) != SLICES["drawn_shapes"](PARTS[0], 1)
    assert len(set(problems)) == 44
    held = [p for p in problems if (p.m, p.n, p.k) in heldout_shapes()]
    assert len(held) >= 14
    for dtype, count in (("fp16", 22), ("bf16", 11), ("fp8_e4m3", 11)):
        assert sum(problem.dtype == dtype for problem in problems) == count


def test_all_slices_share_configurations_and_each_ones_first_are_among_them():
    problem = Gemm(881, 2561, 3517)
    table = SLICES["shared_configs"](problem, PARTS, 120, 0.0, 0)
    assert len(set(table)) == len(table) and 100 <= len(table) <= 120
    for chip in PARTS:
        legal, _ = prune(problem, candidates(problem, chip), chip)
        first = legal[int(np.argmin(estimate_columns(problem, legal, chip).time_us))]
        assert first in set(table)
        job = SLICES["legal_job"](problem, table, chip)
        kept, rejected = prune(problem, ConfigTable.of(job.configs), chip)
        assert len(rejected) == 0 and len(kept) == len(job.configs) > 90


def test_every_slice_is_calibrated_and_measured_and_the_rows_become_shards(
    tmp_path, monkeypatch, capsys
):
    seen = []

    def collect(jobs, log, chip, *, known, seconds, options):
        seen.append((chip.name, options.units, len(jobs), seconds, len(known)))
        if chip.units == 64:
            raise DeviceError("no slice here")
        for number, job in enumerate(jobs):
            log.append(make_row(
                job.problem, job.configs[0], backend="triton", time_us=1e6, protocol="p/1",
                device=chip.name, device_name="NVIDIA H200", units=chip.units, run=options.run,
                sequence=number, kernel_hash="a" * 12,
            ))  # fmt: skip
        return CollectReport(measured=len(jobs))

    def run(command, **options):
        asked = command[command.index("calibrate") :]
        return SimpleNamespace(returncode=0, stdout=json.dumps(asked), stderr="")

    within = SLICES["main"].__globals__
    monkeypatch.setitem(within, "resolve_profile", lambda name: H200)
    monkeypatch.setitem(within, "granted_units", lambda units: -(-units // 4) * 4)
    monkeypatch.setitem(within, "collect", collect)
    monkeypatch.setattr(within["subprocess"], "run", run)
    command = ["slices.py", str(tmp_path), "--configs", "40", "--seconds", "1010"]
    monkeypatch.setattr(sys, "argv", command)
    SLICES["main"]()
    # the first slice compiles for all: it may take 3 of 6 shares of 1,000 s, less the choosing
    assert [part[:3] for part in seen] == [
        ("h200-sxm", None, 44), ("h200-sxm-80-units", 78, 44), ("h200-sxm-64-units", 64, 44),
        ("h200-sxm-32-units", 32, 44),
    ]  # fmt: skip
    assert seen[0][3] == pytest.approx(500, abs=50) and seen[3][3] > seen[0][3]
    frame = read_runs([tmp_path])
    assert len(frame) == 3 * 44 and not (tmp_path / "slices.jsonl").exists()
    assert "h200-sxm-64-units: no slice here" in capsys.readouterr().out
    asked = json.loads((tmp_path / "h200-sxm-80-units.json").read_text())
    assert asked[-2:] == ["--units", "78"]
    assert "--units" not in json.loads((tmp_path / "h200-sxm.json").read_text())
    monkeypatch.setattr(sys, "argv", [*command, "--only", "collect"])
    SLICES["main"]()
    assert seen[-1][4] == 3 * 44  # what is known is not measured again
    again = read_runs([tmp_path])  # and stays, beside what is new
    assert len(again) == 2 * 3 * 44 and set(frame["run"]) < set(again["run"])
    # a call that measures nothing, with a log whose rows are in the shards already
    RunLog(tmp_path / "slices.jsonl").append_many(frame_rows(frame))
    monkeypatch.setitem(within, "collect", lambda *of, **options: CollectReport())
    SLICES["main"]()
    assert len(read_runs([tmp_path])) == 2 * 3 * 44
