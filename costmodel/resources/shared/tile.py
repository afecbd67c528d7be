"""A tile of C on its way out: who holds it when, and what a turn between two layouts takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costmodel.resources.matrix_unit import MatrixUnit
from costmodel.resources.shared.conversion import accesses, conversion_scratch
from costmodel.resources.shared.layouts import (
    COLUMN,
    ROW,
    Layout,
    blocked,
    mfma,
    mfma_side,
    mfma_warps,
    mma_sync,
    plain,
    store_vector,
    tensor_memory,
    wgmma,
)
from costmodel.resources.shared.padded import Reach

#: neighbouring columns that a lane holds of an mfma's sums
_MFMA_VECTOR = 4

_SUMS: dict[int, Callable[[int, int, int], Layout]] = {
    MatrixUnit.WGMMA: wgmma,
    MatrixUnit.TCGEN05: tensor_memory,
    MatrixUnit.MFMA: mfma,
}


@dataclass(frozen=True)
class Target:
    """What turns the sums: lanes a warp, and NVIDIA's compute capability (None: AMD).

    ``limit`` is the size past which a tile takes a detour; None where it never does.
    """

    lanes: int
    capability: int | None
    limit: int | None

    def turn(self, source: Layout, target: Layout, bits: int) -> int:
        """Bytes of scratch. AMD has plain accesses alone, of whatever width both sides share."""
        if self.capability is None:
            return conversion_scratch(source, target, bits, (), ())
        return conversion_scratch(source, target, bits, *accesses(self.capability, bits))

    def detours(self, scratch: int) -> bool:
        """Whether so much is moved by way of a third layout."""
        return self.limit is not None and scratch > self.limit


@dataclass(frozen=True)
class Output:
    """C as the epilogue sees it: bits of an element, elements of its widest aligned access."""

    bits: int
    vector: int
    beta: bool


@dataclass(frozen=True)
class Tile:
    """The kernel's own tile: its rows and columns (after a swap), warps and matrix unit.

    ``flat`` is the widest load, in elements, of an operand whose tile has C's own sides and runs
    along its columns, 0 where there is none: loads of equal shape and order share a layout.
    ``chained``: several products of the tile follow one another (tf32x3).
    """

    rows: int
    columns: int
    warps: int
    unit: int
    swap: bool
    flat: int = 0
    lanes: int = 32
    chained: bool = False

    def sums(self) -> Layout:
        if self.unit == MatrixUnit.MMA_SYNC:
            return mma_sync(self.rows, self.columns, self.warps, self.chained)
        if self.unit in (MatrixUnit.NONE, MatrixUnit.OTHER):  # another vendor's: not surveyed
            return plain(self.rows, self.columns, self.warps, self.lanes)
        return _SUMS[self.unit](self.rows, self.columns, self.warps)

    def access(self, vector: int, fast: int = COLUMN, columns: int | None = None) -> Layout:
        """A load's or store's layout of the tile, ``vector`` elements wide along ``fast``."""
        columns = self.columns if columns is None else columns
        wide = store_vector(self.rows, columns, self.warps * self.lanes, vector)
        sizes = (wide, 1) if fast == ROW else (1, wide)
        return blocked(self.rows, columns, sizes, self.warps, self.lanes, fast)

    def reach(self, vector: int, fast: int = COLUMN) -> Reach:
        """What ``access`` covers at once."""
        threads = self.warps * self.lanes
        vector = store_vector(self.rows, self.columns, threads, vector)
        along = min(threads, max((self.rows if fast == ROW else self.columns) // vector, 1))
        long, short = vector * along, threads // along
        rows, columns = (long, short) if fast == ROW else (short, long)
        return Reach(rows, columns, fast, vector)

    def mfma_reach(self) -> Reach:
        """What the warps' mfma instructions cover at once."""
        side = mfma_side(self.rows, self.columns)
        along_m, along_n = mfma_warps(self.rows, self.columns, self.warps)
        return Reach(side * along_m, side * along_n, COLUMN, _MFMA_VECTOR)
