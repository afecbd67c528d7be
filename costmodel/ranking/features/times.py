"""Time terms of the estimate: over the roofline's, which carries to other chips, and in us."""

from __future__ import annotations

import numpy as np

from costmodel.ranking.features.registry import Column, Context, feature, log2


@feature
def estimate_over_roofline(c: Context) -> Column:
    """log2 of the physics estimate over the roofline's time."""
    return log2(c.physics.time_us / c.physics.roofline.time_us)


@feature
def compute_over_roofline(c: Context) -> Column:
    """log2 of the busiest unit's arithmetic over the roofline's time."""
    return log2(c.physics.compute_us / c.physics.roofline.time_us)


@feature
def memory_over_roofline(c: Context) -> Column:
    """log2 of the slower memory level's time over the roofline's."""
    return log2(c.physics.memory_us / c.physics.roofline.time_us)


@feature
def latency_over_roofline(c: Context) -> Column:
    """log2 of the uncovered load latency over the roofline's time."""
    return log2(c.physics.latency_us / c.physics.roofline.time_us)


@feature
def epilogue_over_roofline(c: Context) -> Column:
    """log2 of the epilogues' time over the roofline's."""
    return log2(c.physics.epilogue_us / c.physics.roofline.time_us)


@feature
def split_over_roofline(c: Context) -> Column:
    """log2 of the addition of split-K's parts over the roofline's time."""
    return log2(c.physics.split_us / c.physics.roofline.time_us + 2.0**-6)


@feature
def floor_share(c: Context) -> Column:
    """Launch floor over the roofline's time: 1 where nothing else matters."""
    share = c.physics.roofline.floor_us / c.physics.roofline.time_us
    return np.full(len(c.table), share)


@feature
def intensity_over_ridge(c: Context) -> Column:
    """log2 of the roofline's compute over its memory time: above 0 is compute-bound."""
    roof = c.physics.roofline
    return np.full(len(c.table), log2(roof.compute_us / np.maximum(roof.memory_us, 1e-6)))


@feature
def roofline_us(c: Context) -> Column:
    """log2 of the roofline's time in microseconds: what is fixed weighs more in a short launch."""
    return np.full(len(c.table), log2(c.physics.roofline.time_us))


@feature
def estimate_us(c: Context) -> Column:
    """log2 of the physics estimate in microseconds."""
    return log2(c.physics.time_us)


@feature
def compute_us(c: Context) -> Column:
    """log2 of the busiest unit's arithmetic in microseconds."""
    return log2(c.physics.compute_us)


@feature
def memory_us(c: Context) -> Column:
    """log2 of the slower memory level's time in microseconds."""
    return log2(c.physics.memory_us)


@feature
def latency_us(c: Context) -> Column:
    """log2 of the uncovered load latency in microseconds."""
    return log2(c.physics.latency_us)


@feature
def step_us(c: Context) -> Column:
    """log2 of one K step in microseconds."""
    return log2(c.physics.step_us)
