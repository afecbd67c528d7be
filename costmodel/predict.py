"""``predict_best``: candidates, pruned, priced by physics, ranked, and the reasons kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import NoCandidateError, unknown_name
from costmodel.physics.estimate import BOUNDS, EstimateColumns, estimate_columns
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, resolve_profile
from costmodel.ranking.baselines import default_config
from costmodel.ranking.ranker import SHORTLIST, Ranker, default_ranker, load_ranker
from costmodel.records.answers import recall
from costmodel.resources.matrix_unit import compute_dtype
from costmodel.space.candidates import candidates
from costmodel.space.prune import Rejections, broken_rule, prune

Source = Literal["measured", "model", "physics", "default"]

#: physics alone is off by so much on an H200: 5 % and 95 % quantiles of log(measured / estimate),
#: as `costmodel train` writes them into the shipped model's manifest (physics_spread)
_PHYSICS_SPREAD = (-0.271, 0.29)


@dataclass(frozen=True)
class Ranked:
    """One configuration with its predicted time, its 90 % interval and what bounds it."""

    config: KernelConfig
    time_us: float
    interval: tuple[float, float]
    bound: str


class Ranking:
    """Legal configurations, fastest first, as columns; rows are ``Ranked``.

    ``order`` are the rows' places in the table that was ranked; ``spread`` the 5 % and 95 %
    quantiles of log(measured / predicted), seen on ``devices`` (profile names).
    """

    def __init__(
        self,
        configs: ConfigTable,
        time_us: NDArray[np.float64],
        bound: NDArray[np.int64],
        spread: tuple[float, float],
        least_us: float = 0.0,
        devices: tuple[str, ...] = (),
    ) -> None:
        self.order: NDArray[np.int64] = np.argsort(time_us, kind="stable")
        self.configs = configs[self.order]
        self.time_us = time_us[self.order]
        self.spread = spread
        self.devices = devices
        self._least_us = least_us
        self._bound = bound[self.order]

    def __len__(self) -> int:
        return len(self.time_us)

    def __getitem__(self, row: int) -> Ranked:
        time_us = float(self.time_us[row])
        low, high = (max(time_us * float(np.exp(q)), self._least_us) for q in self.spread)
        return Ranked(self.configs[row], time_us, (low, high), BOUNDS[int(self._bound[row])])

    def __iter__(self) -> Iterator[Ranked]:
        return (self[row] for row in range(len(self)))


@dataclass(frozen=True)
class Prediction:
    """The answer and everything behind it.

    ``source`` says where it comes from: "measured" (tuned before on this chip), "model" (the
    trained ranker), "physics" (the estimate alone) or "default" (the starting table, where the
    profile lacks what an estimate needs).
    """

    problem: Gemm
    profile: HardwareProfile
    config: KernelConfig
    time_us: float
    interval: tuple[float, float]
    bound: str
    source: Source
    ranking: Ranking
    rejections: Rejections

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.problem} on {self.profile.name}: {self.config}; {self.time_us:.1f} us "
            f"({low:.1f} to {high:.1f}), {self.tflops:.0f} TFLOPS, bound by {self.bound}, "
            f"from {self.source}" + ("" if self.calibrated else ", not calibrated on this chip")
        )

    @property
    def calibrated(self) -> bool:
        """Whether time and interval rest on runs of this very chip, or only on physics."""
        return self.source == "measured" or self.profile.name in self.ranking.devices

    @property
    def upcast(self) -> bool:
        """Whether the chip lacks the type and multiplies it as fp16 instead."""
        return compute_dtype(self.problem, self.profile) != self.problem.dtype

    @property
    def tflops(self) -> float:
        """Rate at the predicted time, in TFLOPS."""
        return self.problem.flops / (self.time_us * 1e6)

    def explain(self) -> str:
        """Why this configuration: the figures behind it, as text."""
        from costmodel.explain.report import report

        return str(report(self).text())

    def as_dict(self, top: int = 5) -> dict[str, Any]:
        """The answer as plain values, with the first ``top`` of the ranking."""
        return {
            "problem": str(self.problem),
            "profile": self.profile.name,
            "config": self.config.as_dict(),
            "time_us": self.time_us,
            "tflops": self.tflops,
            "bound": self.bound,
            "interval": list(self.interval),
            "source": self.source,
            "upcast": self.upcast,
            "calibrated": self.calibrated,
            "ranking": [
                {
                    "config": self.ranking[i].config.as_dict(),
                    "time_us": self.ranking[i].time_us,
                    "bound": self.ranking[i].bound,
                }
                for i in range(min(top, len(self.ranking)))
            ],
            "candidates": len(self.ranking) + len(self.rejections),
            "rejections": self.rejections.counts(),
        }


def predict_best(
    shape: Gemm | Iterable[int],
    profile: str | os.PathLike[str] | HardwareProfile | None = None,
    *,
    model: Ranker | str | os.PathLike[str] | Literal["physics"] | None = None,
    use_measured: bool = True,
    configs: ConfigTable | Iterable[KernelConfig] | None = None,
    **options: Any,
) -> Prediction:
    """The fastest configuration for ``shape`` on a chip, without running anything.

    ``shape`` is (m, n, k) or a ``Gemm``; ``options`` are the fields of ``Gemm`` (dtype, layout,
    batch, ...). ``profile`` is a name, a path to a TOML file, a ``HardwareProfile``, or None for
    the GPU at hand. ``model`` is a ranker or its file, "physics" for the estimate alone, or None
    for the user's own model, else the shipped one. ``configs`` replaces the candidate grid.

    Never raises for want of data: a measured answer of this very problem and chip, else the
    trained model, else physics, else the starting table; ``Prediction.source`` says which. Raises
    ``ProblemError``, ``UnsupportedError`` or ``UnknownNameError`` for an impossible request and
    ``NoCandidateError`` where the chip can hold no candidate.
    """
    problem = Gemm.of(shape, **options)  # type: ignore[arg-type]
    chip = resolve_profile(profile)
    table = candidates(problem, chip) if configs is None else ConfigTable.of(configs)
    legal, rejections = prune(problem, table, chip)
    if not len(legal):
        raise NoCandidateError("there are no configurations to choose from: configs is empty")
    answer = recall(problem, chip) if use_measured and configs is None else None
    if answer is not None and broken_rule(problem, answer.config, chip) is not None:
        answer = None  # an edited or foreign line: what cannot run was never measured
    ranking, source = rank(problem, legal, chip, model)
    best = ranking[0]
    if answer is not None:
        return Prediction(
            problem, chip, answer.config, answer.time_us, (answer.p10_us, answer.p90_us),
            _bound_of(problem, answer.config, chip), "measured", ranking, rejections,
        )  # fmt: skip
    return Prediction(
        problem, chip, best.config, best.time_us, best.interval, best.bound, source, ranking,
        rejections,
    )  # fmt: skip


def rank(
    problem: Gemm,
    legal: ConfigTable,
    profile: HardwareProfile,
    model: Ranker | str | os.PathLike[str] | Literal["physics"] | None = None,
) -> tuple[Ranking, Source]:
    """Order legal configurations by predicted time; says what ordered them."""
    physics = estimate_columns(problem, legal, profile)
    if not np.isfinite(physics.time_us).all():
        return _default_first(problem, legal, physics), "default"
    ranker = _ranker(model)
    least = physics.roofline.least_us
    if ranker is None or (model is None and not ranker.applies(problem, profile)):
        return Ranking(legal, physics.time_us, physics.bound, _PHYSICS_SPREAD, least), "physics"
    times = shortlisted_times(problem, legal, profile, physics, ranker)
    devices = tuple(ranker.manifest.get("devices", ()))
    spread = (ranker.low, ranker.high)
    return Ranking(legal, times, physics.bound, spread, least, devices), "model"


def shortlisted_times(
    problem: Gemm,
    table: ConfigTable,
    profile: HardwareProfile,
    physics: EstimateColumns,
    ranker: Ranker,
) -> NDArray[np.float64]:
    """Predicted times: the ranker's for the best ``SHORTLIST`` by physics, physics' own behind.

    The rest keep their order behind the shortlist: their time is the estimate, lifted to the
    slowest of the shortlist where it would fall among them.
    """
    if len(table) <= SHORTLIST:
        return ranker.times_us(problem, table, profile, physics)
    # stable: whom a partition keeps of equal times is up to the machine
    first = np.sort(np.argsort(physics.time_us, kind="stable")[:SHORTLIST])
    chosen = table[first]
    times = ranker.times_us(problem, chosen, profile, estimate_columns(problem, chosen, profile))
    behind: NDArray[np.float64] = np.maximum(physics.time_us, times.max() * (1 + 1e-9))
    behind[first] = times
    return behind


def _ranker(model: Ranker | str | os.PathLike[str] | None) -> Ranker | None:
    if isinstance(model, Ranker):
        return model
    if model == "physics":
        return None
    if isinstance(model, str) and not model.endswith(".npz"):
        raise unknown_name("model", model, ["physics", "<file>.npz"])
    return default_ranker() if model is None else load_ranker(model)


def _default_first(problem: Gemm, legal: ConfigTable, physics: EstimateColumns) -> Ranking:
    from costmodel.ranking.baselines import nearest_row

    times = np.full(len(legal), np.inf)
    times[nearest_row(legal, default_config(problem))] = physics.roofline.time_us
    return Ranking(legal, times, physics.bound, _PHYSICS_SPREAD)


def _bound_of(problem: Gemm, config: KernelConfig, profile: HardwareProfile) -> str:
    return BOUNDS[int(estimate_columns(problem, ConfigTable.of(config), profile).bound[0])]
