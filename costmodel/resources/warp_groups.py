"""The tile of templates "warp_specialized" and "packed": warp groups and runs of columns.

A warp group (4 warps) multiplies 64 or 128 rows; one to three of them share the tile's columns,
and one warp more loads. Columns are up to three runs, each as wide as one wgmma takes them here (a
power of two from 8 to 128), which share the rows' operand: 136 is 128 + 8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable

Column = NDArray[np.int64]

MOST_RUNS = 3
WIDEST_RUN = 128
NARROWEST_RUN = 8
#: warps of a group (PTX ISA, wgmma), and those that the compiler adds for the one that loads
GROUP_WARPS = 4
#: registers a thread that the kernel is compiled for, by groups (0 is unused): 65,536 over the
#: threads of 3 and 4 groups of warps, rounded down to 8; for one group what setmaxnreg can still
#: raise to 255 for its warps, or half of the file where the sums leave room for two blocks
_REGISTERS = (0, 232, 168, 128)
_REGISTERS_TWO_BLOCKS = 128
#: sums a thread up to which ptxas of CUDA 12.9 compiles the kernel without spills, by groups
_MOST_SUMS = (0, 176, 128, 96)
_MOST_SUMS_TWO_BLOCKS = 96
#: registers that the second and third group ask for (setmaxnreg); the first takes what is left
WORKER_REGISTERS = (0, 0, 240, 160)
#: a block's shared memory on sm_90, and what the driver takes of it a block (CUDA guide)
_SHARED_BYTES = 233472
_RESERVED_BYTES = 1024
_BARRIER_BYTES = 8
#: bytes by which the arguments of the warps' functions go through shared memory, by groups and
#: runs: read off the compiler (3.6.0) for all of them, storing parts of K or C's tile
_ARGUMENT_BYTES = {
    "parts": ((0, 0, 0), (116, 148, 180), (136, 168, 184), (140, 172, 188)),
    "shared": ((0, 0, 0), (116, 148, 180), (152, 184, 232), (156, 188, 236)),
    "apart": ((0, 0, 0), (116, 148, 180), (152, 216, 264), (156, 220, 268)),
}


#: bytes that the arguments take of their last 16, by runs
_LAST_SHARED, _LAST_APART = (12, 16, 4), (12, 4, 12)
#: barriers of 15 and 16 stages, beside the arguments of two and three groups that store parts
_OUTGROWN_BYTES = 120


@dataclass(frozen=True)
class WarpGroupTile:
    """One entry a configuration; sums are fp32 registers a thread."""

    rows: Column
    columns: Column
    groups: Column
    group_rows: Column
    runs: Column  # [MOST_RUNS, configurations], widest first, 0 where there is none
    sums: Column
    #: sums go to a workspace, and a second kernel adds them: K is split, or C's rows are odd
    through_parts: NDArray[np.bool_]

    @property
    def is_sound(self) -> NDArray[np.bool_]:
        """Whether the kernel exists for it: whole groups of 64 or 128 rows, runs, registers."""
        groups = np.clip(self.groups, 0, 3)
        sound = (self.groups >= 1) & (self.groups <= 3)
        sound &= (self.group_rows == 64) | (self.group_rows == 128)
        sound &= self.groups * self.group_rows == self.rows
        sound &= (self.runs.sum(axis=0) == self.columns) & (self.runs[0] > 0)
        return np.asarray(sound & (self.sums <= np.take(_MOST_SUMS, groups)), dtype=bool)

    @property
    def registers(self) -> Column:
        """Registers a thread that the kernel is compiled for."""
        groups = np.clip(self.groups, 0, 3)
        two = (groups == 1) & (self.sums <= _MOST_SUMS_TWO_BLOCKS)
        return np.where(two, _REGISTERS_TWO_BLOCKS, np.take(_REGISTERS, groups))

    @property
    def run_count(self) -> Column:
        return np.asarray((self.runs > 0).sum(axis=0), dtype=np.int64)


def column_runs(columns: Column) -> Column:
    """Widths of the runs that make up ``columns``, [MOST_RUNS, n]: the widest first.

    What three runs cannot make is left over: their sum is then less than ``columns``.
    """
    left = np.asarray(columns, dtype=np.int64).copy()
    runs = np.zeros((MOST_RUNS, len(left)), dtype=np.int64)
    for run in runs:
        width = 1 << np.maximum(np.log2(np.maximum(left, 1)).astype(np.int64), 0)
        width = np.minimum(width, WIDEST_RUN)
        run[:] = np.where(left >= NARROWEST_RUN, width, 0)
        left -= run
    return runs


def warp_group_tile(table: ConfigTable) -> WarpGroupTile:
    """Geometry of every row of a table; it means something where ``is_specialized``."""
    swapped = table.swap != 0
    rows = np.where(swapped, table.block_n, table.block_m)
    columns = np.where(swapped, table.block_m, table.block_n)
    groups = np.where(table.num_warps % GROUP_WARPS, 0, table.num_warps // GROUP_WARPS)
    group_rows = rows // np.maximum(groups, 1)
    sums = group_rows * columns // (GROUP_WARPS * 32)
    through_parts = (table.split_k > 1) | table.is_template("packed")
    runs = column_runs(columns)
    return WarpGroupTile(rows, columns, groups, group_rows, runs, sums, through_parts)


def is_specialized(table: ConfigTable) -> NDArray[np.bool_]:
    """Rows of the two templates that are this kernel."""
    return table.is_template("warp_specialized") | table.is_template("packed")


def staging_bytes(tile: WarpGroupTile, parts: Column, out_bytes: int) -> Column:
    """Bytes of C's staging: all runs side by side (1 part), or one buffer for all (2 parts)."""
    width = np.where(parts > 1, tile.runs[0], tile.columns)
    staged = tile.rows * width * out_bytes
    return np.asarray(np.where(tile.through_parts, 0, staged), dtype=np.int64)


def bookkeeping_bytes(
    tile: WarpGroupTile, stages: Column, parts: Column, epilogue_bytes: int = 0
) -> Column:
    """Bytes of barriers and of the arguments that the warps' functions are handed.

    ``epilogue_bytes`` are the arguments of alpha, a bias and an addend (``epilogue_arguments``).
    """
    ring = stages * _BARRIER_BYTES
    barriers = -(-ring // 16) * 16 + ring
    groups, last = np.clip(tile.groups, 0, 3), np.clip(tile.run_count - 1, 0, MOST_RUNS - 1)
    tables = {name: np.asarray(values)[groups, last] for name, values in _ARGUMENT_BYTES.items()}
    stored = np.where(parts > 1, tables["shared"], tables["apart"])
    arguments = np.where(tile.through_parts, tables["parts"], stored)
    # what the epilogue needs more, in whole 16 bytes past what the rest takes of its last
    left = np.where(parts > 1, np.take(_LAST_SHARED, last), np.take(_LAST_APART, last))
    more = -(-(left + epilogue_bytes) // 16) * 16 - 16
    arguments = arguments + np.where(tile.through_parts | (groups == 1), 0, more)
    # buffers are laid by size: barriers that outgrow the arguments of one run go before them,
    # and one gap of 8 bytes less is left
    outgrown = tile.through_parts & (groups > 1) & (last == 0) & (ring >= _OUTGROWN_BYTES)
    return np.asarray(barriers + arguments - 8 * outgrown, dtype=np.int64)


def epilogue_arguments(scaled: bool, has_bias: bool, has_addend: bool) -> int:
    """Bytes: alpha; a bias's address; an addend's address, row length and factor."""
    return 4 * scaled + 8 * has_bias + 16 * has_addend


def blocks_per_unit(tile: WarpGroupTile, shared_bytes: Column) -> Column:
    """Blocks of the persistent grid that one multiprocessor holds: 1 or 2."""
    threads = (tile.groups + 1) * GROUP_WARPS * 32
    by_registers = 65536 // np.maximum(threads * tile.registers, 1)
    by_shared = _SHARED_BYTES // (shared_bytes + _RESERVED_BYTES)
    return np.asarray(np.clip(np.minimum(by_registers, by_shared), 1, 2), dtype=np.int64)
