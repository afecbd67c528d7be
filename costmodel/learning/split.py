"""Which shapes are learned from and which judge: by (M, N, K), never by row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from costmodel.records.groups import Group, groups_of
from costmodel.shapes import read_shapes

if TYPE_CHECKING:
    import pandas as pd

#: a shape within this of a held-out one in all three dimensions is held out too
_NEAR = 0.1
#: one in so many shapes of a user's own log judges and is not learned from
_ONE_IN = 5

Size = tuple[int, int, int]


def heldout_shapes() -> set[Size]:
    """(M, N, K) of the frozen evaluation split."""
    return {(s.problem.m, s.problem.n, s.problem.k) for s in read_shapes("heldout")}


def judging_shapes(shapes: Iterable[Size]) -> set[Size]:
    """Those of a log's new shapes that judge a model fitted on it: one in five, by a digest.

    A shape falls on the same side each time, so that a model which an earlier log gave has not
    learned from the shapes that judge its successor.
    """
    return {shape for shape in set(shapes) if _digest(shape) % _ONE_IN == 0}


def _digest(shape: Size) -> int:
    return int.from_bytes(hashlib.sha256(repr(tuple(map(int, shape))).encode()).digest()[:4], "big")


def training_groups(
    frame: pd.DataFrame,
    profile_name: str | None = None,
    *,
    source: str | None = None,
    but: Iterable[Size] = (),
) -> list[Group]:
    """The groups of a frame whose shape is not held out, nor near one that is, nor in ``but``."""
    kept = np.log(np.asarray(sorted(heldout_shapes()), dtype=np.float64))
    out = set(but)

    def apart(group: Group) -> bool:
        off = np.abs(kept - np.log(np.asarray(group.shape, dtype=np.float64)))
        return bool((off.max(axis=1) > np.log1p(_NEAR)).all())

    found = groups_of(frame, profile_name, source=source)
    return [group for group in found if group.shape not in out and apart(group)]
