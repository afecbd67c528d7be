"""The grid of configurations that are worth a thought for a problem, sound and unsound alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.legality import knobs_set_otherwise
from costmodel.space.kinds import ByKind
from costmodel.space.narrow import matvec_candidates
from costmodel.space.schema import has_template, values_of, with_its_knobs
from costmodel.space.specialized import WarpGroupGrid, warp_group_grid, with_parts
from costmodel.space.worth import SizeBounds, loads_suit, sensible_tiles

Rows = NDArray[np.int64]

_BLOCKS = (16, 32, 64, 128, 256)
#: knobs that the template or the problem decides, not the chip
_OF_TEMPLATE = ("template", "block_m", "block_n", "split_k", "epilogue_parts")
#: stage counts: every depth where tiles are large, wide steps where they are small and many fit
_STAGES = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_SPLITS = (2, 4, 8, 16, 32, 64)
#: a part of K is short, and its programs many: fewer depths tell the same
_SPLIT_STAGES = (2, 3, 4, 6, 8, 12)


def candidates(problem: Gemm, profile: HardwareProfile) -> ConfigTable:
    """Every configuration to consider, as columns; ``prune`` says which the chip cannot run.

    A few thousand rows in a fixed order. Nothing here asks whether a row fits.
    """
    grid = grid_of(problem, profile)
    (picked,) = grid.pick([problem], profile.units)
    return with_parts(grid.configs, *picked)


def table_of_templates(
    profile: HardwareProfile, block_m: Sequence[int], block_n: Sequence[int]
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


@dataclass(frozen=True)
class Grid:
    """All rows that problems of one kind may choose from on one chip.

    ``configs`` are those of templates whose blocks are powers of two, and of "matvec", for which
    there are ``bounds``; behind them those of ``groups``, which stand for every number of parts
    of K. Only rows ``among`` these are picked. ``block_m`` and ``block_n`` are the chip's
    sides of a tile.
    """

    configs: ConfigTable
    bounds: SizeBounds
    groups: WarpGroupGrid
    among: NDArray[np.bool_]
    block_m: tuple[int, ...]
    block_n: tuple[int, ...]
    _by_blocks: dict[tuple[Sequence[int], Sequence[int]], Rows] = field(
        default_factory=dict, compare=False, repr=False
    )

    def pick(self, problems: Sequence[Gemm], units: int) -> list[tuple[Rows, Rows]]:
        """Rows for problems of the grid's kind, in a fixed order, and the parts of K of each."""
        groups, split_k, owner = self.groups.pick(problems, units)
        groups = groups + len(self.bounds)
        among = self.among[groups]
        groups, split_k, owner = groups[among], split_k[among], owner[among]
        ends = np.searchsorted(owner, np.arange(len(problems) + 1)).tolist()
        found = []
        for problem, (start, end) in zip(problems, pairwise(ends), strict=True):
            square = self._of_blocks(
                _block_choices(problem.m, self.block_m), _block_choices(problem.n, self.block_n)
            )
            square = square[self.bounds.take(square).hold(problem)]
            rows = np.concatenate([square, groups[start:end]])
            parts = np.concatenate([self.configs.split_k[square], split_k[start:end]])
            found.append((rows, parts))
        return found

    def _of_blocks(self, block_m: Sequence[int], block_n: Sequence[int]) -> Rows:
        """Rows with these blocks, and "matvec", which has its own; at most 25 pairs of choices."""
        rows = self._by_blocks.get((block_m, block_n))
        if rows is None:
            table = self.configs[: len(self.bounds)]
            blocks = np.isin(table.block_m, block_m) & np.isin(table.block_n, block_n)
            blocks |= table.is_template("matvec")
            rows = np.flatnonzero(blocks & self.among[: len(blocks)])
            self._by_blocks[block_m, block_n] = rows
        return rows


def grid_of(problem: Gemm, profile: HardwareProfile) -> Grid:
    """The grid of a problem's kind on a chip."""
    return _GRIDS.of(problem, profile)


def _made(problem: Gemm, profile: HardwareProfile) -> Grid:
    every = _every_tile(profile)
    table = every[np.flatnonzero(loads_suit(problem, every))]
    matvec = with_its_knobs(matvec_candidates(problem), profile)
    table = ConfigTable.concat([table, matvec])
    groups = warp_group_grid(problem, profile)
    configs = ConfigTable.concat([table, groups.configs])
    among = np.ones(len(configs), dtype=bool)
    if profile.knobs:
        among[len(table) :] = knobs_set_otherwise(groups.configs, profile) == 0
    return Grid(configs, SizeBounds.of(table, profile), groups, among, *_blocks_of(profile))


def _blocks_of(profile: HardwareProfile) -> tuple[tuple[int, ...], tuple[int, ...]]:
    block_m, block_n = (values_of(profile, name, _BLOCKS) for name in ("block_m", "block_n"))
    return tuple(block_m), tuple(block_n)


_GRIDS = ByKind(_made)


@lru_cache(maxsize=8)
def _every_tile(profile: HardwareProfile) -> ConfigTable:
    table = table_of_templates(profile, *_blocks_of(profile))
    return table[np.flatnonzero(sensible_tiles(table, profile))]


@lru_cache(maxsize=1024)
def _choices_up_to(smallest: int, largest: int, blocks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(block for block in blocks if smallest <= block <= largest) or (min(blocks),)


def _block_choices(size: int, blocks: tuple[int, ...]) -> tuple[int, ...]:
    """Blocks along an axis: not far above its size, and not tiny where the axis is long.

    Up to 64 stays in at any size: 64 rows are the least that Hopper's wgmma takes, so a block of
    64 is often the best for 16 rows of data.
    """
    smallest = 16 if size <= 256 else 32 if size <= 1024 else 64
    largest = max(64, 1 << (size - 1).bit_length())
    return _choices_up_to(smallest, largest, blocks)
