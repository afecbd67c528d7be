"""Shared memory of operands on their way: a ring of buffers, each a tile of A or B."""

from __future__ import annotations

import numpy as np

from costmodel.resources.matrix_unit import MatrixUnit
from costmodel.resources.shared.async_padding import k_width, padded_bytes, padding
from costmodel.resources.shared.case import LEAST_ASYNC_BYTES, Case, Column, Mask, Operand

_ALIGNMENT = 16


def operand_ring(case: Case) -> Column:
    """Bytes of all buffers that loads write, of each configuration."""
    if not case.profile.mma:
        # sm_70 and sm_75 under 3.6.0: nothing is pipelined. fp32 256x128x64 takes 98304 bytes;
        # 16 bits become fp32 first, one operand after the other: 64x64x64 takes 16384
        sides = [operand.tile for operand in case.operands]
        return np.asarray(sum(sides) if case.size == 4 else np.maximum(*sides) * 4 // case.size)
    single = [~case.tma & _single(case, operand) for operand in case.operands]
    if case.profile.backend == "hip":
        return _amd_ring(case, single)
    both = zip(case.operands, single, strict=True)
    buffers = [_buffers(case, operand, one) for operand, one in both]
    if case.thirds:
        # the second operand's parts lie beside the ring; descriptors': see beside_ring
        buffers[1] = buffers[1] + np.where(case.in_place & ~case.tma, 2, 0)
    if case.size == 4 and case.rules.tensor_memory_operand:
        # loaded word by word across K, a first operand passes through tensor memory (128 rows)
        first = case.operands[0]
        freed = case.on(MatrixUnit.TCGEN05) & ~case.tma & first.off & (case.rows >= 128)
        freed = freed & (first.loads == LEAST_ASYNC_BYTES)
        buffers[0] = np.where(freed, np.maximum(case.stages - 1, 1), buffers[0])
    tiles = [operand.tile for operand in case.operands]
    if case.size == 1:
        # what is turned by rows is held as the fp16 that it becomes
        rows = [case.converted & operand.row_a_thread(1) & ~case.tma for operand in case.operands]
        tiles = [np.where(row, 2 * tile, tile) for row, tile in zip(rows, tiles, strict=True)]
    ring = buffers[0] * tiles[0] + buffers[1] * tiles[1]
    # with nothing in flight and operands read into registers, one buffer serves both in turn
    alone = ~case.piped & case.tma & ~case.in_place
    alone = alone | (case.converted & (~case.piped | (single[0] & single[1])))
    turns = np.maximum(*tiles)
    if case.thirds:
        alone = ~case.piped
        turns = np.where(case.in_place & ~case.tma, np.maximum(turns, 2 * tiles[1]), turns)
    return np.asarray(np.where(alone, turns, ring), dtype=np.int64)


def _buffers(case: Case, operand: Operand, single: Mask) -> Column:
    """Buffers of one operand on NVIDIA."""
    tcgen05 = case.on(MatrixUnit.TCGEN05)
    depth = case.depth
    # tcgen05 still reads the last buffer when the next is written
    buffers = np.where(single, np.where(tcgen05 & case.piped, 2, 1), depth)
    if case.thirds:
        return np.asarray(np.where(single, 1, depth), dtype=np.int64)
    if case.size != 2:
        # wgmma's turned operand has a buffer that no load writes: see descriptors.beside_ring
        turned = case.tma & case.on(MatrixUnit.WGMMA) & case.piped & operand.off
        buffers = buffers - turned
    return np.asarray(buffers, dtype=np.int64)


def _single(case: Case, operand: Operand) -> Mask:
    """Whether an operand has one buffer, whatever the depth, since it is not pipelined.

    So it is where its loads are narrower than 4 bytes; where wgmma needs an 8-bit operand turned
    around in registers, since it takes 8-bit types contiguous along K alone (PTX ISA, wgmma); and
    where mma.sync wants an 8-bit tile turned of which each thread holds one whole row in one
    load. gfx950 pipelines whatever the width.
    """
    if case.profile.target == "gfx950":
        return np.zeros(len(case.table), dtype=bool)
    narrow = operand.narrow
    if case.size == 1:
        row = case.on(MatrixUnit.MMA_SYNC) & operand.row_a_thread(1)
        narrow = narrow | row | (case.on(MatrixUnit.WGMMA) & operand.off)
    return narrow


def _amd_ring(case: Case, single: list[Mask]) -> Column:
    """AMD's ring: with nothing in flight one operand's buffer is dead before the other's."""
    tiles = [operand.tile for operand in case.operands]
    depth = case.depth
    ring = sum(np.where(one, 1, depth) * tile for one, tile in zip(single, tiles, strict=True))
    alone = ~case.piped | (single[0] & single[1])
    if case.profile.target in case.rules.async_copies:
        ring = np.where(case.piped, _copied_ring(case), ring)
    if case.problem.dtype.startswith("fp8"):
        # without a matrix unit 8-bit floats are multiplied as fp32, and not pipelined
        plain = case.on(MatrixUnit.NONE)
        tiles = [np.where(plain, tile * 4, tile) for tile in tiles]
        alone = alone | plain
    return np.asarray(np.where(alone, np.maximum(*tiles), ring), dtype=np.int64)


def _copied_ring(case: Case) -> Column:
    """A ring that loads write directly: every stage, padded for mfma's own loads."""
    k = case.table.block_k
    side = np.where(np.minimum(case.rows, case.columns) >= 32, 32, 16)
    width = k_width(case.size, case.problem.dtype.startswith("fp8"), k, side)
    arrays = []
    for operand in case.operands:
        # where each thread loads a whole row, the compiler takes the tile for its transpose
        row = np.where(operand.off, operand.outer, k) * case.size
        whole = (row == operand.loads) & (operand.share == operand.loads)
        along_k = ~operand.off ^ whole
        pad = padding(case.size, k, operand.outer, along_k, side, width)
        pad = np.where(case.on(MatrixUnit.MFMA) & ~operand.narrow, pad, 0)
        arrays.append(padded_bytes(case.size, case.stages * operand.outer * k, pad))
    large, small = np.maximum(*arrays), np.minimum(*arrays)
    return np.asarray(-(-large // _ALIGNMENT) * _ALIGNMENT + small, dtype=np.int64)
