"""Whether `tune --within --confidence` keeps its promise on the held-out shapes of the H200.

``python data/results/enough.py`` writes enough_h200-sxm.json beside it: for each promise how many
configurations it would measure and on how many of the problems the best of them was that near the
best measured one; the same without a common error; and the common share fitted on random halves of
the problems, judged on the other halves. ``costmodel.ranking.enough`` has the two constants.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.learning.shares import best_row
from costmodel.predict import rank
from costmodel.profile import load_profile
from costmodel.ranking.enough import SHARED, chances, near_identical
from costmodel.records import packaged_runs
from costmodel.records.groups import Group, groups_of
from costmodel.shapes import read_shapes

CHIP = "h200-sxm"
PROMISES = ((0.01, 0.80), (0.02, 0.90), (0.05, 0.90), (0.05, 0.95))
SHARES = tuple(round(0.05 * step, 2) for step in range(15))
#: candidates that tell how errors hang together: tune measures some of these
FIRST = 32
HALVINGS = 200


class Case(NamedTuple):
    """One problem's ranking: predicted and measured times in predicted order, best measured."""

    predicted_us: NDArray[np.float64]
    measured_us: NDArray[np.float64]
    kernel: NDArray[np.int64]
    spread: tuple[float, float]
    best_us: float


def case_of(group: Group, by: Any) -> Case:
    """Rank a problem's measured configurations."""
    ranking, _ = rank(group.problem, group.table, load_profile(CHIP), by)
    return Case(
        ranking.time_us, group.time_us[ranking.order], near_identical(ranking.configs),
        ranking.spread, float(group.time_us[best_row(group)]),
    )  # fmt: skip


class Kept(NamedTuple):
    """What one common share does: number measured, and promise kept, as [problems, promises]."""

    count: NDArray[np.int64]
    held: NDArray[np.bool_]


def kept(cases: list[Case], shared: float) -> Kept:
    """Keep every promise on every problem."""
    count = np.zeros((len(cases), len(PROMISES)), dtype=np.int64)
    held = np.zeros(count.shape, dtype=np.bool_)
    for row, case in enumerate(cases):
        found: dict[float, NDArray[np.float64]] = {}
        for column, (within, confidence) in enumerate(PROMISES):
            if within not in found:
                found[within] = chances(
                    case.predicted_us, case.kernel, case.spread, within, shared=shared
                )
            number = int(np.argmax(found[within] >= confidence)) + 1
            count[row, column] = number
            held[row, column] = case.measured_us[:number].min() <= case.best_us * (1 + within)
    return Kept(count, held)


def told(by_share: Kept) -> dict[str, dict[str, float]]:
    """Figures of each promise, by its name."""
    return {
        f"{within:.0%} with {confidence:.0%}": {
            "configs_median": float(np.median(by_share.count[:, column])),
            "configs_p90": round(float(np.quantile(by_share.count[:, column], 0.9)), 1),
            "came_true": round(float(by_share.held[:, column].mean()), 4),
        }
        for column, (within, confidence) in enumerate(PROMISES)
    }


def largest(found: dict[float, Kept], rows: NDArray[np.int64]) -> float:
    """The largest common share at which, and at all below, every promise held on some problems."""
    wanted = np.array([confidence for _, confidence in PROMISES])
    best = SHARES[0]
    for share in SHARES:
        if (found[share].held[rows].mean(axis=0) < wanted).any():
            break
        best = share
    return best


def crossed(found: dict[float, Kept], problems: int) -> dict[str, Any]:
    """The common share fitted on one half of the problems, judged on the other."""
    random = np.random.default_rng(0)
    shares, held, count = [], [], []
    for _ in range(HALVINGS):
        order = random.permutation(problems)
        for fit, judge in (
            np.split(order, [problems // 2]),
            np.split(order, [problems // 2])[::-1],
        ):
            shares.append(largest(found, fit))
            held.append(found[shares[-1]].held[judge].mean(axis=0))
            count.append(np.median(found[shares[-1]].count[judge], axis=0))
    return {
        "halvings": HALVINGS,
        "shared_p10_p50_p90": np.quantile(shares, [0.1, 0.5, 0.9]).round(3).tolist(),
        "promises": {
            f"{within:.0%} with {confidence:.0%}": {
                "configs_median": float(np.mean(count, axis=0)[column].round(2)),
                "came_true": round(float(np.mean(held, axis=0)[column]), 4),
            }
            for column, (within, confidence) in enumerate(PROMISES)
        },
    }


def parts(cases: list[Case]) -> dict[str, float]:
    """How errors of the first candidates hang together: the two constants, read off directly."""
    errors = [np.log(c.measured_us[:FIRST] / c.predicted_us[:FIRST]) for c in cases]
    common = float(np.var([error.mean() for error in errors]))
    rest = [error - error.mean() for error in errors]
    own = float(sum((r**2).sum() for r in rest) / sum(len(r) - 1 for r in rest))
    pairs = []
    for case, error in zip(cases, rest, strict=True):
        one, other = np.triu_indices(len(error), 1)
        same = case.kernel[one] == case.kernel[other]
        pairs.append((error[one] * error[other])[same])
    alike = np.concatenate(pairs)
    return {
        "shared": round(common / (common + own), 3),
        "alike": round(float(alike.mean()) / own, 3),
        "near_identical_pairs": len(alike),
    }


def main() -> None:
    """Judge the promises, and write what came of them."""
    wanted = {shape.problem for shape in read_shapes("heldout")}
    groups = [group for group in groups_of(packaged_runs(), CHIP) if group.problem in wanted]
    by_model = [case_of(group, None) for group in groups]
    by_physics = [case_of(group, "physics") for group in groups]
    found = {share: kept(by_model, share) for share in SHARES}
    facts = {
        "problems": len(groups),
        "shared": SHARED,
        "promises": told(found[SHARED]),
        "without_common_error": told(found[0.0]),
        "largest_share_that_holds": largest(found, np.arange(len(groups))),
        "fitted_on_halves": crossed(found, len(groups)),
        f"errors_of_the_first_{FIRST}": parts(by_model),
        "by_physics_alone": told(kept(by_physics, SHARED)),
        "by_physics_alone_without_common_error": told(kept(by_physics, 0.0)),
    }
    text = json.dumps(facts, indent=1) + "\n"
    Path(__file__).with_name(f"enough_{CHIP}.json").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
