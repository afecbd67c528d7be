"""Shared memory that the compiler will allocate for a configuration, in bytes.

The rules are Triton 3.6.0's, read off its own ``metadata.shared`` on thousands of random
configurations compiled for chips that are not there (``survey``); each says what it was seen on.
The figure is a maximum over lifetimes: the operands' ring while K runs, then what the epilogue
needs to turn the sums around, which reuses the ring's bytes. Only a descriptor store stages its
tile beside the ring, since the next tile's loads are in flight by then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.epilogue import epilogue_scratch
from costmodel.resources.matrix_unit import (
    MatrixUnit,
    contiguous_along_k,
    kernel_blocks,
    matrix_unit,
    off_k,
)

Column = NDArray[np.int64]

#: an mbarrier: 8 bytes (PTX ISA)
_BARRIER_BYTES = 8
#: what the launcher and the compiler take where a knob is None
_DEFAULT_LOAD_BITS = 128
_DEFAULT_STAGES = 3
_DEFAULT_WARPS = 4
#: PTX ISA, cp.async: cp-size is 4, 8 or 16 bytes
LEAST_ASYNC_BYTES = 4


@dataclass(frozen=True)
class FootprintColumns:
    """Bytes of shared memory by part, one entry a configuration.

    ``shared_bytes`` is what the compiler allocates; ``operand_ring_bytes``, ``barrier_bytes`` and
    ``staging_bytes`` (a descriptor store's tile) lie side by side, ``epilogue_bytes`` (a layout
    conversion's scratch) reuses them.
    """

    shared_bytes: Column
    operand_ring_bytes: Column
    staging_bytes: Column
    epilogue_bytes: Column
    barrier_bytes: Column


@dataclass(frozen=True)
class Footprint:
    """Bytes of shared memory by part, of one configuration. See ``FootprintColumns``."""

    shared_bytes: int
    operand_ring_bytes: int
    staging_bytes: int
    epilogue_bytes: int
    barrier_bytes: int


def load_bytes(problem: Gemm, table: ConfigTable, operand: str) -> Column:
    """Widest load of an operand, from its rows' alignment and the hints' promise, in bytes."""
    size = problem.element_bytes
    promised = np.where(table.load_bits > 0, table.load_bits, _DEFAULT_LOAD_BITS) // 8
    return np.asarray(np.minimum(problem.row_align(operand) * size, promised), dtype=np.int64)


def footprint_columns(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile
) -> FootprintColumns:
    """What the compiler takes, whether or not the chip has it. Never raises."""
    unit = matrix_unit(problem, table, profile)
    stages = np.where(table.num_stages > 0, table.num_stages, _DEFAULT_STAGES)
    tma = table.is_template("persistent_tma") & ("tma" in profile.async_copy)
    ring = _operand_ring(problem, table, profile, unit, stages, tma)
    barriers = _barriers(problem, table, profile, unit, stages, tma)
    scratch = _scratch(problem, table, profile, unit)
    store, beside = _staging(problem, table, unit, stages, tma, scratch)
    total = np.maximum(ring + barriers, scratch)
    total = np.where(tma, ring + barriers + store + beside, total)
    # one stage: nothing is in flight when the tile is stored, so all reuse the same bytes
    alone = np.maximum.reduce([ring + barriers, store, beside])
    total = np.where(tma & (stages == 1), alone, total)
    staging = np.where(tma, store + beside, 0)
    return FootprintColumns(total, ring, staging, scratch, barriers)


def footprint(problem: Gemm, config: KernelConfig, profile: HardwareProfile) -> Footprint:
    """``footprint_columns`` of one configuration."""
    columns = footprint_columns(problem, ConfigTable.of(config), profile)
    return Footprint(*(int(getattr(columns, name)[0]) for name in Footprint.__annotations__))


def pipeline_depth(unit: Column, stages: Column) -> Column:
    """Buffers of a pipelined operand.

    wgmma (sm_90) and tcgen05 (sm_100) read operands from shared memory until they complete, so
    the ring keeps every stage. mma.sync and mfma copy a stage to registers first and free it
    (sm_80, 86, 89, 120; gfx90a, 942, 950; also sm_90 and 100 where a tile falls back to it).
    """
    in_place = (unit == MatrixUnit.WGMMA) | (unit == MatrixUnit.TCGEN05)
    return np.asarray(np.where(in_place, stages, np.maximum(stages - 1, 1)), dtype=np.int64)


def _operand_ring(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, unit: Column, stages: Column,
    tma: NDArray[np.bool_],
) -> Column:  # fmt: skip
    depth = pipeline_depth(unit, stages)
    size = problem.element_bytes
    a_bytes = table.block_m * table.block_k * size
    b_bytes = table.block_n * table.block_k * size
    a_single = ~tma & _single(problem, table, profile, unit, "a", a_bytes)
    b_single = ~tma & _single(problem, table, profile, unit, "b", b_bytes)
    ring = np.where(a_single, 1, depth) * a_bytes + np.where(b_single, 1, depth) * b_bytes
    if profile.backend == "hip":
        # with nothing in flight, one operand's buffer is dead before the other's is written
        nothing = (stages == 1) | (a_single & b_single)
        ring = np.where(nothing, np.maximum(a_bytes, b_bytes), ring)
    # tcgen05 takes 4-byte operands along K alone: others are turned into two buffers more
    if problem.element_bytes == 4:
        again = 2 * (unit == MatrixUnit.TCGEN05) * (stages > 1) * tma
        for operand, tile_bytes in (("a", a_bytes), ("b", b_bytes)):
            ring = ring + (0 if contiguous_along_k(problem, operand) else again * tile_bytes)
    one_load = tma & (stages == 1) & (unit != MatrixUnit.WGMMA) & (unit != MatrixUnit.TCGEN05)
    return np.asarray(np.where(one_load, np.maximum(a_bytes, b_bytes), ring), dtype=np.int64)


def _single(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, unit: Column, operand: str,
    tile_bytes: Column,
) -> NDArray[np.bool_]:  # fmt: skip
    """Whether an operand has one buffer, whatever the depth, since it is not pipelined.

    So it is where its loads are narrower than 4 bytes, by its rows' alignment or because the tile
    holds less than 4 bytes a thread; and where wgmma needs an 8-bit operand turned around in
    registers, since it takes 8-bit types contiguous along K alone (PTX ISA, wgmma). gfx950
    pipelines whatever the width.
    """
    if profile.target == "gfx950":
        return np.zeros(len(table), dtype=bool)
    warps = np.where(table.num_warps > 0, table.num_warps, _DEFAULT_WARPS)
    threads = warps * profile.warp_size
    narrow = load_bytes(problem, table, operand) < LEAST_ASYNC_BYTES
    a_thread = np.maximum(tile_bytes / threads, problem.element_bytes)
    narrow = narrow | (a_thread < LEAST_ASYNC_BYTES)
    turned = (unit == MatrixUnit.WGMMA) & (problem.element_bytes == 1)
    return np.asarray(narrow | (turned & (not contiguous_along_k(problem, operand))), dtype=bool)


def _barriers(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, unit: Column, stages: Column,
    tma: NDArray[np.bool_],
) -> Column:  # fmt: skip
    """Barriers of descriptor loads, one a buffer, and of tcgen05, one or two.

    Both operands' loads share a barrier where they are issued together. They are not where the
    operand that the kernel sees first is not contiguous along K, nor where one is turned around
    in registers: then a second array starts at the next multiple of 16 bytes. wgmma turns what is
    not contiguous along K unless it is 16 bits wide (PTX ISA); such an operand's ring holds one
    buffer that no load writes. 8-bit floats under mma.sync are turned too on sm_90, and always
    on sm_100, where they become fp16 first.
    """
    depth = pipeline_depth(unit, stages)
    a_off, b_off = off_k(problem, table)
    wgmma = (unit == MatrixUnit.WGMMA) & (problem.element_bytes != 2)
    converted = (unit == MatrixUnit.MMA_SYNC) & problem.dtype.startswith("fp8")
    apart = np.where(wgmma | (converted & ("wgmma" in profile.mma)), a_off | b_off, a_off)
    apart = apart | (converted & ("tcgen05" in profile.mma))
    first = depth - np.where(wgmma & a_off & b_off, 1, 0)
    second = depth - np.where(wgmma & (a_off | b_off), 1, 0)
    together = first * _BARRIER_BYTES
    loads = np.where(apart, _aligned(together) + second * _BARRIER_BYTES, together)
    loads = np.where(stages == 1, _BARRIER_BYTES, loads)
    loads = np.where(tma, loads, 0)
    # tcgen05 signals its own end: two barriers in a pipeline, one without
    ends = np.where(stages > 1, _aligned(loads) + 16, np.where(tma, loads, _BARRIER_BYTES))
    return np.asarray(np.where(unit == MatrixUnit.TCGEN05, ends, loads), dtype=np.int64)


def _aligned(size: Column) -> Column:
    """The next multiple of 16 bytes, where the compiler starts another array of barriers."""
    return np.asarray(-(-size // 16) * 16, dtype=np.int64)


def _staging(
    problem: Gemm, table: ConfigTable, unit: Column, stages: Column, tma: NDArray[np.bool_],
    scratch: Column,
) -> tuple[Column, Column]:  # fmt: skip
    """A descriptor store's tile, or one part of it, and the largest of what lives in turns.

    Beside the ring and the store, one after the other: operands that are turned around in
    registers (8 and 32 bits under wgmma, and without a matrix unit), the scratch of cutting the
    tile, and the old C that beta reads, with its barrier.
    """
    block_m, block_n = kernel_blocks(table)
    whole = block_m * block_n * problem.out_bytes
    part = whole // table.epilogue_parts
    a_off, b_off = off_k(problem, table)
    a_bytes = block_m * table.block_k * problem.element_bytes
    b_bytes = block_n * table.block_k * problem.element_bytes
    # FMA reads an operand along the sums' own order; one at a time is turned
    plain = np.maximum(np.where(a_off, a_bytes, 0), np.where(b_off, 0, b_bytes))
    turned = np.where(unit == MatrixUnit.NONE, plain, 0)
    old = part + _BARRIER_BYTES if problem.beta else np.zeros_like(part)
    beside = np.maximum.reduce([turned, np.where(tma, scratch, 0), old])
    store = np.where(stages == 1, whole, part)
    return store, beside


def _scratch(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, unit: Column
) -> Column:
    """Scratch that turns the sums for the store."""
    warps = np.where(table.num_warps > 0, table.num_warps, _DEFAULT_WARPS)
    if profile.backend == "cuda":
        loads = np.stack([load_bytes(problem, table, o) for o in "ab"]) // problem.element_bytes
        return epilogue_scratch(problem, table, int(profile.target), unit, warps, loads)
    # AMD: swapped split_k turns the added parts, in as many turns as make it fit
    block_m, block_n = kernel_blocks(table)
    again = np.minimum(block_m * block_n * problem.out_bytes, profile.shared_per_block_bytes)
    return np.where(table.is_template("split_k") & (table.swap != 0), again, 0)
