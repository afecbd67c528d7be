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
from costmodel.resources.conversion import conversion_scratch, mma_sync_warps, wgmma_warps
from costmodel.resources.matrix_unit import MatrixUnit, kernel_blocks, matrix_unit
from costmodel.resources.warp_groups import (
    bookkeeping_bytes,
    is_specialized,
    staging_bytes,
    warp_group_tile,
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
    staging = _staging(problem, table, unit, tma)
    scratch = _conversion_scratch(problem, table, profile, unit)
    total = np.maximum(ring + barriers + staging, scratch)
    # one stage: nothing is in flight when the tile is stored, so it reuses the ring
    total = np.where(tma & (stages == 1), np.maximum(ring, staging) + barriers, total)
    columns: tuple[Column, ...] = (total, ring, staging, scratch, barriers)
    for rows, own in (
        (is_specialized(table), _warp_specialized),
        (table.is_template("matvec"), _matvec),
    ):
        if rows.any():
            parts = own(problem, table, profile, stages)
            columns = tuple(np.where(rows, a, b) for a, b in zip(parts, columns, strict=True))
    return FootprintColumns(*columns)


def _warp_specialized(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, stages: Column
) -> tuple[Column, ...]:
    """Total, ring, staging, scratch and barriers of a kernel that lays out its own buffers."""
    tile = warp_group_tile(table)
    ring = stages * (tile.rows + tile.columns) * table.block_k * problem.element_bytes
    staging = staging_bytes(tile, table.epilogue_parts, problem.out_bytes)
    barriers = bookkeeping_bytes(tile, stages, table.epilogue_parts, problem.alpha)
    return ring + staging + barriers, ring, staging, np.zeros_like(ring), barriers


def _matvec(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, stages: Column
) -> tuple[Column, ...]:
    """Its sums meet at the end alone: a word a row from each warp that lies along K.

    A thread takes 16 bytes of a row at a time, so a warp spans 32 of those.
    """
    rows, _ = kernel_blocks(table)
    span = profile.warp_size * 16 // problem.element_bytes
    along_k = np.minimum(table.num_warps, np.maximum(table.block_k // span, 1))
    scratch = np.where(along_k > 1, rows * along_k * 4, 0)
    zero = np.zeros_like(scratch)
    return scratch, zero, zero, scratch, zero


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


def contiguous_along_k(problem: Gemm, operand: str) -> bool:
    """Whether the stored rows of "a" or "b" run along K."""
    return problem.layout[0] == "n" if operand == "a" else problem.layout[1] == "t"


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
    a_off, b_off = _off_k(problem, table)
    wgmma = (unit == MatrixUnit.WGMMA) & (problem.element_bytes != 2)
    converted = (unit == MatrixUnit.MMA_SYNC) & problem.dtype.startswith("fp8")
    apart = np.where(wgmma | (converted & ("wgmma" in profile.mma)), a_off | b_off, a_off)
    apart = apart | (converted & ("tcgen05" in profile.mma))
    first = depth - np.where(wgmma & a_off & b_off, 1, 0)
    second = depth - np.where(wgmma & (a_off | b_off), 1, 0)
    together = first * _BARRIER_BYTES
    loads = np.where(apart, _aligned(together) + second * _BARRIER_BYTES, together)
    loads = np.where(stages == 1, _BARRIER_BYTES, loads)
    if problem.beta:
        loads = _aligned(loads) + table.epilogue_parts * _BARRIER_BYTES
    loads = np.where(tma, loads, 0)
    # tcgen05 signals its own end: two barriers in a pipeline, one without
    ends = np.where(stages > 1, _aligned(loads) + 16, np.where(tma, loads, _BARRIER_BYTES))
    return np.asarray(np.where(unit == MatrixUnit.TCGEN05, ends, loads), dtype=np.int64)


def _aligned(size: Column) -> Column:
    """The next multiple of 16 bytes, where the compiler starts another array of barriers."""
    return np.asarray(-(-size // 16) * 16, dtype=np.int64)


def _off_k(problem: Gemm, table: ConfigTable) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether the kernel's first and second operand are not contiguous along K."""
    swapped = table.swap != 0
    a, b = (not contiguous_along_k(problem, operand) for operand in "ab")
    return np.where(swapped, b, a), np.where(swapped, a, b)


def _staging(problem: Gemm, table: ConfigTable, unit: Column, tma: NDArray[np.bool_]) -> Column:
    """A descriptor store's tile, or one part of it, and what lies beside it.

    The old C, read for beta, has a tile of its own. Without a matrix unit, operands that do not
    lie as the sums need them are turned through scratch, and so is the tile before it is cut.
    """
    block_m, block_n = kernel_blocks(table)
    cut = table.epilogue_parts > 1
    part = block_m * block_n // table.epilogue_parts
    staging = part * problem.out_bytes
    # two warp groups side by side along N each hold a half of the columns: cutting the tile in
    # two moves fp32 sums between them (sm_90: 8 warps on 64 rows)
    side_by_side = (unit == MatrixUnit.WGMMA) & (table.num_warps * 16 > block_m)
    turned = np.where(cut & side_by_side, part * 4, 0)
    a_off, b_off = _off_k(problem, table)
    size = problem.element_bytes
    plain = unit == MatrixUnit.NONE
    operands = np.maximum(
        np.where(a_off, block_m * table.block_k * size, 0),
        np.where(b_off, 0, block_n * table.block_k * size),
    )
    turned = np.where(plain, np.maximum(operands, np.where(cut, block_m * block_n * 4, 0)), turned)
    old = part * problem.out_bytes if problem.beta else 0
    return np.asarray(np.where(tma, staging + np.maximum(turned, old), 0), dtype=np.int64)


def _conversion_scratch(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, unit: Column
) -> Column:
    """Scratch that turns ``split_k``'s sums: to the parts, row-major and 32 bits, on NVIDIA.

    Swapped operands turn the added parts once more, in the output's type, since C lies the other
    way: whole, or in 2 or 4 turns where a thread holds many sums. Other stores turn what they
    write in less than the ring holds, or within a warp; small totals may be off by that (see
    docs/compiler.md).
    """
    scratch = np.zeros(len(table), dtype=np.int64)
    split = table.is_template("split_k") & (profile.backend == "cuda")
    block_m, block_n = kernel_blocks(table)
    warps = np.where(table.num_warps > 0, table.num_warps, _DEFAULT_WARPS)
    for kind in (MatrixUnit.MMA_SYNC, MatrixUnit.WGMMA):
        rows = np.flatnonzero(split & (unit == kind))
        m, n, w = block_m[rows], block_n[rows], warps[rows]
        along = wgmma_warps(m, w) if kind == MatrixUnit.WGMMA else mma_sync_warps(m, n, w)
        scratch[rows] = conversion_scratch(m, n, w, 4, along)
    turned = table.is_template("split_k") & (table.swap != 0)
    again = block_m * block_n * problem.out_bytes
    if profile.backend == "hip":
        # the backend takes as many turns as make it fit
        again = np.minimum(again, profile.shared_per_block_bytes)
    else:
        sums = block_m * block_n // (warps * profile.warp_size)
        halves = (sums >= 256) & (unit == MatrixUnit.WGMMA)
        again = again >> np.where(sums >= 512, 2, np.where(halves, 1, 0))
    return np.where(turned, np.maximum(scratch, again), scratch)
