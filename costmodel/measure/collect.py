"""Collect measured runs: compile in parallel, time on the GPU, append every row as it comes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from costmodel.config import KernelConfig
from costmodel.measure.bench import new_run_id
from costmodel.measure.compile_pool import COMPILE_SECONDS, CompilePool, Pending
from costmodel.measure.jobs import Job
from costmodel.measure.worker import MeasuringProcess, WorkerOptions
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.records.log import RunLog
from costmodel.records.schema import KEY_COLUMNS, Row, row_key
from costmodel.records.source_hash import kernel_hash

#: jobs whose kernels compile while earlier ones are timed
_LOOKAHEAD = 24
#: the vendor's GEMM is timed again after so many configurations: a drift shows in its own rows
_VENDOR_EVERY = 120


@dataclass
class CollectReport:
    """What a collection did: rows by outcome, what was there already, and why it stopped."""

    measured: int = 0
    failed: int = 0
    skipped: int = 0
    jobs: int = 0
    seconds: float = 0.0
    #: what the protocol reads around an empty kernel, in microseconds
    floor_us: float = 0.0
    stopped: str = "finished"


def collect(
    jobs: Iterable[Job],
    log: RunLog,
    profile: HardwareProfile,
    *,
    known: Iterable[tuple[object, ...]] = (),
    again: bool = False,
    seconds: float | None = None,
    runs: int | None = None,
    workers: int | None = None,
    options: WorkerOptions | None = None,
    on_row: Callable[[Job, Row], None] | None = None,
) -> CollectReport:
    """Measure every configuration of every job that the log does not hold yet.

    ``known`` are keys of rows measured elsewhere; ``again`` measures what is known too. Rows are
    appended one by one, so that an interruption keeps what is measured; Ctrl-C and the budgets
    (``seconds``, ``runs``) end it early and the report says so. A second call with the same jobs
    goes on where this one stopped. Raises ``DeviceError`` where there is no GPU.
    """
    options = options or WorkerOptions(run=new_run_id())
    begun = time.monotonic()
    report = CollectReport()
    pool = CompilePool(profile, workers)
    try:
        with MeasuringProcess(options) as process:
            report.floor_us = process.floor.median_us
            have = set() if again else set(known) | log.keys()
            for job, todo, pending in _compiled_ahead(jobs, have, process, pool, report):
                late = set(pool.wait(pending))
                ready = [config for config in todo if config not in late]
                why = f"not compiled in {COMPILE_SECONDS:g} s"
                rows = chain(
                    process.measure(job.problem, with_vendor(ready)),
                    (process.failure(job.problem, c, "timeout", why) for c in todo if c in late),
                )
                for row in rows:
                    log.append(row)
                    have.add(row_key(row))
                    report.measured += row["invalidity"] == "correct"
                    report.failed += row["invalidity"] != "correct"
                    if on_row:
                        on_row(job, row)
                    if seconds is not None and time.monotonic() - begun > seconds:
                        report.stopped = f"the budget of {seconds:g} s is spent"
                        return report
                    if runs is not None and report.measured >= runs:
                        report.stopped = f"the budget of {runs} runs is spent"
                        return report
                report.jobs += 1
    except KeyboardInterrupt:
        report.stopped = "interrupted"
    finally:
        pool.close()
        report.seconds = time.monotonic() - begun
    return report


def _compiled_ahead(
    jobs: Iterable[Job],
    known: set[tuple[object, ...]],
    process: MeasuringProcess,
    pool: CompilePool,
    report: CollectReport,
) -> Iterator[tuple[Job, list[KernelConfig], list[Pending]]]:
    """Jobs with what is left to measure, their kernels submitted ``_LOOKAHEAD`` jobs before."""
    queue: deque[tuple[Job, list[KernelConfig], list[Pending]]] = deque()
    for job in jobs:
        protocol = process.options.protocol.name
        todo = [
            c for c in job.configs if key_of(job.problem, c, process.facts, protocol) not in known
        ]
        report.skipped += len(job.configs) - len(todo)
        if not todo:
            continue
        queue.append((job, todo, pool.submit(job.problem, todo)))
        if len(queue) > _LOOKAHEAD:
            yield queue.popleft()
    yield from queue


def key_of(
    problem: Gemm, config: KernelConfig, facts: Mapping[str, object], protocol: str
) -> tuple[object, ...]:
    """The key that a row of this measurement would have in an environment."""
    columns = {name: facts.get(name) for name in KEY_COLUMNS}
    columns |= {name: getattr(problem, name) for name in columns if hasattr(problem, name)}
    columns |= config.as_dict()
    columns |= {
        "backend": "triton",
        "operator": "gemm",
        "kernel_hash": kernel_hash(config.template),
        "protocol": protocol,
    }
    return tuple(columns[name] for name in KEY_COLUMNS)


def with_vendor(configs: list[KernelConfig]) -> list[KernelConfig | None]:
    """The configurations with the vendor's GEMM (None) before, among and after them."""
    mixed: list[KernelConfig | None] = [None]
    for start in range(0, len(configs), _VENDOR_EVERY):
        mixed += configs[start : start + _VENDOR_EVERY]
        mixed.append(None)
    return mixed
