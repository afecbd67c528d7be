"""Scratch that turns sums from the matrix unit's layout to that of a store, in bytes.

Triton passes a tile through shared memory in as many turns as both layouts allow: every register
bit that they share, less those that a 16-byte access takes, halves the scratch. Bits are those of
a row or column number; a layout says for each whether a register, a lane or a warp holds it
(Triton's linear layouts; its swizzled conversion).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]

_VECTOR_BYTES = 16
_LANES = 32
_MOST_CUTS = 16  # warps are at most 2^15 (config.MOST_KNOB), and each cut doubles their places


def _bits(numbers: Column) -> Column:
    """log2 of powers of two; 0 for what is less than 2."""
    return np.asarray(np.round(np.log2(np.maximum(numbers, 1))), dtype=np.int64)


def mma_sync_warps(rows: Column, columns: Column, warps: Column) -> tuple[Column, Column]:
    """Warps along a tile's rows and columns under mma.sync (m16n8 a warp).

    The side with more instructions left is cut next, rows where they are equal.
    """
    along_m, along_n = np.ones_like(warps), np.ones_like(warps)
    left_m, left_n = np.maximum(rows // 16, 1), np.maximum(columns // 8, 1)
    for _ in range(_MOST_CUTS):
        open_ = along_m * along_n < warps
        cut_m = open_ & (left_m >= left_n)
        cut_n = open_ & ~cut_m
        along_m, along_n = (
            np.where(cut_m, along_m * 2, along_m),
            np.where(cut_n, along_n * 2, along_n),
        )
        left_m = np.where(cut_m, np.maximum(left_m // 2, 1), left_m)
        left_n = np.where(cut_n, np.maximum(left_n // 2, 1), left_n)
    return along_m, along_n


def wgmma_warps(rows: Column, warps: Column) -> tuple[Column, Column]:
    """Warps along rows and columns under wgmma: 16 rows a warp, the rest side by side."""
    along_m = np.minimum(warps, np.maximum(rows // 16, 1))
    return along_m, np.maximum(warps // along_m, 1)


def conversion_scratch(
    rows: Column, columns: Column, warps: Column, size: int, along: tuple[Column, Column]
) -> Column:
    """Bytes to turn a [rows, columns] tile of ``size``-byte sums to a row-major store.

    ``along`` are the matrix unit's warps along rows and columns. The store's layout gives a
    thread neighbouring columns of 16 bytes, then lanes and warps along columns first.
    """
    threads = warps * _LANES
    vector = np.minimum(_VECTOR_BYTES // size, np.maximum(rows * columns // threads, 1))
    lanes_n = np.clip(columns // vector, 1, _LANES)
    warps_n = np.clip(columns // (vector * lanes_n), 1, warps)
    row_span = (_LANES // lanes_n) * (warps // warps_n)
    column_span = vector * lanes_n * warps_n
    row_bits, column_bits = _bits(rows), _bits(columns)
    # registers of the matrix unit: column bit 0, row bit 3, and what its warps do not cover
    shared_m = np.maximum(row_bits - np.maximum(_bits(16 * along[0]), _bits(row_span)), 0)
    shared_m = shared_m + ((_bits(row_span) <= 3) & (row_bits > 3))
    shared_n = np.maximum(column_bits - np.maximum(_bits(8 * along[1]), _bits(column_span)), 0)
    shared_n = shared_n + (vector >= 2)
    turns = np.maximum(shared_m + shared_n - int(np.log2(_VECTOR_BYTES // size)), 0)
    return np.asarray((rows * columns * size) >> turns, dtype=np.int64)
