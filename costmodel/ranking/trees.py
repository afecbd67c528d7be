"""Boosted regression trees as plain arrays, evaluated by numpy alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.errors import ModelError

#: a file may not ask for more than this: a stranger's model must not exhaust memory
MOST_NODES = 5_000_000
MOST_DEPTH = 16
MOST_TREES = 10_000
#: rows that go through all trees together: enough that a call of numpy costs little a row
_ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class Trees:
    """A sum of trees over ``n_features`` columns.

    Node arrays are flat over all trees: at node i a row goes to ``left[i]`` where its feature
    ``feature[i]`` is at most ``threshold[i]``, else to ``right[i]``; a leaf points to itself and
    holds ``value[i]``. ``roots`` are the trees' first nodes, ``depth`` the longest path.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    roots: NDArray[np.int32]
    baseline: float
    depth: int
    n_features: int

    def predict(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Sum over trees for each row of [rows, n_features]."""
        total = np.empty(len(rows))
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            total[some] = self.baseline + self._leaf_values(rows[some]).sum(axis=1)
        return total

    def _leaf_values(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """What each tree says of each row, [rows, trees].

        On the way down rows lie side by side: those of one problem take much the same way.
        """
        count, trees = len(rows), len(self.roots)
        columns = np.empty((rows.shape[1], _ROWS_AT_ONCE), dtype=np.float32)
        columns[:, :count] = rows.T
        flat = columns.ravel()
        column, threshold, value = self._complete
        row = np.tile(np.arange(count, dtype=column[0].dtype if column else int), trees)
        # a node's children stand at twice its place in the next level, and right after
        place = np.repeat(np.arange(trees), count)
        for start, limit in zip(column, threshold, strict=True):
            right = flat.take(start.take(place) + row) > limit.take(place)
            place += place
            place += right
        return value.take(np.ascontiguousarray(place.reshape(trees, count).T))

    @cached_property
    def _complete(
        self,
    ) -> tuple[list[NDArray[Any]], list[NDArray[np.float32]], NDArray[np.float64]]:
        """Every tree filled up to ``depth``: columns and thresholds of each level, leaf values.

        Level d holds 2^d nodes a tree, one tree after the other; where a path ended before, all
        go left, to the same leaf. A column is told by where it starts among ``_ROWS_AT_ONCE`` rows.
        Features are floats of 32 bits: one is above a threshold just where it is above the next
        such float below it. Small types keep more in cache.
        """
        limits = self.threshold.astype(np.float32)
        limits = np.where(
            limits > self.threshold, np.nextafter(limits, np.float32(-np.inf)), limits
        )
        ends = self.left == np.arange(len(self.left))
        nodes: NDArray[Any] = self.roots
        starts = self.feature * _ROWS_AT_ONCE
        small = np.int16 if self.n_features * _ROWS_AT_ONCE < 2**15 else np.int32
        columns, threshold = [], []
        for _ in range(self.depth):
            columns.append(starts[nodes].astype(small))
            threshold.append(np.where(ends[nodes], np.float32(np.inf), limits[nodes]))
            nodes = np.stack([self.left[nodes], self.right[nodes]], axis=1).ravel()
        return columns, threshold, self.value[nodes]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays to store."""
        return {
            "feature": self.feature,
            "threshold": self.threshold,
            "left": self.left,
            "right": self.right,
            "value": self.value,
            "roots": self.roots,
            "baseline": np.array([self.baseline]),
            "depth": np.array([self.depth]),
        }

    @classmethod
    def checked(cls, arrays: dict[str, NDArray[Any]], n_features: int, where: str) -> Trees:
        """Rebuild from stored arrays; every index, shape and bound is checked first.

        Raises ``ModelError`` naming the file and the array.
        """

        def column(name: str, kind: str) -> NDArray[Any]:
            array = arrays.get(name)
            if array is None or array.ndim != 1 or array.dtype.kind != kind:
                raise ModelError(f"{where}: array {name!r} is missing or is not 1-D of kind {kind}")
            if len(array) > MOST_NODES:
                raise ModelError(f"{where}: array {name!r} has {len(array)} entries")
            if kind == "f" and not np.isfinite(array).all():
                raise ModelError(f"{where}: array {name!r} holds numbers that are not finite")
            return array

        feature, left, right = (column(n, "i") for n in ("feature", "left", "right"))
        threshold, value = column("threshold", "f"), column("value", "f")
        roots, depth, baseline = column("roots", "i"), column("depth", "i"), column("baseline", "f")
        nodes = len(feature)
        if not nodes or any(len(a) != nodes for a in (left, right, threshold, value)):
            raise ModelError(f"{where}: node arrays are empty or differ in length")
        if len(depth) != 1 or len(baseline) != 1 or not 0 <= depth[0] <= MOST_DEPTH:
            raise ModelError(
                f"{where}: depth and baseline must be one number each, depth <= {MOST_DEPTH}"
            )
        if feature.min() < 0 or feature.max() >= n_features:
            raise ModelError(f"{where}: a node asks for a feature outside 0..{n_features - 1}")
        own = np.arange(nodes)
        for name, child in (("left", left), ("right", right)):
            if ((child < own) | (child >= nodes)).any():
                raise ModelError(f"{where}: {name} points backwards or outside the nodes")
        if len(roots) > MOST_TREES:
            raise ModelError(f"{where}: {len(roots)} trees, more than {MOST_TREES}")
        if len(roots) << int(depth[0]) > MOST_NODES:
            raise ModelError(f"{where}: {len(roots)} trees of depth {depth[0]} are too many nodes")
        if not len(roots) or roots.min() < 0 or roots.max() >= nodes:
            raise ModelError(f"{where}: a root lies outside the nodes")
        return cls(
            feature.astype(np.int32), threshold.astype(np.float64), left.astype(np.int32),
            right.astype(np.int32), value.astype(np.float64), roots.astype(np.int32),
            float(baseline[0]), int(depth[0]), n_features,
        )  # fmt: skip


def trees_of(models: list[Any], n_features: int) -> Trees:
    """The mean of fitted ``HistGradientBoostingRegressor`` models as one set of trees."""
    parts: dict[str, list[NDArray[Any]]] = {k: [] for k in ("f", "t", "l", "r", "v")}
    roots, offset, depth = [], 0, 0
    for model in models:
        for (predictor,) in model._predictors:
            nodes = predictor.nodes
            own = np.arange(len(nodes))
            leaf = nodes["is_leaf"].astype(bool)
            parts["f"].append(np.where(leaf, 0, nodes["feature_idx"]))
            parts["t"].append(np.where(leaf, 0.0, nodes["num_threshold"]))
            parts["l"].append(np.where(leaf, own, nodes["left"]) + offset)
            parts["r"].append(np.where(leaf, own, nodes["right"]) + offset)
            parts["v"].append(np.where(leaf, nodes["value"], 0.0) / len(models))
            roots.append(offset)
            offset += len(nodes)
            depth = max(depth, int(nodes["depth"].max()))
    joined = {key: np.concatenate(arrays) for key, arrays in parts.items()}
    baseline = float(np.mean([np.ravel(model._baseline_prediction)[0] for model in models]))
    return Trees(
        joined["f"].astype(np.int32), joined["t"].astype(np.float64), joined["l"].astype(np.int32),
        joined["r"].astype(np.int32), joined["v"].astype(np.float64), np.array(roots, np.int32),
        baseline, depth, n_features,
    )  # fmt: skip
