"""Binds tensors to template "warp_specialized": descriptors, workspace, and the second kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton

from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import ConfigError
from costmodel.kernels.matrix import Matrix, descriptor_facts
from costmodel.resources.warp_groups import (
    WORKER_REGISTERS,
    blocks_per_unit,
    bookkeeping_bytes,
    staging_bytes,
    warp_group_tile,
)

Bound = tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]
#: a block of the adding kernel: so many elements at most, in rows of at most 64 columns
_REDUCE_ELEMENTS = 2048
_REDUCE_COLUMNS = 64
_REDUCE_ROWS = (8, 64)
#: rows of the workspace are counted in units of 8 columns, parts in units of 64 elements
_ROW_UNIT, _PART_UNIT = 8, 64


def bind(
    x: Matrix, y: Matrix, z: Matrix, config: KernelConfig, alpha: float, units: int
) -> tuple[Bound, Bound | None]:
    """Kernel, grid, arguments and constants of the product, and of the adding kernel or None.

    Operands and blocks are in the kernel's space already: ``config.swap`` is not looked at.
    Raises ``ConfigError`` where this Triton or this tile cannot do it.
    """
    try:
        from costmodel.kernels.warp_specialized import warp_specialized_kernel as kernel
    except ImportError as error:
        raise ConfigError(f"warp_specialized needs a Triton with Gluon: {error}") from None
    if triton.knobs.runtime.interpret:
        raise ConfigError("warp_specialized cannot run in Triton's interpreter: Gluon has none")
    if x.stored.ndim != 2:
        raise ConfigError("warp_specialized takes one product, not a batch")
    seen = ConfigTable.of(config)
    seen.swap = np.zeros_like(seen.swap)
    tile = warp_group_tile(seen)
    if not tile.is_sound[0]:
        raise ConfigError(f"no warp groups or runs of columns make the tile of {config}")
    m, n, k = x.rows(), y.cols(), x.cols()
    rows, columns = config.block_m, config.block_n
    groups, group_rows = int(tile.groups[0]), int(tile.group_rows[0])
    runs = [int(run) for run in tile.runs[:, 0]]
    widths = [run or runs[0] for run in runs]
    stages = config.num_stages or 3
    split = config.split_k
    a = _descriptor("a", x, group_rows, config.block_k)
    bs = [_descriptor("b", y, config.block_k, width) for width in widths]
    device = z.stored.device
    tiles = (triton.cdiv(m, rows), triton.cdiv(n, columns))
    if split > 1:
        # padded to whole tiles, so that no store needs a mask
        padded = split * tiles[0] * rows * tiles[1] * columns
        parts = torch.empty(padded, device=device, dtype=torch.float32)
        cs = [a] * len(runs)
    else:
        parts = z.stored
        cs = [_descriptor("c", z, group_rows, width) for width in widths]
    constants = {
        "GROUPS": groups,
        "GROUP_ROWS": group_rows,
        "RUN0": runs[0],
        "RUN1": runs[1],
        "RUN2": runs[2],
        "BLOCK_K": config.block_k,
        "STAGES": stages,
        "A_K": not x.transposed,
        "B_K": y.transposed,
        "C_TRANSPOSED": z.transposed,
        "SCALED": alpha != 1.0 and split == 1,
        "SPLIT": split > 1,
        "APART": config.epilogue_parts == 1,
        "WORKER_REGISTERS": WORKER_REGISTERS[groups],
        "num_warps": 4,
        "maxnreg": int(tile.registers[0]),
    }
    one = np.ones(1, dtype=np.int64)
    parts_kind = (config.epilogue_parts * one, split * one)
    size = x.stored.element_size()
    shared = stages * (rows + columns) * config.block_k * size * one
    shared += staging_bytes(tile, *parts_kind, z.stored.element_size())
    shared += bookkeeping_bytes(tile, stages * one, *parts_kind)
    slots = units * int(blocks_per_unit(tile, shared)[0])
    grid = (min(tiles[0] * tiles[1] * split, slots),)
    args = (a, *bs, *cs, parts, m, n, k, alpha, config.group_m or 1, split)
    first = (kernel, grid, args, constants)
    if split == 1:
        return first, None
    return first, _adding(parts, z, m, n, split, tiles[0] * rows, tiles[1] * columns, alpha)


def _adding(
    parts: torch.Tensor, z: Matrix, m: int, n: int, split: int, rows: int, ld: int, alpha: float
) -> Bound:
    from costmodel.kernels.reduce_parts import reduce_parts_kernel

    block_n = min(_REDUCE_COLUMNS, triton.next_power_of_2(ld))
    least, most = _REDUCE_ROWS
    block_m = min(max(_REDUCE_ELEMENTS // block_n, least), most)
    align = min(z.leading & -z.leading, 16 // z.stored.element_size())
    sizes = (split, rows * ld // _PART_UNIT, ld // _ROW_UNIT, m, n, z.leading // align)
    constants = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "ALIGN_C": align,
        "C_TRANSPOSED": z.transposed,
        "SCALED": alpha != 1.0,
        "num_warps": 4,
        "launch_pdl": True,
    }
    grid = (triton.cdiv(m, block_m), triton.cdiv(n, block_n))
    return reduce_parts_kernel, grid, (parts, z.stored, *sizes, alpha), constants


def _descriptor(name: str, matrix: Matrix, rows: int, cols: int) -> Any:
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    shape, strides, block = descriptor_facts(name, "warp_specialized", matrix, rows, cols)
    kinds = {
        torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32,
        torch.float8_e4m3fn: gl.float8e4nv, torch.float8_e5m2: gl.float8e5,
    }  # fmt: skip
    kind = kinds.get(matrix.stored.dtype)
    if kind is None:
        raise ConfigError(f"warp_specialized does not take {matrix.stored.dtype}")
    layout = gl.NVMMASharedLayout.get_default_for(block, kind)
    return TensorDescriptor(matrix.stored, shape, strides, block, layout)
