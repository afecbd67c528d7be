"""How many blocks one unit holds at a time, and what limits it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.footprint import footprint_columns
from costmodel.resources.registers import register_columns

Column = NDArray[np.int64]
LIMITERS = ("warps", "registers", "shared_memory", "blocks")


@dataclass(frozen=True)
class OccupancyColumns:
    """Blocks a unit (0 where not even one fits), the limiter's index, and warps over capacity."""

    blocks: Column
    limiter: Column
    occupancy: NDArray[np.float64]


def occupancy_columns(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile
) -> OccupancyColumns:
    """NVIDIA's rules (cuda_occupancy.h of CUDA 13): each sub-partition hands out its own registers.

    What a profile does not know does not limit.
    """
    many = 1 << 20
    warps = np.maximum(table.num_warps, 1)
    by_warps = (profile.max_warps_per_unit or many) // warps
    by_registers = _blocks_by_registers(problem, table, profile, warps)
    shared = footprint_columns(problem, table, profile).shared_bytes
    reserved = profile.shared_reserved_bytes or 0
    granule = profile.shared_granularity_bytes or 1
    block_bytes = -(-(shared + reserved) // granule) * granule
    capacity = profile.shared_per_unit_bytes or profile.shared_per_block_bytes + reserved
    by_shared = capacity // np.maximum(block_bytes, 1)
    by_blocks = np.full(len(table), profile.max_blocks_per_unit or many)
    limits = np.stack(np.broadcast_arrays(by_warps, by_registers, by_shared, by_blocks))
    blocks = limits.min(axis=0)
    most_warps = profile.max_warps_per_unit or int(warps.max(initial=1))
    return OccupancyColumns(blocks, limits.argmin(axis=0), blocks * warps / most_warps)


def _blocks_by_registers(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, warps: Column
) -> Column:
    registers = register_columns(problem, table, profile).allocated
    partitions = profile.subpartitions or 1
    per_warp = np.maximum(registers * profile.warp_size, 1)
    file = profile.registers_per_unit or 65536
    warps_held = partitions * (file // partitions // per_warp)
    return np.asarray(warps_held // warps, dtype=np.int64)
