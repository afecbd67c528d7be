"""Candidates with a tile that another kernel uses: what a vendor's choice is worth on ours."""

from __future__ import annotations

import numpy as np

from costmodel.config import ConfigTable
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.space.candidates import table_of_templates
from costmodel.space.specialized import makeable_widths, warp_group_candidates
from costmodel.space.worth import worth_a_thought


def seeded_candidates(
    problem: Gemm, profile: HardwareProfile, tile: tuple[int, int]
) -> ConfigTable:
    """Configurations whose tile is ``tile``, along (M, N) or along (N, M): both orientations.

    A library that computes column-major products names its tile the other way round, and the
    better side for the matrix unit's rows differs between kernels. Templates of powers of two
    take part where both sides are such; templates of warp groups where one side is made of their
    rows, with the other at the nearest widths that runs of columns make. Every other knob is
    free. Nothing here asks whether a row fits: see ``prune``.
    """
    sides = sorted({tile, (tile[1], tile[0])})
    square = [
        table_of_templates(profile, block_m=[m], block_n=[n])
        for m, n in sides
        if m & (m - 1) == 0 and n & (n - 1) == 0
    ]
    table = ConfigTable.concat([ConfigTable.of([]), *square])
    table = table[np.flatnonzero(worth_a_thought(problem, table, profile))]
    groups = [_of_warp_groups(problem, profile, rows, columns) for rows, columns in sides]
    return ConfigTable.concat([table, *groups])


def _of_warp_groups(
    problem: Gemm, profile: HardwareProfile, rows: int, columns: int
) -> ConfigTable:
    """Tiles of ``rows`` on the matrix unit's tall side, whichever side of C that is."""
    table = warp_group_candidates(problem, profile, makeable_widths(columns))
    tall = np.where(table.swap != 0, table.block_n, table.block_m)
    found: ConfigTable = table[np.flatnonzero(tall == rows)]
    return found
