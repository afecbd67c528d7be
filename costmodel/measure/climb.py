"""``ladder``: from a plain kernel to the tuned one, a variable at a time, on the GPU at hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.config import KernelConfig
from costmodel.errors import ConfigError, DeviceError, unknown_name
from costmodel.measure.at_hand import require_chip, require_gpu
from costmodel.measure.bench import new_run_id
from costmodel.measure.compile_pool import COMPILE_SECONDS, CompilePool
from costmodel.measure.decide import TIE
from costmodel.measure.rungs import (
    PLAIN,
    STEPS,
    TUNED,
    Ladder,
    Rung,
    Step,
    changed,
    choices,
    kept,
    why_kept,
)
from costmodel.measure.timing import Protocol
from costmodel.measure.tune import vendor_seeds
from costmodel.measure.vendor import vendor_kernel_if_seen
from costmodel.measure.vendor_kernels import VendorGemm
from costmodel.measure.worker import MeasuringProcess, WorkerOptions
from costmodel.paths import user_dir
from costmodel.predict import predict_best
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, resolve_profile
from costmodel.records.log import RunLog
from costmodel.records.schema import BACKENDS, Row, config_of
from costmodel.space.prune import prune

#: a rung's fastest few are timed once more beside the value that they would replace
_FINALISTS = 2
#: what the last rung measures: the model's first choices, and as many with the vendor's tile
_TUNED, _SEEDED = 8, 4


def ladder(
    shape: Gemm | Iterable[int],
    profile: str | os.PathLike[str] | HardwareProfile | None = None,
    *,
    backend: str | None = None,
    repeats: int | None = None,
    log: str | os.PathLike[str] | None = None,
    device: int = 0,
    on_rung: Callable[[str], None] | None = None,
    **options: Any,
) -> Ladder:
    """Measure the way from a plain Triton kernel to the tuned one, one variable a rung.

    Each rung tries the values of its variable that the estimate ranks first, each pruned before
    it runs, times the fastest again beside the value that they would replace, and keeps that
    value where nothing gained more than ``TIE``. The last rung takes the model's first choices
    and the vendor's tile. ``backend`` "origin" measures the vendor's GEMM alone, "triton" ours
    alone, None both. ``repeats`` fixes the timed launches a measurement. ``on_rung`` is told the
    name of each rung as it begins. Rows go to ``log``, the user's own by default.

    Raises ``DeviceError`` where there is no GPU or the plain kernel does not run, and
    ``UnknownNameError``, ``ConfigError`` or ``ProblemError`` for an impossible request.
    """
    problem = Gemm.of(shape, **options)  # type: ignore[arg-type]
    if profile is None:
        require_gpu()  # else the error would ask for a profile, which does not help
    chip = resolve_profile(profile)
    if backend is not None and backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    worker = WorkerOptions(device=device, protocol=_protocol(repeats), run=new_run_id())
    if backend != "origin":
        prune(problem, [PLAIN], chip)  # says at once why nothing can run
    require_gpu()
    vendor = None if backend == "triton" else vendor_kernel_if_seen(problem, device)
    tell = on_rung or (lambda name: None)
    with MeasuringProcess(worker) as process:
        require_chip(process.facts, chip)
        bench = _Bench(process, problem, chip, RunLog(log or user_dir() / "log.jsonl"), backend)
        try:
            tell("vendor")
            bench.vendor()
            rungs = [] if backend == "origin" else _climb(bench, problem, chip, vendor, tell)
        finally:
            bench.pool.close()
    origin = [row for row in bench.rows if row["backend"] == "origin" and _is_correct(row)]
    times = [row["time_us"] for row in origin]
    if backend == "origin" and not times:
        raise DeviceError(f"the vendor's GEMM did not run on {problem}: {_reasons(bench.rows)}")
    return Ladder(
        problem, chip, tuple(rungs), float(np.median(times)) if times else None,
        origin[-1]["error"] if origin else None, vendor, bench.rows,
    )  # fmt: skip


def _protocol(repeats: int | None) -> Protocol:
    if repeats is None:
        return Protocol()
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise ConfigError(f"repeats must be a positive whole number, got {repeats!r}")
    return Protocol(least_repeats=repeats, most_repeats=repeats)


class _Bench:
    """The measuring process for one problem; every row is logged and kept, in order."""

    def __init__(
        self,
        process: MeasuringProcess,
        problem: Gemm,
        chip: HardwareProfile,
        log: RunLog,
        backend: str | None,
    ) -> None:
        self.process = process
        self.problem = problem
        self.log = log
        self.rows: list[Row] = []
        self._with_vendor = backend != "triton"
        self.pool = CompilePool(chip)

    def vendor(self) -> None:
        """Time the vendor's GEMM, where it is wanted: once a rung, so that a drift shows."""
        if self._with_vendor:
            self._measure([None])

    def run(self, configs: Sequence[KernelConfig]) -> list[Row]:
        """Rows in the configurations' order. All are compiled before the first is timed."""
        late = set(self.pool.wait(self.pool.submit(self.problem, configs)))
        ready = self._measure([config for config in configs if config not in late])
        why = f"not compiled in {COMPILE_SECONDS:g} s"
        for config in configs:
            if config in late:
                ready.append(self._keep(
                    self.process.failure(self.problem, config, "timeout", why)
                ))  # fmt: skip
        return ready

    def _measure(self, configs: Sequence[KernelConfig | None]) -> list[Row]:
        return [self._keep(row) for row in self.process.measure(self.problem, configs)]

    def _keep(self, row: Row) -> Row:
        self.log.append(row)
        self.rows.append(row)
        return row


def _climb(
    bench: _Bench,
    problem: Gemm,
    chip: HardwareProfile,
    vendor: VendorGemm | None,
    tell: Callable[[str], None],
) -> list[Rung]:
    tell("plain")
    row = bench.run([PLAIN])[0]
    if not _is_correct(row):
        raise DeviceError(f"the plain kernel did not run on {problem}: {_reasons([row])}")
    rungs = [_rung(Step("plain", {}), row, str(PLAIN), tried=1, failed=0)]
    for step in STEPS:
        tell(step.name)
        config = rungs[-1].config
        rungs.append(_next(bench, step, rungs[-1], choices(step, problem, chip, config)))
    tell(TUNED.name)
    ranked = predict_best(problem, chip, use_measured=False).ranking.configs[:_TUNED]
    tried = [*ranked, *vendor_seeds(problem, chip, vendor, _SEEDED)]
    others = [config for config in dict.fromkeys(tried) if config != rungs[-1].config]
    rungs.append(_next(bench, TUNED, rungs[-1], others))
    return rungs


def _next(bench: _Bench, step: Step, before: Rung, tried: list[KernelConfig]) -> Rung:
    """Measure a step's configurations and give its rung: the fastest, or the one before, kept."""
    rows = bench.run(tried) if tried else []
    good = sorted(filter(_is_correct, rows), key=_time)
    finalists = [config for config in map(config_of, good[:_FINALISTS]) if config is not None]
    again = bench.run([before.config, *finalists]) if finalists else []
    if tried:
        bench.vendor()
    failed = len(rows) - len(good)
    right = [row for row in again if _is_correct(row)]
    new = [row for row in right if config_of(row) != before.config]
    slower = None
    if new:
        best = min(new, key=_time)
        old = [_time(row) for row in right if config_of(row) == before.config]
        # both what it took before and what it takes now must be beaten
        slower = _time(best) / min([before.time_us, *old]) - 1.0
        if slower < -TIE:
            after = config_of(best)
            assert after is not None
            return _rung(step, best, changed(step, before.config, after), len(tried), failed)
    return replace(
        before, name=step.name, knobs=step.knobs, tried=len(tried), failed=failed, gained=False,
        change=kept(step, before.config), note=why_kept(step, len(tried), slower),
    )  # fmt: skip


def _rung(step: Step, row: Row, change: str, tried: int, failed: int) -> Rung:
    config = config_of(row)
    assert config is not None
    return Rung(
        step.name, step.knobs, config, row["time_us"], row["p10_us"], row["p90_us"], row["error"],
        tried, failed, True, change,
    )  # fmt: skip


def _time(row: Row) -> float:
    return float(row["time_us"])


def _is_correct(row: Row) -> bool:
    return bool(row["invalidity"] == "correct")


def _reasons(rows: Sequence[Row]) -> str:
    return "; ".join(sorted({row["reason"] for row in rows if row["reason"]}))
