"""Shared memory of templates that the rules of pipelined loops and converted stores don't cover."""

from __future__ import annotations

import numpy as np

from costmodel.config import ConfigTable
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.matrix_unit import kernel_blocks
from costmodel.resources.shared.case import Column
from costmodel.resources.warp_groups import (
    MOST_RUNS,
    WarpGroupTile,
    bookkeeping_bytes,
    epilogue_arguments,
    is_specialized,
    staging_bytes,
    warp_group_tile,
)

#: where a buffer of the widest swizzle starts: 8 rows of 128 bytes (CUDA driver API, tensor maps)
_ALIGNMENT = 1024

Parts = tuple[Column, Column, Column, Column, Column]


def with_own_buffers(
    parts: Parts, problem: Gemm, table: ConfigTable, profile: HardwareProfile, stages: Column
) -> Parts:
    """Total, ring, staging, scratch and barriers, with those of such templates put in."""
    for rows, own in (
        (is_specialized(table), _specialized),
        (table.is_template("matvec"), _matvec),
    ):
        if rows.any():
            found = own(problem, table, profile, stages)
            total, ring, staging, scratch, barriers = (
                np.where(rows, a, b) for a, b in zip(found, parts, strict=True)
            )
            parts = (total, ring, staging, scratch, barriers)
    return parts


def _specialized(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, stages: Column
) -> Parts:
    """A kernel that lays out its own buffers: nothing is left to the compiler's passes."""
    tile = warp_group_tile(table)
    more = epilogue_arguments(problem.alpha != 1.0, problem.has_bias, problem.beta != 0)
    ring = stages * (tile.rows + tile.columns) * table.block_k * problem.element_bytes
    staging = staging_bytes(tile, table.epilogue_parts, problem.out_bytes)
    barriers = bookkeeping_bytes(tile, stages, table.epilogue_parts, more)
    gaps = _gaps(problem, table, tile, stages)
    return ring + staging + gaps + barriers, ring, staging, np.zeros_like(ring), barriers


def _gaps(problem: Gemm, table: ConfigTable, tile: WarpGroupTile, stages: Column) -> Column:
    """Bytes lost where a narrow run's buffer is no multiple of the swizzle's alignment.

    Buffers lie by size, each at such a multiple; nothing needs one after the smallest.
    """
    step = stages * table.block_k * problem.element_bytes
    stored = np.where(tile.through_parts, 0, tile.rows * problem.out_bytes)
    apart = np.arange(len(tile.runs))[:, None] < np.where(table.epilogue_parts > 1, 1, MOST_RUNS)
    sizes = np.concatenate([[step * tile.rows], step * tile.runs, stored * tile.runs * apart])
    rounded = -(-sizes // _ALIGNMENT) * _ALIGNMENT
    smallest = np.where(sizes > 0, sizes, np.iinfo(np.int64).max).argmin(axis=0)
    lost = rounded - sizes
    return np.asarray(lost.sum(axis=0) - np.take_along_axis(lost, smallest[None], axis=0)[0])


def _matvec(problem: Gemm, table: ConfigTable, profile: HardwareProfile, stages: Column) -> Parts:
    """Its sums meet at the end alone: a word a row from each warp that lies along K.

    A thread takes 16 bytes of a row at a time, so a warp spans 32 of those. A matrix that does
    not lie along K is met by a column of B that is handed around first.
    """
    rows, _ = kernel_blocks(table)
    span = profile.warp_size * 16 // problem.element_bytes
    along_k = np.minimum(table.num_warps, np.maximum(table.block_k // span, 1))
    scratch = np.where(along_k > 1, rows * along_k * 4, 0)
    across = np.where(table.swap != 0, problem.layout[1] == "n", problem.layout[0] == "t")
    scratch = np.maximum(scratch, across * table.block_k * problem.element_bytes)
    zero = np.zeros_like(scratch)
    return scratch, zero, zero, scratch, zero
