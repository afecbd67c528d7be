"""What a time may not be: quicker than the roofline; and what it should not be: unsteady.

A time below the roofline is quarantined: readers leave the row out and report it. A time that is
noisy, or that another measurement of the same thing contradicts, stays and is flagged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from costmodel.errors import CostModelError
from costmodel.physics.roofline import roofline
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.records.schema import KEY_COLUMNS, PROBLEM_COLUMNS, problem_of

if TYPE_CHECKING:
    import pandas as pd

#: two times of one thing that differ by more, and a spread of one that is wider, are flagged.
#: Between its p10 and p90 a time of the shipped runs spans 4.3 % in the median and 11.8 % at the
#: 90th percentile (H200, cold-l2-clean/1); medians of one kernel repeat to 0.4 %
UNSTEADY = 0.10

#: words of the flags, with what each says
FLAGS = {
    "noise": "p10 and p90 lie more than 10 % of the median apart",
    "throttling": "later in the same run the same measurement took over 10 % longer",
    "drift": "in another run the same measurement differed by over 10 %",
}


def least_us(row: Mapping[str, Any]) -> float:
    """The least time that the row's chip needs for its problem, by its data sheet, in us; else 0.

    The larger of arithmetic at the dense peak, at the chip's highest clock, and, where the protocol
    empties L2, compulsory bytes at the memory's bandwidth. 0 where the chip has no profile or no
    rate for the type.
    """
    if row["device"] is None:
        return 0.0
    cold = str(row["protocol"]).startswith("cold")
    return _least_us(problem_of(row), row["device"], cold)


@lru_cache(maxsize=4096)
def _least_us(problem: Gemm, device: str, cold: bool) -> float:
    try:
        found = roofline(problem, load_profile(device))
    except (CostModelError, ValueError):  # no such profile, or no rate: nothing is known
        return 0.0
    return float(found.least_us if cold else found.least_compute_us)


def impossible(row: Mapping[str, Any]) -> str | None:
    """Why the row's time cannot be true, or None: it is below the roofline."""
    time_us = row["time_us"]
    least = least_us(row) if time_us is not None else 0.0
    if time_us is None or time_us >= least:
        return None
    rate = problem_of(row).flops / (time_us * 1e6)
    return (
        f"above the roofline: {time_us:g} us is {rate:.0f} TFLOPS, and {row['device']} needs at "
        f"least {least:.3g} us; a broken measurement, left out"
    )


def impossible_rows(table: Any) -> list[int]:
    """Places of an Arrow table's rows that ``impossible`` would name, from columns."""
    import pyarrow.compute as pc

    keys = [*PROBLEM_COLUMNS, "device", "protocol"]
    timed = table.select([*keys, "time_us"]).filter(
        pc.and_(table["time_us"].is_valid(), table["device"].is_valid())
    )
    quickest = timed.group_by(keys).aggregate([("time_us", "min")]).to_pylist()
    if not any(row["time_us_min"] < least_us(row) for row in quickest):
        return []
    rows = table.select([*keys, "time_us"]).to_pylist()
    return [place for place, row in enumerate(rows) if impossible(row)]


@dataclass(frozen=True)
class Steadiness:
    """Flags of a frame's rows, one boolean array for each word of ``FLAGS``, aligned."""

    flags: Mapping[str, NDArray[np.bool_]]

    def counts(self) -> dict[str, int]:
        """Number of rows with each flag."""
        return {word: int(rows.sum()) for word, rows in self.flags.items()}

    def of(self, place: int) -> list[str]:
        """The flags of one row."""
        return [word for word, rows in self.flags.items() if rows[place]]


def steadiness(frame: pd.DataFrame) -> Steadiness:
    """Flag the correct rows of a frame with all columns; failures have no flags.

    "drift" marks every measurement of one thing whose medians by run differ; "throttling" the
    rows of a run between an earlier and a slower later time of the same thing, and these two.
    """
    correct = (frame["invalidity"] == "correct") & frame["time_us"].notna()
    spread = ((frame["p90_us"] - frame["p10_us"]) / frame["time_us"]).to_numpy(dtype=np.float64)
    noise = correct.to_numpy(dtype=bool) & (np.nan_to_num(spread) > UNSTEADY)
    drift = np.zeros(len(frame), dtype=bool)
    throttling = np.zeros(len(frame), dtype=bool)
    good = frame.loc[correct, [*KEY_COLUMNS, "run", "sequence", "time_us"]].reset_index(drop=True)
    places = np.flatnonzero(correct.to_numpy(dtype=bool))
    same = good.groupby(list(KEY_COLUMNS), dropna=False, sort=False).ngroup()
    good = good.assign(same=same, place=places)[["same", "place", "run", "sequence", "time_us"]]
    repeated = good[good.duplicated("same", keep=False)]
    by_run = repeated.groupby(["same", "run"], sort=False)["time_us"].median()
    range_us = by_run.groupby("same").agg(["min", "max"])
    apart = range_us.index[range_us["max"] > range_us["min"] * (1 + UNSTEADY)]
    drift[repeated.loc[repeated["same"].isin(apart), "place"].to_numpy()] = True
    for run, first, last in _slowed(repeated):
        inside = (good["run"] == run) & good["sequence"].between(first, last)
        throttling[good.loc[inside, "place"].to_numpy()] = True
    return Steadiness({"noise": noise, "throttling": throttling, "drift": drift})


def _slowed(repeated: pd.DataFrame) -> Iterable[tuple[str, int, int]]:
    """Run and sequence numbers of neighbouring times of one thing, the later over 10 % slower."""
    ordered = repeated.sort_values(["same", "run", "sequence"])
    before = ordered.groupby(["same", "run"], sort=False)[["sequence", "time_us"]].shift()
    slower = (ordered["time_us"] > before["time_us"] * (1 + UNSTEADY)).to_numpy(dtype=bool)
    found = ordered[slower].assign(first=before.loc[slower, "sequence"])
    for run, first, last in found[["run", "first", "sequence"]].itertuples(index=False, name=None):
        yield str(run), int(first), int(last)
