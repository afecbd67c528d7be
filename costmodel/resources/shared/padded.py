"""AMD's way out where a conversion's scratch is more than there is: by way of a third layout.

Triton's pass for that (add_optimize_lds_usage) turns a tile in two steps, each through a padded
rectangle as large as both layouts' reach, and takes the third layout that needs the least. Found
by compiling swapped split_k for gfx90a: 256x128 in fp32 takes 16 * (256 + 4) * 4 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.resources.shared.layouts import COLUMN

#: lanes of the third layout, a single element each
_ROWS, _COLUMNS = 8, 8


@dataclass(frozen=True)
class Reach:
    """Rows and columns that all threads cover at once, the fast axis, neighbours along it."""

    rows: int
    columns: int
    fast: int
    vector: int


def detour_bytes(
    rows: int, columns: int, source: Reach, target: Reach, warps: int, size: int
) -> int:
    """Scratch of both steps, at the best split of ``warps``, for elements of ``size`` bytes."""
    found = []
    along = 1
    while along <= warps:
        third = Reach(_ROWS * along, _COLUMNS * (warps // along), COLUMN, 1)
        steps = ((source, third), (third, target))
        found.append(max(_padded(rows, columns, one, other) for one, other in steps))
        along *= 2
    return min(found) * size


def _padded(rows: int, columns: int, source: Reach, target: Reach) -> int:
    """Elements of one step's rectangle; rows or columns are padded by a thread's neighbours."""
    tall = min(max(source.rows, target.rows), rows)
    wide = min(max(source.columns, target.columns), columns)
    if target.fast != COLUMN:
        return (tall + 1) * wide
    written = source.vector if source.fast == COLUMN else 1
    return tall * (wide + max(written, target.vector))
