"""What the ranker's size, and the kernels that it learned of, are worth on unseen shapes.

``python data/results/capacity.py`` writes capacity_h200-sxm.json, in a quarter of an hour. A fifth
of the training shapes is the test, as far as rows of h200-train-b go: their kernels were drawn
from several shares of all kernels, those of most other rows from one. What is learned is of other
shapes, none within 10 % of a test shape, with and without that file. ``error`` is the root mean
square of log(measured / predicted) over rows within 30 % of their shape's best; ``within`` is the
same once each shape's mean error is taken out, which is what ordering near the best depends on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from costmodel.learning.networks import network_of
from costmodel.learning.shares import row_weights
from costmodel.learning.split import training_groups
from costmodel.learning.train import PARAMETERS, Prepared, prepare
from costmodel.records.store import packaged_runs, read_runs

HERE = Path(__file__).parent
CHIP, SEED, FOLDS, NEAR, BEST = "h200-sxm", 7, 5, 0.1, 1.3
DRAWS = HERE.parent / "runs" / "h200-train-b-000.parquet"
#: iterations, leaves and depth
TREES = ((300, 63, 8), (600, 127, 10), (600, 255, 8), (600, 255, 10))
#: layers, and times that all rows are seen
NETWORKS = (((64,) * 3, 60), ((128,) * 3, 60), ((256,) * 2, 60), ((256,) * 3, 60), ((384,) * 2, 60))
Say = Callable[[NDArray[np.float32]], NDArray[np.float64]]


def trees(learn: Sequence[Prepared], iterations: int, leaves: int, depth: int) -> Say:
    """Boosted trees of a size."""
    size = {"max_iter": iterations, "max_leaf_nodes": leaves, "max_depth": depth}
    model = HistGradientBoostingRegressor(random_state=0, **PARAMETERS | size)
    weight = np.concatenate([row_weights(item.group.time_us) for item in learn])
    features = np.concatenate([item.features for item in learn])
    model.fit(features, np.concatenate([i.target for i in learn]), sample_weight=weight)
    return lambda rows: np.asarray(model.predict(rows))


def network(learn: Sequence[Prepared], hidden: Sequence[int], epochs: int) -> Say:
    """A network of a size."""
    found = network_of(
        [item.features for item in learn], [item.target for item in learn],
        [item.group.time_us for item in learn], hidden=hidden, epochs=epochs,
    )  # fmt: skip
    return found.predict


def errors(say: Say, test: Sequence[Prepared]) -> dict[str, float]:
    """Root mean squares over the test's rows near the best."""
    off, within = [], []
    for item in test:
        near = item.group.time_us < BEST * item.group.time_us.min()
        error = item.target[near] - say(item.features[near])
        off.append(error)
        within.append(error - error.mean())
    return {
        name: round(float(np.sqrt(np.mean(np.concatenate(some) ** 2))), 4)
        for name, some in (("error", off), ("within", within))
    }


def parts() -> tuple[dict[str, list[Prepared]], list[Prepared]]:
    """What is learned, by name, and the test."""
    frame, draws = packaged_runs(), read_runs([DRAWS])
    older = frame[~frame["run"].isin(draws["run"].unique())]
    shapes = sorted({g.shape for g in training_groups(draws, CHIP)})
    order = np.random.default_rng(SEED).permutation(len(shapes))
    tested = {shapes[place] for place in order[: len(shapes) // FOLDS]}
    logs = np.log(sorted(tested))

    def away(shape: Sequence[int]) -> bool:
        return bool(np.abs(logs - np.log(shape)).max(axis=1).min() > np.log1p(NEAR))

    learned = {
        name: prepare(g for g in training_groups(some, CHIP) if away(g.shape))
        for name, some in (("all rows", frame), ("without its kernels", older))
    }
    return learned, prepare(g for g in training_groups(draws, CHIP) if g.shape in tested)


def main() -> None:
    """Fit and judge one after the other, and write all."""
    learned, test = parts()
    found: dict[str, Any] = {
        "test": {"shapes": len(test), "rows": sum(len(item.target) for item in test)},
        "learned_rows": {k: sum(len(i.target) for i in v) for k, v in learned.items()},
    }
    for name, learn in learned.items():
        found[name] = {}
        for iterations, leaves, depth in TREES:
            say = trees(learn, iterations, leaves, depth)
            own = f"{iterations} trees of {leaves} leaves, {depth} deep"
            found[name][own] = errors(say, test)
        for hidden, epochs in NETWORKS:
            say = network(learn, hidden, epochs)
            found[name][f"network {'x'.join(map(str, hidden))}, {epochs}"] = errors(say, test)
        print(json.dumps(found[name], indent=1), flush=True)
    text = json.dumps(found, indent=1) + "\n"
    (HERE / f"capacity_{CHIP}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
