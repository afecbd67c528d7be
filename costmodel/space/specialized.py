"""Candidates of template "warp_specialized": tiles whose columns fit the problem's width."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.config import KNOBS, TEMPLATES, ConfigTable
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.warp_groups import (
    GROUP_WARPS,
    bookkeeping_bytes,
    column_runs,
    staging_bytes,
    warp_group_tile,
)

Column = NDArray[np.int64]

#: (groups, rows of a group)
_GROUPS = ((1, 64), (1, 128), (2, 64), (2, 128), (3, 64))
_WIDEST = 384
_ROW_BYTES = 16  # the copy engine's rows are multiples of it (CUDA driver API)
_SPLITS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 44, 66, 132)
_MOST_STAGES = 16
#: widths for any size: those whose runs read no slower than they multiply (64 and more)
_PLAIN_WIDTHS = (64, 128, 192, 256, 320)
#: width is cut into up to so many tiles that leave little over
_MOST_TILES = 12
#: or into those that fill so many waves: past that, what the last one leaves empty is little
_FILLED_WAVES = (1, 2, 3)
#: narrower tiles of a wide C read each row of operands too often for any fill to pay
_LEAST_CUT = 48


def warp_group_candidates(
    problem: Gemm, profile: HardwareProfile, widths: Sequence[int] | None = None
) -> ConfigTable:
    """A few thousand rows; none where the chip has no wgmma or the problem has a batch.

    ``widths`` are the columns that a tile may have, in place of those that fit the problem.
    """
    empty = ConfigTable.of([])
    if "wgmma" not in profile.mma or problem.batch > 1:
        return empty
    # operands that the copy engine cannot read are copied first
    odd = any(problem.odd_row_bytes(operand, _ROW_BYTES) for operand in "abc")
    template = "packed" if odd and problem.element_bytes == 2 else "warp_specialized"
    tables = [_oriented(problem, profile, swap, template, widths) for swap in (False, True)]
    return ConfigTable.concat(tables)


def _oriented(
    problem: Gemm,
    profile: HardwareProfile,
    swap: bool,
    template: str,
    widths: Sequence[int] | None,
) -> ConfigTable:
    tall, wide = (problem.n, problem.m) if swap else (problem.m, problem.n)
    deep = 128 // problem.element_bytes  # a row of the copy engine's widest swizzle
    across = _widths(tall, wide, profile.units) if widths is None else widths
    axes = (range(len(_GROUPS)), across, (deep, 2 * deep), (1, 2), _SPLITS, (1, 2))
    group, columns, block_k, blocks, split, parts = (
        axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")
    )
    groups, group_rows = np.asarray(_GROUPS).T[:, group]
    rows = groups * group_rows
    # worth a thought: before the costly arithmetic
    tiles = -(-tall // rows) * -(-wide // columns)
    steps = -(-problem.k // block_k)
    keep = (rows < 2 * max(tall, 64)) & ((blocks == 1) | (groups == 1))
    keep &= (split == 1) | ((tiles * split <= 2 * profile.units) & (2 * split <= steps))
    keep &= (split > 1) | (tiles * 4 > profile.units) | (steps <= 32)
    keep &= ((split == 1) & (template != "packed")) | (parts == 1)
    rows, columns, block_k, blocks, split, parts, groups = (
        axis[keep] for axis in (rows, columns, block_k, blocks, split, parts, groups)
    )
    m, n = (columns, rows) if swap else (rows, columns)
    table = ConfigTable(
        template=TEMPLATES.index(template),
        block_m=m, block_n=n, block_k=block_k, group_m=8, split_k=split,
        num_warps=groups * GROUP_WARPS, num_stages=2, load_bits=128, swap=int(swap),
        epilogue_parts=parts,
    )  # fmt: skip
    tile = warp_group_tile(table)
    # as many stages as fit beside what else the block needs, so that a unit holds its blocks
    room = (profile.shared_per_unit_bytes or 233472) // blocks
    room -= profile.shared_reserved_bytes or 1024
    room -= staging_bytes(tile, parts, problem.out_bytes)
    room -= bookkeeping_bytes(tile, np.full(len(table), _MOST_STAGES), parts)
    stages = room // ((rows + columns) * block_k * problem.element_bytes)
    steps = np.ceil(np.ceil(problem.k / block_k) / split).astype(np.int64)
    table.num_stages = np.minimum(np.minimum(stages, _MOST_STAGES), np.maximum(steps, 2))
    sound = tile.is_sound & (stages >= 2)
    # one buffer for all runs has a point only where it buys a stage, or there is one run anyway
    sound &= (parts == 1) | (tile.run_count > 1) & (stages <= 4)
    sound &= (parts == 2) | (stages > 2)
    # two blocks a unit need the smaller register budget
    sound &= (blocks == 1) | (tile.registers <= 128)
    return _once(table[np.flatnonzero(sound)])


def _once(table: ConfigTable) -> ConfigTable:
    """Each row once, in order: where K is short, room for one block buys what two have too."""
    rows = np.stack([getattr(table, knob) for knob in KNOBS])
    _, first = np.unique(rows, axis=1, return_index=True)
    return table[np.sort(first)]


def makeable_widths(width: int) -> list[int]:
    """``width`` where three runs make it, else the next narrower and the next wider that they do.

    >>> makeable_widths(192), makeable_widths(232)
    ([192], [224, 256])
    """
    every = np.arange(8, _WIDEST + 8, 8)
    made = every[column_runs(every).sum(axis=0) == every]
    near = {*made[made <= width][-1:].tolist(), *made[made >= width][:1].tolist()}
    return sorted(near)


def _widths(tall: int, wide: int, units: int) -> list[int]:
    """Widths of a tile: plain ones, and those that leave little over of C, or of a wave."""
    every = np.arange(8, _WIDEST + 8, 8)
    made = every[column_runs(every).sum(axis=0) == every]
    found = {width for width in _PLAIN_WIDTHS if width < wide + 64}
    cuts = set(range(1, _MOST_TILES + 1))
    # as many columns of tiles as make whole waves with the rows of tiles that there are
    for groups, group_rows in _GROUPS:
        rows_of_tiles = -(-tall // (groups * group_rows))
        cuts |= {units * waves // rows_of_tiles for waves in _FILLED_WAVES}
    for tiles in cuts - {0}:
        fitting = made[(made * tiles >= wide) & ((made >= _LEAST_CUT) | (tiles <= _MOST_TILES))]
        if len(fitting):
            found.add(int(fitting[0]))
            # columns in whole runs of 32 and more read their operands faster
            found.update(int(width) for width in fitting[fitting % 32 == 0][:1])
    return sorted(width for width in found if width <= max(wide + 31, 64))
