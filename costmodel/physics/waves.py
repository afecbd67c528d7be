"""How the work is cut into programs, and how the programs fill the chip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
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


def wave_columns(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, blocks_per_unit: NDArray[np.int64]
) -> WaveColumns:
    """Cut the problem. ``blocks_per_unit`` is the occupancy; persistent kernels run one a unit."""
    tiles_m = np.ceil(problem.m / table.block_m)
    tiles_n = np.ceil(problem.n / table.block_n)
    tiles = tiles_m * tiles_n * problem.batch
    programs = tiles * table.split_k
    held = np.where(table.is_template("persistent_tma"), 1, np.maximum(blocks_per_unit, 1))
    # its grid is as large as what the units hold, two blocks at most
    held = np.where(is_specialized(table), np.minimum(held, 2), held)
    slots = profile.units * held.astype(np.float64)
    rounds = np.ceil(programs / slots)
    # with fewer programs than slots, units hold fewer blocks than they could: one round
    fill = programs / (rounds * np.minimum(slots, np.maximum(programs, profile.units)))
    steps = np.ceil(np.ceil(problem.k / table.block_k) / table.split_k)
    inside = problem.m * problem.n * problem.batch
    tile_use = inside / (tiles * table.block_m * table.block_n)
    return WaveColumns(
        tiles_m, tiles_n, tiles, programs, slots, rounds, steps, np.minimum(fill, 1.0), tile_use
    )
