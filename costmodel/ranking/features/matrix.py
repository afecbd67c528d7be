"""All features of configurations as one matrix; those that sizes don't change, apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.physics.estimate import EstimateColumns, PricedColumns, estimate_columns
from costmodel.physics.fixed import FixedColumns
from costmodel.physics.sizes import Sizes
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.ranking.features import fill, kind, pipeline, tile, times, traffic  # noqa: F401
from costmodel.ranking.features.registry import FEATURES, FIXED, Context, FixedContext

_IN_ORDER = tuple(FEATURES.values())
_FIXED_PLACES = [place for place, name in enumerate(FEATURES) if name in FIXED]
_PLACES_BY_SIZE = [place for place, name in enumerate(FEATURES) if name not in FIXED]


def feature_matrix(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, physics: EstimateColumns | None
) -> NDArray[np.float32]:
    """All features, [configurations, features], in the order of ``FEATURES``."""
    physics = physics or estimate_columns(problem, table, profile)
    fixed = fixed_features(problem, table, profile, physics)
    return features_at(problem, physics.fixed, profile, physics, fixed)


def fixed_features(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, physics: EstimateColumns
) -> NDArray[np.float32]:
    """Features that are the same for every problem of a kind, [fixed features, configurations]."""
    context = FixedContext(problem, table, profile, physics)
    matrix = np.empty((len(_FIXED_PLACES), len(table)), dtype=np.float32)
    for row, place in enumerate(_FIXED_PLACES):
        matrix[row] = _IN_ORDER[place](context)
    return matrix


def features_at(
    problem: Gemm | Sizes,
    knobs: FixedColumns,
    profile: HardwareProfile,
    physics: PricedColumns,
    fixed: NDArray[np.float32],
) -> NDArray[np.float32]:
    """All features at their sizes, [configurations, features], from the fixed ones."""
    context = Context(problem, knobs, profile, physics)
    matrix = np.empty((len(FEATURES), len(knobs)), dtype=np.float32)
    matrix[_FIXED_PLACES] = fixed
    for place in _PLACES_BY_SIZE:
        matrix[place] = _IN_ORDER[place](context)
    return matrix.T
