"""What is no time at all is left out and named; what is an unsteady one stays and is flagged."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from costmodel.config import KernelConfig
from costmodel.errors import RecordError
from costmodel.physics.roofline import roofline
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.records import RunLog, make_row, packaged_runs, read_runs, write_shards
from costmodel.records.log import LineProblem
from costmodel.records.quality import impossible, steadiness

H200 = load_profile("h200-sxm")
SQUARE = Gemm(4096, 4096, 4096)
TILES = [KernelConfig("tile", m, 128, 64, num_warps=8) for m in (32, 64, 128)]
PLACE = {
    "protocol": "cold-l2-clean/1", "device": "h200-sxm", "device_name": "NVIDIA H200",
    "units": 132, "triton": "3.6.0", "timestamp": "2026-11-29T22:44:00Z",
}  # fmt: skip


def timed(time_us: float, config: KernelConfig | None = TILES[0], **facts: Any) -> dict[str, Any]:
    facts = PLACE | {"run": "a", "sequence": 0, "time_us": time_us} | facts
    problem = facts.pop("problem", SQUARE)
    return make_row(problem, config, backend="triton" if config else "origin", **facts)


def line(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def read(path: Path) -> tuple[list[int], list[LineProblem]]:
    """Sequence numbers of the rows that are used, and what is reported."""
    problems: list[LineProblem] = []
    frame = read_runs(path, on_problem=lambda file, problem: problems.append(problem))
    return [int(number) for number in frame["sequence"]], problems


# --- above the roofline


def test_a_row_of_1200_tflops_on_an_h200_is_left_out_and_named(tmp_path: Path) -> None:
    # 2 * 4096^3 FLOP at 1200 TFLOPS take 114.5 us; at the dense peak of 989 they take 138.9
    path = tmp_path / "runs.jsonl"
    RunLog(path).append_many([timed(180.0), timed(114.532, sequence=1), timed(179.0, sequence=2)])
    content = path.read_bytes()
    used, (problem,) = read(path)
    assert used == [0, 2]
    assert problem.line_number == 2
    assert "above the roofline: 114.532 us is 1200 TFLOPS, and h200-sxm needs at least 128 us" in (
        problem.reason
    )
    assert problem.excerpt.startswith("4096x4096x4096 fp16 nt, tile 32x128x64")
    assert path.read_bytes() == content
    with pytest.warns(UserWarning, match="1 lines skipped, the first: line 2: above the roofline"):
        read_runs(path)


def test_a_shards_row_above_the_roofline_is_left_out_and_named_too(tmp_path: Path) -> None:
    rows = [timed(180.0), timed(114.5, sequence=1), timed(179.0, sequence=2)]
    (path,) = write_shards(rows, tmp_path, "a")
    used, (problem,) = read(path)
    assert (used, problem.line_number) == ([0, 2], 2)


def test_five_kinds_of_bad_lines_are_reported_and_the_good_ones_read(tmp_path: Path) -> None:
    good, path = [timed(180.0 + i, sequence=i) for i in range(3)], tmp_path / "runs.jsonl"
    bad = [
        line(timed(180.0))[:150] + b"\n",
        line(timed(180.0)).replace(b'"time_us": 180.0', b'"time_us": NaN'),
        line(timed(180.0)).replace(b'"time_us": 180.0', b'"time_us": -3.0'),
        line(timed(180.0)).replace(b'"dtype": "fp16"', b'"dtype": "float61"'),
        line(timed(100.0)),
    ]
    path.write_bytes(b"".join([line(good[0]), *bad[:3], line(good[1]), *bad[3:], line(good[2])]))
    content = path.read_bytes()
    used, problems = read(path)
    assert used == [0, 1, 2]
    assert [(p.line_number, p.reason.split(":")[0].split(", got")[0]) for p in problems] == [
        (2, "cut off, or not JSON"),
        (3, "time_us must be a finite number"),
        (4, "time_us must be at least 0.001"),
        (6, "unknown dtype 'float61'; known"),
        (7, "above the roofline"),
    ]
    assert path.read_bytes() == content


def test_the_bound_is_memory_where_l2_is_cold_and_arithmetic_alone_where_it_may_be_warm() -> None:
    skinny = Gemm(1, 8192, 8192)
    bound = roofline(skinny, H200)
    assert bound.least_us > 10 * bound.compute_us
    between = bound.least_us / 2
    assert impossible(timed(between, problem=skinny)) is not None
    assert impossible(timed(between, problem=skinny, protocol="warm/1")) is None


def test_without_a_profile_or_a_time_nothing_is_called_impossible() -> None:
    assert impossible(timed(0.001, device=None)) is None
    assert impossible(timed(0.001, device="no-such-chip")) is None
    failed = timed(0.001) | {"time_us": None, "invalidity": "compile", "reason": "ptxas"}
    assert impossible(failed) is None


def test_no_shipped_run_is_above_the_roofline() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(packaged_runs(["m"])) > 140_000


@pytest.mark.parametrize("name", ["../h200-sxm.toml", "/etc/passwd", "h200.toml", "C:\\x", "a b"])
def test_a_rows_device_is_a_name_and_never_a_path_that_a_reader_would_open(name: str) -> None:
    with pytest.raises(RecordError, match="device must be the name of a profile"):
        timed(180.0, device=name)


# --- unsteady


def frame_of(rows: list[dict[str, Any]], folder: Path) -> Any:
    RunLog(folder / "runs.jsonl").append_many(rows)
    return read_runs(folder / "runs.jsonl")


def test_a_spread_of_over_a_tenth_is_noise_and_one_below_is_none(tmp_path: Path) -> None:
    rows = [
        timed(200.0, p10_us=195.0, p90_us=215.5),
        timed(200.0, p10_us=195.0, p90_us=214.5, sequence=1),
        timed(200.0, sequence=2),
    ]
    found = steadiness(frame_of(rows, tmp_path))
    assert found.flags["noise"].tolist() == [True, False, False]
    assert found.of(0) == ["noise"]


def test_a_later_run_that_differs_by_over_a_tenth_is_drift_of_both(tmp_path: Path) -> None:
    rows = [
        timed(200.0), timed(200.0, TILES[1], sequence=1),
        timed(221.0, run="b"), timed(219.0, TILES[1], run="b", sequence=1),
        timed(221.0, run="c", triton="3.7.0"),
    ]  # fmt: skip
    found = steadiness(frame_of(rows, tmp_path))
    # another Triton's time is no second time of the same thing
    assert found.flags["drift"].tolist() == [True, False, True, False, False]


def test_what_ran_between_a_vendors_time_and_a_slower_one_may_have_been_throttled(
    tmp_path: Path,
) -> None:
    rows = [
        timed(180.0, None),
        timed(200.0, TILES[0], sequence=1),
        timed(181.0, None, sequence=2),
        timed(210.0, TILES[1], sequence=3),
        timed(205.0, None, sequence=4),
        timed(200.0, TILES[2], sequence=5),
        timed(180.0, None, sequence=6),
    ]
    found = steadiness(frame_of(rows, tmp_path))
    assert found.flags["throttling"].tolist() == [False, False, True, True, True, False, False]
    assert found.counts() == {"noise": 0, "throttling": 3, "drift": 0}


def test_a_failed_run_has_no_flags(tmp_path: Path) -> None:
    failed = timed(200.0, p10_us=100.0, p90_us=300.0, invalidity="correctness", reason="wrong")
    found = steadiness(frame_of([failed, timed(180.0, sequence=1)], tmp_path))
    assert found.of(0) == []
