"""``collect`` on a local Dask cluster: each configuration once, whatever dies, and no GPU shared.

Workers are real processes and die really (SIGKILL). A stand-in takes the place of the measuring
process: its time is a function of the configuration, and it notes in files who measured when.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from costmodel.config import KernelConfig
from costmodel.errors import DeviceError
from costmodel.measure import cluster as module
from costmodel.measure.cluster import collect_on, local_cluster
from costmodel.measure.jobs import Job
from costmodel.measure.worker import WorkerOptions
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.records.log import RunLog
from costmodel.records.schema import config_of, make_row
from costmodel.records.source_hash import kernel_hash

H200 = load_profile("h200-sxm")
PROBLEMS = [Gemm(512 * n, 512, 512) for n in (1, 2, 3)]
CONFIGS = tuple(
    KernelConfig("tile", m, 64, 64, num_stages=s) for m in (32, 64, 128) for s in (2, 3, 4, 5)
)


def stand_ins(folder: str) -> tuple[Any, Any]:
    """What measures and what compiles on the workers.

    Both are made in here so that they travel whole: workers cannot import a test's module.
    """

    class StandIn:
        """Measures nothing; ``folder`` says who did what, and whether to die.

        A file ``kill-<config>`` is the number of times that a worker dies with it in hand.
        """

        def __init__(self, options: WorkerOptions) -> None:
            self.options, self.number = options, 0
            self.facts = {
                "device": "h200-sxm", "device_name": "NVIDIA H200", "units": 132,
                "run": options.run,
            }  # fmt: skip

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            (Path(folder) / f"stopped-{os.getpid()}").touch()

        def measure(self, problem: Gemm, configs: Any) -> Iterator[dict[str, Any]]:
            alone = Path(folder) / f"gpu-{os.environ['CUDA_VISIBLE_DEVICES']}"
            for config in configs:
                os.close(os.open(alone, os.O_CREAT | os.O_EXCL))  # fails where another measures
                mark = Path(folder) / f"kill-{config}"
                deaths = int(mark.read_text()) if mark.exists() else 0
                if deaths:
                    mark.write_text(str(deaths - 1))
                    alone.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(0.002)
                alone.unlink()
                self.number += 1
                yield make_row(
                    problem, config, backend="triton" if config else "origin", time_us=20.0,
                    kernel_hash=kernel_hash(config.template) if config else None,
                    protocol=self.options.protocol.name, sequence=self.number, **self.facts,
                )  # fmt: skip

    def compiles(profile: Any, problem: Gemm, configs: Any) -> None:
        if "CUDA_VISIBLE_DEVICES" in os.environ:
            raise RuntimeError("a GPU's worker compiles")

    return StandIn, compiles


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with local_cluster(2, compilers=1) as found:
        yield found


@pytest.fixture
def run(cluster: Any, tmp_path: Path) -> Any:
    """Collect on the cluster into ``log``; every row counts once."""
    folder = tmp_path / "notes"
    folder.mkdir()
    measuring, compiling = stand_ins(str(folder))
    log = RunLog(tmp_path / "log.jsonl")

    def collect(jobs: list[Job], name: str = "a", **more: Any) -> Any:
        return collect_on(
            cluster, jobs, log, H200, options=WorkerOptions(run=name), measuring=measuring,
            compiling=compiling, **more,
        )  # fmt: skip

    collect.log, collect.folder = log, folder  # type: ignore[attr-defined]
    return collect


def times_measured(log: RunLog) -> Counter[tuple[int, KernelConfig | None]]:
    return Counter((row["m"], config_of(row)) for row in log.read().rows if row["template"])


def test_each_configuration_is_measured_once_on_both_gpus_and_a_second_call_has_nothing_to_do(
    run: Any,
) -> None:
    jobs = [Job(problem, CONFIGS) for problem in PROBLEMS]
    report = run(jobs)
    counts = times_measured(run.log)
    assert len(counts) == 36 and set(counts.values()) == {1}
    assert (report.stopped, report.failed, report.jobs) == ("finished", 0, 3)
    # the vendor's before and after each batch
    assert report.measured == len(run.log.read().rows) == 36 + 6
    assert {row["run"].split("-")[1] for row in run.log.read().rows} == {"gpu0", "gpu1"}
    assert len(list(run.folder.glob("stopped-*"))) == 2
    again = run(jobs, "b")
    assert (again.measured, again.skipped) == (0, 36)


def test_a_killed_workers_rows_are_kept_and_what_it_left_is_measured_by_another(
    run: Any,
) -> None:
    victim = CONFIGS[6]
    (run.folder / f"kill-{victim}").write_text("1")
    report = run([Job(PROBLEMS[0], CONFIGS)])
    counts = times_measured(run.log)
    assert len(counts) == 12 and set(counts.values()) == {1}
    assert (report.failed, report.stopped) == (0, "finished")
    owners = {str(config_of(row)): row["run"] for row in run.log.read().rows if row["template"]}
    first, last = owners[str(CONFIGS[0])], owners[str(victim)]
    assert first != last
    # the first worker's six rows came before its death, the other six from its successor
    assert Counter(owners.values()) == {first: 6, last: 6}


def test_a_configuration_that_kills_every_worker_is_a_failure_and_the_rest_is_measured(
    run: Any,
) -> None:
    victim = CONFIGS[3]
    (run.folder / f"kill-{victim}").write_text("99")
    report = run([Job(PROBLEMS[0], CONFIGS)])
    (failure,) = [row for row in run.log.read().rows if row["invalidity"] != "correct"]
    assert (config_of(failure), failure["invalidity"]) == (victim, "runtime")
    assert failure["reason"] == "2 workers died while it was measured"
    assert len(times_measured(run.log)) == 12 and report.failed == 1
    assert run([Job(PROBLEMS[0], CONFIGS)], "b").skipped == 12


def test_a_budget_ends_it_and_a_second_call_goes_on_where_it_stopped(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 3)
    jobs = [Job(problem, CONFIGS) for problem in PROBLEMS]
    report = run(jobs, runs=10)
    assert report.stopped == "the budget of 10 runs is spent" and report.measured >= 10
    before = sum(times_measured(run.log).values())
    assert before < 36
    rest = run(jobs, "b")
    assert rest.skipped == before
    counts = times_measured(run.log)
    assert len(counts) == 36 and set(counts.values()) == {1}


def test_a_cluster_without_a_measuring_or_compiling_worker_says_how_to_start_one(
    tmp_path: Path,
) -> None:
    log = RunLog(tmp_path / "log.jsonl")
    with local_cluster(0, compilers=1) as bare, pytest.raises(DeviceError, match="resources GPU=1"):
        collect_on(bare, [Job(PROBLEMS[0], CONFIGS)], log, H200)
    assert not log.path.exists()
