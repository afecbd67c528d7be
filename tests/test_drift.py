"""Predicted against measured by day and family, and what to measure next, on a few made-up runs."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from costmodel.cli import app as frame
from costmodel.config import ConfigTable, KernelConfig
from costmodel.learning.drift import drift
from costmodel.learning.split import heldout_shapes
from costmodel.physics.estimate import estimate_columns
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.records import RunLog, make_row
from costmodel.shapes import read_shapes

H200 = load_profile("h200-sxm")
TILES = [KernelConfig("tile", m, 128, 64, num_warps=8) for m in (64, 128)]
#: nothing fitted speaks for fp32: physics predicts, which a test can compute
PROBLEMS = [Gemm(m, 4096, 4096, dtype="fp32") for m in (512, 600, 700, 800, 900)]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))


def log_of(folder: Path, *days: tuple[str, float]) -> Path:
    """Each problem and tile once a day, at so many times the time that physics predicts."""
    log = RunLog(folder / "log.jsonl")
    for day, factor in days:
        for problem in PROBLEMS:
            times = estimate_columns(problem, ConfigTable.of(TILES), H200).time_us * factor
            log.append_many(
                make_row(
                    problem, config, backend="triton", time_us=float(time), protocol="p/1",
                    device="h200-sxm", device_name="NVIDIA H200", run=day, sequence=number,
                    timestamp=f"{day}T10:00:00Z",
                )
                for number, (config, time) in enumerate(zip(TILES, times, strict=True))
            )  # fmt: skip
    return log.path


def test_each_day_has_its_ratio_and_a_day_that_moved_by_over_a_tenth_says_so(
    tmp_path: Path,
) -> None:
    path = log_of(tmp_path, ("2026-12-01", 1.3), ("2026-12-02", 1.4), ("2026-12-03", 1.6))
    found = drift([path])
    assert [(p.day, p.rows, p.problems, p.moved) for p in found.periods] == [
        ("2026-12-01", 10, 5, False),
        ("2026-12-02", 10, 5, False),  # 7.7 % up
        ("2026-12-03", 10, 5, True),  # 23 % up
    ]
    assert [p.ratio for p in found.periods] == pytest.approx([1.3, 1.4, 1.6], abs=1e-3)
    assert [p.high for p in found.periods] == pytest.approx([1.3, 1.4, 1.6], abs=1e-3)


def family(found: Any, dtype: str, rows: str) -> Any:
    (one,) = [f for f in found.families if (f.dtype, f.layout, f.rows) == (dtype, "nt", rows)]
    return one


def test_families_say_how_far_off_they_are_and_the_unmeasured_come_first(tmp_path: Path) -> None:
    found = drift([log_of(tmp_path, ("2026-12-01", 1.3))])
    mine = family(found, "fp32", "M <= 1024")
    assert (mine.problems, mine.error, mine.share) == (5, pytest.approx(0.3, abs=1e-3), 1.0)
    assert mine.need == "times are off by 30.0% in the median, over 10%"
    empty = family(found, "int8", "M <= 16")
    assert (empty.problems, empty.error, empty.share) == (0, None, None)
    assert empty.need == "0 problems measured, fewer than 5"
    assert found.families.index(empty) < found.families.index(mine)
    good = drift([log_of(tmp_path / "good", ("2026-12-01", 1.05))])
    assert family(good, "fp32", "M <= 1024").need is None


def test_what_to_measure_next_is_of_needy_families_unmeasured_and_never_held_out(
    tmp_path: Path,
) -> None:
    found = drift([log_of(tmp_path, ("2026-12-01", 1.05))])
    assert found.next and len(set(found.next)) == len(found.next)
    needy = {(f.dtype, f.layout) for f in found.families if f.need}
    assert {(p.dtype, p.layout) for p in found.next} == needy
    assert not {(p.m, p.n, p.k) for p in found.next} & heldout_shapes()
    assert not set(found.next) & set(PROBLEMS)
    path = tmp_path / "next.csv"
    found.write_next(path)
    assert [shape.problem for shape in read_shapes(path)] == found.next


def test_the_command_prints_it_and_writes_the_shapes(tmp_path: Path) -> None:
    for name in frame.COMMANDS:
        import_module(f"costmodel.cli.{name}")
    log = log_of(tmp_path, ("2026-12-01", 1.3), ("2026-12-02", 1.6))
    command = ["evaluate", "--drift", "--runs", str(log), "--next", str(tmp_path / "next.csv")]
    text = CliRunner().invoke(frame.app, command).stdout
    for words in ("2026-12-02", "moved", "M <= 1024", "to measure next", "times are off by"):
        assert words in text
    assert read_shapes(tmp_path / "next.csv")
    plain = json.loads(CliRunner().invoke(frame.app, [*command, "--json"]).stdout)
    assert plain["periods"][1]["moved"] is True and plain["ranked_by"] == "model"
