"""Predicted against measured, over time and by family; which families need data; what to measure.

A family is a chip, a type, a layout and a range of M: what a model learns from a problem helps the
others of its family most.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import KNOBS
from costmodel.dtypes import OPERANDS
from costmodel.learning.shares import best_row
from costmodel.learning.split import heldout_shapes
from costmodel.paths import atomic_write
from costmodel.predict import rank
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, load_profile
from costmodel.ranking.ranker import Ranker, default_ranker, load_ranker
from costmodel.records.groups import Group, config_of_knobs, groups_of, plain
from costmodel.records.quality import UNSTEADY
from costmodel.records.schema import PROBLEM_COLUMNS
from costmodel.records.store import packaged_runs, read_runs
from costmodel.shapes import read_shapes

if TYPE_CHECKING:
    import pandas as pd

#: configurations that count, of each problem: the fastest. Nobody runs the others
_FASTEST = 64
#: upper ends of the ranges of M; decode, small batches, prefill
_ROWS = (16, 128, 1024)
_ONE_OF_EACH = (*_ROWS, _ROWS[-1] + 1)
#: a family of fewer measured problems needs data, and so does one whose first choices fall short
_LEAST_PROBLEMS = 5
_LEAST_SHARE = 0.9
_NEXT_EACH = 4
#: shipped shape sets from which problems to measure are proposed
_SETS = ("train", "flagos", "vendor")


@dataclass(frozen=True)
class Period:
    """One day's measurements (UTC): measured time over predicted.

    ``ratio`` is the median, ``low`` and ``high`` the 10 % and 90 % quantiles. ``moved`` says that
    the median differs by over 10 % from the first period's.
    """

    day: str
    rows: int
    problems: int
    ratio: float
    low: float
    high: float
    moved: bool


@dataclass(frozen=True)
class Family:
    """One family: how many problems, how far predictions are off, and what the first choice gives.

    ``error`` is the median of abs(measured / predicted - 1), ``share`` the geometric mean of the
    best time over that of the first choice among what was measured; None where nothing was.
    ``need`` is why it needs data, or None.
    """

    device: str
    dtype: str
    layout: str
    rows: str
    problems: int
    error: float | None
    share: float | None
    need: str | None


@dataclass(frozen=True)
class Drift:
    """The report: periods in order, families with the neediest first, problems to measure next."""

    ranked_by: str
    periods: list[Period]
    families: list[Family]
    next: list[Gemm]

    def as_dict(self) -> dict[str, Any]:
        return {
            "ranked_by": self.ranked_by,
            "periods": [asdict(period) for period in self.periods],
            "families": [asdict(family) for family in self.families],
            "next": [str(problem) for problem in self.next],
        }

    def write_next(self, path: Path) -> None:
        """The problems to measure next as a shape set for `costmodel collect --shapes`."""
        with atomic_write(path) as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(("m", "n", "k", "dtype", "layout", "family"))
            for p in self.next:
                writer.writerow((p.m, p.n, p.k, p.dtype, p.layout, _range(p.m)))


def drift(
    runs: Iterable[str | os.PathLike[str]] | None = None,
    profile: str | HardwareProfile = "h200-sxm",
    *,
    model: Ranker | str | os.PathLike[str] | None = None,
) -> Drift:
    """Hold the model's predictions against measured runs (the shipped ones by default).

    Problems that the model learned from take part too: this asks whether the world moved, and not
    how good the model is. Raises ``RecordError`` where the runs hold nothing of this chip.
    """
    frame = packaged_runs() if runs is None else read_runs([Path(path) for path in runs])
    chip = load_profile(profile)
    groups = groups_of(frame, chip.name)
    ranker = default_ranker() if model is None else model
    if isinstance(ranker, (str, os.PathLike)):
        ranker = load_ranker(ranker)
    own = frame[(frame["device"] == chip.name) & frame["source"].isna()]
    own = own[(own["invalidity"] == "correct") & (own["backend"] == "triton")]
    judged = [_judge(group, chip, ranker) for group in groups]
    found = _families(judged, chip)
    return Drift(
        "physics" if ranker is None else "model",
        _periods(own, judged),
        found,
        _next(found, {j.group.problem for j in judged}),
    )


@dataclass(frozen=True)
class _Judged:
    """A group, the predicted times of its fastest configurations, and the first choice's share."""

    group: Group
    rows: NDArray[np.int64]
    predicted_us: NDArray[np.float64]
    share: float


def _judge(group: Group, chip: HardwareProfile, ranker: Ranker | None) -> _Judged:
    rows = np.sort(np.argsort(group.time_us, kind="stable")[:_FASTEST])
    speaks = ranker is not None and ranker.applies(group.problem, chip)
    ranking, _ = rank(group.problem, group.table[rows], chip, ranker if speaks else "physics")
    predicted = np.empty(len(rows))
    predicted[ranking.order] = ranking.time_us
    best = group.time_us[best_row(group)]
    share = min(1.0, float(best / group.time_us[rows[ranking.order[0]]]))
    return _Judged(group, rows, predicted, share)


def _periods(own: pd.DataFrame, judged: Sequence[_Judged]) -> list[Period]:
    """Every single time of the configurations that count, by day."""
    predicted = {
        (j.group.problem, j.group.table[int(row)]): time
        for j in judged
        for row, time in zip(j.rows, j.predicted_us, strict=True)
    }
    days = own["timestamp"].fillna("unknown").str.slice(0, 10)
    keys = own.groupby([*PROBLEM_COLUMNS, *KNOBS], dropna=False, sort=False).ngroup()
    first = own.assign(number=keys).drop_duplicates("number")
    times = {
        int(number): predicted.get((_problem(row[: len(PROBLEM_COLUMNS)]), _config(row)), np.nan)
        for number, *row in first[["number", *PROBLEM_COLUMNS, *KNOBS]].itertuples(
            index=False, name=None
        )
    }
    ratio = own["time_us"].to_numpy(dtype=np.float64) / keys.map(times).to_numpy(dtype=np.float64)
    problems = own.groupby(list(PROBLEM_COLUMNS), dropna=False, sort=False).ngroup().to_numpy()
    found: list[Period] = []
    for day in sorted(days.unique()):
        inside = (days == day).to_numpy(dtype=bool) & np.isfinite(ratio)
        if not inside.any():
            continue
        low, middle, high = np.quantile(ratio[inside], (0.1, 0.5, 0.9))
        start = found[0].ratio if found else float(middle)
        found.append(
            Period(
                str(day), int(inside.sum()), len(set(problems[inside].tolist())),
                round(float(middle), 4), round(float(low), 4), round(float(high), 4),
                abs(float(middle) / start - 1) > UNSTEADY,
            )
        )  # fmt: skip
    return found


def _problem(values: Sequence[Any]) -> Gemm:
    return Gemm(**{n: plain(v) for n, v in zip(PROBLEM_COLUMNS, values, strict=True)})


def _config(row: Sequence[Any]) -> Any:
    return config_of_knobs(row[len(PROBLEM_COLUMNS) :])


def _range(m: int) -> str:
    """The range of M that a problem is in."""
    return next((f"M <= {end}" for end in _ROWS if m <= end), f"M > {_ROWS[-1]}")


def _key(problem: Gemm) -> tuple[str, str, str]:
    return problem.dtype, problem.layout, _range(problem.m)


def _families(judged: Sequence[_Judged], chip: HardwareProfile) -> list[Family]:
    """Families of what was measured and of what the chip could be asked, the neediest first."""
    members: dict[tuple[str, str, str], list[_Judged]] = {
        (*kind, _range(rows)): [] for kind in sorted(_kinds(chip)) for rows in _ONE_OF_EACH
    }
    for item in judged:
        members.setdefault(_key(item.group.problem), []).append(item)
    found = []
    for key, items in members.items():
        errors = [np.abs(item.group.time_us[item.rows] / item.predicted_us - 1.0) for item in items]
        error = round(float(np.median(np.concatenate(errors))), 4) if errors else None
        shares = [item.share for item in items]
        share = round(float(np.exp(np.mean(np.log(shares)))), 4) if shares else None
        found.append(
            Family(chip.name, *key, len(items), error, share, _need(len(items), error, share))
        )
    return sorted(found, key=lambda f: (f.need is None, f.problems, -(f.error or 0)))


def _need(problems: int, error: float | None, share: float | None) -> str | None:
    if problems < _LEAST_PROBLEMS:
        return f"{problems} problems measured, fewer than {_LEAST_PROBLEMS}"
    if share is not None and share < _LEAST_SHARE:
        return f"first choices reach {share:.3f} of the best, less than {_LEAST_SHARE:g}"
    if error is not None and error > UNSTEADY:
        return f"times are off by {error:.1%} in the median, over {UNSTEADY:.0%}"
    return None


def _sizes() -> list[tuple[int, int, int]]:
    """(M, N, K) of the shipped shape sets, each once, held-out ones left out."""
    shapes = [shape.problem for name in _SETS for shape in read_shapes(name)]
    held = heldout_shapes()
    return sorted({(p.m, p.n, p.k) for p in shapes} - held)


def _kinds(chip: HardwareProfile) -> set[tuple[str, str]]:
    """Types that the chip multiplies, as linear layers: what may be asked though never measured."""
    return {(d, "nt") for d in OPERANDS if chip.peak(d) or (d == "fp32" and chip.peak(d, "tf32"))}


def _next(families: Sequence[Family], measured: set[Gemm]) -> list[Gemm]:
    """Of each family that needs data, sizes of the shape sets that nobody measured in it.

    They are spread over the family's sizes; held-out shapes stay held out.
    """
    found: list[Gemm] = []
    for family in families:
        if family.need is None:
            continue
        mine = [
            Gemm(*size, dtype=family.dtype, layout=family.layout)
            for size in _sizes()
            if _range(size[0]) == family.rows
        ]
        mine = sorted((p for p in mine if p not in measured), key=lambda p: p.flops)
        picks = np.linspace(0, len(mine) - 1, min(_NEXT_EACH, len(mine))).round().astype(int)
        found += [mine[int(place)] for place in picks]
    return found
