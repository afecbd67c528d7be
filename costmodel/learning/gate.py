"""The gate before a newly fitted model: it replaces the old one only where it is not worse.

Both are judged on the same shapes, which neither learned from: the shipped runs' held-out shapes
and, of the log, those that ``split`` set aside. Each ranks what was measured as ``predict_best``
would: its share is the best time over that of its first choice, and Kendall's tau says how far it
ordered them as measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from costmodel.errors import ModelError
from costmodel.learning.shares import shares_of, summary
from costmodel.paths import atomic_write
from costmodel.predict import Ranking, rank
from costmodel.profile import load_profile
from costmodel.ranking.ranker import Ranker, default_ranker, load_ranker
from costmodel.records.groups import Group
from costmodel.records.quality import UNSTEADY
from costmodel.records.schema import MEASUREMENT_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

#: figures lower by no more than this on average are no worse: medians of one kernel repeat to 0.4 %
#: (H200)
NOISE = 0.005
#: nor are figures whose mean difference is within so many of its standard errors: two fits on
#: nearly the same rows choose differently on some shapes
_ERRORS = 2.0
#: Kendall's tau of a log's times with what is predicted for them; less is no measurement of these
#: configurations. Shuffled times have 0. On the shipped held-out shapes the model reaches 0.44 at
#: least and 0.69 in the median, physics alone 0.48 in the median over all shapes
LEAST_TAU = 0.2
#: fewer configurations of a shape say nothing of an order
_LEAST_CONFIGS = 20
#: more of the measurements that are known already may not differ by over ``UNSTEADY``
_MOST_CONTRADICTED = 0.25
_LEAST_KNOWN = 20


class RefusedModelError(ModelError):
    """A model that was fitted and not installed. ``verdict`` says why."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(
            f"the new model is not installed, the old one stays: {'; '.join(verdict.reasons)} "
            f"({verdict.scores()}). Check the log with `costmodel runs check`; --force installs it "
            "all the same"
        )


@dataclass(frozen=True)
class Verdict:
    """How the new model did beside the old one, and why it may not replace it: no reason, it may.

    ``old`` and ``new`` have geomean, p10 and min of the shares over ``shapes`` problems, and the
    mean of Kendall's tau; ``old`` is empty where there is no old model. ``agreement`` is the median
    tau over the log's shapes, ``contradicted`` the share of its measurements that differ from known
    ones.
    """

    new: dict[str, float]
    old: dict[str, float]
    shapes: int
    agreement: float | None = None
    contradicted: float | None = None
    reasons: list[str] = field(default_factory=list)

    def scores(self) -> str:
        """Both scores as text."""
        if not self.new or not self.old:
            return f"no old model or no held-out shape to compare on, {self.shapes} shapes"
        return (
            f"on {self.shapes} held-out problems the first choice reaches "
            f"{self.new['geomean']:.3f} of the best with the new model, "
            f"{self.old['geomean']:.3f} with the old"
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "new": self.new,
            "old": self.old,
            "shapes": self.shapes,
            "agreement": self.agreement,
            "contradicted": self.contradicted,
            "reasons": self.reasons,
        }


def judge(
    new: Ranker,
    old: Ranker | None,
    groups: Sequence[Group],
    *,
    log: Sequence[Group] = (),
    contradicted: float | None = None,
) -> Verdict:
    """Compare two models on ``groups``, and the log's rows with what the old one predicts."""
    ours, theirs = (None if m is None or not groups else scores_of(m, groups) for m in (new, old))
    agreement = tau(old, log)
    reasons = []
    if ours is not None and theirs is not None:
        shares = _drop(np.log(ours.shares), np.log(theirs.shares))
        orders = _drop(ours.taus, theirs.taus)
        if shares:
            reasons.append(f"it chooses worse than the old one by {-np.expm1(-shares):.1%}")
        if orders:
            reasons.append(
                f"it orders worse than the old one: Kendall's tau is less by {orders:.2f}"
            )
    if agreement is not None and agreement < LEAST_TAU:
        reasons.append(
            f"the log's times are in no order that anything predicts: Kendall's tau is "
            f"{agreement:.2f}, and must be at least {LEAST_TAU:g}"
        )
    if contradicted is not None and contradicted > _MOST_CONTRADICTED:
        reasons.append(
            f"{contradicted:.0%} of the log's measurements that are known already differ by over "
            f"{UNSTEADY:.0%}"
        )
    new_score, old_score = ({} if s is None else s.summary() for s in (ours, theirs))
    return Verdict(new_score, old_score, len(groups), agreement, contradicted, reasons)


@dataclass(frozen=True)
class Scores:
    """For each group the share of the best that the first choice reaches, and Kendall's tau."""

    shares: NDArray[np.float64]
    taus: NDArray[np.float64]

    def summary(self) -> dict[str, float]:
        """The shares' geometric mean, tenth percentile and minimum, and the mean tau."""
        return summary(self.shares) | {"kendall_tau": round(float(np.nanmean(self.taus)), 4)}


def scores_of(ranker: Ranker, groups: Iterable[Group]) -> Scores:
    """How a model does on groups that it did not learn from."""
    shares, taus = [], []
    for group in groups:
        ranking = _ranking(ranker, group)
        shares.append(shares_of(group, ranking.order)[0])
        taus.append(_tau(ranking, group))
    return Scores(np.array(shares), np.array(taus))


def _drop(new: NDArray[np.float64], old: NDArray[np.float64]) -> float:
    """By how much the new figures are less on average where that is more than chance, else 0."""
    change = new - old
    change = change[~np.isnan(change)]
    error = float(change.std(ddof=1)) / len(change) ** 0.5 if len(change) > 1 else 0.0
    drop = -float(change.mean()) if len(change) else 0.0
    return drop if drop > max(NOISE, _ERRORS * error) else 0.0


def _tau(ranking: Ranking, group: Group) -> float:
    from scipy.stats import kendalltau

    return float(kendalltau(ranking.time_us, group.time_us[ranking.order]).statistic)


def tau(ranker: Ranker | None, groups: Iterable[Group]) -> float | None:
    """The median over groups of Kendall's tau between predicted and measured times, or None."""
    large = (group for group in groups if len(group.time_us) >= _LEAST_CONFIGS)
    found = [_tau(_ranking(ranker, group), group) for group in large]
    return round(float(np.nanmedian(found)), 4) if found else None


def _ranking(ranker: Ranker | None, group: Group) -> Ranking:
    """The group's configurations in a model's order, in physics' where it does not apply."""
    chip = load_profile(group.device)
    speaks = ranker is not None and ranker.applies(group.problem, chip)
    return rank(group.problem, group.table, chip, ranker if speaks else "physics")[0]


def contradictions(known: pd.DataFrame, log: pd.DataFrame) -> float | None:
    """Share of the log's measurements whose known median differs by over ``UNSTEADY``, or None.

    The same problem, configuration, chip, protocol and kernel count as the same measurement,
    whatever the software around them. None where fewer than 20 are known.
    """
    keys = list(MEASUREMENT_COLUMNS)
    parts = []
    for frame in (known, log):
        correct = frame[(frame["invalidity"] == "correct") & (frame["backend"] == "triton")]
        parts.append(correct.groupby(keys, dropna=False, sort=False)["time_us"].median())
    both = parts[0].rename("known").to_frame().join(parts[1].rename("log"), how="inner")
    if len(both) < _LEAST_KNOWN:
        return None
    ratio = both["log"] / both["known"]
    apart = (ratio > 1 + UNSTEADY) | (ratio < 1 / (1 + UNSTEADY))
    return round(float(apart.mean()), 4)


def replaced_model(path: Path) -> Ranker | None:
    """The model that one at ``path`` would replace: the file there, else the one in use, or None.

    A broken file is no rival, nor is the shipped model of a version with other features.
    """
    if path.exists():
        with suppress(ModelError):
            return load_ranker(path)
    with suppress(ModelError):
        return default_ranker()
    return None


def install(ranker: Ranker, path: Path) -> Path | None:
    """Put a model in its place in one step and keep the one that was there as ``<name>.old.npz``.

    The model file alone counts, and it is replaced whole: an interruption leaves the old or the
    new model, never a part of either. Gives the old model's path, or None.
    """
    kept = None
    if path.exists():
        kept = path.with_name(f"{path.stem}.old{path.suffix}")
        with path.open("rb") as old, atomic_write(kept, "wb") as stream:
            shutil.copyfileobj(old, stream)
        beside = path.with_suffix(".json")
        if beside.exists():
            with atomic_write(kept.with_suffix(".json"), "wb") as stream:
                stream.write(beside.read_bytes())
    ranker.save(path)
    return kept
