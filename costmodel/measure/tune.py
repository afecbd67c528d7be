"""``tune``: measure only the top few of a prediction, beside the vendor's GEMM, and remember."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.config import KernelConfig
from costmodel.errors import ConfigError, NoCandidateError
from costmodel.measure.at_hand import require_chip, require_gpu
from costmodel.measure.decide import decide, finalists, usual_config
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

#: configurations to measure where nothing says how many
TOP_K = 8
#: where one half of a promise is given: the best measured is within 2 % of the best with 90 %
WITHIN, CONFIDENCE = 0.02, 0.9


@dataclass(frozen=True)
class TuneResult:
    """What was measured and chosen. ``rows`` are the measured rows, empty where none was needed.

    ``vendor`` are the kernels that the vendor's library launched, where a profiler showed them.
    ``default`` is the starting table's configuration, measured beside the others where the chip
    takes it. ``within`` and ``confidence`` are the promise that told how many to measure.
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
    default: KernelConfig | None = None
    default_us: float | None = None
    within: float | None = None
    confidence: float | None = None

    @property
    def vendor_ratio(self) -> float | None:
        """Vendor's time over ours: above 1 is faster than the vendor."""
        return None if self.vendor_us is None else self.vendor_us / self.time_us

    @property
    def default_ratio(self) -> float | None:
        """Time of the starting table's configuration over ours: what tuning gained."""
        return None if self.default_us is None else self.default_us / self.time_us

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
            "default_config": None if self.default is None else self.default.as_dict(),
            "default_us": self.default_us,
            "default_ratio": self.default_ratio,
            "configs_measured": self.measured,
            "within": self.within,
            "confidence": self.confidence,
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
    top_k: int | float | None = None,
    within: float | None = None,
    confidence: float | None = None,
    seeds: int = 0,
    again: bool = False,
    log: str | os.PathLike[str] | None = None,
    device: int = 0,
    **options: Any,
) -> TuneResult:
    """Measure the best predicted configurations and return the fastest.

    ``top_k`` is how many, a number or a share of those that survive pruning; 8 by default. In its
    place ``within`` and ``confidence`` (shares, 0.02 and 0.9 where one of them is given) measure
    as many as it takes: with that probability the best of them is at most so much slower than the
    best of all (``Prediction.enough``). The starting table's configuration is measured beside
    them: where it is as fast, the note says that there is no gain.
    ``seeds`` adds as many more that have the tile of the vendor's own kernel, where a profiler
    shows it and a template of ours can make it.
    The answer is remembered, and later calls (and ``predict_best``) return it without measuring,
    until the kernel changes or ``again`` is set. One call at a time measures on a GPU: one that
    waited for another of the same shape takes its answer. Rows go to ``log``, the user's own by
    default. A candidate whose result is wrong never wins. Where one candidate survives pruning it
    is returned unmeasured. Raises ``DeviceError`` where there is no GPU, or where every candidate
    failed, and ``ConfigError`` for a ``top_k`` or a promise that is none, or for both at once.
    """
    if within is not None or confidence is not None:
        if top_k is not None:
            raise ConfigError(
                "top_k says how many to measure, within and confidence find out how many: "
                "give one or the other"
            )
        within = WITHIN if within is None else within
        confidence = CONFIDENCE if confidence is None else confidence
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
    if within is None or confidence is None:
        count = survivors(len(prediction.ranking), TOP_K if top_k is None else top_k)
    else:
        count = prediction.enough(within, confidence)
    chosen = list(prediction.ranking.configs[:count])
    require_gpu()
    with measuring_on(device):
        if not again and (known := recall(problem, chip)) is not None:  # it came while this waited
            return _remembered(problem, known, prediction)
        vendor = vendor_kernel_if_seen(problem, device)
        usual = usual_config(problem, chip)
        more = vendor_seeds(problem, chip, vendor, seeds)
        more += [] if usual is None else [usual]
        chosen += [config for config in more if config not in chosen]
        rows = _measure(problem, chip, chosen, device, RunLog(log or user_dir() / "log.jsonl"))
        found = decide(problem, chosen, usual, rows)
        answer = Answer(
            found.config, found.time_us, found.p10_us, found.p90_us, found.vendor_us, now()
        )
        remember(problem, chip, answer)
        return TuneResult(
            problem, found.config, found.time_us, found.vendor_us, len(chosen), rows, prediction,
            found.note, vendor, usual, found.default_us, within, confidence,
        )  # fmt: skip


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
        for config in finalists(rows, chosen):
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
