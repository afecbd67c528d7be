"""The measuring process is owned across its deaths: rows, reasons, order, numbers and restarts.

A stand-in child speaks the protocol without a GPU. What becomes of a configuration is written in
its block_m; its times mean nothing.
"""

import subprocess
import sys
from dataclasses import asdict

import pytest

from costmodel.config import KernelConfig
from costmodel.errors import DeviceError
from costmodel.measure import worker
from costmodel.measure.timing import Protocol
from costmodel.measure.worker import MeasuringProcess, WorkerOptions
from costmodel.problem import Gemm
from costmodel.records.schema import config_of, row_key, validate_row
from costmodel.records.source_hash import kernel_hash

CHILD = """
import json, os, sys, time

def send(kind, **content):
    print(json.dumps({"kind": kind} | content), flush=True)

options = json.loads(sys.stdin.readline())
if options["run"] == "no start":
    sys.exit(3)
facts = {"device": "h200-sxm", "device_name": "NVIDIA H200", "units": 132, "run": options["run"]}
send("ready", facts=facts, floor={"median_us": 1.0, "p10_us": 1.0, "p90_us": 1.5, "count": 9})
for line in sys.stdin:
    job = json.loads(line)
    if job["problem"]["m"] == 7:
        send("refused", why="out of memory")
        continue
    for index, config in enumerate(job["configs"]):
        send("begin", index=index)
        fate = config and config["block_m"]
        if fate == 16:
            os._exit(9)
        if fate == 32:
            sys.stdin.read()  # until the parent gives up
            sys.exit(0)
        if fate == 512:
            time.sleep(600)
        row = {"config": config, "sequence": job["sequence"] + index, "process": os.getpid()}
        send("row", index=index, row=row)
        if fate == 256:
            send("lost")
            sys.exit(0)
        if fate == 1024:
            os._exit(9)
    send("done")
"""
PROBLEM = Gemm(64, 64, 64)
GOOD = KernelConfig("tile", 128, 64, 64)
DEATH, HANG, LOST, AFTER = (KernelConfig("tile", m, 64, 64) for m in (16, 32, 256, 1024))


class Impatient(subprocess.Popen):
    """Waits a tenth of a second where the library waits for longer."""

    def wait(self, timeout=None):
        return super().wait(timeout if timeout is None else min(timeout, 0.1))


@pytest.fixture(autouse=True)
def child(monkeypatch):
    """The stand-in takes the measuring process' place; gives the processes started."""
    started = []

    def popen(command, **options):
        assert command[1:] == ["-m", "costmodel.measure.serve"]
        process = Impatient([sys.executable, "-S", "-c", CHILD], **options)
        started.append(process)
        return process

    monkeypatch.setattr(worker.subprocess, "Popen", popen)
    monkeypatch.setattr(worker, "_HANG_SECONDS", 2)
    yield started
    assert all(process.poll() is not None for process in started), "a child was left behind"


def measured(configs, problem=PROBLEM, run="a"):
    """The rows of one call, and how many times the process was started anew."""
    with MeasuringProcess(WorkerOptions(run=run)) as process:
        return list(process.measure(problem, configs)), process.restarts


def words(rows):
    """What became of each row: its word, or nothing for a row of the child's own."""
    return [row.get("invalidity") for row in rows]


def test_rows_come_in_order_and_are_numbered_from_0():
    rows, restarts = measured([None, GOOD, GOOD, None])
    assert [row["config"] and row["config"]["block_m"] for row in rows] == [None, 128, 128, None]
    assert [row["sequence"] for row in rows] == [0, 1, 2, 3]
    assert restarts == 0


def test_numbers_go_on_from_one_call_to_the_next():
    with MeasuringProcess(WorkerOptions()) as process:
        first = list(process.measure(PROBLEM, [GOOD, GOOD]))
        second = list(process.measure(PROBLEM, [GOOD]))
    assert [row["sequence"] for row in first + second] == [0, 1, 2]
    assert len({row["process"] for row in first + second}) == 1


def test_what_kills_the_process_becomes_a_row_and_a_fresh_process_takes_the_rest():
    rows, restarts = measured([GOOD, DEATH, GOOD])
    assert words(rows) == [None, "runtime", None]
    assert rows[1]["reason"] == "the measuring process died"
    assert config_of(rows[1]) == DEATH
    assert [row["sequence"] for row in rows] == [0, 1, 2]
    assert restarts == 1
    assert rows[0]["process"] != rows[2]["process"]


def test_every_death_costs_its_own_configuration_alone():
    rows, restarts = measured([DEATH, DEATH, GOOD, DEATH])
    assert words(rows) == ["runtime", "runtime", None, "runtime"]
    assert [row["sequence"] for row in rows] == [0, 1, 2, 3]
    assert restarts == 3


def test_what_hangs_becomes_a_timeout_and_the_rest_is_measured():
    rows, restarts = measured([GOOD, HANG, GOOD])
    assert words(rows) == [None, "timeout", None]
    assert rows[1]["reason"] == "no answer in 2 s"
    assert [row["sequence"] for row in rows] == [0, 1, 2]
    assert restarts == 1


def test_a_process_that_hangs_and_does_not_listen_is_killed(child):
    rows, _ = measured([KernelConfig("tile", 512, 64, 64)])
    assert words(rows) == ["timeout"]
    assert child[0].returncode != 0  # the one that slept


def test_a_lost_context_costs_no_row_but_a_fresh_process():
    rows, restarts = measured([GOOD, LOST, GOOD, GOOD])
    assert words(rows) == [None] * 4
    assert [row["config"]["block_m"] for row in rows] == [128, 256, 128, 128]
    assert [row["sequence"] for row in rows] == [0, 1, 2, 3]
    assert restarts == 1
    assert len({row["process"] for row in rows[:2]}) == 1
    assert rows[2]["process"] != rows[1]["process"]


def test_a_problem_that_does_not_fit_is_a_row_for_each_configuration_and_no_restart():
    rows, restarts = measured([None, GOOD], problem=Gemm(7, 64, 64))
    assert words(rows) == ["runtime", "runtime"]
    assert [row["reason"] for row in rows] == ["out of memory"] * 2
    assert [row["backend"] for row in rows] == ["origin", "triton"]
    assert restarts == 0


def test_a_process_that_dies_after_its_last_row_loses_nothing():
    rows, _ = measured([GOOD, AFTER])
    assert words(rows) == [None, None]


def test_a_process_that_dies_between_rows_costs_no_configuration_that_has_its_row():
    rows, _ = measured([AFTER, GOOD, GOOD])
    # the death is the next configuration's, as far as anyone can tell
    assert [row["sequence"] for row in rows] == [0, 1, 2]
    assert words(rows) == [None, "runtime", None]


def test_a_failures_row_is_sound_and_has_the_facts_of_its_process():
    rows, _ = measured([DEATH], run="the run")
    row = validate_row(rows[0])
    assert (row["device"], row["units"], row["run"]) == ("h200-sxm", 132, "the run")
    assert (row["protocol"], row["time_us"]) == (Protocol().name, None)
    assert row["kernel_hash"] == kernel_hash("tile")
    assert (row["m"], row["template"], row["block_m"]) == (64, "tile", 16)


def test_a_failure_and_a_time_of_one_configuration_have_the_same_key():
    with MeasuringProcess(WorkerOptions()) as process:
        one = process.failure(PROBLEM, GOOD, "timeout", "not compiled")
        two = process.failure(PROBLEM, GOOD, "runtime", "other")
    assert row_key(one) == row_key(two)
    assert (one["sequence"], two["sequence"]) == (0, 1)
    assert (one["invalidity"], one["reason"]) == ("timeout", "not compiled")


def test_the_floor_and_the_facts_come_with_the_start():
    with MeasuringProcess(WorkerOptions()) as process:
        assert asdict(process.floor) == {
            "median_us": 1.0, "p10_us": 1.0, "p90_us": 1.5, "count": 9,
        }  # fmt: skip
        assert process.facts["device_name"] == "NVIDIA H200"


def test_a_process_that_does_not_start_is_a_device_error():
    with pytest.raises(DeviceError, match="did not start"):
        MeasuringProcess(WorkerOptions(run="no start"))


def test_leaving_early_ends_the_process(child):
    with MeasuringProcess(WorkerOptions()) as process:
        assert next(process.measure(PROBLEM, [GOOD, GOOD]))["sequence"] == 0
    assert child[0].poll() is not None


def test_no_configurations_are_no_rows():
    assert measured([]) == ([], 0)
