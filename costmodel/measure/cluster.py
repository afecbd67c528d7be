"""``collect`` on a Dask cluster: compilers on CPU workers, one measuring process alone on each GPU.

A worker that may measure has the resource GPU, one that may compile the resource COMPILE; a task
takes one of them whole, so nothing else runs on a GPU that is timed. A worker hands each row to the
scheduler's queue before it measures the next, and the client logs it: a worker that dies loses the
configuration in hand, and what it had left is measured by another. Kernels are compiled into
Triton's cache on disk, which workers of several hosts must share for a compiler to be of use.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from costmodel.config import KernelConfig
from costmodel.errors import ConfigError, DeviceError, UnsupportedError
from costmodel.measure.bench import new_run_id
from costmodel.measure.collect import CollectReport, key_of, with_vendor
from costmodel.measure.jobs import Job
from costmodel.measure.worker import MeasuringProcess, WorkerOptions
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.records.log import RunLog
from costmodel.records.schema import Row, make_row, row_key
from costmodel.records.source_hash import kernel_hash

#: configurations of one task: a GPU's work is cut fine enough to share, and operands are made once
#: for so many
BATCH = 24
#: tasks in flight for each measuring worker: kernels compile while earlier ones are timed
_AHEAD = 4
#: a configuration that was in hand when so many workers died is a failure and is not tried again
_DEATHS = 2
#: between two looks into the scheduler's queue
_LISTEN_SECONDS = 0.2
#: for measuring processes to end
_STOP_SECONDS = 10.0

Measuring = Callable[[WorkerOptions], Any]
Compiling = Callable[[HardwareProfile, Gemm, Sequence[KernelConfig]], None]


@dataclass(frozen=True)
class Batch:
    """Configurations of one problem for one task."""

    problem: Gemm
    configs: tuple[KernelConfig, ...]


@contextmanager
def local_cluster(gpus: int, compilers: int | None = None) -> Iterator[Any]:
    """A cluster on this machine: a worker for each GPU, which sees no other, and CPU workers.

    Raises ``UnsupportedError`` without Dask.
    """
    try:
        from distributed import Nanny, Scheduler, SpecCluster
    except ImportError:
        raise UnsupportedError(
            "a cluster needs Dask: install the package's extra 'distributed'"
        ) from None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(gpus)]
    common = {"nthreads": 1, "memory_limit": 0}
    workers: dict[str, Any] = {
        f"gpu{number}": {
            "cls": Nanny,
            "options": common
            | {"resources": {"GPU": 1}, "env": {"CUDA_VISIBLE_DEVICES": names[number]}},
        }
        for number in range(gpus)
    }
    for number in range(compilers or max(1, (os.cpu_count() or 2) - gpus)):
        workers[f"cpu{number}"] = {
            "cls": Nanny, "options": common | {"resources": {"COMPILE": 1}},
        }  # fmt: skip
    # no failure is allowed: a task of a dead worker comes back here, where it is known what is left
    settings = {
        "dashboard": False, "dashboard_address": ":0", "host": "127.0.0.1", "allowed_failures": 0,
    }  # fmt: skip
    scheduler = {"cls": Scheduler, "options": settings}
    with SpecCluster(workers=workers, scheduler=scheduler, silence_logs=40) as cluster:
        yield cluster


def collect_on(
    cluster: Any,
    jobs: Iterable[Job],
    log: RunLog,
    profile: HardwareProfile,
    *,
    known: Iterable[tuple[object, ...]] = (),
    again: bool = False,
    seconds: float | None = None,
    runs: int | None = None,
    options: WorkerOptions | None = None,
    on_row: Callable[[Row], None] | None = None,
    measuring: Measuring = MeasuringProcess,
    compiling: Compiling | None = None,
) -> CollectReport:
    """As ``collect``, on a cluster or at a scheduler's address.

    ``measuring`` makes what measures on a worker, ``compiling`` compiles there. Raises
    ``DeviceError`` where no worker has the resource GPU, and ``UnsupportedError`` without Dask.
    """
    try:
        from distributed import Client, KilledWorker, Queue, as_completed
    except ImportError:
        raise UnsupportedError(
            "a cluster needs Dask: install the package's extra 'distributed'"
        ) from None

    options = options or WorkerOptions(run=new_run_id())
    begun = time.monotonic()
    with Client(cluster) as client:
        facts = _facts(client, options, measuring)
        have = set() if again else set(known) | log.keys()
        desk = _Desk(log, have, on_row, Queue(_queue_name(options), client=client))
        batches = _batches(jobs, facts, options, have, desk.report)
        running: dict[Any, Batch] = {}
        done = as_completed()

        def submit(batch: Batch) -> None:
            compiled = client.submit(
                compiling or _compile, profile, batch.problem, batch.configs,
                resources={"COMPILE": 1}, pure=False, priority=-len(running),
            )  # fmt: skip
            future = client.submit(
                _measure, options, measuring, batch.problem, with_vendor(list(batch.configs)),
                compiled, resources={"GPU": 1}, pure=False, priority=-len(running),
            )  # fmt: skip
            running[future] = batch
            done.add(future)

        try:
            for batch in batches:
                submit(batch)
                if len(running) >= _AHEAD * len(facts):
                    break
            for future in done:
                batch = running.pop(future)
                try:
                    for row in future.result():
                        desk.take(row)
                    desk.report.jobs += 1
                except KilledWorker:
                    rest = desk.remaining(batch, facts[0], options)
                    if rest.configs:
                        submit(rest)
                desk.report.stopped = _spent(desk.report, begun, seconds, runs)
                if desk.report.stopped:
                    break
                for batch in batches:
                    submit(batch)
                    if len(running) >= _AHEAD * len(facts):
                        break
            desk.report.stopped = desk.report.stopped or "finished"
        except KeyboardInterrupt:
            desk.report.stopped = "interrupted"
        finally:
            client.cancel(list(running))
            desk.close()  # what a process says while it is being stopped is no measurement
            _stop_all(client)
    desk.report.seconds = time.monotonic() - begun
    return desk.report


class _Desk:
    """The client's side of the rows: each is logged once, by whichever way it came."""

    def __init__(
        self,
        log: RunLog,
        have: set[tuple[object, ...]],
        on_row: Callable[[Row], None] | None,
        queue: Any,
    ) -> None:
        self.report = CollectReport(stopped="")
        self._log, self._have, self._on_row, self._queue = log, have, on_row, queue
        self._seen: set[tuple[str, int]] = set()
        self._deaths: Counter[tuple[Gemm, KernelConfig]] = Counter()
        self._open = True
        self._lock = threading.RLock()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        while self._open:
            self._drain()
            time.sleep(_LISTEN_SECONDS)

    def _drain(self) -> None:
        """Log what the scheduler holds."""
        with self._lock:
            for row in self._queue.get(batch=True) if self._open else ():
                self.take(row)

    def take(self, row: Row) -> None:
        """Log a row that did not come before."""
        with self._lock:
            number = (row["run"], row["sequence"])
            if number in self._seen or not self._open:
                return
            self._seen.add(number)
            self._log.append(row)
            self._have.add(row_key(row))
            self.report.measured += row["invalidity"] == "correct"
            self.report.failed += row["invalidity"] != "correct"
        if self._on_row:
            self._on_row(row)

    def close(self) -> None:
        """Take what has come, and no row any more."""
        self._drain()
        self._open = False
        self._listener.join()

    def remaining(self, batch: Batch, facts: dict[str, Any], options: WorkerOptions) -> Batch:
        """What a dead worker left of a batch, without a configuration that has killed enough."""
        self._drain()
        name = options.protocol.name
        with self._lock:
            left = [
                config
                for config in batch.configs
                if key_of(batch.problem, config, facts, name) not in self._have
            ]
            if not left:
                return replace(batch, configs=())
            suspect = left[0]  # they are measured in order
            self._deaths[batch.problem, suspect] += 1
            if self._deaths[batch.problem, suspect] < _DEATHS:
                return replace(batch, configs=tuple(left))
            self.take(
                make_row(
                    batch.problem, suspect, backend="triton", invalidity="runtime",
                    reason=f"{_DEATHS} workers died while it was measured",
                    kernel_hash=kernel_hash(suspect.template), protocol=name,
                    **(facts | {"run": f"{options.run}-client", "sequence": len(self._seen)}),
                )
            )  # fmt: skip
        return replace(batch, configs=tuple(left[1:]))


def _spent(report: CollectReport, begun: float, seconds: float | None, runs: int | None) -> str:
    if seconds is not None and time.monotonic() - begun > seconds:
        return f"the budget of {seconds:g} s is spent"
    if runs is not None and report.measured >= runs:
        return f"the budget of {runs} runs is spent"
    return ""


def _batches(
    jobs: Iterable[Job],
    facts: Sequence[dict[str, Any]],
    options: WorkerOptions,
    have: set[tuple[object, ...]],
    report: CollectReport,
) -> Iterator[Batch]:
    """What no row of any of the GPUs answers yet, in batches."""
    name = options.protocol.name
    for job in jobs:
        todo = [
            config
            for config in job.configs
            if not any(key_of(job.problem, config, one, name) in have for one in facts)
        ]
        report.skipped += len(job.configs) - len(todo)
        for start in range(0, len(todo), BATCH):
            yield Batch(job.problem, tuple(todo[start : start + BATCH]))


def _facts(client: Any, options: WorkerOptions, measuring: Measuring) -> list[dict[str, Any]]:
    """The environment of each worker that may measure, as its measuring process tells it."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    gpus = [address for address, info in workers.items() if info.get("resources", {}).get("GPU")]
    if not gpus:
        raise DeviceError(
            "no worker of the cluster has the resource GPU; start some with "
            "`dask worker ADDRESS --nthreads 1 --resources GPU=1`, and with COMPILE=1 to compile"
        )
    if not any(info.get("resources", {}).get("COMPILE") for info in workers.values()):
        raise DeviceError("no worker of the cluster has the resource COMPILE")
    futures = [
        client.submit(
            _describe, options, measuring, workers=[address], resources={"GPU": 1}, pure=False
        )
        for address in gpus
    ]
    return list(client.gather(futures))


def _stop_all(client: Any) -> None:
    """End the measuring processes; a worker that does not answer is left alone."""
    from distributed import wait

    futures = [
        client.submit(_stop, workers=[address], resources={"GPU": 1}, pure=False)
        for address, info in client.scheduler_info(n_workers=-1)["workers"].items()
        if info.get("resources", {}).get("GPU")
    ]
    try:
        wait(futures, timeout=_STOP_SECONDS)
    except TimeoutError:
        client.cancel(futures)


def _queue_name(options: WorkerOptions) -> str:
    return f"costmodel-rows-{options.run}"


# --- on the workers


#: this worker's one measuring process, and the options that it was made with
_STATE: dict[str, Any] = {}


def _process(options: WorkerOptions, measuring: Measuring) -> Any:
    """This worker's measuring process; its rows have a run id of their own."""
    from distributed import get_worker

    if _STATE.get("options") != options:
        _stop()
        name = str(get_worker().name).rpartition("/")[2]
        own = replace(options, run=f"{options.run}-{name}-{os.getpid()}")
        _STATE.update(options=options, process=measuring(own).__enter__())
    return _STATE["process"]


def _describe(options: WorkerOptions, measuring: Measuring) -> dict[str, Any]:
    facts: dict[str, Any] = dict(_process(options, measuring).facts)
    return facts


def _measure(
    options: WorkerOptions,
    measuring: Measuring,
    problem: Gemm,
    configs: Sequence[KernelConfig | None],
    _compiled: object,
) -> list[Row]:
    from distributed import Queue

    queue = Queue(_queue_name(options))
    rows = []
    for row in _process(options, measuring).measure(problem, configs):
        rows.append(row)
        queue.put(row)  # comes back when the scheduler has it
    return rows


def _compile(profile: HardwareProfile, problem: Gemm, configs: Sequence[KernelConfig]) -> None:
    """Compile each into the cache on disk; failures are left for the measuring process to meet."""
    from costmodel.compiler.witness import compiling_for, storageless_launch

    with compiling_for(profile):
        for config in configs:
            try:
                storageless_launch(problem, config, profile.units).compile()
            except ConfigError:
                continue
            except Exception:  # the measuring process meets the same error and records it
                continue


def _stop() -> None:
    """End this worker's measuring process, where it has one."""
    process = _STATE.pop("process", None)
    _STATE.clear()
    if process is not None:
        process.__exit__(None, None, None)
