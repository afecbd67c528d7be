"""Would more variety among the first few find better configurations on the H200?

``python data/results/variety.py`` writes variety_h200-sxm.json beside it. A rule puts each further
near-identical candidate (``costmodel.ranking.enough.near_identical``) behind: its predicted time
grows by a handicap for each one before it. The handicap is chosen on the even-numbered held-out
problems and judged on the odd-numbered ones: geometric mean of the best time over the best of the
first 3 and 8, with the rule and without it. Where the rule loses either, ``tune`` keeps the order
of the ranking.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.learning.shares import TOPS, shares_of
from costmodel.predict import rank
from costmodel.profile import load_profile
from costmodel.ranking.enough import near_identical
from costmodel.records import packaged_runs
from costmodel.records.groups import Group, groups_of
from costmodel.shapes import read_shapes

CHIP = "h200-sxm"
HANDICAPS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
FIRST = (3, 8)


def earlier_twins(kernel: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many near-identical candidates stand before each [candidates]."""
    same = kernel[:, None] == kernel[None, :]
    return np.asarray(np.tril(same, -1).sum(axis=1))


def judge(group: Group) -> tuple[NDArray[np.float64], int]:
    """Shares [handicaps, TOPS], and how many of the first 8 are near-identical to one before."""
    ranking, _ = rank(group.problem, group.table, load_profile(CHIP))
    twins = earlier_twins(near_identical(ranking.configs))
    shares = [
        shares_of(
            group,
            ranking.order[np.argsort(ranking.time_us * (1 + handicap * twins), kind="stable")],
        )
        for handicap in HANDICAPS
    ]
    return np.array(shares), int((twins[: FIRST[-1]] > 0).sum())


def means(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Geometric means over problems [handicaps, FIRST]."""
    columns = [TOPS.index(first) for first in FIRST]
    return np.asarray(np.exp(np.log(shares[:, :, columns]).mean(axis=0)))


def main() -> None:
    """Choose on one half, judge on the other, write."""
    wanted = {shape.problem for shape in read_shapes("heldout")}
    groups = [group for group in groups_of(packaged_runs(), CHIP) if group.problem in wanted]
    judged = [judge(group) for group in sorted(groups, key=lambda group: str(group.problem))]
    shares = np.array([each for each, _ in judged])
    even, odd = means(shares[::2]), means(shares[1::2])
    best = int(np.argmax(np.log(even).sum(axis=1)))
    facts: dict[str, Any] = {
        "problems": len(groups),
        "near_identical_of_the_first_8_median": float(np.median([count for _, count in judged])),
        "handicap_chosen_on_even": HANDICAPS[best],
    }
    for name, figures in (("even", even), ("odd", odd)):
        facts[name] = {
            f"best_of_{first}": {
                "as_ranked": round(float(figures[0, column]), 4),
                "with_variety": round(float(figures[best, column]), 4),
            }
            for column, first in enumerate(FIRST)
        }
    text = json.dumps(facts, indent=1) + "\n"
    Path(__file__).with_name(f"variety_{CHIP}.json").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
