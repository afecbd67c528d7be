"""What is lost because only the best rows reach every model: no run is needed to tell.

``python data/results/cascade.py`` writes cascade_h200-sxm.json, in some minutes. On shapes of
every family the shipped model judges the best 512 configurations by physics, all of them by all
networks and trees; a cascade's loss is how much slower, by that word, its own first choice is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.physics.estimate import estimate_columns, taken
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.ranking.cascade import FOR_ALL, FOR_SECOND, SHORTLIST, best_rows
from costmodel.ranking.features import feature_matrix
from costmodel.ranking.ranker import Ranker, default_ranker
from costmodel.space.candidates import candidates
from costmodel.space.prune import prune

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "shapes"))
from design import FAMILIES, draw  # noqa: E402

CHIP, SEED, SHAPES, MOST = load_profile("h200-sxm"), 3, 500, 512
#: rows that reach the first network, the second, and all
CASCADES = (
    (512, 512, 512), (256, 512, 512), (SHORTLIST, 512, 512), (128, 512, 512), (96, 512, 512),
    (256, 24, 12), (SHORTLIST, 24, 12), (SHORTLIST, 16, 8), (SHORTLIST, 12, 8),
    (SHORTLIST, FOR_SECOND, FOR_ALL), (128, FOR_SECOND, FOR_ALL), (96, 8, 4),
)  # fmt: skip
Logs = NDArray[np.float64]


def heard(problem: Gemm, ranker: Ranker) -> tuple[Logs, list[Logs], Logs]:
    """Logs of physics' times of the best rows, and what each network and the trees say of them."""
    legal, _ = prune(problem, candidates(problem, CHIP), CHIP)
    physics = estimate_columns(problem, legal, CHIP)
    rows = best_rows(physics.time_us, MOST)
    features = feature_matrix(problem, legal[rows], CHIP, taken(physics, rows))
    said = [network.predict(features) for network in ranker.networks]
    return np.log(physics.time_us[rows]), said, ranker.trees.predict(features)


def loss(estimate: Logs, networks: list[Logs], trees: Logs, cascade: tuple[int, int, int]) -> float:
    """Log of the cascade's first choice over the best, both by the word of all."""
    by_all = estimate + (trees + np.mean(networks, axis=0)) / 2
    rows = best_rows(estimate, cascade[0])
    rows = rows[best_rows((estimate + networks[0])[rows], cascade[1])]
    rows = rows[best_rows((estimate + np.mean(networks[:2], axis=0))[rows], cascade[2])]
    return float(by_all[rows].min() - by_all.min())


def main() -> None:
    """Judge every cascade on the same shapes."""
    ranker = default_ranker()
    assert ranker is not None
    rng = np.random.default_rng(SEED)
    found = []
    for number in range(SHAPES):
        m, n, k = draw(FAMILIES[number % len(FAMILIES)], rng)
        dtype, layout = rng.choice(["fp16", "bf16"]), rng.choice(["nt", "nt", "nn", "tn", "tt"])
        found.append(heard(Gemm(m, n, k, dtype=str(dtype), layout=str(layout)), ranker))
    result: dict[str, Any] = {"shapes": len(found), "most_rows": MOST, "cascades": []}
    for cascade in CASCADES:
        lost = np.expm1([loss(*one, cascade) for one in found])
        result["cascades"].append({
            "for_first": cascade[0], "for_second": cascade[1], "for_all": cascade[2],
            "mean_loss": round(float(lost.mean()), 5), "most": round(float(lost.max()), 4),
            "share_over_1_percent": round(float((lost > 0.01).mean()), 4),
        })  # fmt: skip
        print(result["cascades"][-1], flush=True)
    text = json.dumps(result, indent=1) + "\n"
    (HERE / f"cascade_{CHIP.name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
