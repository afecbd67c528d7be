"""How the work is cut into programs, and how the programs fill the chip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.physics.fixed import Knobs
from costmodel.physics.sizes import Sizes
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.warp_groups import is_specialized

Column = NDArray[np.float64]


@dataclass(frozen=True)
class WaveColumns:
    """One entry a configuration.

    ``tiles`` output tiles in all; ``programs`` pieces of work (tiles times split-K parts);
    ``slots`` programs that the chip holds at once; ``rounds`` programs that the busiest slot
    runs one after another; ``steps`` K iterations a program; ``fill`` the share of the
    rounds' capacity that has work (1 without a tail); ``tile_use`` the share of the tiles'
    area that lies inside C.
    """

    tiles_m: Column
    tiles_n: Column
    tiles: Column
    programs: Column
    slots: Column
    rounds: Column
    steps: Column
    fill: Column
    tile_use: Column


def slots_of(
    table: ConfigTable, profile: HardwareProfile, blocks_per_unit: NDArray[np.int64]
) -> Column:
    """Programs that the chip holds at once. ``blocks_per_unit`` is the occupancy.

    Persistent kernels run one block a unit; that of warp groups has a grid as large as what the
    units hold, two blocks at most.
    """
    held = np.where(table.is_template("persistent_tma"), 1, np.maximum(blocks_per_unit, 1))
    held = np.where(is_specialized(table), np.minimum(held, 2), held)
    return profile.units * held.astype(np.float64)


def wave_columns(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, blocks_per_unit: NDArray[np.int64]
) -> WaveColumns:
    """Cut the problem. ``blocks_per_unit`` is the occupancy; persistent kernels run one a unit."""
    return waves_in(problem, table, slots_of(table, profile, blocks_per_unit), profile.units)


def waves_in(problem: Gemm | Sizes, knobs: Knobs, slots: Column, units: int) -> WaveColumns:
    """Cut one problem, or a problem a row, for so many slots."""
    tiles_m = np.ceil(problem.m / knobs.block_m)
    tiles_n = np.ceil(problem.n / knobs.block_n)
    tiles = tiles_m * tiles_n * problem.batch
    programs = tiles * knobs.split_k
    rounds = np.ceil(programs / slots)
    # with fewer programs than slots, units hold fewer blocks than they could: one round
    fill = programs / (rounds * np.minimum(slots, np.maximum(programs, units)))
    steps = np.ceil(np.ceil(problem.k / knobs.block_k) / knobs.split_k)
    inside = problem.m * problem.n * problem.batch
    tile_use = inside / (tiles * knobs.block_m * knobs.block_n)
    return WaveColumns(
        tiles_m, tiles_n, tiles, programs, slots, rounds, steps, np.minimum(fill, 1.0), tile_use
    )


def busy_units(waves: WaveColumns, units: int) -> Column:
    """Units that have a program to run."""
    return np.minimum(waves.programs, units)
