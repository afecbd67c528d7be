"""Padding of operands that AMD's loads write to shared memory directly (gfx950, Triton 3.9).

A wave writes 64 times 16 bytes without a gap, so padding comes after each 1024 bytes. It spreads
rows over the banks for the load that feeds mfma: 16 bytes along K (ds_read_b128), 8 bytes across
it (ds_read_b64_tr), or narrower; where a tile has too few rows for that, it is swizzled instead
and takes no padding. Found as the ``padded_shared`` encodings of surveyed configurations; the
conditions are those of third_party/amd/lib/TritonAMDGPUTransforms/Utility.cpp.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]

_WAVE = 64
_VECTOR_BYTES = 16
_INTERVAL_BYTES = _WAVE * _VECTOR_BYTES
_BANK_BYTES = 4


def k_width(size: int, floats: bool, k: Column, side: Column) -> Column:
    """Neighbours along K that a lane feeds to one mfma: of the deepest that K holds (CDNA 4 ISA).

    16-bit types: 32x32x16 and 16x16x32 take 8, 16x16x16 takes 4. int8: 32x32x32 and 16x16x64
    take 16, half the depth 8. 8-bit floats: 32x32x64 and 16x16x128 take 16, less deep ones 8.
    ``side`` is the instruction's rows or columns, 16 or 32.
    """
    narrow = side == 16
    if size == 2:
        return np.where(narrow & (k < 32), 4, 8)
    deep = np.where(narrow, 128, 64) if floats else np.where(narrow, 64, 32)
    return np.where(k >= deep, 16, 8)


def padding(
    size: int, k: Column, outer: Column, along_k: NDArray[np.bool_], side: Column, width: Column
) -> Column:
    """Elements of padding after each 1024 bytes of an operand of ``outer`` by ``k`` elements.

    ``along_k`` where its rows run along K; ``width`` is ``k_width``. 0 where it is swizzled.
    """
    if size not in (1, 2):
        return np.zeros_like(k)
    wide = along_k & (width * size == 16)
    transposed = ~along_k & (width * size >= 8)
    pad = np.where(wide, np.where(side == 16, 2 * width, width), 8 // size)
    pad = np.where(transposed, np.where(side == 16, 16, 32), pad)
    banks = np.where(wide | transposed, 64, 32)
    row, rows = np.where(along_k, k, outer), np.where(along_k, outer, k)
    wrap = np.minimum(row, banks * _BANK_BYTES // size) // pad
    lanes = np.maximum(row // (_VECTOR_BYTES // size), 1)
    needed = _WAVE // lanes * wrap
    crowded = rows < needed
    # half the rows are borne where swizzling would do no better
    borne = ~wide & (needed < 4 * rows) & (wrap >= 2)
    swizzled = (wrap == 0) | (crowded & ~borne)
    return np.where(swizzled, 0, pad)


def padded_bytes(size: int, elements: Column, pad: Column) -> Column:
    """Bytes of a padded array: none after the last."""
    gaps = np.maximum(elements - 1, 0) // (_INTERVAL_BYTES // size)
    return np.asarray((elements + gaps * pad) * size, dtype=np.int64)
