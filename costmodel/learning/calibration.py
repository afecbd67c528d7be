"""How far predicted times can be believed: errors, and how often the interval holds, by kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.learning.judged import COVERED, Judged
from costmodel.shapes import read_shapes

#: share of times that the interval is made to hold. A model stores the 5 % and 95 % quantiles of
#: log(measured / predicted) and no others: no other level can be held against measurements
LEVEL = 0.9
#: ends of the groups of predicted times, in microseconds
ENDS_US = (10.0, 50.0)
TIME_GROUPS = ("under 10 us", "10 to 50 us", "over 50 us")


def calibration(problems: Sequence[Judged]) -> dict[str, Any]:
    """Coverage and median error of the first eight choices, as plain values.

    ``coverage`` is the share of measured times inside their 90 % interval, ``median_time_error``
    the median of abs(predicted / measured - 1), ``problems`` how many have a part in them: of all
    choices, by predicted time (each choice by its own) and by family of problems as
    ``data/shapes/heldout.csv`` has it. A group without a choice is left out.
    """
    inside = np.concatenate([problem.inside for problem in problems])
    errors = np.concatenate([problem.errors[:COVERED] for problem in problems])
    predicted_us = np.concatenate([problem.predicted_us[:COVERED] for problem in problems])
    owner = np.repeat(np.arange(len(problems)), [len(problem.inside) for problem in problems])
    named = {shape.problem: shape.family for shape in read_shapes("heldout")}
    family = np.array([named.get(problem.group.problem, "other") for problem in problems])[owner]
    time_group = np.array(TIME_GROUPS)[np.digitize(predicted_us, ENDS_US)]

    def figures(mask: NDArray[np.bool_]) -> dict[str, float]:
        return {
            "problems": len(np.unique(owner[mask])),
            "coverage": round(float(inside[mask].mean()), 4),
            "median_time_error": round(float(np.median(errors[mask])), 4),
        }

    return {
        "level": LEVEL,
        "overall": figures(np.ones(len(inside), dtype=bool)),
        "by_predicted_time": {
            name: figures(time_group == name) for name in TIME_GROUPS if name in time_group
        },
        "by_family": {str(name): figures(family == name) for name in np.unique(family)},
    }
