"""Files that mean harm: nothing in them is run or opened, and none takes more memory than it may.

What each loader makes of damaged content stands in its own tests (records, exchange, model); here
are the sizes and the paths.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.config import KernelConfig
from costmodel.errors import CostModelError, ModelError, RecordError
from costmodel.problem import Gemm
from costmodel.ranking import ranker
from costmodel.ranking.ranker import load_ranker
from costmodel.records import RunLog, make_row, read_runs
from costmodel.records.claims import ClaimBook
from costmodel.records.groups import groups_of

ROW = make_row(
    Gemm(512, 512, 512), KernelConfig("tile", 64, 64, 64), backend="triton", time_us=10.0,
    protocol="p/1", device="h200-sxm", device_name="NVIDIA H200", run="a", sequence=0,
    timestamp=None,
)  # fmt: skip

#: reads a file and prints what came of it, and the most memory that it took, in MiB
READER = """
import json, resource, sys
from costmodel.records import RunLog
from costmodel.records.claims import ClaimBook
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if sys.argv[1] == "log":
    problems = RunLog(sys.argv[2]).read().problems
else:
    problems = ClaimBook(sys.argv[2]).read()[1]
said = [str(problem)[:60] for problem in problems]
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([said, (after - before) / 1024]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux alone")
@pytest.mark.parametrize("loader", ["log", "claims"])
def test_a_line_of_a_gigabyte_is_reported_and_takes_a_few_megabytes(
    loader: str, tmp_path: Path
) -> None:
    path = tmp_path / "runs.jsonl"
    RunLog(path).append(ROW)
    with path.open("r+b") as stream:
        stream.truncate(2**30)  # zeros that take no room on the disk
        stream.seek(0, 2)
        stream.write(b"\n" + json.dumps(ROW).encode() + b"\n")
    done = subprocess.run(
        [sys.executable, "-c", READER, loader, str(path)], cwd=tmp_path, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    said, megabytes = json.loads(done.stdout)
    assert any(text.startswith("line 2: longer than 1048576 bytes") for text in said)
    assert megabytes < 100


def test_huge_numbers_and_deep_nesting_in_a_log_are_reported_and_the_rest_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.jsonl"
    sound = json.dumps(ROW)
    lines = [
        sound,
        sound.replace('"m": 512', '"m": 1' + "0" * 5000),
        sound.replace('"m": 512', '"m": 1e400'),
        sound.replace('"time_us": 10.0', '"time_us": 1e400'),
        sound.replace('"run": "a"', '"run": ' + "[" * 50_000 + "]" * 50_000),
        sound.replace('"sequence": 0', '"sequence": 99999999999999999999'),
        sound,
    ]
    path.write_text("\n".join(lines) + "\n")
    report = RunLog(path).read()
    assert report.lines == [1, 7]
    assert [problem.line_number for problem in report.problems] == [2, 3, 4, 5, 6]


def test_a_device_that_is_a_path_is_refused_before_any_file_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap.toml"
    trap.write_text("opened = true")
    path = tmp_path / "runs.jsonl"
    with path.open("w") as stream:
        for name in (str(trap), "../trap.toml", "trap.toml", "\\\\host\\share\\x.toml"):
            stream.write(json.dumps(ROW | {"device": name}) + "\n")
        stream.write(json.dumps(ROW) + "\n")
    monkeypatch.chdir(tmp_path)
    seen: list[str] = []
    frame = read_runs(path, on_problem=lambda file, problem: seen.append(problem.reason))
    assert len(seen) == 4 and all("must be the name of a profile" in text for text in seen)
    assert [group.device for group in groups_of(frame)] == ["h200-sxm"]


def test_a_name_with_control_characters_reaches_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(ROW | {"run": "\x1b[2J", "time_us": 0.0001}) + "\n")
    (problem,) = RunLog(path).read().problems
    assert "\x1b" not in str(problem)
    path.write_text(json.dumps(ROW | {"run": "\x1b[2J", "time_us": 0.001}) + "\n")
    seen: list[str] = []
    with pytest.raises(RecordError):
        read_runs(path, on_problem=lambda file, problem: seen.append(str(problem)))
    assert len(seen) == 1 and "\x1b" not in seen[0]


def test_a_manifest_that_is_too_large_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "ranker.npz"
    model.write_bytes(b"PK")
    with model.with_suffix(".json").open("wb") as stream:
        stream.truncate(ranker.MOST_BYTES + 1)
    with pytest.raises(ModelError, match=r"ranker\.json: larger than"):
        load_ranker(model)


def test_every_loaders_error_is_one_of_this_packages_own(tmp_path: Path) -> None:
    folder = tmp_path / "folder.jsonl"
    folder.mkdir()
    for load in (lambda: RunLog(folder).read(), lambda: ClaimBook(folder).read(),
                 lambda: load_ranker(folder)):  # fmt: skip
        with pytest.raises(CostModelError):
            load()
