"""The pipeline along K."""

from __future__ import annotations

import numpy as np

from costmodel.physics.roofline import copy_bandwidth_gb_s
from costmodel.ranking.features.registry import (
    Column,
    Context,
    FixedContext,
    feature,
    fixed_feature,
    log2,
)


@feature
def steps(c: Context) -> Column:
    """log2 of K iterations a program."""
    return log2(c.physics.waves.steps)


@feature
def pipeline_fill(c: Context) -> Column:
    """Stages over steps: 1 and more is a pipeline that never runs full."""
    return np.minimum(c.table.num_stages / c.physics.waves.steps, 2.0)


@feature
def bytes_in_flight(c: Context) -> Column:
    """log2 of bytes that all pipelines hold in flight over what Little's law asks for."""
    block = (c.table.block_m + c.table.block_n) * c.table.block_k * c.problem.element_bytes
    depth = np.maximum(c.table.num_stages - 1, 1)
    held = np.minimum(c.physics.waves.programs, c.physics.waves.slots)
    wanted = copy_bandwidth_gb_s(c.profile) * 1e3 * 0.7
    return log2(held * depth * block / wanted)


@feature
def step_over_latency(c: Context) -> Column:
    """log2 of a step's arithmetic over a load's latency divided by the depth."""
    return log2(c.physics.compute_us / np.maximum(c.physics.latency_us, 1e-6))


@fixed_feature
def stages(c: FixedContext) -> Column:
    """Pipeline depth as log2."""
    return log2(c.table.num_stages)


@fixed_feature
def step_depth(c: FixedContext) -> Column:
    """BLOCK_K in bytes, as log2."""
    return log2(c.table.block_k * c.problem.element_bytes)


@feature
def depth_use(c: Context) -> Column:
    """Share of the steps' depth inside K."""
    steps = np.ceil(c.problem.k / c.table.block_k)
    return np.asarray(c.problem.k / (steps * c.table.block_k))


@fixed_feature
def ring_bytes(c: FixedContext) -> Column:
    """log2 of the bytes of both operands that all stages hold."""
    step = (c.table.block_m + c.table.block_n) * c.table.block_k * c.problem.element_bytes
    return log2(c.table.num_stages * step)


@fixed_feature
def loads_per_thread(c: FixedContext) -> Column:
    """log2 of the 16-byte loads that a step asks of each thread."""
    step = (c.table.block_m + c.table.block_n) * c.table.block_k * c.problem.element_bytes
    return log2(step / (16.0 * c.profile.warp_size * np.maximum(c.table.num_warps, 1)))
