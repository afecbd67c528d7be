"""Strides against what serves them: banks of shared memory, partitions of device memory."""

from __future__ import annotations

import math

#: 32 banks of 4 bytes (CUDA programming guide, shared memory; AMD's LDS has the same row)
BANK_ROW_BYTES = 128
#: a matrix load reads rows of 16 bytes, 8 of them at a time (PTX ISA, ldmatrix)
_ROWS_AT_ONCE = 8
#: memory is dealt to channels in pieces of 256 bytes to 4 KiB; past that, a power of two meets the
#: same channel each time unless the address is hashed
CHANNEL_BYTES = 4096


def bank_ways(pitch_bytes: int) -> int:
    """How many of 8 rows that are read together start at the same bank, without a swizzle.

    1 is free of conflicts. Rows ``pitch_bytes`` apart start ``128 / gcd(pitch, 128)`` banks' worth
    of places apart before they repeat.

    >>> [bank_ways(pitch) for pitch in (32, 64, 128, 144)]
    [2, 4, 8, 1]
    """
    places = BANK_ROW_BYTES // math.gcd(pitch_bytes, BANK_ROW_BYTES)
    return -(-_ROWS_AT_ONCE // places)


def meets_one_channel(pitch_bytes: int) -> bool:
    """Whether rows this far apart differ in no address bit that picks a channel, unhashed.

    >>> meets_one_channel(2 * 8192), meets_one_channel(2 * 8200)
    (True, False)
    """
    return pitch_bytes % CHANNEL_BYTES == 0
