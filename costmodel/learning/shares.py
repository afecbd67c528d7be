"""A choice's share of the best: the best measured time over that of the best among the first k."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.records.groups import Group

TOPS = (1, 3, 5, 8, 16)
#: of (best time of its shape / its time), for a row's weight: by hand. 2, 3 and 4 choose alike on a
#: fifth of the training shapes
_WEIGHT_POWER = 3.0
#: where the best of those measured again lies further than this above the least time, they were not
#: the winners: by hand
_FLATTERED = 1.05


def best_row(group: Group) -> int:
    """The fastest configuration; among those measured again where the winners were.

    The minimum over many noisy times flatters itself: the winners' second measurement decides.
    Where logs merely overlap, what both hold is no winner, and the least time counts.
    """
    twice = np.where(group.remeasured, group.time_us, np.inf)
    winners = twice.min() <= _FLATTERED * group.time_us.min()
    return int(np.argmin(twice if winners else group.time_us))


def shares_of(group: Group, order: NDArray[np.int64]) -> tuple[float, ...]:
    """Best time over the best of the first k, for each of ``TOPS``; at most 1."""
    best = group.time_us[best_row(group)]
    return tuple(min(1.0, float(best / group.time_us[order[:k]].min())) for k in TOPS)


def summary(shares: NDArray[np.float64]) -> dict[str, float]:
    """Geometric mean, tenth percentile and minimum."""
    return {
        "geomean": round(float(np.exp(np.log(shares).mean())), 4),
        "p10": round(float(np.quantile(shares, 0.1)), 4),
        "min": round(float(shares.min()), 4),
    }


def row_weights(time_us: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of one shape's rows: they sum to 1, and fast configurations count for more.

    Every shape counts the same, however many of its configurations were measured. A configuration
    twice as slow as the best counts an eighth: its exact time never decides a choice.
    """
    weight = (time_us.min() / time_us) ** _WEIGHT_POWER
    return np.asarray(weight / weight.sum(), dtype=np.float64)
