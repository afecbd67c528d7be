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
from costmodel.resources.matrix_unit import MatrixUnit, kernel_blocks, matrix_unit
from costmodel.resources.register_terms import register_limit, register_terms
from costmodel.resources.warp_groups import GROUP_WARPS, is_specialized, warp_group_tile

Column = NDArray[np.float64]

#: addresses and loop state of "matvec" (ptxas on sm_90)
_MATVEC_FIXED = 44


@dataclass(frozen=True)
class RegisterColumns:
    """Registers a thread: those it would have, those it gets, and those that do not fit.

    ``wanted`` is what the compiler takes where there is room; it is held to the limit where a
    thread can do with that, else ``spilled`` is the excess over the limit. A spilled register is
    4 bytes of stores a thread, or more where it is stored several times.
    """

    wanted: Column
    allocated: NDArray[np.int64]
    spilled: Column


def warps_per_block(table: ConfigTable) -> NDArray[np.int64]:
    """Warps that a block takes: the knob's, and those of the loading group where there is one."""
    loading = np.where(is_specialized(table), GROUP_WARPS, 0)
    return np.asarray(np.maximum(table.num_warps, 1) + loading, dtype=np.int64)


def threads_per_block(table: ConfigTable, profile: HardwareProfile) -> NDArray[np.int64]:
    """Threads of a block; 0 where the configuration names no warps."""
    warps = np.where(table.num_warps > 0, warps_per_block(table), 0)
    return np.asarray(warps * profile.warp_size, dtype=np.int64)


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
    unit = matrix_unit(problem, table, profile)
    if not profile.memories:  # another vendor's warps: mma.sync's habits, for want of their own
        unit = np.where(unit == MatrixUnit.OTHER, int(MatrixUnit.MMA_SYNC), unit)
    needed, taken = predicted(terms, unit, coefficients())
    spills = needed > limit
    wanted = np.where(spills, np.maximum(needed, taken), np.minimum(taken, limit))
    wanted = np.where(table.is_template("matvec"), _matvec_registers(table, profile), wanted)
    # its groups trade registers among each other: the whole is what the kernel is compiled for
    specialized, tile = is_specialized(table), warp_group_tile(table)
    wanted = np.where(specialized, tile.registers, wanted)
    limit = np.where(specialized, tile.registers, limit)
    granule = profile.register_granularity or 8
    allocated = np.minimum(np.ceil(wanted / granule) * granule, limit).astype(np.int64)
    return RegisterColumns(wanted, allocated, np.maximum(wanted - limit, 0.0))


def _matvec_registers(table: ConfigTable, profile: HardwareProfile) -> Column:
    """Every loaded element has a sum for each column, and stands beside a column's element."""
    rows, columns = kernel_blocks(table)
    threads = np.maximum(table.num_warps, 1) * profile.warp_size
    return np.asarray(_MATVEC_FIXED + rows * table.block_k / threads * (columns + 1))


def predicted(
    terms: dict[str, Column], unit: NDArray[np.int64], of: dict[str, Any]
) -> tuple[Column, Column]:
    """Registers *needed* and *taken*, from terms, matrix units and coefficients."""
    needed, taken = np.zeros(len(unit)), np.zeros(len(unit))
    for kind in np.unique(unit):
        formulas = of.get(MatrixUnit(kind).name, {})
        rows = unit == kind
        needed = np.where(rows, _larger_phase(terms, formulas.get("needed", {})), needed)
        taken = np.where(rows, _larger_phase(terms, formulas.get("taken", {})), taken)
    return needed, taken


def _larger_phase(terms: dict[str, Column], phases: dict[str, dict[str, float]]) -> Column:
    largest = np.zeros(len(terms["fixed"]))
    for weights in phases.values():
        # term by term: a matrix product would round one row otherwise than many
        total = np.zeros(len(largest))
        for term, weight in weights.items():
            total += weight * terms[term]
        largest = np.maximum(largest, total)
    return largest


@functools.cache
def coefficients() -> dict[str, Any]:
    """The shipped coefficients by matrix unit, formula, phase and term."""
    text = packaged("compiler", "register_coefficients.json").read_text(encoding="utf-8")
    return dict(json.loads(text)["coefficients"])
