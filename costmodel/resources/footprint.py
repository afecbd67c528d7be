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
from costmodel.resources.async_padding import k_width, padded_bytes, padding
from costmodel.resources.epilogue import Target, epilogue_scratch
from costmodel.resources.matrix_unit import (
    MatrixUnit,
    kernel_blocks,
    matrix_unit,
    off_k,
)
from costmodel.resources.rules import Rules, rules_for

Column = NDArray[np.int64]

#: an mbarrier: 8 bytes (PTX ISA)
_BARRIER_BYTES = 8
#: where the compiler starts another array of barriers
_ALIGNMENT = 16
#: what the launcher and the compiler take where a knob is None
_DEFAULT_LOAD_BITS = 128
_DEFAULT_STAGES = 3
_DEFAULT_WARPS = 4
#: PTX ISA, cp.async: cp-size is 4, 8 or 16 bytes
LEAST_ASYNC_BYTES = 4


#: attributes of a footprint that are bytes
PARTS = (
    "shared_bytes", "operand_ring_bytes", "staging_bytes", "epilogue_bytes", "barrier_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class FootprintColumns:
    """Bytes of shared memory by part, one entry a configuration.

    ``shared_bytes`` is what the compiler allocates; ``operand_ring_bytes``, ``barrier_bytes`` and
    ``staging_bytes`` (a descriptor store's tile) lie side by side, ``epilogue_bytes`` (a layout
    conversion's scratch) reuses them. ``rules_version`` is the Triton whose rules these are, and
    ``assumed`` says that the wanted version was not surveyed.
    """

    shared_bytes: Column
    operand_ring_bytes: Column
    staging_bytes: Column
    epilogue_bytes: Column
    barrier_bytes: Column
    rules_version: str
    assumed: bool


@dataclass(frozen=True)
class Footprint:
    """Bytes of shared memory by part, of one configuration. See ``FootprintColumns``."""

    shared_bytes: int
    operand_ring_bytes: int
    staging_bytes: int
    epilogue_bytes: int
    barrier_bytes: int
    rules_version: str
    assumed: bool


def load_bytes(problem: Gemm, table: ConfigTable, operand: str) -> Column:
    """Widest load of an operand, from its rows' alignment and the hints' promise, in bytes."""
    size = problem.element_bytes
    promised = np.where(table.load_bits > 0, table.load_bits, _DEFAULT_LOAD_BITS) // 8
    return np.asarray(np.minimum(problem.row_align(operand) * size, promised), dtype=np.int64)


def footprint_columns(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, triton_version: str | None = None
) -> FootprintColumns:
    """What the compiler takes, whether or not the chip has it. Never raises.

    ``triton_version`` None is the installed Triton's, or the newest surveyed.
    """
    choice = rules_for(profile.backend, triton_version)
    rules = choice.rules
    unit = matrix_unit(problem, table, profile, rules)
    stages = np.where(table.num_stages > 0, table.num_stages, _DEFAULT_STAGES)
    tma = table.is_template("persistent_tma") & ("tma" in profile.async_copy)
    ring = _operand_ring(problem, table, profile, rules, unit, stages, tma)
    barriers = _barriers(problem, table, profile, unit, stages, tma)
    scratch = _scratch(problem, table, profile, rules, unit)
    store, beside = _staging(problem, table, rules, unit, stages, tma, scratch)
    total = np.maximum(ring + barriers, scratch)
    # the old C's barrier, where it is the last beside the ring: after the loads', or, where the
    # tile is cut, before them
    last = beside % _ALIGNMENT > 0
    barrier_end = np.where(
        table.epilogue_parts > 1, _ALIGNMENT - _BARRIER_BYTES + barriers, _aligned(barriers)
    )
    in_flight = np.where(last, barrier_end, barriers)
    total = np.where(tma, ring + in_flight + store + beside, total)
    # one stage: nothing is in flight when the tile is stored, so all reuse the same bytes
    alone = np.maximum.reduce([ring + barriers, store, beside])
    total = np.where(tma & (stages == 1), alone, total)
    staging = np.where(tma, store + beside, 0)
    return FootprintColumns(
        total, ring, staging, scratch, barriers, rules.version, choice.assumed
    )


def footprint(
    problem: Gemm, config: KernelConfig, profile: HardwareProfile, triton_version: str | None = None
) -> Footprint:
    """``footprint_columns`` of one configuration."""
    columns = footprint_columns(problem, ConfigTable.of(config), profile, triton_version)
    parts = [int(getattr(columns, name)[0]) for name in PARTS]
    return Footprint(*parts, columns.rules_version, columns.assumed)


def pipeline_depth(unit: Column, stages: Column) -> Column:
    """Buffers of a pipelined operand.

    wgmma (sm_90) and tcgen05 (sm_100) read operands from shared memory until they complete, so
    the ring keeps every stage. mma.sync and mfma copy a stage to registers first and free it
    (sm_80, 86, 89, 120; gfx90a, 942, 950; also sm_90 and 100 where a tile falls back to it).
    """
    in_place = (unit == MatrixUnit.WGMMA) | (unit == MatrixUnit.TCGEN05)
    return np.asarray(np.where(in_place, stages, np.maximum(stages - 1, 1)), dtype=np.int64)


def _operand_ring(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, rules: Rules, unit: Column,
    stages: Column, tma: NDArray[np.bool_],
) -> Column:  # fmt: skip
    depth = pipeline_depth(unit, stages)
    tcgen05 = unit == MatrixUnit.TCGEN05
    in_place = tcgen05 | (unit == MatrixUnit.WGMMA)
    block_m, block_n = kernel_blocks(table)
    names = np.where(table.swap != 0, 1, 0)
    off = off_k(problem, table)
    tiles = [block * table.block_k * problem.element_bytes for block in (block_m, block_n)]
    single = [
        ~tma & _single(problem, table, profile, unit, first, tile, off_, block)
        for first, tile, off_, block in zip((names, 1 - names), tiles, off, (block_m, block_n),
                                            strict=True)
    ]  # fmt: skip
    # tcgen05 still reads the last buffer when the next is written
    alone = np.where(tcgen05 & (stages > 1), 2, 1)
    buffers = [np.where(one, alone, depth) for one in single]
    if problem.element_bytes == 4:
        # tcgen05 takes 4-byte operands along K alone. A first operand that lies otherwise and is
        # loaded word by word passes through tensor memory, and frees its stage
        words = np.where(names == 0, *(load_bytes(problem, table, one) for one in "ab"))
        freed = tcgen05 & ~tma & off[0] & (words == LEAST_ASYNC_BYTES)
        freed = freed & rules.tensor_memory_operand
        buffers[0] = np.where(freed, np.maximum(stages - 1, 1), buffers[0])
        # descriptors' are turned into two buffers more
        more = 2 * (tcgen05 & (stages > 1) & tma)
        buffers = [held + np.where(off_, more, 0) for held, off_ in zip(buffers, off, strict=True)]
    if problem.element_bytes != 2:
        # the buffer that wgmma reads what was turned in is no load's: see _staging
        turned = tma & (unit == MatrixUnit.WGMMA) & (stages > 1)
        buffers = [held - (turned & off_) for held, off_ in zip(buffers, off, strict=True)]
    ring = buffers[0] * tiles[0] + buffers[1] * tiles[1]
    # with nothing in flight and operands read into registers, one buffer serves both in turn
    converted = _converted(problem, profile, unit)
    reads = ((stages == 1) & (tma & ~in_place)) | (
        converted & ((stages == 1) | (single[0] & single[1]))
    )
    if profile.backend == "hip":
        reads = (stages == 1) | (single[0] & single[1])
        if problem.dtype.startswith("fp8"):
            # without a matrix unit 8-bit floats are multiplied as fp32, and not pipelined
            plain = unit == MatrixUnit.NONE
            tiles = [np.where(plain, tile * 4, tile) for tile in tiles]
            reads = reads | plain
        if profile.target in rules.async_copies:
            copied = _copied_ring(problem, table, unit, stages, off)
            ring = np.where(stages > 1, copied, ring)
    return np.asarray(np.where(reads, np.maximum(*tiles), ring), dtype=np.int64)


def _copied_ring(
    problem: Gemm, table: ConfigTable, unit: Column, stages: Column,
    off: tuple[NDArray[np.bool_], NDArray[np.bool_]],
) -> Column:  # fmt: skip
    """A ring that AMD's loads write directly: every stage, padded for mfma's own loads."""
    size, k = problem.element_bytes, table.block_k
    blocks = kernel_blocks(table)
    side = np.where(np.minimum(*blocks) >= 32, 32, 16)
    width = k_width(size, problem.dtype.startswith("fp8"), k, side)
    ring = np.zeros(len(table), dtype=np.int64)
    for outer, off_ in zip(blocks, off, strict=True):
        pad = padding(size, k, outer, ~off_, side, width)
        pad = np.where(unit == MatrixUnit.MFMA, pad, 0)
        ring = ring + padded_bytes(size, stages * outer * k, pad)
    return ring


def _converted(problem: Gemm, profile: HardwareProfile, unit: Column) -> NDArray[np.bool_]:
    """Whether mma.sync's 8-bit floats pass through registers to become fp16 first (sm_90, 100)."""
    newer = bool({"wgmma", "tcgen05"} & set(profile.mma))
    fp8 = problem.dtype.startswith("fp8") and newer
    return np.asarray((unit == MatrixUnit.MMA_SYNC) & fp8, dtype=bool)


def _single(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, unit: Column, operand: Column,
    tile_bytes: Column, off: NDArray[np.bool_], side: Column,
) -> NDArray[np.bool_]:  # fmt: skip
    """Whether an operand has one buffer, whatever the depth, since it is not pipelined.

    So it is where its loads are narrower than 4 bytes, by its rows' alignment or because the tile
    holds less than 4 bytes a thread; where wgmma needs an 8-bit operand turned around in
    registers, since it takes 8-bit types contiguous along K alone (PTX ISA, wgmma); and where
    mma.sync wants an 8-bit tile turned of which each thread holds one whole row in one load.
    gfx950 pipelines whatever the width. ``operand`` is 0 for A and 1 for B.
    """
    if profile.target == "gfx950":
        return np.zeros(len(table), dtype=bool)
    warps = np.where(table.num_warps > 0, table.num_warps, _DEFAULT_WARPS)
    threads = warps * profile.warp_size
    loads = np.where(
        operand == 0, load_bytes(problem, table, "a"), load_bytes(problem, table, "b")
    )
    a_thread = np.maximum(tile_bytes / threads, problem.element_bytes)
    narrow = (loads < LEAST_ASYNC_BYTES) | (a_thread < LEAST_ASYNC_BYTES)
    if problem.element_bytes == 1:
        row = (unit == MatrixUnit.MMA_SYNC) & (side == loads) & (a_thread == loads)
        narrow = narrow | (off & ((unit == MatrixUnit.WGMMA) | row))
    return np.asarray(narrow, dtype=bool)


def _barriers(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, unit: Column, stages: Column,
    tma: NDArray[np.bool_],
) -> Column:  # fmt: skip
    """Barriers of descriptor loads, one a buffer, and of tcgen05, one or two.

    Both operands' loads share a barrier where they are issued together. They are not where the
    operand that the kernel sees first is not contiguous along K, nor where one is turned around
    in registers: then a second array starts at the next multiple of 16 bytes. wgmma turns what is
    not contiguous along K unless it is 16 bits wide (PTX ISA); such an operand's ring holds one
    buffer that no load writes. 8-bit floats under mma.sync are turned on sm_90 and sm_100, since
    they become fp16 first.
    """
    depth = pipeline_depth(unit, stages)
    a_off, b_off = off_k(problem, table)
    wgmma = (unit == MatrixUnit.WGMMA) & (problem.element_bytes != 2)
    apart = np.where(wgmma, a_off | b_off, a_off) | _converted(problem, profile, unit)
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
    return np.asarray(-(-size // _ALIGNMENT) * _ALIGNMENT, dtype=np.int64)


def _staging(
    problem: Gemm, table: ConfigTable, rules: Rules, unit: Column, stages: Column,
    tma: NDArray[np.bool_], scratch: Column,
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
    if problem.element_bytes != 2:
        both = np.where(a_off, a_bytes, 0) + np.where(b_off, b_bytes, 0)
        turned = np.where((unit == MatrixUnit.WGMMA) & (stages > 1), both, turned)
    old = part + _BARRIER_BYTES if problem.beta else np.zeros_like(part)
    beside = np.maximum.reduce([turned, np.where(tma, scratch, 0), old])
    if not problem.beta:
        # with nothing in flight both parts are made before the first is stored
        part = np.where(stages == 1, whole, part)
        # so they are where fp32 sums of 64 rows of tensor memory go out as they are
        as_is = (unit == MatrixUnit.TCGEN05) & (block_m == 64) & (table.swap == 0)
        as_is = as_is & (table.epilogue_parts > 1) & (problem.out_bytes == 4) & (stages > 1)
        as_is = as_is & ~a_off & ~b_off & rules.both_halves_alive
        beside = np.maximum(beside, np.where(as_is, part, 0))
    return part, beside


def _scratch(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, rules: Rules, unit: Column
) -> Column:
    """Scratch that turns the sums for the store."""
    warps = np.where(table.num_warps > 0, table.num_warps, _DEFAULT_WARPS)
    loads = np.stack([load_bytes(problem, table, one) for one in "ab"]) // problem.element_bytes
    limit = profile.shared_per_block_bytes if rules.detours else None
    target = Target(profile.warp_size, profile.compute_capability, limit)
    return epilogue_scratch(problem, table, target, unit, warps, loads)
