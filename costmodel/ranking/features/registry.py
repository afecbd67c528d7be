"""What a feature is, what it may use, and the order that they stand in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.physics.estimate import EstimateColumns, PricedColumns
from costmodel.physics.fixed import Knobs
from costmodel.physics.sizes import Sizes
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile

Column = NDArray[np.float64]

_TINY = 1e-6


@dataclass(frozen=True)
class Context:
    """All that a feature may use: configurations at their sizes."""

    problem: Gemm | Sizes
    table: Knobs
    profile: HardwareProfile
    physics: PricedColumns


@dataclass(frozen=True)
class FixedContext(Context):
    """What a feature may use that sizes don't change."""

    problem: Gemm
    table: ConfigTable
    physics: EstimateColumns


Feature = Callable[[Any], Column]
FEATURES: dict[str, Feature] = {}
#: those that are the same for every problem of a kind
FIXED: set[str] = set()


def feature(function: Feature) -> Feature:
    """Register a feature that follows sizes, by its function's name."""
    FEATURES[function.__name__] = function
    return function


def fixed_feature(function: Feature) -> Feature:
    """Register a feature that is the same for every problem of a kind."""
    FIXED.add(function.__name__)
    return feature(function)


def log2(values: Any) -> Column:
    """log2, of a millionth at least."""
    return np.asarray(np.log2(np.maximum(values, _TINY)), dtype=np.float64)
