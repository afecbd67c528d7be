"""How the work fills the chip."""

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


@feature
def programs_per_unit(c: Context) -> Column:
    """log2 of programs over units."""
    return log2(c.physics.waves.programs / c.profile.units)


@feature
def rounds(c: Context) -> Column:
    """log2 of the programs that the busiest slot runs in turn."""
    return log2(c.physics.waves.rounds)


@feature
def fill(c: Context) -> Column:
    """Share of the rounds' capacity that has work."""
    return c.physics.waves.fill


@feature
def tile_use(c: Context) -> Column:
    """Share of the tiles' area inside C."""
    return c.physics.waves.tile_use


@fixed_feature
def blocks_per_unit(c: FixedContext) -> Column:
    """Blocks a unit could hold, as log2."""
    return log2(np.maximum(c.physics.occupancy.blocks, 0.5))


@feature
def resident_blocks(c: Context) -> Column:
    """log2 of blocks that a unit holds on average, as far as there are programs."""
    held = np.minimum(c.physics.waves.programs, c.physics.waves.slots) / c.profile.units
    return log2(held)


@feature
def tiles_along_m(c: Context) -> Column:
    """log2 of the rows of tiles."""
    return log2(c.physics.waves.tiles_m)


@feature
def tiles_along_n(c: Context) -> Column:
    """log2 of the columns of tiles."""
    return log2(c.physics.waves.tiles_n)


@feature
def group_share(c: Context) -> Column:
    """Rows of a group over the rows of tiles."""
    return np.minimum(c.table.group_m / c.physics.waves.tiles_m, 1.0)


@feature
def last_round(c: Context) -> Column:
    """Share of the slots that the last round's programs take; 0 where it is full."""
    return np.asarray(c.physics.waves.programs / c.physics.waves.slots % 1.0)


@feature
def row_use(c: Context) -> Column:
    """Share of the tiles' rows inside C."""
    return np.asarray(c.problem.m / (c.physics.waves.tiles_m * c.table.block_m))


@feature
def column_use(c: Context) -> Column:
    """Share of the tiles' columns inside C."""
    return np.asarray(c.problem.n / (c.physics.waves.tiles_n * c.table.block_n))
