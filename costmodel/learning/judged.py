"""One held-out problem under one way of choosing: the order, and what its first choices reach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.learning.shares import TOPS, best_row, shares_of, summary
from costmodel.physics.estimate import estimate_columns
from costmodel.predict import rank
from costmodel.profile import HardwareProfile
from costmodel.ranking.ranker import Ranker
from costmodel.records.groups import Group

#: the first of a ranking whose times are held against their intervals, and against prediction
COVERED, TIMED = 8, TOPS[-1]


@dataclass(frozen=True)
class Judged:
    """One held-out problem under one way of choosing.

    ``shares`` are best time over the best of the first k chosen, for each of ``TOPS``.
    """

    group: Group
    shares: tuple[float, ...]
    order: NDArray[np.int64]
    predicted_us: NDArray[np.float64]
    spread: tuple[float, float]
    #: place of the best configuration in the estimate's own order, from 1
    best_by_physics: int

    @property
    def best_us(self) -> float:
        """Time of the best configuration, as ``best_row`` decides it."""
        return float(self.group.time_us[best_row(self.group)])

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Of the first ``COVERED``: whether the measured time lies in its 90 % interval."""
        measured = self.group.time_us[self.order[:COVERED]]
        ratio = np.log(measured / self.predicted_us[:COVERED])
        return np.asarray((ratio >= self.spread[0]) & (ratio <= self.spread[1]))

    @property
    def errors(self) -> NDArray[np.float64]:
        """Of the first ``TIMED``: abs(predicted / measured - 1)."""
        measured = self.group.time_us[self.order[:TIMED]]
        return np.asarray(np.abs(self.predicted_us[:TIMED] / measured - 1.0))


def judged(group: Group, chip: HardwareProfile, ranker: Ranker | None) -> Judged:
    """Rank what was measured of a problem, by the estimate alone where there is no ranker."""
    ranking, _ = rank(group.problem, group.table, chip, ranker if ranker else "physics")
    estimate_us = estimate_columns(group.problem, group.table, chip).time_us
    better = int((estimate_us < estimate_us[best_row(group)]).sum())
    return Judged(
        group=group,
        shares=shares_of(group, ranking.order),
        order=ranking.order,
        predicted_us=ranking.time_us,
        spread=ranking.spread,
        best_by_physics=better + 1,
    )


def top_figures(
    problems: Iterable[Judged], tops: Iterable[int] = TOPS
) -> dict[str, dict[str, float]]:
    """For each k: geometric mean, tenth percentile and minimum of the first k's shares."""
    shares = np.array([problem.shares for problem in problems])
    return {str(k): summary(shares[:, TOPS.index(k)]) for k in tops}
