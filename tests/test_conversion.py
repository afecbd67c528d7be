"""Scratch of layout conversions by hand, each beside the compiler's own figure (Triton 3.6.0)."""

import pytest

from costmodel.resources.shared.conversion import accesses, conversion_scratch
from costmodel.resources.shared.layouts import (
    ROW,
    Layout,
    blocked,
    both_halves,
    halved,
    mfma,
    mfma_warps,
    mma_sync,
    mma_sync_warps,
    plain,
    tensor_memory,
    wgmma,
)
from costmodel.resources.shared.padded import Reach, detour_bytes
from costmodel.resources.shared.tile import Target, Tile

SM80 = Target(32, 80, None)
SM90 = Target(32, 90, None)
GFX90A = Target(64, None, 65536)


# --- layouts: the bits of a tile, columns first --------------------------------------------------


def test_a_layout_holds_each_bit_of_a_tile_once_and_repeats_what_is_too_small():
    # 16 x 64 by 8 warps under mma.sync: 1 x 8 warps, m16n8 each
    layout = mma_sync(16, 64, 8)
    assert layout.registers == (1, 512)  # column 0 and row 3
    assert layout.lanes == (2, 4, 64, 128, 256)  # columns 1, 2, rows 0 to 2
    assert layout.warps == (8, 16, 32)
    # twice the warps have nothing left to hold: a warp bit says nothing
    assert mma_sync(16, 64, 16).warps == (8, 16, 32, 0)


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
    assert mma_sync_warps(rows, columns, warps) == along


# ttgir of Triton 3.6.0 names these: amd_mfma<{... warpsPerCTA = [2, 4] ...}>
@pytest.mark.parametrize(
    ("rows", "columns", "warps", "along"),
    [
        (128, 128, 4, (2, 2)),
        (64, 128, 4, (1, 4)),
        (64, 64, 2, (1, 2)),
        (256, 16, 4, (4, 1)),
        (256, 256, 8, (2, 4)),
        (32, 256, 8, (1, 8)),
        (32, 32, 16, (16, 1)),
    ],
)
def test_mfma_takes_columns_until_there_are_twice_the_rows(rows, columns, warps, along):
    assert mfma_warps(rows, columns, warps) == along


def bits(layout, columns):
    """(row bit, column bit) by holder, from position bits."""
    width = columns.bit_length() - 1

    def pair(bit):
        return [0, 0] if not bit else [bit >> width, 0] if bit >> width else [0, bit]

    return tuple(
        [pair(bit) for bit in holder] for holder in (layout.registers, layout.lanes, layout.warps)
    )


# each but the last is the linear layout that ttgir prints for the configuration named
@pytest.mark.parametrize(
    ("layout", "columns", "registers", "lanes", "warps"),
    [
        (  # persistent_tma 128x64x16 w4 swap on sm_100: tmem_load of 64 x 128
            tensor_memory(64, 128, 4), 128,
            [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [0, 32]],
            [[1, 0], [2, 0], [4, 0], [8, 0], [0, 64]], [[16, 0], [32, 0]],
        ),
        (  # tile 64x128x128 w8 on sm_100: the second warp group takes the upper columns
            tensor_memory(64, 128, 8), 128,
            [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16]],
            [[1, 0], [2, 0], [4, 0], [8, 0], [0, 32]], [[16, 0], [32, 0], [0, 64]],
        ),
        (  # split_k 256x256x64 w8 on sm_100: or the second block of 128 rows
            tensor_memory(256, 256, 8), 256,
            [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [0, 32], [0, 64], [0, 128]],
            [[1, 0], [2, 0], [4, 0], [8, 0], [16, 0]], [[32, 0], [64, 0], [128, 0]],
        ),
        (  # persistent_tma 64x64x32 w8 on sm_90: two warp groups side by side
            wgmma(64, 64, 8), 64,
            [[0, 1], [8, 0], [0, 8], [0, 16]],
            [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0], [0, 32]],
        ),
        (  # CDNA 3 ISA: 32x32 of mfma with operands exchanged, 2 x 4 warps
            mfma(64, 128, 8), 128,
            [[0, 1], [0, 2], [0, 8], [0, 16]],
            [[1, 0], [2, 0], [4, 0], [8, 0], [16, 0], [0, 4]], [[0, 32], [0, 64], [32, 0]],
        ),
    ],
)  # fmt: skip
def test_sums_lie_as_the_compiler_prints_them(layout, columns, registers, lanes, warps):
    assert bits(layout, columns) == (registers, lanes, warps)


def test_without_a_matrix_unit_a_thread_holds_squares():
    # blocked<{sizePerThread = [4, 4], threadsPerWarp = [1, 32], warpsPerCTA = [2, 2]}>
    assert plain(16, 256, 4, 32) == blocked(16, 256, (4, 4), 4, 32)
    assert bits(plain(16, 256, 4, 32), 256)[2] == [[0, 128], [4, 0]]


def test_halves_of_a_tile_are_told_apart_by_a_bit_of_their_own():
    assert halved(Layout((1, 2), (4, 8), ()), 4) == Layout((2, 1), (4, 8), ())
    assert both_halves(Layout((1,), (2,), (4,))) == Layout((1, 2), (4,), (8,))


# --- conversions ---------------------------------------------------------------------------------


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
def test_sums_of_mma_sync_are_turned_in_as_many_turns_as_bits_are_shared(
    rows, columns, warps, expected
):
    parts = blocked(rows, columns, (1, 4), warps, 32)
    assert SM80.turn(mma_sync(rows, columns, warps), parts, 32) == expected


@pytest.mark.parametrize(
    ("rows", "columns", "warps", "expected"),
    [(64, 256, 4, 65536), (128, 256, 4, 65536), (256, 256, 8, 131072), (128, 32, 16, 16384)],
)
def test_sums_of_wgmma_are_turned_whole_or_in_halves(rows, columns, warps, expected):
    parts = blocked(rows, columns, (1, 4), warps, 32)
    assert SM90.turn(wgmma(rows, columns, warps), parts, 32) == expected


def test_stmatrix_frees_a_register_bit_that_plain_stores_would_carry():
    # persistent_tma 64x64x32 w8 epi2 on sm_90: 64 x 32 x 2 sums of 32 bits are 16384 bytes.
    # stmatrix writes four lanes' columns as the 16 bytes that a thread reads, so the one shared
    # register bit makes two turns
    sums = halved(wgmma(64, 64, 8), 64)
    store = both_halves(blocked(64, 32, (1, 8), 8, 32))
    assert conversion_scratch(sums, store, 32) == 16384
    assert conversion_scratch(sums, store, 32, *accesses(90, 32)) == 8192


def test_lanes_of_a_warp_exchange_one_bit_without_scratch_and_not_two():
    source = Layout((1, 2, 4), (8, 16, 32, 64, 128), ())
    assert SM80.turn(source, Layout((8, 2, 4), (1, 16, 32, 64, 128), ()), 32) == 0
    assert SM80.turn(source, Layout((8, 16, 4), (1, 2, 32, 64, 128), ()), 32) == 512


def test_a_tile_too_large_for_amd_goes_by_way_of_a_third_layout():
    # split_k 256x128 swapped, fp32, 8 warps on gfx90a: 128 x 256 is turned through [16, 256 + 4]
    tile = Tile(128, 256, 8, 4, True, lanes=64)
    row_wise, column_wise = tile.reach(4), tile.reach(8, ROW)
    assert (row_wise.rows, row_wise.columns) == (8, 256)
    assert (column_wise.rows, column_wise.columns) == (128, 32)
    assert detour_bytes(128, 256, row_wise, column_wise, 8, 4) == 16 * (256 + 4) * 4


def test_a_detours_rectangle_is_never_larger_than_the_tile():
    small = Reach(8, 8, 1, 1)
    assert detour_bytes(16, 16, small, small, 1, 2) <= 16 * 17 * 2
    assert not GFX90A.detours(65536)
    assert GFX90A.detours(65537)
