"""Fit the ranker on measured runs, judge it on shapes it did not see, and install it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from costmodel.errors import ModelError, RecordError
from costmodel.learning.distill import DRAWN_SHAPES, EPOCHS, HIDDEN, screen_of
from costmodel.physics.estimate import estimate_columns
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, load_profile
from costmodel.ranking.features import FEATURES, feature_matrix
from costmodel.ranking.ranker import Ranker, feature_fingerprint, own_model_path
from costmodel.ranking.trees import trees_of
from costmodel.records.groups import Group, groups_of
from costmodel.records.store import packaged_runs, read_runs
from costmodel.shapes import read_shapes

if TYPE_CHECKING:
    import pandas as pd

#: chosen by five-fold cross-validation over the training shapes; two seeds are averaged, since
#: each tree sees a random half of the features at a split
PARAMETERS: dict[str, Any] = {
    "max_iter": 300,
    "learning_rate": 0.06,
    "max_leaf_nodes": 63,
    "max_depth": 8,
    "min_samples_leaf": 20,
    "max_features": 0.5,
    "early_stopping": False,
}
SEEDS = (0, 1)
FOLDS = 5
#: measured problems from which on a network stands before the trees
_LEAST_SCREENED = 200
#: the interval is calibrated on the configurations that matter: the first of each shape's ranking
_CALIBRATION_TOP = 8


@dataclass(frozen=True)
class Prepared:
    """One group with what fitting needs of it: features, log target, estimate."""

    group: Group
    features: NDArray[np.float32]
    target: NDArray[np.float64]
    estimate_us: NDArray[np.float64]


@dataclass(frozen=True)
class TrainReport:
    """What was fitted on what, and where it was installed."""

    ranker: Ranker
    path: Path | None
    shapes: int
    rows: int

    @property
    def manifest(self) -> dict[str, Any]:
        return self.ranker.manifest


def train(
    logs: Iterable[str | os.PathLike[str]] | None = None,
    profile: str | HardwareProfile | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    install: bool = True,
    seeds: Sequence[int] = SEEDS,
) -> TrainReport:
    """Fit a ranker on logs or shards (the shipped runs where none are given) and store it.

    Shapes of the held-out set never take part. ``out`` is the file to write; the user's own model
    by default. Raises ``RecordError`` where the logs hold no correct run.
    """
    path = Path(out) if out is not None else own_model_path()
    if path.suffix != ".npz":
        raise ModelError(f"a model is a .npz file with its manifest beside it, not {path.name}")
    frame = packaged_runs() if logs is None else read_runs([Path(log) for log in logs])
    chip = load_profile(profile) if profile is not None else None
    groups = training_groups(frame, chip.name if chip else None)
    if not groups:
        raise RecordError(
            "every shape of these runs is held out for evaluation; collect other shapes to train on"
        )
    ranker = screened(fit(groups, seeds=seeds, frame=frame), groups)
    if install:
        ranker.save(path)
    rows = sum(len(group.time_us) for group in groups)
    return TrainReport(ranker, path if install else None, len(groups), rows)


def screened(ranker: Ranker, groups: Sequence[Group]) -> Ranker:
    """The ranker with a network that spares its trees most rows, where there is enough to learn.

    It learns on one chip, the one with most problems: of few shapes it would learn too little to
    be trusted, and the trees see every row.
    """
    problems: dict[str, list[Gemm]] = {}
    for group in groups:
        problems.setdefault(group.device, []).append(group.problem)
    device, most = max(problems.items(), key=lambda item: len(item[1]))
    if len(most) < _LEAST_SCREENED:
        return ranker
    screen = screen_of(ranker.trees, most, load_profile(device))
    taught = {"device": device, "drawn_shapes": DRAWN_SHAPES, "hidden": HIDDEN, "epochs": EPOCHS}
    return replace(ranker, screen=screen, manifest=ranker.manifest | {"screen": taught})


def heldout_shapes() -> set[tuple[int, int, int]]:
    """(M, N, K) of the frozen evaluation split."""
    return {(s.problem.m, s.problem.n, s.problem.k) for s in read_shapes("heldout")}


#: a shape within this of a held-out one in all three dimensions is held out too
_NEAR = 0.1


def training_groups(frame: pd.DataFrame, profile_name: str | None = None) -> list[Group]:
    """The groups of a frame whose shape is neither held out nor near one that is."""
    kept = np.log(np.asarray(sorted(heldout_shapes()), dtype=np.float64))

    def apart(group: Group) -> bool:
        off = np.abs(kept - np.log(np.asarray(group.shape, dtype=np.float64)))
        return bool((off.max(axis=1) > np.log1p(_NEAR)).all())

    return [group for group in groups_of(frame, profile_name) if apart(group)]


def fit_without(problems: Iterable[Gemm], profile: str) -> Ranker:
    """A ranker fitted on the shipped runs, but on no run of these shapes; its interval is wide."""
    frame = packaged_runs()
    left_out = {(p.m, p.n, p.k) for p in problems}
    groups = [g for g in training_groups(frame, profile) if g.shape not in left_out]
    return fit(groups, seeds=SEEDS[:1], frame=frame, folds=0)


def prepare(groups: Iterable[Group]) -> list[Prepared]:
    """Features and targets; a device counts as the chip of its profile."""
    prepared = []
    for group in groups:
        profile = load_profile(group.device)
        physics = estimate_columns(group.problem, group.table, profile)
        features = feature_matrix(group.problem, group.table, profile, physics)
        target = np.log(group.time_us / physics.time_us)
        prepared.append(Prepared(group, features, target, physics.time_us))
    return prepared


def fit(
    groups: list[Group], *, seeds: Sequence[int] = SEEDS, frame: pd.DataFrame | None = None,
    folds: int = FOLDS,
) -> Ranker:  # fmt: skip
    """Fit on all groups; spread and scores come from cross-validation by (M, N, K)."""
    data = prepare(groups)
    folds = min(folds, len({item.group.shape for item in data}))
    residuals, firsts = [], []
    for test, learn in _folds(data, folds):
        model = _fitted(learn, seeds[:1])
        for item in test:
            times = item.estimate_us * np.exp(model.trees.predict(item.features))
            order = np.argsort(times, kind="stable")
            top = order[:_CALIBRATION_TOP]
            residuals.append(np.log(item.group.time_us[top] / times[top]))
            firsts.append(item.group.time_us.min() / item.group.time_us[order[0]])
    spread = np.quantile(np.concatenate(residuals), (0.05, 0.95)) if residuals else (-0.3, 0.3)
    ranker = _fitted(data, seeds)
    scores = {}
    if firsts:
        scores["cv_top1_geomean"] = round(float(np.exp(np.mean(np.log(firsts)))), 4)
        scores["cv_top1_min"] = round(float(np.min(firsts)), 4)
    return replace(
        ranker, low=float(spread[0]), high=float(spread[1]),
        manifest=_manifest(data, seeds, scores, frame),
    )  # fmt: skip


def _folds(data: list[Prepared], count: int) -> Iterable[tuple[list[Prepared], list[Prepared]]]:
    """Test and training parts; all groups of one (M, N, K) fall into one part."""
    if count < 2:
        return
    shapes = sorted({item.group.shape for item in data})
    order = np.random.default_rng(0).permutation(len(shapes))
    fold_of = {shapes[row]: int(place % count) for place, row in enumerate(order)}
    for fold in range(count):
        test = [item for item in data if fold_of[item.group.shape] == fold]
        learn = [item for item in data if fold_of[item.group.shape] != fold]
        yield test, learn


def _fitted(data: list[Prepared], seeds: Sequence[int]) -> Ranker:
    from sklearn.ensemble import HistGradientBoostingRegressor

    features = np.concatenate([item.features for item in data])
    target = np.concatenate([item.target for item in data])
    weight = np.concatenate([_weights(item.group.time_us) for item in data])
    models = [
        HistGradientBoostingRegressor(random_state=seed, **PARAMETERS).fit(
            features, target, sample_weight=weight
        )
        for seed in seeds
    ]
    return Ranker(trees_of(models, len(FEATURES)), 0.0, 0.0, {})


def _physics_spread(data: list[Prepared]) -> list[float]:
    """5 % and 95 % quantiles of log(measured / estimate) over each shape's fastest tenth."""
    fastest = []
    for item in data:
        count = max(1, len(item.target) // 10)
        fastest.append(item.target[np.argsort(item.group.time_us, kind="stable")[:count]])
    return [round(float(q), 3) for q in np.quantile(np.concatenate(fastest), (0.05, 0.95))]


def _weights(time_us: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of one shape's rows: they sum to 1, and fast configurations count for more.

    Every shape counts the same, however many of its configurations were measured. A configuration
    twice as slow as the best counts half: its exact time never decides a choice.
    """
    weight = time_us.min() / time_us
    return np.asarray(weight / weight.sum(), dtype=np.float64)


def _manifest(
    data: list[Prepared], seeds: Sequence[int], scores: dict[str, Any], frame: pd.DataFrame | None
) -> dict[str, Any]:
    devices = sorted({item.group.device for item in data})
    manifest: dict[str, Any] = {
        "rows": sum(len(item.target) for item in data),
        "problems": len(data),
        "devices": devices,
        "architectures": sorted({load_profile(name).architecture for name in devices}),
        "layouts": sorted({item.group.problem.layout for item in data}),
        "dtypes": sorted({item.group.problem.dtype for item in data}),
        "features": list(FEATURES),
        "feature_fingerprint": feature_fingerprint(),
        "parameters": PARAMETERS,
        "seeds": list(seeds),
        "scores": scores,
        "physics_spread": _physics_spread(data),
        "versions": {
            name: metadata.version(name) for name in ("triton-costmodel", "scikit-learn", "numpy")
        },
    }
    if frame is not None:
        for column in ("kernel_hash", "triton", "torch", "driver", "protocol"):
            manifest[f"runs_{column}"] = sorted(frame[column].dropna().unique().tolist())
    return manifest
