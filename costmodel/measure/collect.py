"""Collect measured runs: compile in parallel, time on the GPU, append every row as it comes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from costmodel.config import KNOBS, ConfigTable, KernelConfig
from costmodel.measure.bench import new_run_id
from costmodel.measure.compile_pool import COMPILE_SECONDS, CompilePool, Pending
from costmodel.measure.worker import MeasuringProcess, WorkerOptions
from costmodel.physics.estimate import estimate_columns
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.records.groups import Group
from costmodel.records.log import RunLog
from costmodel.records.schema import KEY_COLUMNS, Row, row_key
from costmodel.records.source_hash import kernel_hash
from costmodel.space.candidates import candidates
from costmodel.space.prune import prune

#: jobs whose kernels compile while earlier ones are timed
_LOOKAHEAD = 24
#: the vendor's GEMM is timed again after so many configurations: a drift shows in its own rows
_VENDOR_EVERY = 120


@dataclass(frozen=True)
class Job:
    """One problem and the configurations to measure on it."""

    problem: Gemm
    configs: tuple[KernelConfig, ...]


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


def sample_job(
    problem: Gemm, profile: HardwareProfile, count: int | None, seed: int, kernels: float = 1.0
) -> Job:
    """A job of ``count`` legal configurations drawn without replacement, all where count is None.

    Half of them lie along the order of the physics estimate, dense at its top, where choices are
    made, and ever thinner below; half are drawn evenly. ``kernels`` is the share of all kernels
    that the draw is from, the same ones for every problem, and more where those would not fill
    ``count``: most of a collection's time is compiling. The draw depends on the seed and the
    problem alone, so that a collection resumes on the same.
    """
    legal, _ = prune(problem, candidates(problem, profile), profile)
    if count is None or count >= len(legal):
        return Job(problem, tuple(legal))
    draw = _kernel_draw(legal, seed)
    enough = float(np.partition(draw, count - 1)[count - 1])
    legal = legal[np.flatnonzero(draw <= max(kernels, enough))]
    if count >= len(legal):
        return Job(problem, tuple(legal))
    rng = np.random.default_rng([seed, problem.m, problem.n, problem.k, problem.batch])
    order = np.argsort(estimate_columns(problem, legal, profile).time_us, kind="stable")
    along = order[_thinning_places(len(order), count // 2, rng)]
    rest = np.setdiff1d(np.arange(len(legal)), along)
    even = rng.choice(rest, size=count - len(along), replace=False)
    return Job(problem, tuple(legal[np.sort(np.concatenate([along, even]))]))


def whole_job(problem: Gemm, profile: HardwareProfile) -> Job:
    """A job of every candidate, also of those that ``prune`` rejects: does it reject the best?"""
    return Job(problem, tuple(candidates(problem, profile)))


#: knobs that one compiled kernel takes at run time
_RUN_TIME_KNOBS = ("group_m", "split_k")


def _kernel_draw(table: ConfigTable, seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each row, equal for rows that are one kernel, whatever the table."""
    mixed = np.full(len(table), seed, dtype=np.uint64)
    for knob in KNOBS:
        if knob not in _RUN_TIME_KNOBS:
            # splitmix64's finaliser: every bit of a knob reaches every bit of the number
            mixed = mixed * np.uint64(31) + getattr(table, knob).astype(np.uint64)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


def _thinning_places(length: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``count`` distinct places below ``length``, as likely in each octave as in another."""
    weight = 1.0 / (1.0 + np.arange(length))
    places: NDArray[np.int64] = rng.choice(
        length, size=count, replace=False, p=weight / weight.sum()
    )
    return places


def winners_jobs(groups: Iterable[Group], count: int) -> list[Job]:
    """Jobs of the ``count`` fastest configurations of each group, to be measured again."""
    return [
        Job(group.problem, tuple(group.table[np.argsort(group.time_us, kind="stable")[:count]]))
        for group in groups
    ]


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
