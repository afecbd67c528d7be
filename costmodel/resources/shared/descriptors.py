"""What lies beside the ring of a descriptor kernel: barriers, staging, what is turned around."""

from __future__ import annotations

import numpy as np

from costmodel.resources.matrix_unit import MatrixUnit
from costmodel.resources.shared.case import Case, Column

#: an mbarrier: 8 bytes (PTX ISA)
BARRIER_BYTES = 8
#: where the compiler starts another array of barriers
_BARRIER_ALIGNMENT = 16
#: where a tile without a swizzle may start
_LEAST_ALIGNMENT = 128


def barriers(case: Case) -> Column:
    """Barriers of descriptor loads, one a buffer, and of tcgen05, one or two.

    Both operands' loads share a barrier where they are issued together. They are not where the
    operand that the kernel sees first is not contiguous along K, nor where one is turned around
    in registers: then a second array starts at the next multiple of 16 bytes. wgmma turns what is
    not contiguous along K unless it is 16 bits wide (PTX ISA); such an operand's ring holds one
    buffer that no load writes. 8-bit floats under mma.sync are turned on sm_90 and sm_100, since
    they become fp16 first.
    """
    depth = case.depth
    a_off, b_off = (operand.off for operand in case.operands)
    wgmma = case.on(MatrixUnit.WGMMA) & (case.size != 2) & (not case.thirds)
    apart = np.where(wgmma, a_off | b_off, a_off) | case.converted
    apart = apart | (case.thirds & ~case.on(MatrixUnit.TCGEN05))
    first = (depth - np.where(wgmma & a_off & b_off, 1, 0)) * BARRIER_BYTES
    second = (depth - np.where(wgmma & (a_off | b_off), 1, 0)) * BARRIER_BYTES
    loads = np.where(apart, _aligned(first, _BARRIER_ALIGNMENT) + second, first)
    loads = np.where(case.tma, np.where(case.piped, loads, BARRIER_BYTES), 0)
    # tcgen05 signals its own end: two barriers in a pipeline, one without
    signals = BARRIER_BYTES if case.thirds else 2 * BARRIER_BYTES
    piped = _aligned(loads, _BARRIER_ALIGNMENT) + signals
    ends = np.where(case.piped, piped, np.where(case.tma, loads, BARRIER_BYTES))
    return np.asarray(np.where(case.on(MatrixUnit.TCGEN05), ends, loads), dtype=np.int64)


def stored_part(case: Case) -> Column:
    """A descriptor store's tile, or one part of it.

    With nothing in flight both parts are made before the first is stored, unless beta reads an
    old part for each.
    """
    whole = case.rows * case.columns * case.problem.out_bytes
    together = ~case.piped & (not case.problem.beta)
    return np.asarray(np.where(together, whole, whole // case.parts), dtype=np.int64)


def beside_ring(case: Case, scratch: Column) -> Column:
    """The largest of what lives in turns beside the ring and the store.

    What is turned around in registers, the ``scratch`` of cutting the tile, the old C that beta
    reads. Under tcgen05 the last operands are still read while the tile is cut.
    """
    turned = _turned(case)
    together = np.where(case.on(MatrixUnit.TCGEN05), turned + scratch, np.maximum(turned, scratch))
    if case.problem.beta:
        return np.asarray(np.maximum(together, stored_part(case)), dtype=np.int64)
    problem = case.problem
    if case.rules.both_halves_alive and problem.out_bytes == 4 and problem.batch == 1:
        # fp32 sums of tensor memory go out as they are, both halves at once
        as_is = case.on(MatrixUnit.TCGEN05) & (case.table.swap == 0) & (case.parts > 1)
        together = np.where(as_is & case.piped, np.maximum(together, stored_part(case)), together)
    return np.asarray(together, dtype=np.int64)


def _turned(case: Case) -> Column:
    """Operands that pass through registers to lie as the matrix unit, or FMA, wants them.

    wgmma takes 8- and 32-bit types along K alone, tcgen05 32-bit ones (PTX ISA), of which it holds
    two. FMA reads an operand along the sums' own order, one at a time. Of tf32x3 the second
    operand's two parts are held.
    """
    a, b = case.operands
    across = np.where(a.off, a.tile, 0) + np.where(b.off, b.tile, 0)
    if case.thirds:
        return np.where(case.in_place, 2 * b.tile, 0)
    plain = np.maximum(np.where(a.off, a.tile, 0), np.where(b.off, 0, b.tile))
    turned = np.where(case.on(MatrixUnit.NONE), plain, 0)
    if case.size != 2:
        turned = np.where(case.on(MatrixUnit.WGMMA) & case.piped, across, turned)
    if case.size == 4:
        turned = np.where(case.on(MatrixUnit.TCGEN05) & case.piped, 2 * across, turned)
    return np.asarray(turned, dtype=np.int64)


def descriptor_total(
    case: Case, ring: Column, barrier_bytes: Column, store: Column, beside: Column
) -> Column:
    """Bytes that a descriptor kernel takes, from its parts.

    In flight: ring, store, what lives in turns, barriers. The old C's own barrier counts where
    nothing hides it: after the loads' barriers, or, where the tile is cut, before them. With
    nothing in flight all reuse the same bytes.
    """
    ends, alone_end = barrier_bytes, beside
    if case.problem.beta:
        shown = beside == store
        after = _aligned(barrier_bytes, _BARRIER_ALIGNMENT) + BARRIER_BYTES
        before = _gap(case, store) + barrier_bytes
        ends = np.where(shown, np.where(case.parts > 1, before, after), barrier_bytes)
        alone_end = beside + np.where(shown, BARRIER_BYTES, 0)
    piped = ring + _gap_before(case, store) + store + beside + ends
    alone = np.maximum(np.maximum(ring + barrier_bytes, store), alone_end)
    return np.asarray(np.where(case.piped, piped, alone), dtype=np.int64)


def _gap(case: Case, store: Column) -> Column:
    """Bytes from the old C's end, over its barrier, to what comes next where the tile is cut.

    Buffers are placed by size: those smaller than the store come after it, at their alignment.
    """
    gap = np.full(len(case.table), _BARRIER_ALIGNMENT, dtype=np.int64)
    for operand in case.operands:
        row = np.where(operand.off, operand.outer, case.table.block_k) * case.size
        late = case.depth * operand.tile < store
        gap = np.where(late, np.maximum(gap, _alignment(row)), gap)
    return gap


def _gap_before(case: Case, store: Column) -> Column:
    """Bytes between the buffers that are larger than the store and its tile, by its alignment."""
    buffers = [case.depth * operand.tile for operand in case.operands]
    before = np.asarray(sum(np.where(held > store, held, 0) for held in buffers), dtype=np.int64)
    row = np.where(case.table.swap != 0, case.rows, case.columns // case.parts)
    return _aligned(before, _alignment(row * case.problem.out_bytes)) - before


def _alignment(row_bytes: Column) -> Column:
    """Where a tile of such rows may start: 8 times the swizzle, of 128, 64, 32 or 16 bytes."""
    wider = [row_bytes >= width for width in (32, 64, 128)]
    return np.asarray(_LEAST_ALIGNMENT << sum(w.astype(np.int64) for w in wider), dtype=np.int64)


def _aligned(size: Column, alignment: Column | int) -> Column:
    # powers of two, so that no column is divided
    return np.asarray((size + alignment - 1) & -alignment, dtype=np.int64)
