"""``predict_best``: candidates, pruned, priced by physics, ranked, and the reasons kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import NoCandidateError, unknown_name
from costmodel.physics.estimate import BOUNDS, estimate_columns
from costmodel.physics.waves import busy_units
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, resolve_profile
from costmodel.ranking.baselines import default_config, nearest_row
from costmodel.ranking.order import Ranked as Ranked
from costmodel.ranking.order import Ranking as Ranking
from costmodel.ranking.order import interval_of
from costmodel.ranking.ranker import Ranker, default_ranker, load_ranker
from costmodel.ranking.shelf import shelf_of
from costmodel.ranking.shortlist import shortlisted_times as shortlisted_times
from costmodel.records.answers import answers_state, recall
from costmodel.resources.legality import check_problem
from costmodel.resources.matrix_unit import compute_dtype
from costmodel.space.candidates import candidates
from costmodel.space.kinds import kind_of
from costmodel.space.prune import Rejections, broken_rule, prune

Source = Literal["measured", "model", "physics", "default"]

#: physics alone is off by so much on an H200: 5 % and 95 % quantiles of log(measured / estimate),
#: as `costmodel train` writes them into the shipped model's manifest (physics_spread)
_PHYSICS_SPREAD = (-0.23, 0.144)
#: problems of one kind that are priced together: their columns stay in a core's cache
_AT_ONCE = 8
#: answers that are kept for the same question again
_MOST_KEPT = 1024


@dataclass(frozen=True)
class Prediction:
    """The answer and everything behind it.

    ``source`` says where it comes from: "measured" (tuned before on this chip), "model" (the
    trained ranker), "physics" (the estimate alone) or "default" (the starting table, where the
    profile lacks what an estimate needs). ``devices`` are the chips that the ranker was fitted on.
    """

    problem: Gemm
    profile: HardwareProfile
    config: KernelConfig
    time_us: float
    interval: tuple[float, float]
    bound: str
    source: Source
    devices: tuple[str, ...]
    _whole: Callable[[], tuple[Ranking, Rejections]] = field(repr=False, compare=False)

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.problem} on {self.profile.name}: {self.config}; {self.time_us:.1f} us "
            f"({low:.1f} to {high:.1f}), {self.tflops:.0f} TFLOPS, bound by {self.bound}, "
            f"from {self.source}" + ("" if self.calibrated else ", not calibrated on this chip")
        )

    @cached_property
    def _judged(self) -> tuple[Ranking, Rejections]:
        return self._whole()

    @property
    def ranking(self) -> Ranking:
        """Every legal configuration, fastest first; worked out when it is first asked for."""
        return self._judged[0]

    @property
    def rejections(self) -> Rejections:
        """Every configuration that the chip cannot run, with the reason; as ``ranking``."""
        return self._judged[1]

    @property
    def calibrated(self) -> bool:
        """Whether time and interval rest on runs of this very chip, or only on physics."""
        return self.source == "measured" or self.profile.name in self.devices

    @property
    def beware(self) -> str:
        """What speaks against time and interval where they are not ``calibrated``, else nothing."""
        if self.calibrated:
            return ""
        shipped = default_ranker()
        known = shipped is not None and self.profile.name in shipped.manifest.get("devices", ())
        of = "such a problem on this chip" if known else "this chip"
        return f"no run of {of} was measured: time and interval are not calibrated"

    @property
    def spread(self) -> str:
        """What of the runs the interval holds, in words."""
        return "80% of the runs" if self.source == "measured" else "90%"

    @property
    def upcast(self) -> bool:
        """Whether the chip lacks the type and multiplies it as fp16 instead."""
        return compute_dtype(self.problem, self.profile) != self.problem.dtype

    @property
    def tflops(self) -> float:
        """Rate at the predicted time, in TFLOPS."""
        return self.problem.flops / (self.time_us * 1e6)

    def enough(self, within: float = 0.02, confidence: float = 0.9) -> int:
        """How many of the ranking's first to measure, so that the best of them will do.

        With probability ``confidence`` it is at most ``within`` slower than the best of all; both
        are shares. Rests on the ranker's spread: where ``calibrated`` is false, on physics' own.
        Raises ``ConfigError``.
        """
        return self.ranking.enough(within, confidence)

    def explain(self) -> str:
        """Why this configuration: the figures behind it, as text."""
        from costmodel.explain.report import report

        return str(report(self).text())

    def _repr_html_(self) -> str:
        from costmodel.markup import table, tag

        flop = self.problem.flops / 1e6
        first = (self.ranking[row] for row in range(min(5, len(self.ranking))))
        rows = [(str(row.config), row.time_us, flop / row.time_us, row.bound) for row in first]
        return tag("p", self) + table(rows, ("configuration", "us", "TFLOPS", "bound"))

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
    problem, chip, chosen = _gemm(shape, options), resolve_profile(profile), _chosen(model)
    if configs is not None:
        return _among(problem, chip, ConfigTable.of(configs), chosen)
    state = answers_state() if use_measured else None
    return _kept(problem, chip, chosen, use_measured, state)


def predict_many(
    shapes: Iterable[Gemm | Iterable[int]],
    profile: str | os.PathLike[str] | HardwareProfile | None = None,
    *,
    model: Ranker | str | os.PathLike[str] | Literal["physics"] | None = None,
    use_measured: bool = True,
    **options: Any,
) -> list[Prediction]:
    """``predict_best`` of many shapes, in their order: the same answers in less time.

    Takes and raises what ``predict_best`` does; one impossible shape is an error of all.
    """
    problems = [_gemm(shape, options) for shape in shapes]
    once = list(dict.fromkeys(problems))
    answers = _predicted(once, resolve_profile(profile), _chosen(model), use_measured)
    found = dict(zip(once, answers, strict=True))
    return [found[problem] for problem in problems]


class Chosen(NamedTuple):
    """The ranker to use, and whether it was asked for by name: then it speaks for any problem."""

    ranker: Ranker | None
    by_name: bool

    def on(self, problem: Gemm, profile: HardwareProfile) -> Ranker | None:
        """The ranker for a problem; None leaves it to physics."""
        speaks = self.by_name or (self.ranker and self.ranker.applies(problem, profile))
        return self.ranker if speaks else None


def _chosen(model: Ranker | str | os.PathLike[str] | None) -> Chosen:
    if isinstance(model, Ranker):
        return Chosen(model, True)
    if model == "physics":
        return Chosen(None, True)
    if isinstance(model, str) and not model.endswith(".npz"):
        raise unknown_name("model", model, ["physics", "<file>.npz"])
    return Chosen(default_ranker(), False) if model is None else Chosen(load_ranker(model), True)


def _gemm(shape: Gemm | Iterable[int], options: dict[str, Any]) -> Gemm:
    if isinstance(shape, tuple) and len(shape) == 3:
        try:
            return _gemm_of(*shape, **options)
        except TypeError:  # what cannot be hashed is no size and no option: the error is Gemm's
            pass
    return Gemm.of(shape, **options)  # type: ignore[arg-type]


@lru_cache(maxsize=_MOST_KEPT, typed=True)  # 1.0 is equal to 1, and no size
def _gemm_of(m: int, n: int, k: int, **options: Any) -> Gemm:
    return Gemm.of((m, n, k), **options)


@lru_cache(maxsize=_MOST_KEPT)
def _kept(
    problem: Gemm, chip: HardwareProfile, chosen: Chosen, use_measured: bool, _state: Hashable
) -> Prediction:
    """One answer, for as long as the model and the file of measured answers stay the same."""
    return _predicted([problem], chip, chosen, use_measured)[0]


def _predicted(
    problems: list[Gemm], chip: HardwareProfile, chosen: Chosen, use_measured: bool
) -> list[Prediction]:
    """Answers from the candidate grid; problems of one kind are priced together."""
    found: dict[Gemm, Prediction] = {}
    waiting: dict[tuple[Hashable, Ranker | None], list[Gemm]] = {}
    for problem in problems:
        check_problem(problem, chip)
        measured = _measured(problem, chip, chosen) if use_measured else None
        if measured is not None:
            found[problem] = measured
        else:
            key = kind_of(problem), chosen.on(problem, chip)
            waiting.setdefault(key, []).append(problem)
    for (_, ranker), alike in waiting.items():
        for start in range(0, len(alike), _AT_ONCE):
            some = alike[start : start + _AT_ONCE]
            found.update(zip(some, _best_of(some, chip, ranker, chosen), strict=True))
    return [found[problem] for problem in problems]


def _best_of(
    problems: list[Gemm], chip: HardwareProfile, ranker: Ranker | None, chosen: Chosen
) -> list[Prediction]:
    """The first choice for problems of one kind."""
    priced = shelf_of(problems[0], chip).priced(problems, chip)
    physics = priced.physics
    if 0 in np.diff(priced.ends, prepend=0) or not np.isfinite(physics.time_us).all():
        return [_among(problem, chip, candidates(problem, chip), chosen) for problem in problems]
    spread, devices, source = _told_by(ranker)
    least = np.broadcast_to(physics.roofline.least_us, len(physics.time_us))
    found = []
    for problem, (row, time_us) in zip(problems, priced.best(chip, ranker), strict=True):
        found.append(
            Prediction(
                problem, chip, priced.config(row), time_us,
                interval_of(time_us, spread, float(least[row])), BOUNDS[int(physics.bound[row])],
                source, devices, partial(_whole, problem, chip, None, chosen),
            )
        )  # fmt: skip
    return found


def _among(problem: Gemm, chip: HardwareProfile, table: ConfigTable, chosen: Chosen) -> Prediction:
    """The first choice of a table."""
    legal, _ = prune(problem, table, chip)
    if not len(legal):
        raise NoCandidateError("there are no configurations to choose from: configs is empty")
    ranking, source = _ranked(problem, legal, chip, chosen)
    best = ranking[0]
    return Prediction(
        problem, chip, best.config, best.time_us, best.interval, best.bound, source,
        ranking.devices, partial(_whole, problem, chip, table, chosen),
    )  # fmt: skip


def _measured(problem: Gemm, chip: HardwareProfile, chosen: Chosen) -> Prediction | None:
    """What ``tune`` found for this very problem and chip, where it can run."""
    answer = recall(problem, chip)
    if answer is None or broken_rule(problem, answer.config, chip) is not None:
        return None  # an edited or foreign line: what cannot run was never measured
    physics = estimate_columns(problem, ConfigTable.of(answer.config), chip)
    return Prediction(
        problem, chip, answer.config, answer.time_us, (answer.p10_us, answer.p90_us),
        BOUNDS[int(physics.bound[0])], "measured", (),
        partial(_whole, problem, chip, None, chosen),
    )  # fmt: skip


def _whole(
    problem: Gemm, chip: HardwareProfile, table: ConfigTable | None, chosen: Chosen
) -> tuple[Ranking, Rejections]:
    """All of a table, or of the candidates: ranked, and rejected."""
    table = candidates(problem, chip) if table is None else table
    legal, rejections = prune(problem, table, chip)
    return _ranked(problem, legal, chip, chosen)[0], rejections


def rank(
    problem: Gemm,
    legal: ConfigTable,
    profile: HardwareProfile,
    model: Ranker | str | os.PathLike[str] | Literal["physics"] | None = None,
) -> tuple[Ranking, Source]:
    """Order legal configurations by predicted time; says what ordered them."""
    return _ranked(problem, legal, profile, _chosen(model))


def _ranked(
    problem: Gemm, legal: ConfigTable, profile: HardwareProfile, chosen: Chosen
) -> tuple[Ranking, Source]:
    physics = estimate_columns(problem, legal, profile)
    if not np.isfinite(physics.time_us).all():
        times = np.full(len(legal), np.inf)
        times[nearest_row(legal, default_config(problem))] = physics.roofline.time_us
        return Ranking(legal, times, physics.bound, _PHYSICS_SPREAD), "default"
    ranker = chosen.on(problem, profile)
    spread, devices, source = _told_by(ranker)
    times = physics.time_us
    if ranker is not None:
        times = shortlisted_times(problem, legal, profile, physics, ranker)
    least = float(physics.roofline.least_us)
    busy = busy_units(physics.waves, profile.units)
    return Ranking(legal, times, physics.bound, spread, least, devices, busy), source


def _told_by(ranker: Ranker | None) -> tuple[tuple[float, float], tuple[str, ...], Source]:
    """Spread of log(measured / predicted), the chips that it was seen on, and the source."""
    if ranker is None:
        return _PHYSICS_SPREAD, (), "physics"
    return (ranker.low, ranker.high), tuple(ranker.manifest.get("devices", ())), "model"
