"""Registers a thread, predicted from the tile: what the accumulator and the operands need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.matrix_unit import MatrixUnit, kernel_blocks, matrix_unit
from costmodel.resources.warp_groups import GROUP_WARPS, is_specialized, warp_group_tile

#: addresses, loop state and barriers of our templates (ptxas on sm_90: 38 to 60 where the
#: accumulator takes 8)
_OVERHEAD = 44


@dataclass(frozen=True)
class RegisterColumns:
    """Registers a thread as the compiler would like them, and those that do not fit."""

    wanted: NDArray[np.float64]
    allocated: NDArray[np.int64]
    spilled: NDArray[np.float64]


def warps_per_block(table: ConfigTable) -> NDArray[np.int64]:
    """Warps that a block takes: the knob's, and those of the loading group where there is one."""
    loading = np.where(is_specialized(table), GROUP_WARPS, 0)
    return np.asarray(np.maximum(table.num_warps, 1) + loading, dtype=np.int64)


def threads_per_block(table: ConfigTable, profile: HardwareProfile) -> NDArray[np.int64]:
    """Threads of a block; 0 where the configuration names no warps."""
    warps = np.where(table.num_warps > 0, warps_per_block(table), 0)
    return np.asarray(warps * profile.warp_size, dtype=np.int64)


def register_columns(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile
) -> RegisterColumns:
    """Predict registers a thread; ``spilled`` is the excess over what a thread may have.

    A thread may have ``max_registers_per_thread``, or less where many warps share the file.
    """
    block_m, block_n = kernel_blocks(table)
    threads = np.maximum(table.num_warps, 1) * profile.warp_size
    accumulator = block_m * block_n / threads
    unit = matrix_unit(problem, table, profile)
    # mma.sync holds both operands' fragments of a 16-deep step in registers, 4 bytes each;
    # every warp of a row or column of warps holds its own copy: about a side a warp
    rows_of_warps = np.clip(np.maximum(table.num_warps, 1), 1, np.maximum(block_m // 16, 1))
    columns_of_warps = np.maximum(table.num_warps // rows_of_warps, 1)
    deep = 16 * problem.element_bytes / 4 / profile.warp_size
    fragments = (block_m / rows_of_warps + block_n / columns_of_warps) * deep
    wanted = _OVERHEAD + accumulator + np.where(unit == MatrixUnit.WGMMA, 0.0, fragments)
    specialized = is_specialized(table)
    matvec = table.is_template("matvec")
    tile = warp_group_tile(table)
    wanted = np.where(specialized, tile.sums + _OVERHEAD, wanted)
    # every loaded element has a sum, and a column of B is held beside it
    elements = block_m * table.block_k / threads
    wanted = np.where(matvec, _OVERHEAD + elements * (block_n + 1), wanted)
    most = min(profile.max_registers_per_thread or 255, 255)
    file = profile.registers_per_unit or 65536
    limit = np.minimum(most, file // threads)
    # its groups trade registers among each other: the whole is what the kernel is compiled for
    limit = np.where(specialized, np.maximum(limit, tile.sums + _OVERHEAD), limit)
    granule = profile.register_granularity or 8
    allocated = np.minimum(np.ceil(wanted / granule) * granule, limit).astype(np.int64)
    allocated = np.where(specialized, tile.registers, allocated)
    return RegisterColumns(wanted, allocated, np.maximum(wanted - limit, 0.0))
