"""How the ranker does when it learned from less: fewer shapes, or none of a whole family."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from costmodel.learning.judged import judged, top_figures
from costmodel.learning.split import Size
from costmodel.learning.train import SEEDS, fit
from costmodel.profile import HardwareProfile
from costmodel.ranking.ranker import Ranker
from costmodel.records.groups import Group
from costmodel.shapes import read_shapes

#: parts of the training shapes that the learning curve is made of
PARTS = (1 / 8, 1 / 4, 1 / 2, 1.0)
#: choices measured, of which shares are told
MEASURED = (1, 3, 8)
#: shapes that people published are of every kind: as a family they would say nothing
_NO_FAMILY = {"published", ""}

Fit = Callable[[Sequence[Group], Sequence[int]], Ranker]
Figures = dict[str, dict[str, float]]


def refit(groups: Sequence[Group], seeds: Sequence[int]) -> Ranker:
    """The ranker that ``train`` would fit on these groups, but for its interval."""
    return fit(list(groups), seeds=seeds, folds=0)


@dataclass(frozen=True)
class Point:
    """A model fitted on a part of the training shapes, and its shares on all held-out problems.

    ``top`` holds, for the best of the first 1, 3 and 8 choices, geometric mean, tenth percentile
    and minimum over the problems.
    """

    part: float
    shapes: int
    rows: int
    top: Figures


@dataclass(frozen=True)
class LeftOut:
    """A model that saw no shape of a family, on the held-out problems of that family.

    ``left_out`` counts the training shapes that it did without. ``nearest`` says how alike the
    nearest of those that it had is: the median over the problems of the largest relative
    difference in M, N and K. ``top`` are its shares, ``full`` those of a model fitted on all.
    """

    family: str
    problems: int
    left_out: int
    nearest: float
    top: Figures
    full: Figures


@dataclass(frozen=True)
class Refits:
    """Fits on parts of the training groups, each judged on the held-out groups of one chip.

    ``fit`` takes groups and seeds; each takes minutes. ``doing`` is told what is being fitted.
    """

    training: Sequence[Group]
    held: Sequence[Group]
    chip: HardwareProfile
    seeds: Sequence[int] = SEEDS
    fit: Fit = refit
    doing: Callable[[str], None] = lambda _: None

    def curve(self, parts: Iterable[float] = PARTS, draw: int = 0) -> list[Point]:
        """Points of the learning curve, each part of the shapes within the next.

        Shapes (M, N, K) are drawn and not rows: ``draw`` is the seed. A part has one shape at
        least.
        """
        shapes = sorted({group.shape for group in self.training})
        order = np.random.default_rng(draw).permutation(len(shapes))
        points = []
        for part in parts:
            kept = {shapes[row] for row in order[: max(1, round(part * len(shapes)))]}
            groups = [group for group in self.training if group.shape in kept]
            self.doing(f"on {len(kept)} of {len(shapes)} shapes")
            ranker = self._full if len(kept) == len(shapes) else self.fit(groups, self.seeds)
            rows = sum(len(group.time_us) for group in groups)
            points.append(Point(part, len(kept), rows, self._shares(ranker, self.held)))
        return points

    def families(self) -> list[LeftOut]:
        """Each family of drawn shapes left out in turn, where held-out problems are of it."""
        found = []
        sizes = family_sizes("train")
        members = family_sizes("heldout")
        for family in sorted(members):
            held = [group for group in self.held if group.shape in members[family]]
            kept = [g for g in self.training if g.shape not in sizes.get(family, ())]
            without = {group.shape for group in kept}
            left_out = len({group.shape for group in self.training} - without)
            if not (held and kept and left_out):
                continue
            self.doing(f"without the {left_out} shapes of {family}")
            ranker = self.fit(kept, self.seeds)
            found.append(
                LeftOut(
                    family, len(held), left_out, _apart(held, without),
                    self._shares(ranker, held), self._shares(self._full, held),
                )
            )  # fmt: skip
        return found

    @cached_property
    def _full(self) -> Ranker:
        self.doing("on all shapes")
        return self.fit(self.training, self.seeds)

    def _shares(self, ranker: Ranker, held: Iterable[Group]) -> Figures:
        return top_figures([judged(group, self.chip, ranker) for group in held], MEASURED)


def family_sizes(name: str) -> dict[str, set[Size]]:
    """The (M, N, K) of each family of a shipped shape set, but for published shapes."""
    found: dict[str, set[Size]] = {}
    for shape in read_shapes(name):
        if shape.family not in _NO_FAMILY:
            p = shape.problem
            found.setdefault(shape.family, set()).add((p.m, p.n, p.k))
    return found


def _apart(held: Iterable[Group], shapes: Iterable[Size]) -> float:
    """Median over problems of the largest relative difference to the nearest of the shapes."""
    logs = np.log(np.array(sorted(shapes), dtype=np.float64))
    gaps = [np.abs(logs - np.log(group.shape)).max(axis=1).min() for group in held]
    return round(float(np.expm1(np.median(gaps))), 4)


def as_dict(
    points: Iterable[Point], left_out: Iterable[LeftOut], seeds: Sequence[int]
) -> dict[str, Any]:
    """Plain values, as ``costmodel evaluate --curve --families --json`` prints them."""
    return {
        "seeds": list(seeds),
        "learning_curve": [asdict(point) for point in points],
        "families_left_out": [asdict(family) for family in left_out],
    }
