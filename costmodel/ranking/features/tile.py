"""The tile, its instruction, and what it takes of a unit."""

from __future__ import annotations

import numpy as np

from costmodel.ranking.features.registry import (
    Column,
    Context,
    FixedContext,
    feature,
    fixed_feature,
    log2,
)
from costmodel.resources.matrix_unit import kernel_blocks


@fixed_feature
def tall_block(c: FixedContext) -> Column:
    """log2 of the block along the matrix unit's rows."""
    return log2(kernel_blocks(c.table)[0])


@fixed_feature
def wide_block(c: FixedContext) -> Column:
    """log2 of the block along the matrix unit's columns."""
    return log2(kernel_blocks(c.table)[1])


@fixed_feature
def warps(c: FixedContext) -> Column:
    """Warps a block, as log2."""
    return log2(c.table.num_warps)


@fixed_feature
def matrix_share(c: FixedContext) -> Column:
    """Share of the matrix unit's peak that the instruction allows."""
    return c.physics.matrix_share


@fixed_feature
def matrix_instruction(c: FixedContext) -> Column:
    """Kind of matrix instruction, from none to the newest."""
    return c.physics.unit.astype(np.float64)


@fixed_feature
def registers_wanted(c: FixedContext) -> Column:
    """Registers a thread that the tile asks for, over 255."""
    return c.physics.registers.wanted / 255.0


@fixed_feature
def registers_held(c: FixedContext) -> Column:
    """Registers a thread that the kernel gets, as log2."""
    return log2(c.physics.registers.allocated)


@fixed_feature
def registers_spilled(c: FixedContext) -> Column:
    """log2 of one more than the registers a thread that do not fit."""
    return log2(1.0 + c.physics.registers.spilled)


@fixed_feature
def shared_share(c: FixedContext) -> Column:
    """Shared memory of a block over the limit."""
    return c.physics.footprint.shared_bytes / c.profile.shared_per_block_bytes


@fixed_feature
def occupancy(c: FixedContext) -> Column:
    """Warps held over the unit's capacity."""
    return c.physics.occupancy.occupancy


@feature
def splits(c: Context) -> Column:
    """Parts of K, as log2."""
    return log2(c.table.split_k)


@fixed_feature
def swapped(c: FixedContext) -> Column:
    """1 where operands are swapped."""
    return c.table.swap.astype(np.float64)


@fixed_feature
def parts_of_epilogue(c: FixedContext) -> Column:
    """Stores that a tile is cut into."""
    return c.table.epilogue_parts.astype(np.float64)


@fixed_feature
def sums_per_thread(c: FixedContext) -> Column:
    """log2 of the running sums that each thread holds."""
    threads = c.profile.warp_size * np.maximum(c.table.num_warps, 1)
    return log2(c.table.block_m * c.table.block_n / threads)
