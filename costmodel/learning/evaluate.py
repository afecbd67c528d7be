"""The scorecard: how near the exhaustive best each way of choosing comes, on held-out shapes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.errors import RecordError
from costmodel.learning.baselines import baselines
from costmodel.learning.calibration import calibration
from costmodel.learning.judged import Judged, judged, top_figures
from costmodel.learning.shares import best_row, summary
from costmodel.learning.split import training_groups
from costmodel.profile import HardwareProfile, load_profile
from costmodel.ranking.cascade import SHORTLIST
from costmodel.ranking.ranker import Ranker, default_ranker, load_ranker
from costmodel.records.groups import Group, groups_of
from costmodel.records.store import packaged_runs, read_runs
from costmodel.shapes import read_shapes
from costmodel.space.prune import prune

#: one shape where the vendor stumbles must not carry the mean
VENDOR_CAP = 1.5
#: no held-out shape may lie this close to a training shape in all three dimensions
APART = 0.10


@dataclass(frozen=True)
class Scorecard:
    """All figures of an evaluation; ``as_dict`` is what ``--json`` prints."""

    judged: list[Judged]
    baselines: dict[str, dict[str, float]]
    prune_recall: float
    kendall_tau: float
    time_error: float
    coverage: float
    nearest_training: float
    source: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values, rounded to 4 digits."""
        sizes = [len(j.group.time_us) for j in self.judged]
        worst = sorted(self.judged, key=lambda j: j.shares[0])[:5]
        return {
            "n_shapes": len(self.judged),
            "ranked_by": self.source,
            "top": top_figures(self.judged),
            "prune_recall": round(self.prune_recall, 4),
            "kendall_tau": round(self.kendall_tau, 4),
            "median_time_error": round(self.time_error, 4),
            "interval_coverage": round(self.coverage, 4),
            "configs_per_shape_median": float(np.median(sizes)),
            "nearest_training_shape": round(self.nearest_training, 4),
            "worst": [
                {
                    "problem": str(j.group.problem),
                    "share": round(j.shares[0], 4),
                    "chosen": str(j.group.table[int(j.order[0])]),
                    "best": str(j.group.table[best_row(j.group)]),
                }
                for j in worst
            ],
            "best_stands_by_physics": self._physics_ranks(),
            "baselines": self.baselines,
            "calibration": calibration(self.judged),
            "against_vendor": self._against_vendor(),
        }

    def _physics_ranks(self) -> dict[str, int]:
        """Where the estimate alone ranks the best among those measured, from 1: median, worst, and
        on how many problems past what the ranker sees.
        """
        ranks = [j.best_by_physics for j in self.judged]
        past = sum(rank > SHORTLIST for rank in ranks)
        return {"median": int(np.median(ranks)), "worst": max(ranks), "past_shortlist": past}

    def _against_vendor(self) -> dict[str, dict[str, float]]:
        """Vendor's time over ours, each ratio capped at ``VENDOR_CAP``, where it was measured."""
        known = [j for j in self.judged if np.isfinite(j.group.vendor_us)]
        if not known:
            return {}
        best = np.array([j.group.vendor_us / j.best_us for j in known])
        first = np.array([j.group.vendor_us / j.group.time_us[j.order[0]] for j in known])
        return {
            "best_measured": summary(np.minimum(best, VENDOR_CAP)),
            "first_choice": summary(np.minimum(first, VENDOR_CAP)),
        }


def evaluate(
    runs: Iterable[str | os.PathLike[str]] | None = None,
    profile: str | HardwareProfile = "h200-sxm",
    *,
    model: Ranker | str | os.PathLike[str] | None = None,
    physics_only: bool = False,
) -> Scorecard:
    """Judge the ranker on the held-out shapes of measured runs (the shipped ones by default).

    Measured answers play no part: ranking sees problem, chip and knobs alone. Raises
    ``RecordError`` where the runs hold no held-out shape of this chip.
    """
    chip = load_profile(profile)
    groups, training = judging_and_training(runs, chip)
    ranker = None if physics_only else _ranker(model)
    found = [judged(group, chip, ranker) for group in groups]
    return Scorecard(
        judged=found,
        baselines=baselines(groups, chip, training),
        prune_recall=float(np.mean([_best_survives(group, chip) for group in groups])),
        kendall_tau=float(np.mean([_tau(j) for j in found])),
        time_error=float(np.median(np.concatenate([j.errors for j in found]))),
        coverage=float(np.mean([j.inside.mean() for j in found])),
        nearest_training=_nearest(groups, np.array(sorted({g.shape for g in training}))),
        source="physics" if ranker is None else "model",
    )


def judging_and_training(
    runs: Iterable[str | os.PathLike[str]] | None, chip: HardwareProfile
) -> tuple[list[Group], list[Group]]:
    """The groups of held-out problems that judge, and those that may be learned from.

    ``runs`` are logs or shards, None the shipped ones. Raises ``RecordError`` where the runs hold
    no held-out shape of this chip.
    """
    frame = packaged_runs() if runs is None else read_runs([Path(path) for path in runs])
    # the same sizes in another type or layout are another problem, and were not measured whole
    kept = {shape.problem for shape in read_shapes("heldout")}
    groups = [group for group in groups_of(frame, chip.name) if group.problem in kept]
    if not groups:
        raise RecordError(f"the runs hold no held-out shape on {chip.name}; nothing to judge by")
    return groups, training_groups(frame, chip.name)


def _ranker(model: Ranker | str | os.PathLike[str] | None) -> Ranker | None:
    if model is None or isinstance(model, Ranker):
        return model or default_ranker()
    return load_ranker(model)


def _best_survives(group: Group, chip: HardwareProfile) -> bool:
    best = best_row(group)
    kept, _ = prune(group.problem, group.table[np.array([best])], chip)
    return len(kept) == 1


def _tau(judged: Judged) -> float:
    from scipy.stats import kendalltau

    return float(kendalltau(judged.predicted_us, judged.group.time_us[judged.order]).statistic)


def _nearest(groups: list[Group], train_shapes: NDArray[np.int64]) -> float:
    """Smallest over held-out shapes of the largest relative difference to a training shape."""
    if not len(train_shapes):
        return float("inf")
    logs = np.log(train_shapes)
    gaps = [np.abs(logs - np.log(group.shape)).max(axis=1).min() for group in groups]
    return float(np.expm1(min(gaps)))
