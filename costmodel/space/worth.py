"""Which rows of the grid are worth a thought: those that no other row does the same as with less.

Some of it the row alone decides, some the alignment of operands, and the rest are bounds on the
problem's sizes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.footprint import LEAST_ASYNC_BYTES, load_bytes
from costmodel.space.schema import least_of

Mask = NDArray[np.bool_]

#: a block has at least this many rows of the matrix unit's tall side on Hopper (wgmma m64)
_TALL = 64
#: splitting K past this many programs a unit only adds partial sums to write and read
_SPLIT_PROGRAMS_PER_UNIT = 4
#: rows and columns of one register-resident accumulator: 128x256 fp32 fills 8 warps' registers
_LARGEST_TILE = 128 * 256
#: 128x256x64 in fp16 by 4 warps takes 24 loads of 16 bytes a thread, 192 of 2 bytes
_MOST_LOADS_PER_THREAD = 96
#: tiles along M from which their order matters
_GROUPED_TILES = 5


def worth_a_thought(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Mask:
    """Mask of the rows that no other row of the grid does the same as, or the same with less.

    What a chip holds fixed is never too much: there is nothing less to take.
    """
    sizes = SizeBounds.of(table, profile).hold(problem)
    keep = sensible_tiles(table, profile) & loads_suit(problem, table) & sizes
    return np.asarray(keep, dtype=bool)


def sensible_tiles(table: ConfigTable, profile: HardwareProfile) -> Mask:
    """Mask of the rows whose tile suits their other knobs."""
    area = table.block_m * table.block_n
    # a chip that names its own memories says itself how large a tile may be
    keep = (area <= _LARGEST_TILE) | bool(profile.memories)
    # swapping gives the tall side to N: only where M's block is too short for it
    tall = (table.block_m < _TALL) & (table.block_n >= _TALL)
    keep &= (table.swap == 0) | tall | (profile.knobs.get("swap") == (True,))
    # eight warps on a small tile leave each with less than one instruction's rows
    keep &= (table.num_warps <= least_of(profile, "num_warps", 4)) | (area >= 64 * 64)
    # two halves of a narrow tile are no cheaper to stage than the whole
    keep &= (table.epilogue_parts == 1) | ((table.block_m >= _TALL) & (table.block_n >= 2 * _TALL))
    return np.asarray(keep, dtype=bool)


def loads_suit(problem: Gemm, table: ConfigTable) -> Mask:
    """``sensible_loads``, of which a chip without warps knows nothing."""
    return np.asarray(sensible_loads(problem, table) | (table.num_warps == 0), dtype=bool)


def sensible_loads(problem: Gemm, table: ConfigTable) -> Mask:
    """Mask of the rows whose loads pipeline as deep as asked and compile in reasonable time."""
    by_pointer = table.is_template("tile") | table.is_template("split_k")
    # loads too narrow for the asynchronous copy are not pipelined: every depth is one kernel
    widest = np.minimum(load_bytes(problem, table, "a"), load_bytes(problem, table, "b"))
    pipelined = (widest >= LEAST_ASYNC_BYTES) | (table.num_stages <= 2)
    # loads are unrolled: past this many a thread, ptxas runs for minutes on code that spills
    loads = (table.block_m + table.block_n) * table.block_k * problem.element_bytes // widest
    short = loads <= _MOST_LOADS_PER_THREAD * 32 * table.num_warps
    return np.asarray(~by_pointer | (pipelined & short), dtype=bool)


class SizeBounds:
    """Sizes at which each row is worth a thought, as rows of one matrix.

    ``least_steps`` and ``most_steps`` of K in a program, K ``longer_than``, ``most_programs``,
    and ``least_tiles_m``.
    """

    def __init__(self, matrix: NDArray[np.float64]) -> None:
        self.matrix = matrix

    @classmethod
    def of(cls, table: ConfigTable, profile: HardwareProfile) -> SizeBounds:
        split, matvec = table.split_k > 1, table.is_template("matvec")
        # a pipeline deeper than the loop is long is the shallower pipeline with more SRAM; a part
        # of K has two steps or more
        deep = table.num_stages > least_of(profile, "num_stages", 2)
        least_steps = np.maximum(np.where(deep, table.num_stages, 0), np.where(split, 2, 0))
        # one stage overlaps nothing: it has a point only where there is nothing to overlap
        fixed = profile.knobs.get("num_stages") == (1,)
        most_steps = np.where((table.num_stages == 1) & ~matvec & (not fixed), 2, np.inf)
        # K in steps longer than K itself
        shallowest = np.where(matvec, 512, least_of(profile, "block_k", 32))
        longer_than = np.where(table.block_k <= shallowest, 0, table.block_k / 2)
        most_programs = np.where(split, _SPLIT_PROGRAMS_PER_UNIT * profile.units, np.inf)
        # the order of tiles matters only where there are rows of tiles to group
        grouped = table.is_template("persistent_tma") & (table.group_m != 4)
        least_tiles_m = np.where(grouped, _GROUPED_TILES, 0)
        return cls(
            np.stack([
                table.block_m, table.block_n, table.block_k * table.split_k, table.split_k,
                least_steps, most_steps, longer_than, most_programs, least_tiles_m,
            ]).astype(np.float64)
        )  # fmt: skip

    def __len__(self) -> int:
        return int(self.matrix.shape[1])

    def take(self, rows: NDArray[np.int64]) -> SizeBounds:
        """Those of some rows."""
        return SizeBounds(self.matrix.take(rows, axis=1))

    def hold(self, problem: Gemm) -> Mask:
        """Mask of the rows whose bounds a problem's sizes keep to."""
        (
            block_m, block_n, depth, split_k,
            least_steps, most_steps, longer_than, most_programs, least_tiles_m,
        ) = self.matrix  # fmt: skip
        tiles_m = np.ceil(problem.m / block_m)
        programs = tiles_m * np.ceil(problem.n / block_n) * (split_k * problem.batch)
        steps = np.ceil(problem.k / depth)
        keep = (least_steps <= steps) & (steps <= most_steps) & (longer_than < problem.k)
        keep &= (programs <= most_programs) & (least_tiles_m <= tiles_m)
        return np.asarray(keep, dtype=bool)
