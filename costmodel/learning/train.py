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
from costmodel.learning.gate import (
    RefusedModelError,
    Verdict,
    contradictions,
    judge,
    replaced_model,
)
from costmodel.learning.gate import install as put_in_place
from costmodel.learning.networks import EPOCHS, HIDDEN, network_of
from costmodel.learning.shares import row_weights
from costmodel.learning.split import heldout_shapes, judging_shapes, training_groups
from costmodel.physics.estimate import estimate_columns
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, load_profile
from costmodel.ranking.features import FEATURES, feature_matrix
from costmodel.ranking.ranker import Ranker, feature_fingerprint, own_model_path
from costmodel.ranking.trees import trees_of
from costmodel.records.groups import Group, groups_of
from costmodel.records.log import LineProblem
from costmodel.records.store import packaged_runs, read_runs

if TYPE_CHECKING:
    import pandas as pd

#: chosen on a fifth of the training shapes, like the networks' sizes, on rows of kernels of every
#: kind (data/results/capacity.py); trees 10 deep err by 3 % less alone, and take
#: four times the memory
PARAMETERS: dict[str, Any] = {
    "max_iter": 600,
    "learning_rate": 0.08,
    "max_leaf_nodes": 255,
    "max_depth": 8,
    "min_samples_leaf": 20,
    "max_features": 0.5,
    "early_stopping": False,
}
SEEDS = (0,)
FOLDS = 3
#: measured problems from which on there are networks: from few shapes they learn too little
_LEAST_FOR_NETWORKS = 200
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
    """What was fitted on what, how it did beside the old model, and where it was installed.

    ``kept`` is where the old model of that place went; ``problems`` are the rows and lines that
    were left out, with the file of each.
    """

    ranker: Ranker
    path: Path | None
    shapes: int
    rows: int
    verdict: Verdict
    kept: Path | None = None
    problems: tuple[tuple[str, LineProblem], ...] = ()

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
    shipped: bool = True,
    source: str | None = None,
    force: bool = False,
) -> TrainReport:
    """Fit a ranker on logs or shards, merged with the shipped runs, and install it if it is good.

    Held-out shapes never take part, nor does one in five of the logs' own shapes: on these the new
    model is compared with the one that it would replace (the file ``out``, else the model in use),
    and it is installed only where it is not worse, or with ``force``. ``shipped=False`` leaves the
    shipped runs out; ``source`` fits on the runs of another tool's kernel alone. ``out`` is the
    file to write; the user's own model by default, which a ``source`` may not replace.

    Raises ``RecordError`` where the logs hold no correct run, ``RefusedModelError`` for a model
    that is not installed, and ``ModelError`` for a path that is none of a model.
    """
    path = Path(out) if out is not None else own_model_path()
    if path.suffix != ".npz":
        raise ModelError(f"a model is a .npz file with its manifest beside it, not {path.name}")
    if source is not None and out is None:
        raise ModelError(f"a model of {source} serves its own kernel: say with --out where it goes")
    problems: list[tuple[str, LineProblem]] = []
    known = packaged_runs()
    log = None
    if logs is not None:
        files = [Path(log) for log in logs]
        log = read_runs(files, on_problem=lambda file, problem: problems.append((file, problem)))
    frame = known if log is None else _merged(known if shipped and not source else None, log)
    chip = load_profile(profile) if profile is not None else None
    name = chip.name if chip else None
    judges = _judges(known, log, source)
    own = {group.shape for group in judges.own}
    groups = training_groups(frame, name, source=source, but=own)
    fresh = groups if log is None else training_groups(log, name, source=source, but=own)
    if not fresh:
        raise RecordError(
            "every shape of these runs is held out for evaluation; collect other shapes to train on"
        )
    ranker = fit(groups, seeds=seeds, frame=frame)
    verdict = judge(
        ranker, replaced_model(path) if source is None else None, [*judges.shipped, *judges.own],
        log=judges.log, contradicted=None if log is None else contradictions(known, log),
    )  # fmt: skip
    manifest = ranker.manifest | {
        "gate": verdict.as_dict(),
        "left_out": len(problems),
        "logs": [] if logs is None else [file.name for file in files],
        "merged_with_shipped": log is not None and shipped and source is None,
        "source": source,
    }
    ranker = replace(ranker, manifest=manifest)
    if install and verdict.reasons and not force:
        raise RefusedModelError(verdict)
    kept = put_in_place(ranker, path) if install else None
    rows = sum(len(group.time_us) for group in groups)
    return TrainReport(
        ranker, path if install else None, len(groups), rows, verdict, kept, tuple(problems)
    )


@dataclass(frozen=True)
class _Judges:
    """Groups that judge: of the shipped runs, set aside of the log, and the whole log's."""

    shipped: list[Group]
    own: list[Group]
    log: list[Group]


def _judges(known: pd.DataFrame, log: pd.DataFrame | None, source: str | None) -> _Judges:
    """What judges a model fitted on a log.

    A held-out shape of the shipped runs is judged by their times and not by the log's, since the
    log is what is judged; a shape that the shipped model learned from judges nothing.
    """
    held = heldout_shapes()
    shipped = [] if source else groups_of(known[_sizes(known).isin(held)])
    if log is None:
        return _Judges(shipped, [], [])
    mine = groups_of(log, source=source)
    fresh = {group.shape for group in mine} - ({*_sizes(known)} - held)
    taken = {(group.problem, group.device) for group in shipped}
    aside = judging_shapes(fresh - held) | held
    own = [g for g in mine if g.shape in aside and (g.problem, g.device) not in taken]
    return _Judges(shipped, own, mine)


def _sizes(frame: pd.DataFrame) -> Any:
    """(M, N, K) of each row."""
    import pandas as pd

    return pd.MultiIndex.from_frame(frame[["m", "n", "k"]].astype("int64"))


def _merged(known: pd.DataFrame | None, log: pd.DataFrame) -> pd.DataFrame:
    """Shipped runs and a log's, each row once."""
    import pandas as pd

    return log if known is None else pd.concat([known, log], ignore_index=True).drop_duplicates()


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
    hidden = HIDDEN if len(data) >= _LEAST_FOR_NETWORKS else ()
    residuals, firsts = [], []
    for test, learn in _folds(data, folds):
        model = _fitted(learn, seeds[:1], hidden)
        for item in test:
            times = item.estimate_us * np.exp(model.predict(item.features))
            order = np.argsort(times, kind="stable")
            top = order[:_CALIBRATION_TOP]
            residuals.append(np.log(item.group.time_us[top] / times[top]))
            firsts.append(item.group.time_us.min() / item.group.time_us[order[0]])
    spread = np.quantile(np.concatenate(residuals), (0.05, 0.95)) if residuals else (-0.3, 0.3)
    ranker = _fitted(data, seeds, hidden)
    scores = {}
    if firsts:
        scores["cv_top1_geomean"] = round(float(np.exp(np.mean(np.log(firsts)))), 4)
        scores["cv_top1_min"] = round(float(np.min(firsts)), 4)
    return replace(
        ranker, low=float(spread[0]), high=float(spread[1]),
        manifest=_manifest(data, seeds, scores, frame, len(ranker.networks)),
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


def _fitted(data: list[Prepared], seeds: Sequence[int], hidden: Sequence[Sequence[int]]) -> Ranker:
    from sklearn.ensemble import HistGradientBoostingRegressor

    features = np.concatenate([item.features for item in data])
    target = np.concatenate([item.target for item in data])
    weight = np.concatenate([row_weights(item.group.time_us) for item in data])
    models = [
        HistGradientBoostingRegressor(random_state=seed, **PARAMETERS).fit(
            features, target, sample_weight=weight
        )
        for seed in seeds
    ]
    rows = [item.features for item in data]
    targets = [item.target for item in data]
    times = [item.group.time_us for item in data]
    networks = [
        network_of(rows, targets, times, hidden=layers, seed=seed)
        for seed, layers in enumerate(hidden)
    ]
    return Ranker(trees_of(models, len(FEATURES)), 0.0, 0.0, {}, tuple(networks))


def _physics_spread(data: list[Prepared]) -> list[float]:
    """5 % and 95 % quantiles of log(measured / estimate) over each shape's fastest tenth."""
    fastest = []
    for item in data:
        count = max(1, len(item.target) // 10)
        fastest.append(item.target[np.argsort(item.group.time_us, kind="stable")[:count]])
    return [round(float(q), 3) for q in np.quantile(np.concatenate(fastest), (0.05, 0.95))]


def _manifest(
    data: list[Prepared], seeds: Sequence[int], scores: dict[str, Any], frame: pd.DataFrame | None,
    networks: int,
) -> dict[str, Any]:  # fmt: skip
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
        "networks": {"hidden": HIDDEN[:networks], "epochs": EPOCHS},
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
