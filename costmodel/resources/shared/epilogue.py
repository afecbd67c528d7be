"""Scratch that a template's epilogue takes to turn its sums around, in bytes.

What is turned into what was read off the conversions in Triton's own intermediate text, for every
template, matrix unit, swap and beta (2,700 surveyed configurations, 3.6.0); how many bytes a turn
takes is ``conversion``'s to say. A tile's figure depends on few knobs, so it is computed once for
each combination that occurs, however many configurations share it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from costmodel.resources.matrix_unit import MatrixUnit
from costmodel.resources.shared.case import Case, Column
from costmodel.resources.shared.layouts import COLUMN, ROW, both_halves, halved
from costmodel.resources.shared.padded import detour_bytes
from costmodel.resources.shared.tile import Output, Target, Tile

SUM_BITS = 32
#: elements of 32 bits in the widest load or store, 16 bytes: the parts of split_k
_PART_VECTOR = 4
_ACCESS_BYTES = 16


@lru_cache(maxsize=1 << 16)
def tile_scratch(output: Output, target: Target, tile: Tile) -> int:
    """Template "tile": sums, in C's type, to the store; with beta the old C to the sums first.

    mfma's sums are stored as they lie. Without a matrix unit, and under tcgen05, beta moves the
    sums instead of the old C, in 32 bits.
    """
    sums, store = tile.sums(), tile.access(output.vector, ROW if tile.swap else COLUMN)
    if output.beta and tile.unit in (MatrixUnit.NONE, MatrixUnit.TCGEN05):
        return target.turn(sums, store, SUM_BITS)
    old = target.turn(store, sums, output.bits) if output.beta else 0
    if target.detours(old):
        reach = tile.reach(output.vector, ROW if tile.swap else COLUMN), tile.mfma_reach()
        old = detour_bytes(tile.rows, tile.columns, *reach, tile.warps, output.bits // 8)
    new = 0 if tile.unit == MatrixUnit.MFMA else target.turn(sums, store, output.bits)
    return max(old, new)


@lru_cache(maxsize=1 << 16)
def split_k_scratch(output: Output, target: Target, tile: Tile) -> int:
    """Template "split_k": sums to the parts, row-major in 32 bits, then the added parts to C.

    mfma's sums are stored as they lie. The parts are added in the widest layout of all loads of
    that shape and order, C's own store among them; what lies otherwise is turned once more, in
    C's type, or with beta in 32 bits where C runs the other way.
    """
    first = 0
    if tile.unit != MatrixUnit.MFMA:
        first = target.turn(tile.sums(), tile.access(_PART_VECTOR), SUM_BITS)
    along = [_PART_VECTOR, tile.flat] + ([] if tile.swap else [output.vector])
    added = tile.access(max(along))
    store = tile.access(output.vector, ROW if tile.swap else COLUMN)
    bits = SUM_BITS if output.beta and tile.swap else output.bits
    second = target.turn(added, store, bits)
    if target.detours(second):
        fast = ROW if tile.swap else COLUMN
        reach = tile.reach(max(along)), tile.reach(output.vector, fast)
        second = detour_bytes(tile.rows, tile.columns, *reach, tile.warps, bits // 8)
    return max(first, second)


@lru_cache(maxsize=1 << 16)
def halves_scratch(output: Output, target: Target, tile: Tile) -> int:
    """Template "persistent_tma": what cutting the tile in two halves of its columns moves.

    A thread must hold both halves of what it stores; where warps or lanes hold one each, the sums
    are turned to the store's layout, in 32 bits. 128 rows of tensor memory are read half by half.
    """
    if tile.columns < 2 or (tile.unit == MatrixUnit.TCGEN05 and tile.rows >= 128):
        return 0
    sums = halved(tile.sums(), tile.columns)
    if 1 in sums.registers:
        return 0
    columns = tile.columns // 2
    store = tile.access(output.vector, ROW if tile.swap else COLUMN, columns)
    return target.turn(sums, both_halves(store), SUM_BITS)


_SCRATCH: dict[str, Callable[[Output, Target, Tile], int]] = {
    "tile": tile_scratch,
    "split_k": split_k_scratch,
    "persistent_tma": halves_scratch,
}
#: sides, warps and vectors are told apart by their logarithm: 2^15 is the most a knob may be
_SIZES = 16
_UNITS = len(MatrixUnit)
#: a load has at most 16 elements, and twice as many tell 0 from 1
_LOADS = 6


def epilogue_scratch(case: Case) -> Column:
    """Scratch of each configuration's epilogue, in bytes."""
    problem, table, profile = case.problem, case.table, case.profile
    limit = profile.shared_per_block_bytes if case.rules.detours else None
    target = Target(profile.warp_size, profile.compute_capability, limit)
    vector = min(_ACCESS_BYTES // problem.out_bytes, problem.row_align("c"))
    output = Output(problem.out_bytes * 8, vector, bool(problem.beta))
    numbers = (
        _log2(case.rows), _log2(case.columns), _log2(case.warps), case.unit, table.swap,
        _log2(_flat_loads(case) * 2),
    )  # fmt: skip
    radices = (_SIZES, _SIZES, _SIZES, _UNITS, 2, _LOADS)
    key = np.ravel_multi_index(numbers, radices, mode="clip")
    made = partial(Tile, lanes=target.lanes, chained=case.thirds)
    scratch = np.zeros(len(table), dtype=np.int64)
    for template, rule in _SCRATCH.items():
        chosen = table.is_template(template)
        if template == "persistent_tma":
            chosen = chosen & (case.parts > 1)
        if chosen.any():
            found = _by_key(key[chosen], radices, partial(rule, output, target), made)
            scratch[chosen] = found
    return scratch


def _by_key(
    key: Column, radices: tuple[int, ...], rule: Callable[[Tile], int], made: Callable[..., Tile]
) -> Column:
    """``rule`` of the tile ``made`` for each key, called once a distinct key."""
    present = np.zeros(int(np.prod(radices)), dtype=bool)
    present[key] = True
    distinct = np.flatnonzero(present)
    place = np.zeros(len(present), dtype=np.int32)
    place[distinct] = np.arange(len(distinct))
    values = [
        rule(made(1 << m, 1 << n, 1 << w, u, bool(s), (1 << f) >> 1))
        for m, n, w, u, s, f in np.stack(np.unravel_index(distinct, radices), axis=1).tolist()
    ]
    return np.array(values, dtype=np.int64)[place[key]]


def _flat_loads(case: Case) -> Column:
    """``Tile.flat``: A's tile is [rows, K] and B's [K, columns], as the kernel sees them."""
    a, b = case.operands
    k = case.table.block_k
    flat_a = np.where((k == case.columns) & ~a.off, a.loads, 0)
    flat_b = np.where((k == case.rows) & b.off, b.loads, 0)
    return np.asarray(np.maximum(flat_a, flat_b) // case.size, dtype=np.int64)


def _log2(numbers: Column) -> Column:
    return np.asarray(np.frexp(np.maximum(numbers, 1))[1] - 1, dtype=np.int64)
