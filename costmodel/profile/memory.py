"""One on-chip memory of a chip that has several, by what it holds of a kernel's data."""

from __future__ import annotations

from dataclasses import dataclass

#: what a memory may hold, and for whom the space is counted:
#: - "operands": a step's tiles of A and B, BLOCK_K deep
#: - "inner_a", "inner_b": the part of a tile that the matrix unit reads at a time
#: - "accumulator": the sums of the output tile, 4 bytes each
#: - "epilogue": the tile on its way through vector units, where something is fused to the product
HOLDS: tuple[str, ...] = ("operands", "inner_a", "inner_b", "accumulator", "epilogue")
#: whose the capacity is: a block's, or each of its warps'
OWNERS: tuple[str, ...] = ("block", "warp")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A named capacity in bytes, and what it holds.

    ``buffers`` copies of its contents are kept, so that a load overlaps the work on the one
    before. A unit has ``copies`` of the memory, and what it holds is dealt to them evenly.
    ``per`` says whose the capacity is, a member of ``OWNERS``.
    """

    name: str
    capacity_bytes: int
    holds: tuple[str, ...]
    buffers: int = 1
    copies: int = 1
    per: str = "block"
