"""How far parts of the ranker err on shapes and kernels that they did not learn.

``python data/results/disjoint.py`` writes disjoint_h200-sxm.json, in minutes. Training shapes and
kernels are each cut in five; a fold's test is its shapes' rows of its kernels, and what is learned
is of other shapes, none within 10 % of a test shape, and other kernels. Folds over shapes alone
would flatter: their test rows are of kernels that were learned. ``error`` is the spread of
log(measured / predicted) over a shape's rows within a quarter of its best, root mean square over
shapes: what ordering near the best depends on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from costmodel.learning import networks
from costmodel.learning.networks import HIDDEN, network_of
from costmodel.learning.split import training_groups
from costmodel.learning.train import Prepared, _fitted, prepare
from costmodel.measure.jobs import _kernel_draw
from costmodel.records.source_hash import kernel_hash
from costmodel.records.store import packaged_runs

HERE = Path(__file__).parent
CHIP, FOLDS, TRIED, SEED = "h200-sxm", 5, (0, 1), 99
LEAST_ROWS, NEAR, QUARTER = 4, 0.1, 1.25
Say = Callable[[NDArray[np.float32]], NDArray[np.float64]]
Learn = Callable[[list[Prepared]], Say]


def cut(item: Prepared, kept: NDArray[np.bool_]) -> Prepared:
    """Some rows of a group."""
    rows, group = np.flatnonzero(kept), item.group
    group = replace(group, table=group.table[rows], time_us=group.time_us[rows],
                    remeasured=group.remeasured[rows])  # fmt: skip
    return Prepared(group, item.features[rows], item.target[rows], item.estimate_us[rows])


def folds(data: list[Prepared], current: set[object]) -> list[tuple[list[Prepared], ...]]:
    """For each fold that is tried: what is learned, the same of today's kernels alone, the test."""
    shapes = sorted({item.group.shape for item in data})
    order = np.random.default_rng(SEED).permutation(len(shapes))
    fold_of = {shapes[row]: place % FOLDS for place, row in enumerate(order)}
    kernel = [(_kernel_draw(item.group.table, SEED) * FOLDS).astype(int) for item in data]
    found = []
    for fold in TRIED:
        test = [cut(i, k == fold) for i, k in zip(data, kernel, strict=True)
                if fold_of[i.group.shape] == fold and i.group.problem in current]  # fmt: skip
        test = [item for item in test if len(item.target) >= LEAST_ROWS]
        logs = np.log([item.group.shape for item in test])
        learn = []
        for item, drawn in zip(data, kernel, strict=True):
            away = np.abs(logs - np.log(item.group.shape)).max(axis=1).min()
            if away > np.log1p(NEAR) and (drawn != fold).any():
                learn.append(cut(item, drawn != fold))
        found.append((learn, [i for i in learn if i.group.problem in current], test))
    return found


def error(say: Say, test: Iterable[Prepared]) -> list[float]:
    """Spread of the log error near each shape's best."""
    spreads = []
    for item in test:
        near = item.group.time_us <= QUARTER * item.group.time_us.min()
        if near.sum() > 2:
            spreads.append(float((item.target - say(item.features))[near].std()))
    return spreads


def network(start: float) -> Learn:
    """One network of the larger size, from weights of this width."""

    def learn(data: list[Prepared]) -> Say:
        before, networks._START = networks._START, start
        try:
            rows, targets = [i.features for i in data], [i.target for i in data]
            times = [i.group.time_us for i in data]
            return network_of(rows, targets, times, hidden=HIDDEN[-1]).predict
        finally:
            networks._START = before

    return learn


WAYS: dict[str, Learn] = {
    "trees": lambda data: _fitted(data, (0, 1), ()).predict,
    "network": network(0.4),
    "network, start 1": network(1.0),
    "network, start 2.4": network(2.4),
    "trees and networks": lambda data: _fitted(data, (0, 1), HIDDEN).predict,
}


def main() -> None:
    """Try each way."""
    frame = packaged_runs()
    hashes = frame["template"].map(kernel_hash, na_action="ignore")
    today = frame[(frame["kernel_hash"] == hashes)]
    current = {group.problem for group in training_groups(today, CHIP)}
    parts = folds(prepare(training_groups(frame, CHIP)), current)
    found = {}
    ways = [(name, way, 0) for name, way in WAYS.items()]
    ways.append(("trees and networks, today's kernels alone", WAYS["trees and networks"], 1))
    for name, way, which in ways:
        spreads = [s for part in parts for s in error(way(part[which]), part[2])]
        found[name] = round(float(np.sqrt(np.mean(np.square(spreads)))), 4)
        print(name, found[name], flush=True)
    card = {"shapes": len(spreads), "error": found}
    (HERE / "disjoint_h200-sxm.json").write_text(json.dumps(card, indent=1) + "\n")


if __name__ == "__main__":
    main()
