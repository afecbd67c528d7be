"""The runs of a team as one library: the best known of a shape, two sides compared, contradictions.

A *setting* is what a best belongs to: chip, software, protocol, kernel. Times of two settings are
compared, never mixed, and no row of another shape answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from costmodel.config import KNOBS, KernelConfig
from costmodel.problem import Gemm
from costmodel.records.claims import Claim
from costmodel.records.comparison import Contradiction, disagreements
from costmodel.records.groups import config_of_knobs, plain
from costmodel.records.schema import PROBLEM_COLUMNS
from costmodel.records.versions import newest_first

if TYPE_CHECKING:
    import pandas as pd

#: columns of a setting
SETTING = ("device_name", "units", "triton", "driver", "torch", "protocol", "source")


@dataclass(frozen=True)
class Best:
    """The fastest configuration measured of one problem in one setting.

    ``time_us`` is the median of its times; ``configs`` is the number measured, ``vendor_us`` the
    median of the vendor's times there, or None.
    """

    problem: Gemm
    setting: dict[str, Any]
    device: str | None
    config: KernelConfig
    time_us: float
    configs: int
    vendor_us: float | None
    last: str | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {
            "problem": str(self.problem),
            "tflops": self.problem.flops / (self.time_us * 1e6),
        }


def rows_of(frame: pd.DataFrame, problem: Gemm) -> pd.DataFrame:
    """The correct rows of exactly this problem."""
    kept = frame["invalidity"] == "correct"
    for name in PROBLEM_COLUMNS:
        value = getattr(problem, name)
        kept &= frame[name].isna() if value is None else (frame[name] == value).fillna(False)
    return frame[kept]


def bests(frame: pd.DataFrame, problem: Gemm) -> list[Best]:
    """The best of each setting that measured the problem, by chip, the newest Triton first."""
    found = []
    for _, part in rows_of(frame, problem).groupby(list(SETTING), dropna=False, sort=False):
        best = _best(part, problem)
        if best is not None:
            found.append(best)
    versions = newest_first({best.setting["triton"] or "" for best in found})

    def place(best: Best) -> tuple[Any, ...]:
        newest = versions.index(best.setting["triton"] or "")
        return best.setting["device_name"], newest, best.time_us

    return sorted(found, key=place)


def _best(part: pd.DataFrame, problem: Gemm) -> Best | None:
    medians = medians_of(part)
    if medians.empty:
        return None
    vendor = part.loc[part["backend"] == "origin", "time_us"]
    quickest = medians.index[int(np.argmin(medians.to_numpy()))]
    first = part.iloc[0]
    device = first["device"]
    return Best(
        problem,
        {name: plain(first[name]) for name in SETTING},
        plain(device),
        config_of_knobs(quickest),
        round(float(medians.min()), 3),
        len(medians),
        round(float(vendor.median()), 3) if len(vendor) else None,
        max((str(t) for t in part["timestamp"].dropna()), default=None),
    )


def medians_of(part: pd.DataFrame) -> pd.Series[float]:
    """Median time of each configuration (its knobs, in order) in rows of one problem."""
    ours = part[part["backend"] == "triton"]
    return ours.groupby(list(KNOBS), dropna=False, sort=False)["time_us"].median()


def contradictions_among(frame: pd.DataFrame, found: Sequence[Best]) -> list[Contradiction]:
    """Bests of one problem on one chip that two settings do not agree on."""
    clashes = []
    for place, one in enumerate(found):
        for two in found[place + 1 :]:
            if one.setting["device_name"] == two.setting["device_name"]:
                rows = rows_of(frame, one.problem)
                sides = [_inside(rows, best.setting) for best in (one, two)]
                clashes += disagreements(sides[0], sides[1], _differing(one, two))
    return clashes


def claims_of(claims: Iterable[Claim], problem: Gemm) -> list[Claim]:
    """Claims about products of this size and type; of any operator, which each names."""
    wanted = (problem.m, problem.n, problem.k, problem.dtype)
    return [c for c in claims if (c.m, c.n, c.k, c.dtype) == wanted]


def _inside(rows: pd.DataFrame, setting: dict[str, Any]) -> pd.DataFrame:
    for name, value in setting.items():
        kept = rows[name].isna() if value is None else (rows[name] == value).fillna(False)
        rows = rows[kept]
    return rows


def _differing(one: Best, two: Best) -> tuple[str, str]:
    """What tells two settings apart, as texts."""
    names = [name for name in SETTING if one.setting[name] != two.setting[name]]
    texts = [", ".join(f"{n} {b.setting[n] or '(own)'}" for n in names) for b in (one, two)]
    return texts[0], texts[1]
