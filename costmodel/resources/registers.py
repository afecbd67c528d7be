"""Registers a thread, predicted from the tile: what it needs, what the compiler takes, spills."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.paths import packaged
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.matrix_unit import MatrixUnit, matrix_unit
from costmodel.resources.register_terms import PHASES, register_limit, register_terms

Column = NDArray[np.float64]

_FORMULAS = ("needed", "taken")


@dataclass(frozen=True)
class RegisterColumns:
    """Registers a thread: those it would have, those it gets, and those that do not fit.

    ``wanted`` is what the compiler takes where there is room and never more than the limit unless
    a thread cannot do with less; then ``spilled`` is the excess over the limit. A spilled
    register is at least 4 bytes of stores a thread on NVIDIA and one spilled VGPR on AMD.
    """

    wanted: Column
    allocated: NDArray[np.int64]
    spilled: Column


def register_columns(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile
) -> RegisterColumns:
    """Predict registers a thread and spills, one entry a configuration.

    Two formulas over ``register_terms``, each the larger of the K loop's and the store's: what a
    thread must hold at once, and what the compiler takes where there is room (it loads ahead).
    Coefficients a matrix unit, fitted on full compiles (``fit_registers``; figures in
    docs/registers-table.md).
    """
    limit = register_limit(table, profile)
    terms = register_terms(problem, table, profile)
    needed, taken = predicted(terms, matrix_unit(problem, table, profile), coefficients())
    wanted = np.where(needed > limit, needed, np.minimum(taken, limit))
    granule = profile.register_granularity or 8
    allocated = np.minimum(np.ceil(wanted / granule) * granule, limit).astype(np.int64)
    return RegisterColumns(wanted, allocated, np.maximum(needed - limit, 0.0))


def predicted(
    terms: dict[str, Column], unit: NDArray[np.int64], of: dict[str, Any]
) -> tuple[Column, Column]:
    """Registers *needed* and *taken*, from terms, matrix units and coefficients."""
    columns = np.stack(list(terms.values()))
    found = np.zeros((len(_FORMULAS), len(unit)))
    for kind in np.unique(unit):
        formulas = of.get(MatrixUnit(kind).name, {})
        weights = np.array([
            [formulas.get(name, {}).get(phase, {}).get(term, 0.0) for term in terms]
            for phase in PHASES
            for name in _FORMULAS
        ])  # fmt: skip
        phases = (weights @ columns).reshape(len(PHASES), len(_FORMULAS), -1)
        found = np.where(unit == kind, phases.max(axis=0), found)
    return found[0], found[1]


@functools.cache
def coefficients() -> dict[str, Any]:
    """The shipped coefficients by matrix unit, formula, phase and term."""
    text = packaged("compiler", "register_coefficients.json").read_text(encoding="utf-8")
    return dict(json.loads(text)["coefficients"])
