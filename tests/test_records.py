"""Measured runs: what a row must hold, the log under crashes and two writers, Parquet shards."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys
import threading
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.config import KNOBS, TEMPLATES, KernelConfig
from costmodel.dtypes import DTYPES, LAYOUTS, OPERANDS, PRECISIONS
from costmodel.errors import RecordError, UnknownNameError
from costmodel.problem import Gemm
from costmodel.records import (
    COLUMNS,
    RunLog,
    config_of,
    frame_rows,
    log,
    make_row,
    packaged_runs,
    problem_of,
    read_runs,
    require_rows,
    row_key,
    store,
    validate_row,
    write_shards,
)

SQUARE = Gemm(4096, 4096, 4096)
TILE = KernelConfig("tile", 128, 256, 64, num_warps=8)
PLACE = {
    "protocol": "cold-l2/1",
    "device_name": "NVIDIA H200",
    "units": 132,
    "torch": "2.11.0",
    "triton": "3.6.0",
    "run": "a",
    "timestamp": "2026-11-29T22:44:00Z",
}


def timed(sequence: int = 0, time_us: Any = 181.5, **facts: Any) -> dict[str, Any]:
    facts = {"p10_us": time_us, "p90_us": time_us, "count": 30, "error": 3e-4} | PLACE | facts
    facts |= {"sequence": sequence, "time_us": time_us}
    return make_row(SQUARE, TILE, backend="triton", **facts)


def failed(sequence: int = 0, reason: str = "294912 of 232448 bytes") -> dict[str, Any]:
    facts = {"invalidity": "compile", "reason": reason, "sequence": sequence, **PLACE}
    return make_row(SQUARE, TILE, backend="triton", **facts)


def vendor(sequence: int = 0) -> dict[str, Any]:
    return make_row(SQUARE, None, backend="origin", time_us=180.25, sequence=sequence, **PLACE)


def line(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"


# --- schema


def test_a_row_holds_every_column_in_the_tables_order() -> None:
    assert list(timed()) == [column.name for column in COLUMNS]


def test_every_field_of_problem_and_configuration_is_a_column() -> None:
    names = {column.name for column in COLUMNS}
    assert set(KNOBS) | set(vars(SQUARE)) <= names


def test_a_row_says_what_was_run_where_and_by_which_version() -> None:
    row = timed()
    assert (row["schema"], row["operator"], row["invalidity"]) == (1, "gemm", "correct")
    assert (row["m"], row["layout"], row["out_dtype"], row["accumulate"]) == (
        4096,
        "nt",
        "fp16",
        "fp32",
    )
    assert (row["block_n"], row["num_warps"], row["swap"]) == (256, 8, False)
    assert (row["device_name"], row["units"], row["kernel_hash"]) == ("NVIDIA H200", 132, None)
    assert row["costmodel"].count(".") >= 2


def test_the_vendors_row_has_no_knobs_and_no_configuration() -> None:
    row = vendor()
    assert {row[name] for name in KNOBS} == {None}
    assert config_of(row) is None
    assert problem_of(row) == SQUARE


def test_numpy_scalars_are_stored_as_plain_numbers() -> None:
    row = timed(time_us=np.float32(2.5), count=np.int64(7), p10_us=None, p90_us=None)
    assert (type(row["time_us"]), row["time_us"]) == (float, 2.5)
    assert (type(row["count"]), row["count"]) == (int, 7)


def test_a_new_row_has_nanoseconds_four_digits_of_error_and_a_bounded_reason() -> None:
    row = timed(time_us=181.50449, error=0.000312345)
    assert (row["time_us"], row["error"]) == (181.504, 0.0003123)
    assert len(failed(reason="x" * 10_000)["reason"]) == 500


def test_the_error_of_a_failed_run_that_is_not_a_number_becomes_null() -> None:
    row = timed(invalidity="correctness", reason="wrong result", error=float("inf"))
    assert row["error"] is None


def test_a_fact_that_is_no_column_is_named_with_its_closest_column() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'time_us'"):
        make_row(SQUARE, TILE, backend="triton", time_ms=0.18)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"k": None, "dtype": None}, "missing or empty: k, dtype"),
        ({"run": ""}, "missing or empty: run"),
        ({"time_us": None}, "time_us is null although invalidity is correct"),
        ({"time_us": float("nan")}, "time_us must be a finite number, got nan"),
        ({"time_us": float("inf")}, "time_us must be a finite number, got inf"),
        ({"time_us": 0.0}, "time_us must be at least 0.001, got 0.0"),
        ({"time_us": -1.0}, "time_us must be at least 0.001"),
        ({"time_us": "181"}, "time_us must be of type float, got '181'"),
        ({"time_us": True}, "time_us must be of type float, got True"),
        ({"time_us": 10**400}, "time_us must be a finite number"),
        ({"m": 4096.0}, "m must be of type int, got 4096.0"),
        ({"m": True}, "m must be of type int, got True"),
        ({"m": 0}, "m must be at least 1, got 0"),
        ({"n": 2**31}, "n must be at most 2147418112"),
        ({"sequence": 2**63}, "sequence must be at most 9223372036854775807"),
        ({"error": -0.1}, "error must be at least 0"),
        ({"p10_us": 3.0, "p90_us": 2.0}, "p10_us 3.0 is above p90_us 2.0"),
        ({"dtype": "float61"}, "unknown dtype 'float61'"),
        ({"layout": "np"}, "unknown layout 'np'"),
        ({"template": "tiles"}, "did you mean 'tile'"),
        ({"backend": "cuda"}, "unknown backend 'cuda'"),
        ({"invalidity": "wrong"}, "unknown invalidity 'wrong'"),
        ({"dtype": "int8"}, "int8 cannot write fp16"),
        ({"precision": "tf32"}, "precision is a choice for fp32 only"),
        ({"block_m": None}, "block_m must be"),
        ({"swap": 0}, "swap must be of type bool, got 0"),
        ({"backend": "origin"}, "backend origin has no knobs, but the row sets template"),
        ({"reason": "slow"}, "a correct run has no reason"),
        ({"invalidity": "timeout"}, r"a run that failed \(timeout\) needs a reason"),
        ({"timestamp": "yesterday"}, "timestamp must be ISO 8601, got 'yesterday'"),
        ({"timestamp": "2026-11-29T22:44:00"}, "timestamp must be in UTC"),
        ({"run": "\ud800"}, "run is not valid Unicode"),
        ({"run": ["a"]}, "run must be of type str, got list"),
    ],
)
def test_a_bad_row_is_refused_with_its_reason(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        validate_row(timed() | change)


@pytest.mark.parametrize("obj", [None, [], 3, "row"])
def test_what_is_no_object_is_no_row(obj: object) -> None:
    with pytest.raises(RecordError, match="a row is a JSON object"):
        validate_row(obj)


def test_a_newer_schema_is_refused_with_the_version_that_wrote_it() -> None:
    row = timed() | {"schema": 2, "costmodel": "0.9.0"}
    with pytest.raises(RecordError, match=r"schema version 2 by costmodel '0\.9\.0'.*version 1"):
        validate_row(row)


def test_a_key_that_is_no_column_is_ignored_and_a_missing_optional_one_is_null() -> None:
    row = timed() | {"clock_mhz": 1980}
    del row["cuda"]
    assert validate_row(row) == timed()


def test_rows_differ_in_key_by_configuration_and_device_but_not_by_time_or_run() -> None:
    key = row_key(timed())
    assert row_key(timed(sequence=5, time_us=200.0, run="b")) == key
    assert row_key(failed()) == key
    assert row_key(vendor()) != key
    for change in ({"units": 78}, {"triton": "3.7.0"}, {"kernel_hash": "f00"}, {"protocol": "x"}):
        assert row_key(timed(**change)) != key


WHOLE = st.integers(1, 2**15)


@st.composite
def problems(draw: st.DrawFn) -> Gemm:
    dtype = draw(st.sampled_from(OPERANDS))
    outputs = [name for name in DTYPES if name != "int32"] if dtype != "int8" else ["int32"]
    return Gemm(
        *draw(st.tuples(WHOLE, WHOLE, WHOLE)),
        dtype=dtype,
        layout=draw(st.sampled_from(LAYOUTS)),
        batch=draw(WHOLE),
        out_dtype=draw(st.none() | st.sampled_from(outputs)),
        precision=draw(st.none() | st.sampled_from(PRECISIONS)) if dtype == "fp32" else None,
        accumulate="int32" if dtype == "int8" else draw(st.sampled_from(("fp32", "fp16"))),
        alpha=draw(st.floats(allow_nan=False, allow_infinity=False)),
        beta=draw(st.floats(allow_nan=False, allow_infinity=False)),
    )


CONFIGS = st.builds(
    KernelConfig,
    st.sampled_from(TEMPLATES),
    *[WHOLE] * 3,
    group_m=st.none() | WHOLE,
    split_k=WHOLE,
    num_warps=st.none() | WHOLE,
    num_stages=st.none() | WHOLE,
    load_bits=st.none() | WHOLE,
    swap=st.booleans(),
    epilogue_parts=WHOLE,
)


@given(problems(), st.none() | CONFIGS)
def test_problem_and_configuration_come_back_from_a_logged_row(
    problem: Gemm, config: KernelConfig | None
) -> None:
    backend = "triton" if config else "origin"
    row = make_row(problem, config, backend=backend, time_us=1.0, sequence=0, **PLACE)
    (back,) = log.read_lines(io.BytesIO(line(row))).rows
    assert back == row
    assert (problem_of(back), config_of(back)) == (problem, config)


# --- log


def test_a_log_gives_back_its_rows_in_order(tmp_path: Path) -> None:
    runs = RunLog(tmp_path / "new" / "folder" / "runs.jsonl")
    rows = [timed(0), failed(1), vendor(2)]
    runs.append(rows[0])
    runs.append_many(rows[1:])
    report = runs.read()
    assert (report.rows, report.problems) == (rows, [])
    assert runs.path.read_bytes().count(b"\n") == 3


def test_broken_line_three_rows_load_two_are_reported_and_the_file_stays(tmp_path: Path) -> None:
    lines = [line(timed(number)) for number in range(5)]
    lines[2] = lines[2][:100] + b"\n"
    lines[3] = lines[3].replace(b'"time_us": 181.5', b'"time_us": NaN')
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"".join(lines))
    report = RunLog(path).read()
    assert [row["sequence"] for row in report.rows] == [0, 1, 4]
    assert [problem.line_number for problem in report.problems] == [3, 4]
    cut, nan = report.problems
    assert cut.reason.startswith("cut off, or not JSON")
    assert nan.reason == "time_us must be a finite number, got nan"
    assert nan.excerpt.startswith('{"schema": 1')
    assert str(nan).startswith("line 4: time_us must")
    assert path.read_bytes() == b"".join(lines)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[" * 100_000, "nested too deeply|cut off"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b"\xff\xfe{}", "not UTF-8 at byte 1"),
        (b"1" * 5000, "not readable"),
        (b"{} {}", "not JSON: Extra data"),
        (b"[1, 2]", "a row is a JSON object, got list"),
        (b"\x00" * 100, "not JSON"),
    ],
)
def test_an_odd_line_is_reported_and_the_next_is_read(text: bytes, reason: str) -> None:
    report = log.read_lines(io.BytesIO(text + b"\n" + line(timed())))
    assert report.rows == [timed()]
    (problem,) = report.problems
    assert problem.line_number == 1
    assert any(part in problem.reason for part in reason.split("|"))


def test_an_excerpt_is_short_and_holds_nothing_that_a_terminal_obeys() -> None:
    (problem,) = log.read_lines(io.BytesIO(b"\x1b[2J" + b"x" * 500)).problems
    assert problem.excerpt == "?[2J" + "x" * 76 + "..."


class CountingStream(io.BytesIO):
    largest = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        text = super().readline(-1 if size is None else size)
        self.largest = max(self.largest, len(text))
        return text


def test_a_line_over_a_mebibyte_is_skipped_in_pieces() -> None:
    row = line(timed())
    stream = CountingStream(row + b"x" * (3 * log.MAX_LINE_BYTES) + b"\n" + row)
    report = log.read_lines(stream)
    assert len(report.rows) == 2
    assert [problem.line_number for problem in report.problems] == [2]
    assert report.problems[0].reason == "longer than 1048576 bytes"
    assert stream.largest <= log.MAX_LINE_BYTES + 1


def test_a_line_of_exactly_a_mebibyte_is_read() -> None:
    row = line(timed())[:-1]
    padded = row + b" " * (log.MAX_LINE_BYTES - len(row))
    assert len(log.read_lines(io.BytesIO(padded + b"\n" + row)).rows) == 2


def test_blank_lines_and_windows_line_ends_are_no_problem() -> None:
    text = b"\r\n" + line(timed()).replace(b"\n", b"\r\n") + b"\n"
    report = log.read_lines(io.BytesIO(text))
    assert (len(report.rows), report.problems) == (1, [])


def test_a_line_torn_by_a_crash_takes_no_later_row_along(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(line(timed(0)) + line(timed(1))[:50])
    RunLog(path).append(timed(2))
    report = RunLog(path).read()
    assert [row["sequence"] for row in report.rows] == [0, 2]
    assert [problem.line_number for problem in report.problems] == [2]


def test_a_bad_row_is_not_written_nor_are_its_companions(tmp_path: Path) -> None:
    runs = RunLog(tmp_path / "runs.jsonl")
    with pytest.raises(RecordError, match="time_us must be a finite number"):
        runs.append_many([timed(), timed() | {"time_us": float("nan")}])
    assert not runs.path.exists()


def test_a_row_that_no_reader_would_load_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="a row may take 1048576 bytes"):
        RunLog(tmp_path / "runs.jsonl").append(timed() | {"run": "x" * log.MAX_LINE_BYTES})


def test_no_rows_write_no_file(tmp_path: Path) -> None:
    RunLog(tmp_path / "runs.jsonl").append_many([])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_log_and_a_folder_in_its_place_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="there is no log at .*runs.jsonl"):
        RunLog(tmp_path / "runs.jsonl").read()
    with pytest.raises(RecordError, match="cannot append to"):
        RunLog(tmp_path).append(timed())


def test_an_empty_log_and_one_of_failures_teach_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.touch()
    with pytest.raises(RecordError, match="runs.jsonl holds no measured rows; measure some"):
        require_rows(RunLog(path).read(), path)
    path.write_bytes(line(failed()) + b"{\n")
    with pytest.raises(RecordError, match="1 rows are all failures; 1 of its lines .* line 2"):
        require_rows(RunLog(path).read(), path)
    RunLog(path).append(timed())
    assert require_rows(RunLog(path).read(), path) == [failed(), timed()]


def test_a_resumed_run_skips_what_was_measured_and_what_failed(tmp_path: Path) -> None:
    runs = RunLog(tmp_path / "runs.jsonl")
    assert runs.keys() == set()
    runs.append_many([timed(), vendor()])
    assert runs.keys() == {row_key(failed()), row_key(vendor())}


WRITER = """
import json, pathlib, sys, time
from costmodel.records import RunLog
folder, run = pathlib.Path(sys.argv[1]), sys.argv[2]
row = json.loads((folder / "row.json").read_text())
(folder / f"ready-{run}").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
for sequence in range(1000):
    RunLog(folder / "runs.jsonl").append(row | {"run": run, "sequence": sequence})
"""


def test_two_writers_of_a_thousand_rows_each_leave_two_thousand_whole_rows(tmp_path: Path) -> None:
    (tmp_path / "row.json").write_text(json.dumps(timed()))
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen([*command, run], cwd=tmp_path) for run in "ab"]
    while not all((tmp_path / f"ready-{run}").exists() for run in "ab"):
        assert all(writer.poll() is None for writer in writers)
    (tmp_path / "go").touch()
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    report = RunLog(tmp_path / "runs.jsonl").read()
    assert report.problems == []
    for run in "ab":
        sequences = [row["sequence"] for row in report.rows if row["run"] == run]
        assert sequences == list(range(1000))


@pytest.mark.skipif(sys.platform == "win32", reason="holds the lock with flock")
def test_a_writer_waits_while_another_holds_the_lock(tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / "runs.jsonl"
    writer = threading.Thread(target=RunLog(path).append, args=(timed(),))
    with path.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)  # keeps out a writer that wants the file alone
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert path.read_bytes() == b""
        fcntl.flock(stream, fcntl.LOCK_UN)
    writer.join(60)
    assert len(RunLog(path).read().rows) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="stands in for Windows elsewhere")
def test_on_windows_a_byte_past_any_log_is_locked_again_until_free_then_unlocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import os

    calls = []

    def locking(descriptor: int, mode: int, size: int) -> None:
        calls.append((mode, os.lseek(descriptor, 0, os.SEEK_CUR), size))
        if len(calls) == 1:
            raise OSError(errno.EACCES, "Permission denied")

    fake = types.SimpleNamespace(LK_NBLCK=2, LK_UNLCK=0, locking=locking)
    spec = importlib.util.spec_from_file_location("log_on_windows", log.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    monkeypatch.setitem(sys.modules, "log_on_windows", module)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        spec.loader.exec_module(module)
        path = tmp_path / "runs.jsonl"
        path.write_bytes(b"torn")
        module.RunLog(path).append(timed())
    assert calls == [(2, 2**31 - 2, 1), (2, 2**31 - 2, 1), (0, 2**31 - 2, 1)]
    assert path.read_bytes().startswith(b'torn\n{"schema":1')


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)
PIECES = (
    st.binary()
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | st.tuples(st.sampled_from([column.name for column in COLUMNS]), JSON_VALUES).map(
        lambda change: line(timed() | {change[0]: change[1]})
    )
    | st.integers(0, 900).map(lambda end: line(timed())[:end])
    | st.just(b"\n")
)


@given(st.lists(PIECES).map(b"".join))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_bytes_a_log_holds_every_line_is_a_sound_row_or_a_reported_problem(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(content)
    report = RunLog(path).read()
    filled = sum(bool(text.strip()) for text in content.split(b"\n"))
    assert len(report.rows) + len(report.problems) == filled
    for row in report.rows:
        assert validate_row(row) == row
        assert problem_of(row).m == row["m"]
        config_of(row)
    try:
        require_rows(report, path)
    except RecordError:
        assert all(row["invalidity"] != "correct" for row in report.rows)
    assert path.read_bytes() == content


# --- store


def by_sequence(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["sequence"])


def test_shards_give_back_timed_failed_and_vendor_rows_unchanged(tmp_path: Path) -> None:
    rows = [timed(0), failed(1), vendor(2), timed(3, kernel_hash="ab", cuda="13.0")]
    (path,) = write_shards(rows, tmp_path, "h200")
    assert path.name == "h200-000.parquet"
    assert by_sequence(frame_rows(read_runs(path))) == rows


def test_a_frame_written_again_is_the_same_file(tmp_path: Path) -> None:
    (path,) = write_shards([timed(0), failed(1), vendor(2)], tmp_path, "h200")
    (again,) = write_shards(read_runs(path), tmp_path / "b", "h200")
    assert again.read_bytes() == path.read_bytes()


def test_the_order_of_rows_given_does_not_change_the_file(tmp_path: Path) -> None:
    rows = [timed(0), failed(1), vendor(2)]
    (one,) = write_shards(rows, tmp_path, "one")
    (two,) = write_shards(rows[::-1], tmp_path, "two")
    assert one.read_bytes() == two.read_bytes()


def test_dtypes_of_a_frame_do_not_depend_on_its_rows(tmp_path: Path) -> None:
    frames = []
    for name, row in (("a", timed()), ("b", failed()), ("c", vendor())):
        write_shards([row], tmp_path, name)
        frames.append(read_runs(tmp_path / f"{name}-000.parquet"))
    assert all(frame.dtypes.equals(frames[0].dtypes) for frame in frames)
    dtypes = {name: str(dtype) for name, dtype in frames[0].dtypes.items()}
    wanted = {"m": "int64", "block_m": "Int64", "time_us": "float64", "swap": "boolean"}
    assert {name: dtypes[name] for name in wanted} == wanted
    assert dtypes["reason"] == dtypes["dtype"] == "string"


def test_logs_shards_and_folders_of_both_read_alike(tmp_path: Path) -> None:
    RunLog(tmp_path / "b.jsonl").append(timed(1))
    write_shards([timed(0)], tmp_path, "a")
    (tmp_path / "notes.txt").write_text("not a log")
    assert list(read_runs(tmp_path)["sequence"]) == [0, 1]
    assert list(read_runs(str(tmp_path / "b.jsonl"))["sequence"]) == [1]
    assert list(read_runs([tmp_path / "b.jsonl", tmp_path])["sequence"]) == [1, 0, 1]


def test_a_folder_inside_a_zip_is_read_as_package_data_may_be(tmp_path: Path) -> None:
    (shard,) = write_shards([timed(4)], tmp_path, "a")
    with zipfile.ZipFile(tmp_path / "wheel.zip", "w") as archive:
        archive.write(shard, "runs/a.parquet")
    frame = read_runs(zipfile.Path(tmp_path / "wheel.zip", "runs/"))
    assert list(frame["sequence"]) == [4]


def test_packaged_runs_are_all_shards_of_the_runs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards([timed(0)], tmp_path / "runs", "a")
    write_shards([timed(1)], tmp_path / "runs", "b")
    monkeypatch.setattr(store, "packaged", tmp_path.joinpath)
    assert list(packaged_runs(["sequence"])["sequence"]) == [0, 1]


def test_columns_are_picked_in_the_order_asked_and_a_typo_is_named(tmp_path: Path) -> None:
    write_shards([timed()], tmp_path, "a")
    assert list(read_runs(tmp_path, ["time_us", "m"]).columns) == ["time_us", "m"]
    with pytest.raises(UnknownNameError, match="did you mean 'time_us'"):
        read_runs(tmp_path, ["time_u"])


def test_bad_lines_of_a_log_go_to_the_handler_or_into_one_warning(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"{\n" + line(timed()) + b"[]\n")
    seen: list[tuple[str, int]] = []
    read_runs(path, on_problem=lambda file, problem: seen.append((file, problem.line_number)))
    assert seen == [(str(path), 1), (str(path), 3)]
    with pytest.warns(UserWarning, match="2 lines skipped, the first: line 1: cut off"):
        assert len(read_runs(path)) == 1


def test_shards_stay_below_the_limit_and_lose_nothing(tmp_path: Path) -> None:
    times = np.random.default_rng(0).uniform(1, 1000, 2000)
    rows = [timed(number, float(time)) for number, time in enumerate(times)]
    paths = write_shards(rows, tmp_path, "a", max_bytes=30_000)
    assert len(paths) > 1
    assert all(path.stat().st_size <= 30_000 for path in paths)
    assert by_sequence(frame_rows(read_runs(tmp_path))) == rows


def test_fewer_shards_than_before_leave_no_old_one_behind(tmp_path: Path) -> None:
    rows = [timed(number, 1.0 + number) for number in range(100)]
    assert len(write_shards(rows, tmp_path, "a", max_bytes=1)) == 100
    write_shards([timed(0)], tmp_path, "a-b")
    write_shards(rows, tmp_path, "a")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a-000.parquet", "a-b-000.parquet"]


def test_what_cannot_be_written_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="time_us must be at least"):
        write_shards([timed(), timed() | {"time_us": -1.0}], tmp_path, "a")
    with pytest.raises(RecordError, match="there are no rows to write"):
        write_shards([], tmp_path, "a")
    with pytest.raises(RecordError, match="a shard's stem is"):
        write_shards([timed()], tmp_path, "../a")
    with pytest.raises(RecordError, match="the DataFrame lacks the columns schema"):
        write_shards(pd.DataFrame({"m": [1]}), tmp_path, "a")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="there is no log, shard or folder at"):
        read_runs(tmp_path / "none.jsonl")
    with pytest.raises(RecordError, match="no measured rows in"):
        read_runs(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RecordError, match="neither a .jsonl log nor a .parquet shard"):
        read_runs(tmp_path / "notes.txt")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(RecordError, match="a.parquet cannot be read as Parquet"):
        read_runs(tmp_path)


def test_a_shard_of_a_newer_schema_or_other_types_is_refused(tmp_path: Path) -> None:
    (path,) = write_shards([timed()], tmp_path, "a")
    table = pq.read_table(path)
    place = table.schema.get_field_index("schema")
    pq.write_table(table.set_column(place, "schema", pa.array([2])), path)
    with pytest.raises(RecordError, match="a-000.parquet, row 1: written in schema version 2"):
        read_runs(path)
    pq.write_table(table.set_column(place, "schema", pa.array(["one"])), path)
    with pytest.raises(RecordError, match="a-000.parquet, column schema"):
        read_runs(path)
    pq.write_table(table.drop_columns(["m", "n"]), path)
    with pytest.raises(RecordError, match="lacks the columns m, n"):
        read_runs(path)


def test_a_shard_whose_stored_values_were_damaged_is_refused(tmp_path: Path) -> None:
    rows = [timed(number, 1.5 + number) for number in range(50)]
    (path,) = write_shards(rows, tmp_path, "a")
    group = pq.ParquetFile(path).metadata.row_group(0)
    (times,) = (
        chunk
        for chunk in map(group.column, range(group.num_columns))
        if chunk.path_in_schema == "time_us"
    )
    content = bytearray(path.read_bytes())
    content[times.dictionary_page_offset + times.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(RecordError, match="a-000.parquet cannot be read as Parquet"):
        read_runs(path)


def test_a_shard_with_text_that_is_not_unicode_is_refused(tmp_path: Path) -> None:
    (path,) = write_shards([timed()], tmp_path, "a")
    table = pq.read_table(path)
    broken = pa.StringArray.from_buffers(
        1, pa.py_buffer(np.array([0, 1], dtype=np.int32)), pa.py_buffer(b"\xff")
    )
    pq.write_table(table.set_column(table.schema.get_field_index("cuda"), "cuda", broken), path)
    with pytest.raises(RecordError, match="a-000.parquet cannot be read as Parquet"):
        read_runs(path)


def test_a_shard_without_a_later_optional_column_reads_it_as_null(tmp_path: Path) -> None:
    (path,) = write_shards([timed(cuda="13.0")], tmp_path, "a")
    pq.write_table(pq.read_table(path).drop_columns(["cuda"]), path)
    assert frame_rows(read_runs(path)) == [timed()]


ODD_VALUES: dict[type, list[Any]] = {
    int: [None, -1, 0, 1, 2**31, 2**63 - 1],
    float: [None, -1.0, 0.0, 1e9, float("inf"), float("nan")],
    str: [None, "", "fp32", "tt", "origin", "timeout", "nonsense", "\u20ac"],
    bool: [None, True, False],
}


@pytest.mark.parametrize("base", [timed(), failed(), vendor()], ids=["timed", "failed", "vendor"])
def test_a_shards_rows_are_judged_exactly_as_a_logs_are(
    base: dict[str, Any], tmp_path: Path
) -> None:
    path = write_shards([base], tmp_path, "a")[0]
    schema = pq.read_schema(path)
    for column in COLUMNS:
        for value in ODD_VALUES[column.type]:
            row = base | {column.name: value}
            pq.write_table(pa.Table.from_pylist([base, row], schema=schema), path)
            try:
                validate_row(row)
            except RecordError as error:
                with pytest.raises(RecordError) as refused:
                    read_runs(path, ["m"])
                assert str(refused.value) == f"{path}, row 2: {error}"
            else:
                assert len(read_runs(path, ["m"])) == 2


# --- house


def test_importing_the_records_loads_no_table_library() -> None:
    script = (
        "import sys, costmodel.records\n"
        "print({'pandas', 'pyarrow', 'scipy', 'sklearn', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_the_documented_table_is_the_schema() -> None:
    words = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    lines = [
        f"| `{column.name}` | {words[column.type]} | {'yes' if column.required else ''} "
        f"| {'yes' if column.key else ''} | {column.meaning} |"
        for column in COLUMNS
    ]
    text = (Path(__file__).parent.parent / "docs" / "log-format.md").read_text(encoding="utf-8")
    assert "|---|---|---|---|---|\n" + "\n".join(lines) + "\n\n" in text
