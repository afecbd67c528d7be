"""Two sides of a library compared on what both measured, and the bests that they differ in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from costmodel.config import KNOBS, KernelConfig
from costmodel.errors import RecordError, unknown_name
from costmodel.problem import Gemm
from costmodel.records.groups import config_of_knobs, plain
from costmodel.records.schema import NAMES, PROBLEM_COLUMNS, problem_of

if TYPE_CHECKING:
    import pandas as pd

#: two bests whose times on one side differ by less do not disagree: medians of one kernel repeat to
#: 0.4 % (H200)
TIE = 0.005


@dataclass(frozen=True)
class Contradiction:
    """Two sides' bests of one problem that differ by over ``TIE``.

    ``sides`` names them. ``costs`` are how much longer the other's best takes on each side, as
    ratios; None where a side never measured it: then nobody knows which is right.
    """

    problem: Gemm
    sides: tuple[str, str]
    configs: tuple[KernelConfig, KernelConfig]
    costs: tuple[float | None, float | None]

    @property
    def measured(self) -> bool:
        """Whether each side measured both and prefers its own."""
        return None not in self.costs

    def as_dict(self) -> dict[str, Any]:
        return {
            "problem": str(self.problem),
            "sides": list(self.sides),
            "best": [str(config) for config in self.configs],
            "others_best_costs": list(self.costs),
            "measured": self.measured,
        }


@dataclass(frozen=True)
class Comparison:
    """Two sides on what both measured.

    ``best_ratio`` is the geometric mean over shared problems of B's best time over A's; ``ratio``
    the median over shared measurements of B's time over A's, with its 10 % and 90 % quantiles in
    ``spread``. ``disagreements`` are the problems whose bests differ, the surest and dearest first.
    """

    a: str
    b: str
    problems: int
    measurements: int
    best_ratio: float
    ratio: float | None
    spread: tuple[float, float] | None
    disagreements: list[Contradiction]

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {"disagreements": [d.as_dict() for d in self.disagreements]}


def compare(a: pd.DataFrame, b: pd.DataFrame, names: tuple[str, str]) -> Comparison:
    """Compare two sides' runs problem by problem. Raises ``RecordError`` where they share none."""
    times = _side_by_side(a, b).times
    best = times.groupby(level="problem").min().dropna()
    if best.empty:
        raise RecordError(f"{names[0]} and {names[1]} have no problem in common")
    both = times.dropna()
    ratio = (both["b"] / both["a"]).to_numpy(dtype=np.float64)
    low, high = np.quantile(ratio, (0.1, 0.9)) if len(ratio) else (np.nan, np.nan)
    found = disagreements(a, b, names)
    return Comparison(
        *names,
        len(best),
        len(both),
        round(float(np.exp(np.log(best["b"] / best["a"]).mean())), 4),
        round(float(np.median(ratio)), 4) if len(ratio) else None,
        (round(float(low), 4), round(float(high), 4)) if len(ratio) else None,
        sorted(found, key=lambda d: (not d.measured, -max(cost or 0 for cost in d.costs))),
    )


def disagreements(a: pd.DataFrame, b: pd.DataFrame, names: tuple[str, str]) -> list[Contradiction]:
    """Problems that both sides measured and whose bests differ.

    Where a side measured both bests and finds them equal within ``TIE``, there is none.
    """
    sides = _side_by_side(a, b)
    found = []
    for _, part in sides.times.reset_index().groupby("problem", sort=False):
        times = part[["a", "b"]].to_numpy(dtype=np.float64)
        if np.isnan(times).all(axis=0).any():
            continue
        tops = np.nanargmin(times, axis=0)
        if tops[0] == tops[1]:
            continue
        dearer = times[tops[::-1], [0, 1]] / np.nanmin(times, axis=0)
        if (dearer <= 1 + TIE).any():
            continue
        costs = [None if np.isnan(cost) else round(float(cost), 4) for cost in dearer]
        problem = problem_of(sides.problems[int(part["problem"].iloc[0])])
        numbers = part["config"].to_numpy()[tops]
        configs = sides.configs[int(numbers[0])], sides.configs[int(numbers[1])]
        found.append(Contradiction(problem, names, configs, (costs[0], costs[1])))
    return found


@dataclass(frozen=True)
class _Sides:
    """Median times as columns a and b, NaN where a side has none, by (problem, config) number."""

    times: pd.DataFrame
    problems: dict[int, dict[str, Any]]
    configs: dict[int, KernelConfig]


def _side_by_side(a: pd.DataFrame, b: pd.DataFrame) -> _Sides:
    """Both sides' own runs; the same problem for two kernels (``source``) counts as two."""
    import pandas as pd

    parts = []
    for name, frame in (("a", a), ("b", b)):
        ours = frame[(frame["invalidity"] == "correct") & (frame["backend"] == "triton")]
        parts.append(ours[[*PROBLEM_COLUMNS, "source", *KNOBS, "time_us"]].assign(side=name))
    rows = pd.concat(parts, ignore_index=True)
    rows["problem"] = rows.groupby([*PROBLEM_COLUMNS, "source"], dropna=False, sort=True).ngroup()
    rows["config"] = rows.groupby(list(KNOBS), dropna=False, sort=True).ngroup()
    times = rows.groupby(["problem", "config", "side"])["time_us"].median().unstack("side")
    first = rows.drop_duplicates("problem")
    numbers, facts = first["problem"], first[list(PROBLEM_COLUMNS)].to_dict("records")
    knobs = rows.drop_duplicates("config")[["config", *KNOBS]]
    return _Sides(
        times.reindex(columns=["a", "b"]).astype("float64"),
        {
            int(number): {str(name): plain(value) for name, value in fact.items()}
            for number, fact in zip(numbers, facts, strict=True)
        },
        {int(row[0]): config_of_knobs(row[1:]) for row in knobs.itertuples(index=False, name=None)},
    )


def side_of(selector: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that a selector names: a log or shard, COLUMN=VALUE, or a chip.

    Raises ``RecordError`` where it names none and ``UnknownNameError`` for a column.
    """
    from costmodel.records.store import LOG_SUFFIX, SHARD_SUFFIX, read_runs

    if selector.endswith((LOG_SUFFIX, SHARD_SUFFIX)) or Path(selector).is_dir():
        return read_runs(Path(selector))
    name, equals, value = selector.partition("=")
    if equals and name not in NAMES:
        raise unknown_name("column", name, NAMES)
    if equals:
        kept = frame[name].astype("string") == value
    else:
        kept = (frame["device"] == selector) | (frame["device_name"] == selector)
    found = frame[kept.fillna(False)]
    if found.empty:
        chips = ", ".join(sorted(map(str, frame["device_name"].unique()))[:8])
        raise RecordError(
            f"no run has {selector!r}; a side is a log, COLUMN=VALUE such as triton=3.6.0, or a "
            f"chip: {chips}"
        )
    return found
