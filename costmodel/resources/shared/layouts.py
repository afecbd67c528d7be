"""Who holds what of a tile: layouts of Triton's linear kind, whose every bit has one holder.

A tile of 2^r rows and 2^c columns has r + c bits of position, row-major: column bits first. A
layout says for each whether registers, lanes or warps number it; 0 stands for a holder whose bit
numbers nothing, since the tile is smaller. The order within a holder is that of its own bits.
Figures are those of PTX ISA (fragments of mma.sync and wgmma, shapes of tcgen05.ld) and of the
layouts in Triton's own intermediate text (``ttgir``, versions 3.6.0 and 3.9.0).
"""

from __future__ import annotations

from dataclasses import dataclass

ROW, COLUMN = 0, 1
Bits = tuple[int, ...]


def log2(number: int) -> int:
    """Whole part of the logarithm; 0 for what is less than 2."""
    return max(number, 1).bit_length() - 1


@dataclass(frozen=True)
class Layout:
    """Position bits by holder, as powers of two."""

    registers: Bits
    lanes: Bits
    warps: Bits

    @property
    def size(self) -> int:
        """Position bits in all."""
        return len({bit for bits in (self.registers, self.lanes, self.warps) for bit in bits} - {0})

    def moved(self, places: dict[int, int]) -> Layout:
        """The same holders for renumbered bits."""
        registers, lanes, warps = (
            tuple(places.get(bit, 0) for bit in bits)
            for bits in (self.registers, self.lanes, self.warps)
        )
        return Layout(registers, lanes, warps)


class _Deal:
    """Hands out the bits of a tile's axes in order, and 0 where an axis has none left."""

    def __init__(self, rows: int, columns: int) -> None:
        column_bits, row_bits = log2(columns), log2(rows)
        self.left = (
            [1 << (column_bits + bit) for bit in range(row_bits)],
            [1 << bit for bit in range(column_bits)],
        )

    def take(self, axis: int, count: int) -> list[int]:
        bits = self.left[axis]
        taken = bits[:count] + [0] * (count - len(bits))
        del bits[:count]
        return taken

    def rest(self, first: int) -> list[int]:
        return self.left[first] + self.left[1 - first]


def blocked(rows: int, columns: int, vector: tuple[int, int], warps: int, lanes: int,
            fast: int = COLUMN) -> Layout:  # fmt: skip
    """A load's or store's layout: ``vector`` neighbours a thread, then lanes and warps.

    Lanes, then warps, cover the ``fast`` axis before the other, which takes what is left over.
    """
    sizes = (rows, columns)
    slow = 1 - fast
    holders = []
    covered = vector[fast]
    for count in (lanes, warps):
        along = min(max(sizes[fast] // covered, 1), count)
        covered *= along
        holders.append((log2(along), log2(count // along)))
    deal = _Deal(rows, columns)
    registers = deal.take(fast, log2(vector[fast])) + deal.take(slow, log2(vector[slow]))
    of_lanes, of_warps = (deal.take(fast, f) + deal.take(slow, s) for f, s in holders)
    registers += deal.rest(fast)
    return Layout(tuple(b for b in registers if b), tuple(of_lanes), tuple(of_warps))


def store_vector(rows: int, columns: int, threads: int, most: int) -> int:
    """Neighbours a thread stores at once: ``most`` by width and alignment, or its share."""
    return min(most, max(rows * columns // threads, 1))


def mma_sync_warps(rows: int, columns: int, warps: int) -> tuple[int, int]:
    """Warps along a tile's rows and columns under mma.sync (m16n8 a warp).

    The side with more instructions left is cut next, rows where they are equal.
    """
    along_m = along_n = 1
    left_m, left_n = max(rows // 16, 1), max(columns // 8, 1)
    while along_m * along_n < warps:
        if left_m >= left_n:
            along_m, left_m = along_m * 2, max(left_m // 2, 1)
        else:
            along_n, left_n = along_n * 2, max(left_n // 2, 1)
    return along_m, along_n


def mma_sync(rows: int, columns: int, warps: int, chained: bool = False) -> Layout:
    """Sums of mma.sync m16n8 (PTX ISA): two columns and two rows 8 apart a thread.

    Where several products of a tile follow one another all warps lie along its longer side.
    """
    along_m, along_n = mma_sync_warps(rows, columns, warps)
    if chained:
        along_m, along_n = (warps, 1) if rows >= columns else (1, warps)
    deal = _Deal(rows, columns)
    registers = deal.take(COLUMN, 1)
    lanes = deal.take(COLUMN, 2) + deal.take(ROW, 3)
    registers += deal.take(ROW, 1)
    of_warps = deal.take(COLUMN, log2(along_n)) + deal.take(ROW, log2(along_m))
    registers += deal.rest(COLUMN)
    return Layout(tuple(b for b in registers if b), tuple(lanes), tuple(of_warps))


def wgmma_warps(rows: int, warps: int) -> tuple[int, int]:
    """Warps along rows and columns under wgmma: 16 rows a warp, the rest side by side."""
    along_m = min(warps, max(rows // 16, 1))
    return along_m, max(warps // along_m, 1)


#: widest wgmma (PTX ISA: n of m64nNk16)
_WGMMA_COLUMNS = 256


def wgmma(rows: int, columns: int, warps: int) -> Layout:
    """Sums of wgmma m64nN (PTX ISA): mma.sync's fragment, over all columns of an instruction."""
    along_m, along_n = wgmma_warps(rows, warps)
    wide = min(_WGMMA_COLUMNS, max(columns // along_n, 8))
    deal = _Deal(rows, columns)
    registers = deal.take(COLUMN, 1)
    lanes = deal.take(COLUMN, 2) + deal.take(ROW, 3)
    registers += deal.take(ROW, 1) + deal.take(COLUMN, log2(wide) - 3)
    of_warps = deal.take(ROW, log2(along_m)) + deal.take(COLUMN, log2(along_n))
    registers += deal.rest(COLUMN)
    return Layout(tuple(b for b in registers if b), tuple(lanes), tuple(of_warps))


def plain(rows: int, columns: int, warps: int, lanes: int) -> Layout:
    """Sums without a matrix unit: squares of 4, 2 or 1 a side a thread, as it has sums for."""
    sums = rows * columns // (warps * lanes)
    side = 4 if sums >= 16 else 2 if sums >= 4 else 1
    return blocked(rows, columns, (side, side), warps, lanes)


def tensor_memory(rows: int, columns: int, warps: int) -> Layout:
    """Sums as tcgen05.ld hands them out: a warp reads a quarter of the rows of one 128-row block.

    A second warp group takes the second block of rows, or the upper half of the columns. 128 rows
    give a row a lane; 64 rows give 16 lanes, and the other 16 the upper columns (16x32bx2).
    """
    deal = _Deal(rows, columns)
    rows_of, columns_of = deal.left
    lanes = deal.take(ROW, 5 if rows >= 128 else 4)
    of_warps = deal.take(ROW, 2)
    for _ in range(log2(warps) - 2):
        of_warps.append(rows_of.pop(0) if rows_of else columns_of.pop() if columns_of else 0)
    if rows < 128:
        lanes.append(columns_of.pop() if columns_of else 0)
    return Layout(tuple(deal.rest(COLUMN)), tuple(lanes), tuple(of_warps))


def mfma_side(rows: int, columns: int) -> int:
    """Rows and columns of one mfma instruction: 32 where the tile has as many on both sides."""
    return 32 if min(rows, columns) >= 32 else 16


def mfma_warps(rows: int, columns: int, warps: int) -> tuple[int, int]:
    """Warps along rows and columns under mfma: columns first, until there are twice the rows."""
    side = mfma_side(rows, columns)
    along_m = along_n = 1
    while along_m * along_n < warps:
        tall = rows // (2 * side) // along_m >= columns // side // along_n
        if tall and along_m < rows // side:
            along_m *= 2
        else:
            along_n *= 2
    return (along_n, along_m) if along_n * side > columns else (along_m, along_n)


def mfma(rows: int, columns: int, warps: int) -> Layout:
    """Sums of mfma with operands exchanged, as Triton emits it: four neighbouring columns a
    lane, a row a lane, and the other lanes at the next columns (CDNA 3 ISA, V_MFMA 32x32, 16x16).
    """
    side = log2(mfma_side(rows, columns))
    along_m, along_n = mfma_warps(rows, columns, warps)
    deal = _Deal(rows, columns)
    registers = deal.take(COLUMN, 2)
    lanes = deal.take(ROW, side) + deal.take(COLUMN, 6 - side)
    registers += deal.take(COLUMN, 2 * side - 8)
    of_warps = deal.take(COLUMN, log2(along_n)) + deal.take(ROW, log2(along_m))
    registers += deal.rest(COLUMN)
    return Layout(tuple(b for b in registers if b), tuple(lanes), tuple(of_warps))


def halved(layout: Layout, columns: int) -> Layout:
    """The layout seen as [rows, columns / 2, 2], where the last axis tells the halves apart."""
    half = log2(columns) - 1
    places = {1 << bit: 1 << (bit + 1) for bit in range(half)} | {1 << half: 1}
    places |= {1 << bit: 1 << bit for bit in range(half + 1, 31)}
    return layout.moved(places)


def both_halves(layout: Layout) -> Layout:
    """A layout of [rows, columns], as one of [rows, columns, 2] whose threads hold both halves."""
    up = {1 << bit: 1 << (bit + 1) for bit in range(30)}
    moved = layout.moved(up)
    return Layout((1, *moved.registers), moved.lanes, moved.warps)
