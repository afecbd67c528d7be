"""The runs as a library: exact shapes answer, settings stand apart, who disagrees is named."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from costmodel.cli import app as frame_of_commands
from costmodel.config import KernelConfig
from costmodel.errors import RecordError, UnknownNameError
from costmodel.predict import predict_best
from costmodel.problem import Gemm
from costmodel.records import RunLog, make_row, packaged_runs, read_runs
from costmodel.records.claims import ClaimBook
from costmodel.records.comparison import compare, disagreements, side_of
from costmodel.records.exchange import read_file
from costmodel.records.library import bests, claims_of, contradictions_among
from costmodel.records.versions import newest_first, version_key

SQUARE = Gemm(4096, 4096, 4096)
SMALL, LARGE, OTHER = (KernelConfig("tile", m, 128, 64, num_warps=8) for m in (64, 128, 256))
PLACE: dict[str, Any] = {
    "protocol": "cold-l2-clean/1", "device": "h200-sxm", "device_name": "NVIDIA H200",
    "units": 132, "triton": "3.9.0", "run": "a", "timestamp": "2026-11-29T22:44:00Z",
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def row(config: KernelConfig | None, time_us: float, **facts: Any) -> dict[str, Any]:
    facts = PLACE | {"sequence": 0} | facts
    problem = facts.pop("problem", SQUARE)
    return make_row(
        problem, config, backend="triton" if config else "origin", time_us=time_us, **facts
    )


def log_of(rows: list[dict[str, Any]], path: Path) -> Any:
    RunLog(path).append_many(rows)
    return read_runs(path)


def printed(*arguments: Any, status: int = 0) -> str:
    for name in frame_of_commands.COMMANDS:
        import_module(f"costmodel.cli.{name}")
    found = CliRunner().invoke(frame_of_commands.app, [str(a) for a in arguments])
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == status, found.output
    return found.stdout


# --- versions


def test_3_10_is_newer_than_3_9() -> None:
    assert newest_first(["3.9.0", "3.10.0", "3.9.1", ""]) == ["3.10.0", "3.9.1", "3.9.0", ""]
    assert newest_first(["2.11.0+cu130", "2.9.1", "2.11.0rc1"]) == [
        "2.11.0+cu130", "2.11.0rc1", "2.9.1",
    ]  # fmt: skip
    assert newest_first(["580.159.04", "580.9"]) == ["580.159.04", "580.9"]


@given(st.lists(st.text(max_size=12)))
def test_any_texts_have_an_order(texts: list[str]) -> None:
    assert sorted(sorted(texts, key=version_key)) == sorted(texts)


# --- the best known


def test_each_setting_has_its_own_best_and_the_newest_triton_comes_first(tmp_path: Path) -> None:
    frame = log_of(
        [
            row(SMALL, 200.0), row(LARGE, 190.0), row(None, 180.0),
            row(SMALL, 185.0, triton="3.10.0"), row(LARGE, 195.0, triton="3.10.0"),
            row(SMALL, 400.0, device="l40s", device_name="NVIDIA L40S", units=142),
            row(LARGE, 150.0, invalidity="correctness", reason="wrong"),
        ],
        tmp_path / "log.jsonl",
    )  # fmt: skip
    found = bests(frame, SQUARE)
    assert [
        (b.setting["device_name"], b.setting["triton"], b.config, b.time_us) for b in found
    ] == [
        ("NVIDIA H200", "3.10.0", SMALL, 185.0),
        ("NVIDIA H200", "3.9.0", LARGE, 190.0),
        ("NVIDIA L40S", "3.9.0", SMALL, 400.0),
    ]
    assert [(b.configs, b.vendor_us) for b in found] == [(2, None), (2, 180.0), (1, None)]


def test_a_time_is_the_median_of_its_repeats_and_not_the_luckiest(tmp_path: Path) -> None:
    rows = [row(SMALL, t, sequence=i) for i, t in enumerate((150.0, 200.0, 201.0))]
    (found,) = bests(log_of([*rows, row(LARGE, 190.0)], tmp_path / "log.jsonl"), SQUARE)
    assert (found.config, found.time_us) == (LARGE, 190.0)


def test_no_other_shapes_row_answers_and_the_model_does_and_says_so(
    tmp_path: Path, home: Path
) -> None:
    log = home / "log.jsonl"
    near = [row(SMALL, 50.0 + m, problem=Gemm(m, 4096, 4096)) for m in (1, 16, 64)]
    frame = log_of(near, log)
    assert bests(frame, Gemm(4096, 4096, 4096)) == []
    assert bests(frame, Gemm(64, 4096, 4096, layout="nn")) == []
    assert len(bests(frame, Gemm(64, 4096, 4096))) == 1
    assert predict_best(Gemm(4096, 4096, 4096), "h200-sxm").source == "model"
    text = printed("runs", "best", 4096, 4096, 4096, "--log", log)
    assert "no run of exactly 4096x4096x4096 fp16 nt is known, and no other shape's answers" in text


def test_two_bests_that_each_side_measured_and_disagrees_on_are_a_contradiction(
    tmp_path: Path,
) -> None:
    frame = log_of(
        [
            row(SMALL, 200.0), row(LARGE, 180.0),
            row(SMALL, 180.0, triton="3.10.0"), row(LARGE, 198.0, triton="3.10.0"),
            row(OTHER, 170.0, triton="3.11.0"),
        ],
        tmp_path / "log.jsonl",
    )  # fmt: skip
    clashes = contradictions_among(frame, bests(frame, SQUARE))
    sure = [clash for clash in clashes if clash.measured]
    (clash,) = sure
    assert clash.sides == ("triton 3.10.0", "triton 3.9.0")
    assert clash.configs == (SMALL, LARGE)
    assert clash.costs == (1.1, 1.1111)  # 198 / 180 and 200 / 180
    # 3.11 measured neither of the others' bests: nobody knows
    assert len(clashes) == 3 and all(c.costs == (None, None) for c in clashes if not c.measured)


def test_two_bests_within_the_noise_of_one_side_do_not_disagree(tmp_path: Path) -> None:
    one = log_of([row(SMALL, 180.0), row(LARGE, 180.5)], tmp_path / "one.jsonl")
    two = log_of([row(SMALL, 190.0), row(LARGE, 180.0)], tmp_path / "two.jsonl")
    assert disagreements(one, two, ("one", "two")) == []


def test_another_tools_kernel_is_another_setting_and_contradicts_nothing(tmp_path: Path) -> None:
    rows = [row(SMALL, 200.0), row(LARGE, 180.0)]
    rows += [row(SMALL, 180.0, source="flaggems/mm"), row(LARGE, 200.0, source="flaggems/mm")]
    frame = log_of(rows, tmp_path / "log.jsonl")
    found = bests(frame, SQUARE)
    assert [b.setting["source"] for b in found] == [None, "flaggems/mm"]
    assert contradictions_among(frame, found) == []


def test_a_claim_is_shown_beside_the_runs_of_its_size(tmp_path: Path, home: Path) -> None:
    name = "N=4096,K=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
    winner = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128}
    (tmp_path / name).write_text(json.dumps({"4096": winner, "64": winner}))
    ClaimBook().append(read_file("sglang", tmp_path / name).claims)
    claims = claims_of(ClaimBook().read()[0], Gemm(4096, 4096, 4096, dtype="fp8_e4m3"))
    assert [claim.m for claim in claims] == [4096]
    log_of([row(SMALL, 200.0)], home / "log.jsonl")
    text = printed(
        "runs", "best", 4096, 4096, 4096, "--dtype", "fp8_e4m3", "--log", home / "log.jsonl"
    )
    assert "tuned-table claims, unmeasured here, on NVIDIA H200: tile 64x128x128" in text


# --- two sides


def test_two_sides_are_compared_on_what_both_measured(tmp_path: Path) -> None:
    second = Gemm(512, 512, 512)
    one = log_of(
        [row(SMALL, 200.0), row(LARGE, 160.0), row(SMALL, 10.0, problem=second),
         row(SMALL, 99.0, problem=Gemm(8, 8, 8))],
        tmp_path / "one.jsonl",
    )  # fmt: skip
    two = log_of(
        [row(SMALL, 180.0), row(LARGE, 200.0), row(LARGE, 20.0, problem=second)],
        tmp_path / "two.jsonl",
    )
    found = compare(one, two, ("one", "two"))
    assert (found.problems, found.measurements) == (2, 2)
    # bests: 180 / 160 and 20 / 10
    assert found.best_ratio == pytest.approx((180 / 160 * 2) ** 0.5, abs=1e-4)
    assert found.ratio == pytest.approx((180 / 200 + 200 / 160) / 2, abs=1e-4)
    sure, unsure = found.disagreements
    assert (sure.problem, sure.costs) == (SQUARE, (1.25, 1.1111))
    assert (unsure.problem, unsure.costs) == (second, (None, None))


def test_sides_are_logs_columns_and_chips_and_what_names_none_says_what_could(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.jsonl"
    frame = log_of([row(SMALL, 200.0), row(SMALL, 210.0, triton="3.10.0")], path)
    assert len(side_of("triton=3.10.0", frame)) == 1
    assert len(side_of("h200-sxm", frame)) == len(side_of("NVIDIA H200", frame)) == 2
    assert len(side_of(str(path), frame.iloc[:0])) == 2
    assert len(side_of("units=132", frame)) == 2
    with pytest.raises(RecordError, match=r"no run has 'mi300x'; .* a chip: NVIDIA H200"):
        side_of("mi300x", frame)
    with pytest.raises(UnknownNameError, match="did you mean 'triton'"):
        side_of("tritn=3.10.0", frame)
    with pytest.raises(RecordError, match="have no problem in common"):
        compare(frame, frame.iloc[:0], ("one", "two"))


def test_the_shipped_runs_agree_with_themselves() -> None:
    frame = packaged_runs()
    found = compare(frame, frame, ("a", "b"))
    assert (found.best_ratio, found.ratio, found.disagreements) == (1.0, 1.0, [])


# --- the commands


def test_runs_best_and_compare_print_what_they_found(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log_of(
        [row(SMALL, 200.0), row(LARGE, 180.0), row(None, 175.0),
         row(SMALL, 180.0, triton="3.10.0"), row(LARGE, 198.0, triton="3.10.0")],
        log,
    )  # fmt: skip
    text = printed("runs", "best", 4096, 4096, 4096, "--log", log)
    assert "NVIDIA H200, triton 3.9.0" in text and "175.00" in text
    assert "contradiction, 4096x4096x4096 fp16 nt: triton 3.10.0: tile 64x128x64" in text
    plain = json.loads(printed("runs", "best", 4096, 4096, 4096, "--log", log, "--json"))
    assert [one["time_us"] for one in plain["best"]] == [180.0, 180.0]
    assert plain["contradictions"][0]["others_best_costs"] == [1.1, 1.1111]
    sides = ["runs", "compare", "triton=3.9.0", "triton=3.10.0", "--log", log]
    assert "1 shared problems: the best of triton=3.10.0 takes 1.000 times" in printed(*sides)
    assert json.loads(printed(*sides, "--json"))["measurements"] == 2


def test_runs_check_reports_each_line_with_its_reason_and_status_1(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log_of([row(SMALL, 200.0, p10_us=150.0, p90_us=220.0), row(LARGE, 190.0)], log)
    assert "1 flagged noise" in printed("runs", "check", log)
    RunLog(log).append(row(SMALL, 50.0))
    with log.open("ab") as stream:
        stream.write(b'{"schema":1,')
    text = printed("runs", "check", log, status=1)
    assert "rows that can be used: 2 correct" in text and "2 lines and rows left out" in text
    assert "line 3: above the roofline: 50 us is 2749 TFLOPS" in text and "line 4: cut off" in text
    plain = json.loads(printed("runs", "check", log, "--json", status=1))
    assert [bad["line"] for bad in plain["left_out"]] == [3, 4]
    assert plain["flags"] == {"noise": 1, "throttling": 0, "drift": 0}


def test_runs_compact_writes_each_row_once_and_leaves_the_log(tmp_path: Path) -> None:
    log, again = tmp_path / "log.jsonl", tmp_path / "again.jsonl"
    rows = [row(SMALL, 200.0), row(LARGE, 190.0), row(None, 180.0)]
    log_of(rows, log)
    log_of(rows[:2], again)
    before = log.read_bytes()
    text = printed("runs", "compact", log, again, "--out", tmp_path / "shards", "--stem", "team")
    assert "3 rows in 1 shards" in text and "2 repeated, 0 left out" in text
    assert len(read_runs(tmp_path / "shards" / "team-000.parquet")) == 3
    assert log.read_bytes() == before


def test_import_and_export_print_what_was_taken_refused_and_lost(tmp_path: Path) -> None:
    cache = tmp_path / "mm.autotune.json"
    config = {"kwargs": {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32}, "num_warps": 4}
    key = [512, 1024, 2048, "torch.float16"]
    cache.write_text(
        json.dumps({"key": key, "configs_timings": [[config, [0.1, 0.09, 0.11]], [{}, [1.0]]]})
    )
    log = tmp_path / "log.jsonl"
    command = ["import", "triton", cache, "--device-name", "NVIDIA H200", "--log", log]
    text = printed(*command)
    assert "1 rows (0 failures) and 0 claims taken, 0 of them known; 1 refused" in text
    assert "refused configs_timings[1]: no block_m and block_n and block_k among its knobs" in text
    assert "lost, for want of a column: 20 % and 80 % quantiles (1)" in text
    assert 'assumed layout "nn"' in text
    (report,) = json.loads(printed(*command, "--json"))
    assert (report["rows"], report["known"]) == (1, 1)
    with pytest.raises(RecordError, match="nothing was taken from 1 files"):
        printed("import", "triton", cache)  # no chip is named
    out = tmp_path / "t4"
    assert "1 rows in 1 files" in printed("export", "t4", log, "--out", out)
    (written,) = out.iterdir()
    assert read_file("t4", written).rows == RunLog(log).read().rows
    with pytest.raises(UnknownNameError, match="unknown format 't5'"):
        printed("export", "t5", log)
