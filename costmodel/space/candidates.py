"""The grid of configurations that are worth a thought for a problem, sound and unsound alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.footprint import LEAST_ASYNC_BYTES, load_bytes
from costmodel.space.narrow import matvec_candidates
from costmodel.space.schema import has_template, least_of, values_of, with_its_knobs
from costmodel.space.specialized import warp_group_candidates

_BLOCKS = (16, 32, 64, 128, 256)
#: knobs that the template or the problem decides, not the chip
_OF_TEMPLATE = ("template", "block_m", "block_n", "split_k", "epilogue_parts")
#: stage counts: every depth where tiles are large, wide steps where they are small and many fit
_STAGES = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_SPLITS = (2, 4, 8, 16, 32, 64)
#: a part of K is short, and its programs many: fewer depths tell the same
_SPLIT_STAGES = (2, 3, 4, 6, 8, 12)
#: a block has at least this many rows of the matrix unit's tall side on Hopper (wgmma m64)
_TALL = 64
#: splitting K past this many programs a unit only adds partial sums to write and read
_SPLIT_PROGRAMS_PER_UNIT = 4
#: rows and columns of one register-resident accumulator: 128x256 fp32 fills 8 warps' registers
_LARGEST_TILE = 128 * 256
#: 128x256x64 in fp16 by 4 warps takes 24 loads of 16 bytes a thread, 192 of 2 bytes
_MOST_LOADS_PER_THREAD = 96


def _block_choices(size: int, blocks: Sequence[int] = _BLOCKS) -> list[int]:
    """Blocks along an axis: not far above its size, and not tiny where the axis is long.

    Up to 64 stays in at any size: 64 rows are the least that Hopper's wgmma takes, so a block of
    64 is often the best for 16 rows of data.
    """
    smallest = 16 if size <= 256 else 32 if size <= 1024 else 64
    largest = max(64, 1 << (size - 1).bit_length())
    return [block for block in blocks if smallest <= block <= largest] or [min(blocks)]


def candidates(problem: Gemm, profile: HardwareProfile) -> ConfigTable:
    """Every configuration to consider, as columns; ``prune`` says which the chip cannot run.

    A few thousand rows in a fixed order. Nothing here asks whether a row fits.
    """
    block_m, block_n = (
        _block_choices(size, values_of(profile, name, _BLOCKS))
        for name, size in (("block_m", problem.m), ("block_n", problem.n))
    )
    table = table_of_templates(problem, profile, block_m, block_n)
    table = table[worth_a_thought(problem, table, profile)]
    others = [matvec_candidates(problem), warp_group_candidates(problem, profile)]
    return ConfigTable.concat([table, *(with_its_knobs(other, profile) for other in others)])


def table_of_templates(
    problem: Gemm, profile: HardwareProfile, block_m: Sequence[int], block_n: Sequence[int]
) -> ConfigTable:
    """The whole grid of the templates whose blocks are powers of two, for these blocks."""
    shared = {
        "block_m": block_m,
        "block_n": block_n,
        "num_warps": (4, 8),
        "num_stages": _STAGES,
        "load_bits": (128,),
        "swap": (False, True),
    }
    grids: list[dict[str, Sequence[Any]]] = [
        {"template": ("tile",), "block_k": (32, 64, 128), "group_m": (8,), "split_k": (1,),
         "epilogue_parts": (1,)},
        {"template": ("split_k",), "block_k": (64, 128), "group_m": (8,), "split_k": _SPLITS,
         "epilogue_parts": (1,), "num_stages": _SPLIT_STAGES},
    ]  # fmt: skip
    if "tma" in profile.async_copy:
        grids.append(
            {"template": ("persistent_tma",), "block_k": (64, 128), "group_m": (4, 16),
             "split_k": (1,), "epilogue_parts": (1, 2)}
        )  # fmt: skip
    tables = [
        ConfigTable.grid(**{
            name: values if name in _OF_TEMPLATE else values_of(profile, name, values)
            for name, values in (shared | grid).items()
        })
        for grid in grids
        if has_template(profile, grid["template"][0])
    ]  # fmt: skip
    return ConfigTable.concat([ConfigTable.of([]), *tables])


def worth_a_thought(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile
) -> NDArray[np.bool_]:
    """Mask of the rows that no other row of the grid does the same as, or the same with less.

    What a chip holds fixed is never too much: there is nothing less to take.
    """
    tiles_m = -(-problem.m // table.block_m)
    tiles = tiles_m * -(-problem.n // table.block_n) * problem.batch
    steps = -(-problem.k // (table.block_k * table.split_k))
    area = table.block_m * table.block_n
    # a chip that names its own memories says itself how large a tile may be
    keep = (area <= _LARGEST_TILE) | bool(profile.memories)
    # a pipeline deeper than the loop is long is the shallower pipeline with more SRAM
    keep &= (table.num_stages <= steps) | (table.num_stages <= least_of(profile, "num_stages", 2))
    # one stage overlaps nothing: it has a point only where there is nothing to overlap
    keep &= (table.num_stages != 1) | (steps <= 2) | (profile.knobs.get("num_stages") == (1,))
    # swapping gives the tall side to N: only where M's block is too short for it
    tall = (table.block_m < _TALL) & (table.block_n >= _TALL)
    keep &= (table.swap == 0) | tall | (profile.knobs.get("swap") == (True,))
    # eight warps on a small tile leave each with less than one instruction's rows
    keep &= (table.num_warps <= least_of(profile, "num_warps", 4)) | (area >= 64 * 64)
    # K in steps longer than K itself
    keep &= (table.block_k <= least_of(profile, "block_k", 32)) | (table.block_k < 2 * problem.k)
    split = table.split_k > 1
    keep &= ~split | (steps >= 2)
    keep &= ~split | (tiles * table.split_k <= _SPLIT_PROGRAMS_PER_UNIT * profile.units)
    # the order of tiles matters only where there are rows of tiles to group
    persistent = table.is_template("persistent_tma")
    keep &= ~persistent | (table.group_m == 4) | (tiles_m > 4)
    keep &= sensible_loads(problem, table) | (table.num_warps == 0)
    # two halves of a narrow tile are no cheaper to stage than the whole
    keep &= (table.epilogue_parts == 1) | ((table.block_m >= _TALL) & (table.block_n >= 2 * _TALL))
    return np.asarray(keep, dtype=bool)


def sensible_loads(problem: Gemm, table: ConfigTable) -> NDArray[np.bool_]:
    """Mask of the rows whose loads pipeline as deep as asked and compile in reasonable time."""
    by_pointer = table.is_template("tile") | table.is_template("split_k")
    # loads too narrow for the asynchronous copy are not pipelined: every depth is one kernel
    widest = np.minimum(load_bytes(problem, table, "a"), load_bytes(problem, table, "b"))
    pipelined = (widest >= LEAST_ASYNC_BYTES) | (table.num_stages <= 2)
    # loads are unrolled: past this many a thread, ptxas runs for minutes on code that spills
    loads = (table.block_m + table.block_n) * table.block_k * problem.element_bytes // widest
    short = loads <= _MOST_LOADS_PER_THREAD * 32 * table.num_warps
    return np.asarray(~by_pointer | (pipelined & short), dtype=bool)
