"""``tune``: measure only the top few of a prediction, beside the vendor's GEMM, and remember."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.config import KernelConfig
from costmodel.errors import ConfigError, DeviceError, NoCandidateError
from costmodel.measure.at_hand import require_chip, require_gpu
from costmodel.measure.vendor import vendor_kernel_if_seen
from costmodel.measure.vendor_kernels import VendorGemm
from costmodel.paths import user_dir
from costmodel.predict import Prediction, predict_best, rank
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, resolve_profile
from costmodel.records.answers import Answer, measuring_on, now, recall, remember
from costmodel.records.log import RunLog
from costmodel.records.schema import Row, config_of
from costmodel.space.prune import prune
from costmodel.space.seeded import seeded_candidates

#: the fastest few are timed once more, the vendor's GEMM between them: one noisy minimum is not
#: an answer
_FINALISTS = 3
#: two medians closer than this are a tie; repeats of one kernel differ by 0.4 % (H200, 180 us)
TIE = 0.005


@dataclass(frozen=True)
class TuneResult:
    """What was measured and chosen. ``rows`` are the measured rows, empty where none was needed.

    ``vendor`` are the kernels that the vendor's library launched, where a profiler showed them.
    """

    problem: Gemm
    config: KernelConfig
    time_us: float
    vendor_us: float | None
    measured: int
    rows: list[Row]
    prediction: Prediction
    note: str
    vendor: VendorGemm | None = None

    @property
    def vendor_ratio(self) -> float | None:
        """Vendor's time over ours: above 1 is faster than the vendor."""
        return None if self.vendor_us is None else self.vendor_us / self.time_us

    def as_dict(self) -> dict[str, Any]:
        """Plain values, with each configuration measured and its time."""
        return {
            "problem": str(self.problem),
            "profile": self.prediction.profile.name,
            "config": self.config.as_dict(),
            "time_us": self.time_us,
            "tflops": self.problem.flops / (self.time_us * 1e6),
            "vendor_us": self.vendor_us,
            "vendor_ratio": self.vendor_ratio,
            "vendor_kernels": None if self.vendor is None else self.vendor.as_dict(),
            "configs_measured": self.measured,
            "predicted_us": self.prediction.time_us,
            "note": self.note,
            "runs": [
                {
                    "config": str(config_of(row) or "vendor"),
                    "time_us": row["time_us"],
                    "p10_us": row["p10_us"],
                    "p90_us": row["p90_us"],
                    "error": row["error"],
                    "invalidity": row["invalidity"],
                }
                for row in self.rows
            ],
        }


def survivors(count: int, top_k: int | float) -> int:
    """How many of ``count`` configurations to measure: a whole number, or a share of them.

    0.5 of 6 is 3; never less than 1 nor more than ``count``. Raises ``ConfigError``.
    """
    if isinstance(top_k, bool) or not isinstance(top_k, (int, float)) or not top_k > 0:
        raise ConfigError(f"top_k must be a positive number or share, got {top_k!r}")
    share = isinstance(top_k, float) and top_k <= 1
    wanted = round(count * top_k) if share else int(min(top_k, count))
    return min(max(wanted, 1), count)


def tune(
    shape: Gemm | Iterable[int],
    profile: str | os.PathLike[str] | HardwareProfile | None = None,
    *,
    top_k: int | float = 8,
    seeds: int = 0,
    again: bool = False,
    log: str | os.PathLike[str] | None = None,
    device: int = 0,
    **options: Any,
) -> TuneResult:
    """Measure the ``top_k`` best predicted configurations and return the fastest.

    ``seeds`` adds as many more that have the tile of the vendor's own kernel, where a profiler
    shows it and a template of ours can make it.
    The answer is remembered, and later calls (and ``predict_best``) return it without measuring,
    until the kernel changes or ``again`` is set. One call at a time measures on a GPU: one that
    waited for another of the same shape takes its answer. Rows go to ``log``, the user's own by
    default. A candidate whose result is wrong never wins. Where one candidate survives pruning it
    is returned unmeasured. Raises ``DeviceError`` where there is no GPU, or where every candidate
    failed.
    """
    problem = Gemm.of(shape, **options)  # type: ignore[arg-type]
    if profile is None:
        require_gpu()  # else the error would ask for a profile, which does not help
    chip = resolve_profile(profile)
    prediction = predict_best(problem, chip, use_measured=False)
    if not again and (known := recall(problem, chip)) is not None:
        return _remembered(problem, known, prediction)
    if len(prediction.ranking) == 1:
        note = "one candidate survived pruning: nothing to measure"
        return TuneResult(
            problem, prediction.config, prediction.time_us, None, 0, [], prediction, note
        )
    count = survivors(len(prediction.ranking), top_k)
    chosen = list(prediction.ranking.configs[:count])
    require_gpu()
    with measuring_on(device):
        if not again and (known := recall(problem, chip)) is not None:  # it came while this waited
            return _remembered(problem, known, prediction)
        vendor = vendor_kernel_if_seen(problem, device)
        more = vendor_seeds(problem, chip, vendor, seeds)
        chosen += [config for config in more if config not in chosen]
        rows = _measure(problem, chip, chosen, device, RunLog(log or user_dir() / "log.jsonl"))
        return replace(_decide(problem, chosen, rows, prediction), vendor=vendor)


def _remembered(problem: Gemm, known: Answer, prediction: Prediction) -> TuneResult:
    note = f"measured before, on {known.timestamp}"
    return TuneResult(
        problem, known.config, known.time_us, known.vendor_us, 0, [], prediction, note
    )


def _measure(
    problem: Gemm, chip: HardwareProfile, chosen: list[KernelConfig], device: int, log: RunLog
) -> list[Row]:
    from costmodel.measure.bench import new_run_id
    from costmodel.measure.worker import MeasuringProcess, WorkerOptions

    rows: list[Row] = []
    with MeasuringProcess(WorkerOptions(device=device, run=new_run_id())) as process:
        require_chip(process.facts, chip)

        def run(configs: Sequence[KernelConfig | None]) -> None:
            for row in process.measure(problem, configs):
                log.append(row)
                rows.append(row)

        run([None, *chosen, None])
        for config in _fastest(rows, chosen)[:_FINALISTS]:
            run([config, None])
    return rows


def vendor_seeds(
    problem: Gemm, chip: HardwareProfile, vendor: VendorGemm | None, count: int
) -> list[KernelConfig]:
    """The ``count`` best predicted configurations with the vendor's tile; none without a tile."""
    if vendor is None or vendor.tile is None or not count:
        return []
    table = seeded_candidates(problem, chip, vendor.tile)
    if not len(table):
        return []
    try:
        legal, _ = prune(problem, table, chip)
    except NoCandidateError:  # no template of ours can make that tile for this problem
        return []
    # the grid may hold a row twice: one kernel need not be timed as two
    return list(dict.fromkeys(rank(problem, legal, chip)[0].configs))[:count]


def _times(rows: list[Row]) -> dict[KernelConfig | None, list[float]]:
    found: dict[KernelConfig | None, list[float]] = {}
    for row in rows:
        if row["invalidity"] == "correct":
            found.setdefault(config_of(row), []).append(row["time_us"])
    return found


def _fastest(rows: list[Row], chosen: list[KernelConfig]) -> list[KernelConfig]:
    times = _times(rows)
    return sorted((c for c in chosen if c in times), key=lambda c: float(np.median(times[c])))


def _decide(
    problem: Gemm, chosen: list[KernelConfig], rows: list[Row], prediction: Prediction
) -> TuneResult:
    """The fastest finalist by its last time; inside the noise the better predicted one."""
    times = _times(rows)
    ours = {config: times[config][-1] for config in chosen if len(times.get(config, ())) > 1}
    if not ours:
        reasons = {row["reason"] for row in rows if row["reason"]}
        raise DeviceError(f"no candidate ran correctly on {problem}: " + "; ".join(sorted(reasons)))
    least = min(ours.values())
    tied = [config for config in chosen if config in ours and ours[config] <= least * (1 + TIE)]
    config = tied[0]  # ``chosen`` is in predicted order: the same answer every time
    row = [r for r in rows if config_of(r) == config][-1]
    vendor = float(np.median(times[None])) if None in times else None
    note = "measured"
    if len(tied) > 1:
        note = f"a tie of {len(tied)} within {TIE:.1%}: the best predicted of them"
    remember(
        problem,
        prediction.profile,
        Answer(config, ours[config], row["p10_us"], row["p90_us"], vendor, now()),
    )
    return TuneResult(problem, config, ours[config], vendor, len(chosen), rows, prediction, note)
