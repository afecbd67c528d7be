"""All legal candidates of a kind of problem on a chip, with what sizes don't change, kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable, KernelConfig
from costmodel.physics.estimate import PricedColumns, estimate_columns, price
from costmodel.physics.fixed import FixedColumns
from costmodel.physics.sizes import Sizes
from costmodel.physics.waves import busy_units
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.ranking.features import fixed_features
from costmodel.ranking.order import first_of
from costmodel.ranking.ranker import Ranker
from costmodel.ranking.shortlist import Shortlist, shortlists
from costmodel.resources.legality import (
    SHARED_MEMORY,
    follows,
    may_outgrow_grid,
    rules_of,
    shared_need,
)
from costmodel.space.candidates import Grid, grid_of
from costmodel.space.kinds import ByKind, groups_kind_of
from costmodel.space.specialized import warp_group_grid, with_parts

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Priced:
    """Legal candidates of several problems of one kind, priced: one problem's after another's.

    ``ends`` is where each problem's rows end.
    """

    problem: Gemm | Sizes
    knobs: FixedColumns
    physics: PricedColumns
    ends: list[int]
    shelf: Shelf
    rows: Rows

    def shortlists(self, profile: HardwareProfile) -> Iterator[Shortlist]:
        """The best of each problem's rows by physics, with their features."""

        def fixed(rows: Rows) -> NDArray[np.float32]:
            return self.shelf.features.take(self.rows[rows], axis=1)

        return shortlists(self.problem, self.knobs, profile, self.physics, fixed, self.ends)

    def best(self, profile: HardwareProfile, ranker: Ranker | None) -> Iterator[tuple[int, float]]:
        """Row and time of the first choice for each problem; physics alone without a ranker."""
        busy = busy_units(self.physics.waves, profile.units)
        if ranker is None:
            for start, end in zip([0, *self.ends[:-1]], self.ends, strict=True):
                row = start + first_of(self.physics.time_us[start:end], busy[start:end])
                yield row, float(self.physics.time_us[row])
            return
        firsts = list(self.shortlists(profile))
        found = ranker.foremost_us([first.rated for first in firsts])
        for first, (places, times) in zip(firsts, found, strict=True):
            rows = first.rows[places]
            row = first_of(times, busy[rows])
            yield int(rows[row]), float(times[row])

    def config(self, row: int) -> KernelConfig:
        """The configuration of a row."""
        found: KernelConfig = self.shelf.grid.configs[int(self.rows[row])]
        split_k = int(self.knobs.split_k[row])
        return found if split_k == found.split_k else replace(found, split_k=split_k)


@dataclass(frozen=True)
class Shelf:
    """A grid of legal rows with what sizes don't change: figures of physics, features.

    ``features`` are [fixed features, rows of the grid].
    """

    grid: Grid
    fixed: FixedColumns
    features: NDArray[np.float32]

    def priced(self, problems: Sequence[Gemm], profile: HardwareProfile) -> Priced:
        """The legal candidates of problems of the shelf's kind, at their sizes."""
        picked = self._legal_rows(problems, profile)
        counts = [len(rows) for rows, _ in picked]
        rows = np.concatenate([rows for rows, _ in picked])
        knobs = self.fixed.take(rows)
        knobs.split_k[:] = np.concatenate([split_k for _, split_k in picked])
        sizes = problems[0] if len(problems) == 1 else Sizes(problems, counts)
        physics = price(sizes, knobs, profile)
        return Priced(sizes, knobs, physics, np.cumsum(counts).tolist(), self, rows)

    def _legal_rows(
        self, problems: Sequence[Gemm], profile: HardwareProfile
    ) -> list[tuple[Rows, Rows]]:
        found = self.grid.pick(problems, profile.units)
        for place, problem in enumerate(problems):
            if may_outgrow_grid(problem, profile):
                rows, split_k = found[place]
                table = with_parts(self.grid.configs, rows, split_k)
                rules = [rule for rule in rules_of(profile) if rule.by_size]
                legal = follows(problem, table, profile, rules)
                found[place] = rows[legal], split_k[legal]
        return found


def shelf_of(problem: Gemm, profile: HardwareProfile) -> Shelf:
    """The shelf of a problem's kind on a chip."""
    return _SHELVES.of(problem, profile)


def _made(problem: Gemm, profile: HardwareProfile) -> Shelf:
    grid = grid_of(problem, profile)
    square = _fixed_of(problem, grid.configs[: len(grid.bounds)], profile)
    groups = _GROUPS.of(problem, profile)
    return Shelf(
        replace(
            grid, among=grid.among & np.concatenate([square.legal, groups.legal]), _by_blocks={}
        ),
        FixedColumns.concat([square.columns, groups.columns]),
        np.concatenate([square.features, groups.features], axis=1),
    )


class _Fixed(NamedTuple):
    """What sizes don't change of a table's rows."""

    legal: NDArray[np.bool_]
    columns: FixedColumns
    features: NDArray[np.float32]


def _fixed_of(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> _Fixed:
    physics = estimate_columns(problem, table, profile)
    rules = [rule for rule in rules_of(profile) if not rule.by_size]
    legal = follows(problem, table, profile, [r for r in rules if r is not SHARED_MEMORY])
    if SHARED_MEMORY in rules:  # not where a chip names its own memories
        shared_bytes, limit = shared_need(physics.footprint, profile)
        legal &= shared_bytes <= limit
    features = fixed_features(problem, table, profile, physics)
    return _Fixed(legal, physics.fixed, features)


def _of_groups(problem: Gemm, profile: HardwareProfile) -> _Fixed:
    return _fixed_of(problem, warp_group_grid(problem, profile).configs, profile)


_GROUPS = ByKind(_of_groups, groups_kind_of)
_SHELVES = ByKind(_made)
