"""Shared memory that the compiler will allocate for a configuration, in bytes.

The rules are Triton's, found by compiling for chips that are not there and reading
``metadata.shared``; each says what it was seen on. See ``docs`` for the comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.matrix_unit import MatrixUnit, kernel_blocks, matrix_unit

Column = NDArray[np.int64]

#: an mbarrier a stage (Triton 3.6, sm_90, tensor-descriptor loads)
_BARRIER_BYTES = 8
#: what the launcher and the compiler take where a knob is None
_DEFAULT_LOAD_BITS = 128
_DEFAULT_STAGES = 3
#: PTX ISA, cp.async: cp-size is 4, 8 or 16 bytes
LEAST_ASYNC_BYTES = 4


@dataclass(frozen=True)
class FootprintColumns:
    """Bytes of shared memory by part, one entry a configuration."""

    shared_bytes: Column
    operand_ring_bytes: Column
    epilogue_bytes: Column
    barrier_bytes: Column


@dataclass(frozen=True)
class Footprint:
    """Bytes of shared memory by part, of one configuration."""

    shared_bytes: int
    operand_ring_bytes: int
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
    block_m, block_n = kernel_blocks(table)
    stages = np.where(table.num_stages > 0, table.num_stages, _DEFAULT_STAGES)
    unit = matrix_unit(problem, table, profile)
    tma = table.is_template("persistent_tma")
    tiles = {
        "a": table.block_m * table.block_k * problem.element_bytes,
        "b": table.block_n * table.block_k * problem.element_bytes,
    }
    # wgmma reads its operands from shared memory until it completes, so the ring keeps every
    # stage; mma.sync copies a stage to registers first and frees it (sm_80, 86, 89, 90, 120).
    depth = np.where(unit == MatrixUnit.WGMMA, stages, np.maximum(stages - 1, 1))
    ring = np.zeros(len(table), dtype=np.int64)
    for operand, tile_bytes in tiles.items():
        single = ~tma & _through_registers(problem, table, unit, operand)
        ring = ring + np.where(single, 1, depth) * tile_bytes
    if profile.backend == "hip":
        # gfx90a, gfx942, gfx950: the last stage stays in registers
        single_stage = np.maximum(tiles["a"], tiles["b"])
        ring = np.where(stages >= 2, (stages - 1) * (tiles["a"] + tiles["b"]), single_stage)
    barriers = np.where(tma, depth * _BARRIER_BYTES, 0)
    # a descriptor store stages its part of the tile beside the ring, since the next tile's loads
    # are in flight; a pointer store converts layouts in what the ring leaves behind
    part = block_m * block_n // table.epilogue_parts
    staging = np.where(tma, part * problem.out_bytes, 0)
    # two warp groups side by side along N each hold a half of the columns: cutting the tile in
    # two moves fp32 sums between them (sm_90: 8 warps on 64 rows)
    side_by_side = (unit == MatrixUnit.WGMMA) & (table.num_warps * 16 > block_m)
    staging = staging + np.where(tma & (table.epilogue_parts > 1) & side_by_side, part * 4, 0)
    total = ring + staging + barriers
    return FootprintColumns(total, ring, staging, barriers)


def _through_registers(
    problem: Gemm, table: ConfigTable, unit: Column, operand: str
) -> NDArray[np.bool_]:
    """Whether an operand passes through registers: it then has one buffer, whatever the depth.

    So it is where its loads are too narrow for cp.async, and where wgmma needs an 8-bit operand
    turned around, since it takes 8-bit types contiguous along K alone (PTX ISA, wgmma).
    """
    narrow = load_bytes(problem, table, operand) < LEAST_ASYNC_BYTES
    along_k = problem.layout in (("nn", "nt") if operand == "a" else ("nt", "tt"))
    turned = (unit == MatrixUnit.WGMMA) & (problem.element_bytes == 1) & (not along_k)
    return np.asarray(narrow | turned, dtype=bool)


def footprint(problem: Gemm, config: KernelConfig, profile: HardwareProfile) -> Footprint:
    """``footprint_columns`` of one configuration."""
    columns = footprint_columns(problem, ConfigTable.of(config), profile)
    return Footprint(*(int(getattr(columns, name)[0]) for name in Footprint.__annotations__))
