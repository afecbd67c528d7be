"""Binds tensors to template "warp_specialized": descriptors, workspace, and the second kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton

from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import ConfigError
from costmodel.kernels.epilogue import Epilogue
from costmodel.kernels.matrix import Matrix, descriptor_facts, operand_names
from costmodel.resources.legality import WHOLE_RUN
from costmodel.resources.warp_groups import (
    WORKER_REGISTERS,
    WarpGroupTile,
    blocks_per_unit,
    bookkeeping_bytes,
    staging_bytes,
    warp_group_tile,
)

Bound = tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]
#: the adding kernel loads so many parts at once, and so many elements of each a program
_PARTS_AT_ONCE = 16
_REDUCE_ELEMENTS = 4096
_REDUCE_COLUMNS = 64
#: rows of a block divide the padding of the workspace, 64
_REDUCE_ROWS = 64
_LEAST_REDUCE_ELEMENTS = 128
#: a copied operand's block: rows, and words of two elements
_PACK_BLOCK = (8, 256)
_GRID_Y_LIMIT = 65535  # CUDA programming guide, compute capabilities: grid of blocks, y
#: rows of the workspace are counted in units of 8 columns, parts in units of 64 elements
_ROW_UNIT, _PART_UNIT = 8, 64


def bind(
    x: Matrix, y: Matrix, z: Matrix, config: KernelConfig, epilogue: Epilogue, units: int,
    extent: tuple[int, int],
) -> list[Bound]:  # fmt: skip
    """Kernels in order, each with its grid, arguments and constants.

    They are: for "packed" one that copies operands into aligned rows, the product, and where sums
    go through a workspace one that adds them.

    Operands, blocks and ``extent``, the rows and columns of C that constants of the adding kernel
    follow, are in the kernel's space already: ``config.swap`` is not looked at.
    Raises ``ConfigError`` where this Triton or this tile cannot do it.
    """
    try:
        from costmodel.kernels.warp_specialized import warp_specialized_kernel as kernel
    except ImportError as error:
        raise ConfigError(f"warp_specialized needs a Triton with Gluon: {error}") from None
    if triton.knobs.runtime.interpret:
        raise ConfigError(
            f"{config.template} cannot run in Triton's interpreter, as Gluon has none; "
            "use another template"
        )
    seen = ConfigTable.of(config)
    seen.swap = np.zeros_like(seen.swap)
    tile = warp_group_tile(seen)
    _check(x, y, tile, config)
    m, n, k = x.rows(), y.cols(), x.cols()
    rows, columns = config.block_m, config.block_n
    groups, group_rows = int(tile.groups[0]), int(tile.group_rows[0])
    runs = [int(run) for run in tile.runs[:, 0]]
    widths = [run or runs[0] for run in runs]
    stages = config.num_stages or 3
    split = config.split_k
    packed = config.template == "packed"
    through_parts = bool(tile.through_parts[0])
    kernels: list[Bound] = []
    if packed:
        x, y, copying = _packed(x, y, config)
        kernels += copying
    first, second = operand_names(config)
    a = _descriptor(first, config, x, group_rows, config.block_k)
    bs = [_descriptor(second, config, y, config.block_k, width) for width in widths]
    device = z.stored.device
    tiles = (triton.cdiv(m, rows), triton.cdiv(n, columns))
    if through_parts:
        # padded to whole tiles, so that no store needs a mask
        padded = split * tiles[0] * rows * tiles[1] * columns
        parts = torch.empty(padded, device=device, dtype=torch.float32)
        cs = [a] * len(runs)
    else:
        parts = z.stored
        cs = [_descriptor("c", config, z, group_rows, width) for width in widths]
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
        "SPLIT": through_parts,
        "APART": config.epilogue_parts == 1,
        "WORKER_REGISTERS": WORKER_REGISTERS[groups],
        **(Epilogue() if through_parts else epilogue).constants(),
        "SHIFT": through_parts or epilogue.may_store_twice,
        "num_warps": 4,
        "maxnreg": int(tile.registers[0]),
    }
    one = np.ones(1, dtype=np.int64)
    pieces = config.epilogue_parts * one
    size = x.stored.element_size()
    shared = stages * (rows + columns) * config.block_k * size * one
    shared += staging_bytes(tile, pieces, z.stored.element_size())
    shared += bookkeeping_bytes(tile, stages * one, pieces)
    slots = units * int(blocks_per_unit(tile, shared)[0])
    grid = (min(tiles[0] * tiles[1] * split, slots),)
    pointers = (parts, *epilogue.tensors(z.stored))
    scalars = (m, n, k, z.leading, epilogue.alpha, epilogue.beta, config.group_m or 1, split)
    args = (a, *bs, *cs, *pointers, *scalars)
    kernels.append((kernel, grid, args, constants))
    if through_parts:
        padded_rows, ld = tiles[0] * rows, tiles[1] * columns
        wide = triton.cdiv(extent[1], columns) * columns
        blocks = _adding_blocks(split, extent, wide, units)
        kernels.append(_adding(parts, z, m, n, split, padded_rows, ld, epilogue, blocks))
    return kernels


def _check(x: Matrix, y: Matrix, tile: WarpGroupTile, config: KernelConfig) -> None:
    """Refuse what would not compile, wait forever or sum wrongly; ``legality`` says why."""
    name, steps = config.template, triton.cdiv(x.cols(), config.block_k)
    if x.stored.ndim != 2:
        raise ConfigError(f"{name} takes one product, not a batch; use template 'persistent_tma'")
    if not tile.is_sound[0] or config.block_k & (config.block_k - 1):
        raise ConfigError(
            f"no warp groups or runs of columns make the tile of {config}; take one of candidates()"
        )
    if config.num_stages == 1:
        raise ConfigError(f"{name} takes 2 stages or more; set num_stages=2")
    if 0 < steps < config.split_k:
        raise ConfigError(f"K has {steps} steps for {config}; set split_k to no more than that")
    if x.stored.element_size() != 2 and (x.transposed or not y.transposed):
        raise ConfigError(
            f"{name} takes {x.stored.dtype} contiguous along K alone (layout 'nt'); "
            "use template 'tile'"
        )
    if not y.transposed and int(tile.columns[0]) % WHOLE_RUN:
        raise ConfigError(
            f"{config} needs {operand_names(config)[1]} contiguous along K; "
            f"take a multiple of {WHOLE_RUN} columns"
        )


def _packed(x: Matrix, y: Matrix, config: KernelConfig) -> tuple[Matrix, Matrix, list[Bound]]:
    """Operands with aligned rows, and the kernel that copies those that had none."""
    from costmodel.kernels.pack import pack_kernel

    rows, words = _PACK_BLOCK
    sources, targets, sizes, blocks = [], [], [], []
    for name, matrix in zip(operand_names(config), (x, y), strict=True):
        source = matrix.stored
        height, width = source.shape
        aligned = matrix.leading * source.element_size() % 16 == 0 and source.data_ptr() % 16 == 0
        if not aligned and source.element_size() != 2:
            raise ConfigError(f"packed copies 16-bit elements, not {name}'s; use template 'tile'")
        if not aligned and source.data_ptr() % 4:
            raise ConfigError(
                f"packed copies from an address that is a multiple of 4 bytes, and {name}'s is "
                "not; clone it or use template 'tile'"
            )
        units = -(-width // _PART_UNIT)
        target = source
        if not aligned:
            room = torch.empty(
                (height, units * _PART_UNIT), device=source.device, dtype=source.dtype
            )
            target = room[:, :width]
        blocks.append(0 if aligned else triton.cdiv(height, rows) * triton.cdiv(width, 2 * words))
        sources.append(source)
        targets.append(target)
        sizes += [height, width, matrix.leading, units]
    new = [Matrix(t, m.transposed) for t, m in zip(targets, (x, y), strict=True)]
    if not sum(blocks):
        return new[0], new[1], []
    args = (*sources, *targets, blocks[0], *sizes)
    constants = {"ROWS": rows, "WORDS": words, "num_warps": 4}
    return new[0], new[1], [(pack_kernel, (sum(blocks),), args, constants)]


def _adding_blocks(
    split: int, extent: tuple[int, int], wide: int, units: int
) -> tuple[int, int, int]:
    """Rows and columns of the adding kernel's block, and the parts that it loads at once.

    ``wide``: columns of the workspace for C of this extent.
    """
    m, n = extent
    at_once = min(triton.next_power_of_2(split), _PARTS_AT_ONCE)
    elements = _REDUCE_ELEMENTS // max(at_once, 2)
    # enough programs for every unit, as long as each has a load a thread
    while elements > _LEAST_REDUCE_ELEMENTS and m * n < units * elements:
        elements //= 2
    block_n = min(_REDUCE_COLUMNS, triton.next_power_of_2(wide))
    block_n = max(block_n, triton.next_power_of_2(triton.cdiv(n, _GRID_Y_LIMIT)))
    block_m = min(max(elements // block_n, 1), _REDUCE_ROWS)
    return block_m, block_n, at_once


def _adding(
    parts: torch.Tensor, z: Matrix, m: int, n: int, split: int, rows: int, ld: int,
    epilogue: Epilogue, blocks: tuple[int, int, int],
) -> Bound:  # fmt: skip
    from costmodel.kernels.reduce_parts import reduce_parts_kernel

    block_m, block_n, at_once = blocks
    most = 16 // z.stored.element_size()
    # C of one row may step by 0
    align = min(z.leading & -z.leading, most) if z.leading else most
    sizes = (split, rows * ld // _PART_UNIT, ld // _ROW_UNIT, m, n, z.leading // align)
    constants = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "PARTS": at_once,
        "ALIGN_C": align,
        "C_TRANSPOSED": z.transposed,
        **epilogue.constants(),
        "num_warps": 4,
        "launch_pdl": True,
    }
    grid = (triton.cdiv(m, block_m), triton.cdiv(n, block_n))
    args = (parts, z.stored, *epilogue.tensors(z.stored), *sizes, epilogue.alpha, epilogue.beta)
    return reduce_parts_kernel, grid, args, constants


def _descriptor(name: str, config: KernelConfig, matrix: Matrix, rows: int, cols: int) -> Any:
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    shape, strides, block = descriptor_facts(name, config.template, matrix, rows, cols)
    kinds = {
        torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32,
        torch.float8_e4m3fn: gl.float8e4nv, torch.float8_e5m2: gl.float8e5,
    }  # fmt: skip
    kind = kinds.get(matrix.stored.dtype)
    if kind is None:
        raise ConfigError(
            f"{config.template} does not take {name} of {matrix.stored.dtype}; use template 'tile'"
        )
    layout = gl.NVMMASharedLayout.get_default_for(block, kind)
    return TensorDescriptor(matrix.stored, shape, strides, block, layout)
