"""The log while several processes use it and while they die: rows are whole, or were never there.

The processes are real ones, and so are their deaths (SIGKILL in the middle of an append).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from costmodel.config import KernelConfig
from costmodel.problem import Gemm
from costmodel.records import RunLog, make_row

ROW = make_row(
    Gemm(4096, 4096, 4096), KernelConfig("tile", 128, 256, 64, num_warps=8), backend="triton",
    time_us=181.5, protocol="cold-l2/1", device_name="NVIDIA H200", units=132, run="a", sequence=0,
    timestamp="2026-11-29T22:44:00Z",
)  # fmt: skip

WRITER = """
import json, pathlib, sys, time
from costmodel.records import RunLog
folder, run = pathlib.Path(sys.argv[1]), sys.argv[2]
row = json.loads((folder / "row.json").read_text())
(folder / f"ready-{run}").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
for sequence in range(10_000):
    RunLog(folder / "runs.jsonl").append(row | {"run": run, "sequence": sequence})
"""


def test_two_writers_of_10_000_rows_and_a_reader_see_whole_rows_alone(tmp_path: Path) -> None:
    (tmp_path / "row.json").write_text(json.dumps(ROW))
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen([*command, run], cwd=tmp_path) for run in "ab"]
    while not all((tmp_path / f"ready-{run}").exists() for run in "ab"):
        assert all(writer.poll() is None for writer in writers)
        time.sleep(0.01)
    (tmp_path / "go").touch()
    log = RunLog(tmp_path / "runs.jsonl")
    seen = [0]
    while any(writer.poll() is None for writer in writers):
        if log.path.exists():
            # a reader needs no lock: only the line that is being written may be cut off yet
            report = log.read()
            assert len(report.problems) <= 1
            assert all(p.line_number > len(report.rows) for p in report.problems)
            seen.append(len(report.rows))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen == sorted(seen)
    report = log.read()
    assert (len(report.rows), report.problems) == (20_000, [])
    for run in "ab":
        mine = [row["sequence"] for row in report.rows if row["run"] == run]
        assert mine == list(range(10_000))


#: forks a writer, and kills it at a random moment; what an append had returned from goes to stdout
KILLER = """
import json, os, pathlib, random, signal, sys, time
from costmodel.records import RunLog
folder, kills = pathlib.Path(sys.argv[1]), int(sys.argv[2])
row = json.loads((folder / "row.json").read_text())
log, chance = RunLog(folder / "runs.jsonl"), random.Random(0)
for child in range(kills):
    reader, writer = os.pipe()
    batch = 1 if child % 2 else 300  # a batch is 300 KB: the system may take a part of it
    process = os.fork()
    if process == 0:
        os.close(reader)
        first = 0
        while True:
            log.append_many(
                row | {"run": str(child), "sequence": first + i} for i in range(batch)
            )
            first += batch
            os.write(writer, f"{first}\\n".encode())
    os.close(writer)
    with os.fdopen(reader) as committed:
        started = committed.readline()  # it writes now
        time.sleep(chance.uniform(0, 0.01 if batch == 1 else 0.06))
        os.kill(process, signal.SIGKILL)
        rest = committed.read().splitlines()
    os.waitpid(process, 0)
    whole = [int(text) for text in [started.strip(), *rest] if text]
    print(json.dumps([str(child), max(whole)]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kills with SIGKILL after a fork")
def test_200_writers_killed_in_mid_append_lose_no_committed_row_and_tear_none(
    tmp_path: Path,
) -> None:
    (tmp_path / "row.json").write_text(json.dumps(ROW))
    command = [sys.executable, "-c", KILLER, str(tmp_path), "200"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    committed = dict(json.loads(line) for line in done.stdout.splitlines())
    assert len(committed) == 200
    report = RunLog(tmp_path / "runs.jsonl").read()
    found = Counter((row["run"], row["sequence"]) for row in report.rows)
    assert set(found.values()) == {1}
    for run, count in committed.items():
        assert all((run, sequence) in found for sequence in range(count))
    # every row is what its writer meant: none holds another's bytes
    assert all(row == ROW | {k: row[k] for k in ("run", "sequence")} for row in report.rows)
    # what is no row is the end of a line that a killed writer began
    assert len(report.problems) <= 200
    assert all(problem.excerpt.startswith('{"schema":1,') for problem in report.problems)
    print(f"{len(report.rows)} rows, {sum(committed.values())} committed, "
          f"{len(report.problems)} torn lines reported")  # fmt: skip
