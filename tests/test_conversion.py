"""Scratch of layout conversions by hand, each beside the compiler's own figure (Triton 3.6.0)."""

import numpy as np
import pytest

from costmodel.resources.conversion import conversion_scratch, mma_sync_warps, wgmma_warps


def column(*numbers):
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize(
    ("rows", "columns", "warps", "along"),
    [
        (256, 128, 4, (2, 2)),  # 16 row and 16 column instructions: rows, then columns
        (64, 256, 4, (1, 4)),  # 4 and 32: columns twice
        (32, 128, 8, (1, 8)),  # 2 and 16: columns three times
        (256, 32, 8, (8, 1)),  # 16 and 4: rows down to 4, and again where equal
    ],
)
def test_mma_sync_cuts_the_side_with_more_instructions(rows, columns, warps, along):
    found = mma_sync_warps(column(rows), column(columns), column(warps))
    assert (int(found[0][0]), int(found[1][0])) == along


@pytest.mark.parametrize(
    ("rows", "columns", "warps", "expected"),
    [
        # 4 columns a thread, 32 lanes, a warp a row: registers hold column bits 0, 1 and row bits
        # 2 to 7; mma.sync in 2 x 2 warps holds column bit 0, row bits 3, 5, 6, 7: five in common,
        # two of them in a 16-byte access, so 2^3 turns
        (256, 128, 4, 131072 // 8),
        (128, 128, 4, 65536 // 4),
        (64, 256, 4, 65536 // 4),
        (32, 128, 8, 16384 // 2),
        (256, 32, 8, 32768),
        (16, 32, 4, 2048),
    ],
)
def test_split_k_under_mma_sync_turns_its_sums_in_as_many_turns_as_bits_are_shared(
    rows, columns, warps, expected
):
    m, n, w = column(rows), column(columns), column(warps)
    assert int(conversion_scratch(m, n, w, 4, mma_sync_warps(m, n, w))[0]) == expected


@pytest.mark.parametrize(
    ("rows", "columns", "warps", "expected"),
    [(64, 256, 4, 65536), (128, 256, 4, 65536), (256, 256, 8, 131072), (128, 32, 16, 16384)],
)
def test_split_k_under_wgmma_turns_its_sums_whole_or_in_halves(rows, columns, warps, expected):
    m, n, w = column(rows), column(columns), column(warps)
    assert int(conversion_scratch(m, n, w, 4, wgmma_warps(m, w))[0]) == expected
