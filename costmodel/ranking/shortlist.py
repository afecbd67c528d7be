"""Physics orders all configurations, and the ranker those that physics puts first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.physics.estimate import EstimateColumns, PricedColumns, taken
from costmodel.physics.fixed import FixedColumns
from costmodel.physics.sizes import Sizes
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.ranking.cascade import SHORTLIST, ToJudge, best_rows, with_first
from costmodel.ranking.features import features_at, fixed_features
from costmodel.ranking.ranker import Ranker

Rows = NDArray[np.int64]


class Shortlist(NamedTuple):
    """The best of a problem's rows by physics: their places, and what the models judge by."""

    rows: Rows
    rated: ToJudge


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

    def fixed(rows: Rows) -> NDArray[np.float32]:
        return fixed_features(problem, table[rows], profile, taken(physics, rows))

    (first,) = shortlists(problem, physics.fixed, profile, physics, fixed, [len(table)])
    times = ranker.corrected_us(*first.rated)
    return with_first(physics.time_us, first.rows, times, times.max())


def shortlists(
    problem: Gemm | Sizes,
    knobs: FixedColumns,
    profile: HardwareProfile,
    physics: PricedColumns,
    fixed: Callable[[Rows], NDArray[np.float32]],
    ends: list[int],
) -> Iterator[Shortlist]:
    """The shortlist of each problem, whose rows end at ``ends``.

    ``fixed`` gives the fixed features of some rows.
    """
    starts = [0, *ends[:-1]]
    firsts = [
        best_rows(physics.time_us[start:end], SHORTLIST) + start
        for start, end in zip(starts, ends, strict=True)
    ]
    rows = np.concatenate(firsts)
    sizes = problem.take(rows) if isinstance(problem, Sizes) else problem
    priced = taken(physics, rows)
    features = features_at(sizes, knobs.take(rows), profile, priced, fixed(rows))
    least_us = np.broadcast_to(priced.roofline.least_us, len(rows))
    done = 0
    for first in firsts:
        own = slice(done, done + len(first))
        yield Shortlist(first, ToJudge(features[own], priced.time_us[own], least_us[own]))
        done += len(first)
