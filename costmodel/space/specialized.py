"""Candidates of template "warp_specialized": tiles whose columns fit the problem's width."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from costmodel.config import TEMPLATES, ConfigTable
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
_RUN_STEP, _WIDEST = 8, 384
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
    grid = warp_group_grid(problem, profile)
    rows, split_k, _ = grid.pick([problem], profile.units, widths)
    return with_parts(grid.configs, rows, split_k)


def with_parts(table: ConfigTable, rows: Column, split_k: Column) -> ConfigTable:
    """Rows of a table, each with its own number of parts of K."""
    taken: ConfigTable = table[rows]
    taken.split_k = split_k
    return taken


@dataclass(frozen=True)
class WarpGroupGrid:
    """Tiles of warp groups with the numbers of stages that fit, for problems of one kind.

    ``configs`` has a row for each tile, step of K and number of stages from 2 on; one with 2 parts
    of K stands for every number of parts. The other columns have an entry for each choice of a
    tile, a step and blocks a unit: ``first`` is its row with 2 stages, ``stages`` as many as fit,
    and ``stages_alone`` those of the same tile with one block a unit, 0 where it is the entry
    itself or makes no kernel. ``rows`` lie along the matrix unit's.
    """

    configs: ConfigTable
    swap: Column
    rows: Column
    width: Column
    block_k: Column
    split: Column
    first: Column
    stages: Column
    stages_alone: Column

    def pick(
        self, problems: Sequence[Gemm], units: int, widths: Sequence[int] | None = None
    ) -> tuple[Column, Column, Column]:
        """Rows of ``configs`` that suit problems' sizes, the parts of K of each, and whose it is.

        One problem's come after another's.
        """
        if not len(self.rows):
            return self.first, self.first, self.first
        sides = np.array([(problem.m, problem.n) for problem in problems])
        tall, wide = sides.ravel(), sides[:, ::-1].ravel()  # by problem and swap
        made = [
            _allowed(tuple(widths or _widths(*side, units)))
            for problem in problems
            for side in ((problem.m, problem.n), (problem.n, problem.m))
        ]
        keep = np.reshape(made, (len(problems), -1)).take(self._side_and_width, axis=1)
        keep &= self.rows < (2 * np.maximum(sides, 64)).take(self.swap, axis=1)
        owner, entry = np.nonzero(keep)
        side, split = 2 * owner + self.swap[entry], self.split[entry]
        tiles = np.ceil(tall.take(side) / self.rows[entry])
        tiles *= np.ceil(wide.take(side) / self.width[entry])
        depth = np.array([problem.k for problem in problems])
        steps = np.ceil(depth.take(owner) / self.block_k[entry])
        # parts that leave each program two steps, and the chip programs enough for two rounds
        most = np.minimum(2 * units // tiles, steps // 2)
        parts = np.searchsorted(_SPLITS, most, side="right") - 1
        whole = (tiles * 4 > units) | (steps <= 32)
        count = np.where(split > 0, np.maximum(parts, 0), whole)
        # an entry for each number of its parts
        end = np.cumsum(count)
        number = np.arange(count.sum()) - np.repeat(end - count, count)
        picked = np.repeat(entry, count)
        split_k = np.take(_SPLITS, number + self.split[picked])
        deepest = np.maximum(np.ceil(np.repeat(steps, count) / split_k).astype(np.int64), 2)
        stages = np.minimum(self.stages[picked], deepest)
        # where K is short, room for one block buys what two have too
        new = np.minimum(self.stages_alone[picked], deepest) != stages
        rows = (self.first[picked] + stages - 2)[new]
        return rows, split_k[new], np.repeat(owner, count)[new]

    @cached_property
    def _side_and_width(self) -> Column:
        """Where each entry stands in ``_allowed`` of both sides, one after the other."""
        return self.swap * (_WIDEST // _RUN_STEP + 1) + self.width // _RUN_STEP


def warp_group_grid(problem: Gemm, profile: HardwareProfile) -> WarpGroupGrid:
    """The grid for problems of this one's kind; empty where the chip or the problem takes none."""
    # operands that the copy engine cannot read are copied first
    odd = any(problem.odd_row_bytes(operand, _ROW_BYTES) for operand in "abc")
    template = "packed" if odd and problem.element_bytes == 2 else "warp_specialized"
    able = "wgmma" in profile.mma and problem.batch == 1
    return _grid(profile, problem.element_bytes, problem.out_bytes, template, able)


@lru_cache(maxsize=16)
def _grid(
    profile: HardwareProfile, element_bytes: int, out_bytes: int, template: str, able: bool
) -> WarpGroupGrid:
    deep = 128 // element_bytes  # a row of the copy engine's widest swizzle
    # swap, group, width, step of K, blocks a unit, and whole K in one or two stores or K in parts
    shape = (2, len(_GROUPS), len(_made()) * able, 2, 2, 3)
    swap, group, width, step, block, kind = (axis.ravel() for axis in np.indices(shape))
    groups, group_rows = np.asarray(_GROUPS).T[:, group]
    rows, width, blocks = groups * group_rows, np.asarray(_made())[width], block + 1
    block_k, parts, split = deep * (step + 1), np.where(kind == 1, 2, 1), kind // 2
    m, n = np.where(swap > 0, (width, rows), (rows, width))
    table = ConfigTable(
        template=TEMPLATES.index(template),
        block_m=m, block_n=n, block_k=block_k, group_m=8, split_k=split + 1,
        num_warps=groups * GROUP_WARPS, num_stages=2, load_bits=128, swap=swap,
        epilogue_parts=parts,
    )  # fmt: skip
    tile = warp_group_tile(table)
    # as many stages as fit beside what else the block needs, so that a unit holds its blocks
    room = (profile.shared_per_unit_bytes or 233472) // blocks
    room -= profile.shared_reserved_bytes or 1024
    room -= staging_bytes(tile, parts, out_bytes)
    room -= bookkeeping_bytes(tile, np.full(len(table), _MOST_STAGES), parts)
    stages = room // ((rows + width) * block_k * element_bytes)
    sound = tile.is_sound & (stages >= 2) & ((blocks == 1) | (groups == 1))
    # one buffer for all runs has a point only where it buys a stage, or there is one run anyway
    sound &= (parts == 1) | (tile.run_count > 1) & (stages <= 4) & (template != "packed")
    sound &= (parts == 2) | (stages > 2)
    # two blocks a unit need the smaller register budget
    sound &= (blocks == 1) | (tile.registers <= 128)
    stages = np.where(sound, np.minimum(stages, _MOST_STAGES), 0)
    pairs = stages.reshape(shape)
    alone = np.zeros_like(pairs)
    alone[..., 1, :] = pairs[..., 0, :]
    # rows of configurations: both numbers of blocks have theirs in common
    most = np.broadcast_to(pairs.max(axis=4, keepdims=True), shape).ravel()
    own = np.where((block == 0) & (most > 0), most - 1, 0)
    starts = np.broadcast_to((np.cumsum(own) - own).reshape(shape)[..., :1, :], shape).ravel()
    configs = table[np.repeat(np.arange(len(table)), own)]
    configs.num_stages = np.arange(own.sum()) - np.repeat(np.cumsum(own) - own, own) + 2
    there = np.flatnonzero(sound)
    return WarpGroupGrid(
        configs, swap[there], rows[there], width[there],
        block_k[there], split[there], starts[there], stages[there], alone.ravel()[there],
    )  # fmt: skip


@lru_cache(maxsize=1)
def _made() -> tuple[int, ...]:
    """Widths that three runs make."""
    every = np.arange(_RUN_STEP, _WIDEST + _RUN_STEP, _RUN_STEP)
    return tuple(every[column_runs(every).sum(axis=0) == every].tolist())


def makeable_widths(width: int) -> list[int]:
    """``width`` where three runs make it, else the next narrower and the next wider that they do.

    >>> makeable_widths(192), makeable_widths(232)
    ([192], [224, 256])
    """
    narrower = [made for made in _made() if made <= width][-1:]
    wider = [made for made in _made() if made >= width][:1]
    return sorted({*narrower, *wider})


@lru_cache(maxsize=1024)
def _allowed(widths: tuple[int, ...]) -> NDArray[np.bool_]:
    """Whether each multiple of 8, from 0 on, is among the widths."""
    mask = np.zeros(_WIDEST // _RUN_STEP + 1, dtype=bool)
    mask[[width // _RUN_STEP for width in widths]] = True
    return mask


@lru_cache(maxsize=1024)
def _widths(tall: int, wide: int, units: int) -> tuple[int, ...]:
    """Widths of a tile: plain ones, and those that leave little over of C, or of a wave."""
    found = {width for width in _PLAIN_WIDTHS if width < wide + 64}
    cuts = set(range(1, _MOST_TILES + 1))
    # as many columns of tiles as make whole waves with the rows of tiles that there are
    for groups, group_rows in _GROUPS:
        rows_of_tiles = -(-tall // (groups * group_rows))
        cuts |= {units * waves // rows_of_tiles for waves in _FILLED_WAVES}
    least = {max(-(-wide // n), _LEAST_CUT if n > _MOST_TILES else 0) for n in cuts - {0}}
    # columns in whole runs of 32 and more read their operands faster
    for next_made in (_next_of(1), _next_of(32)):
        found.update(next_made[width] for width in least if width < len(next_made))
    return tuple(sorted(width for width in found if width <= max(wide + 31, 64)))


@lru_cache(maxsize=2)
def _next_of(run: int) -> list[int]:
    """Of each width, the next that three runs make, itself or wider, in whole multiples of run."""
    made = [width for width in _made() if width % run == 0]
    return [made[bisect_left(made, width)] for width in range(made[-1] + 1)]
