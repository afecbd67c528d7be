"""How many blocks one unit holds at a time, and what limits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.footprint import footprint_columns
from costmodel.resources.registers import register_columns, warps_per_block

Column = NDArray[np.int64]
LIMITERS = ("warps", "registers", "shared_memory", "blocks")

#: stands for a limit that a profile does not know
_UNLIMITED = 1 << 20
#: a block's warps are dealt to the sub-partitions evenly, so its registers are counted as if
#: there were a whole number of warps on each (cuda_occupancy.h of CUDA 13: the launch check)
_WARPS_DEALT = 4


@dataclass(frozen=True)
class OccupancyColumns:
    """Blocks a unit (0 where not even one fits), the limiter's index, and warps over capacity."""

    blocks: Column
    limiter: Column
    occupancy: NDArray[np.float64]


def occupancy_columns(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile
) -> OccupancyColumns:
    """Occupancy of configurations, from their predicted registers and shared memory."""
    return occupancy(
        warps_per_block(table),
        register_columns(problem, table, profile).allocated,
        footprint_columns(problem, table, profile).shared_bytes,
        profile,
    )


def occupancy(
    warps: Any, registers: Any, shared_bytes: Any, profile: HardwareProfile
) -> OccupancyColumns:
    """Blocks that a unit holds, of ``warps`` warps with so many ``registers`` a thread each.

    NVIDIA's rules (cuda_occupancy.h of CUDA 13) and AMD's (LLVM's AMDGPUBaseInfo) are one with a
    profile's figures put in: every sub-partition (SIMD) hands out its own registers, rounded up
    to the granularity a thread; shared memory, with what the driver reserves a block, is rounded
    up to its own. For a work group of fewer than 4 waves LLVM counts one wave on each SIMD; here
    the waves are counted as they are dealt. What a profile does not know does not limit.
    """
    warps, registers, shared_bytes = (
        np.atleast_1d(np.asarray(value, dtype=np.int64))
        for value in (warps, registers, shared_bytes)
    )
    by_warps = (profile.max_warps_per_unit or _UNLIMITED) // warps
    by_registers = _by_registers(warps, registers, profile)
    by_shared = _by_shared(shared_bytes, profile)
    by_blocks = np.full(len(warps), profile.max_blocks_per_unit or _UNLIMITED)
    if profile.backend == "hip":
        # the limit is that of barriers, and a group of one wave takes none (LLVM,
        # getMaxWorkGroupsPerCU)
        by_blocks[warps == 1] = _UNLIMITED
    limits = np.stack(np.broadcast_arrays(by_warps, by_registers, by_shared, by_blocks))
    blocks = limits.min(axis=0)
    most_warps = profile.max_warps_per_unit or int(warps.max(initial=1))
    return OccupancyColumns(blocks, limits.argmin(axis=0), blocks * warps / most_warps)


def _by_registers(warps: Column, registers: Column, profile: HardwareProfile) -> Column:
    granule = profile.register_granularity or 8
    partitions = profile.subpartitions or 1
    file = profile.registers_per_unit or 65536
    per_warp = np.maximum(-(-registers // granule) * granule * profile.warp_size, 1)
    held = partitions * (file // partitions // per_warp) // warps
    refused = registers > (profile.max_registers_per_thread or 255)
    dealt = -(-warps // _WARPS_DEALT) * _WARPS_DEALT
    return np.asarray(np.where(refused | (per_warp * dealt > file), 0, held), dtype=np.int64)


def _by_shared(shared_bytes: Column, profile: HardwareProfile) -> Column:
    reserved = profile.shared_reserved_bytes or 0
    granule = profile.shared_granularity_bytes or 1
    taken = -(-(shared_bytes + reserved) // granule) * granule
    capacity = profile.shared_per_unit_bytes or profile.shared_per_block_bytes + reserved
    held = np.where(taken > 0, capacity // np.maximum(taken, 1), _UNLIMITED)
    return np.asarray(
        np.where(shared_bytes > profile.shared_per_block_bytes, 0, held), dtype=np.int64
    )
