"""The ranker: a fitted correction of the physics estimate, and its file."""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.errors import ModelError
from costmodel.paths import atomic_write, packaged, user_path
from costmodel.physics.estimate import EstimateColumns, estimate_columns
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, load_profile
from costmodel.ranking.cascade import ToJudge, foremost_times, with_first
from costmodel.ranking.features import FEATURES, feature_matrix
from costmodel.ranking.network import Network
from costmodel.ranking.trees import Trees
from costmodel.space.candidates import candidates

FORMAT = 3
#: log(measured / predicted) of a model that predicts anything is nearer to 0
_WIDEST = 10.0
#: a whole model file; ours is some 3.4 MB
MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, eq=False)
class Ranker:
    """Trees and networks over ``FEATURES`` that predict log(time / physics estimate).

    The trees' word counts as much as that of all networks; where there are none, it is alone. The
    first choice is among a few rows that the quickest of them leave (cascade.py).
    ``low`` and ``high`` are the 5 % and 95 % quantiles of log(measured / predicted) for
    configurations that this model ranked near the top on shapes it was not fitted on.
    """

    trees: Trees
    low: float
    high: float
    manifest: dict[str, Any]
    networks: tuple[Network, ...] = ()

    def applies(self, problem: Gemm, profile: HardwareProfile) -> bool:
        """Whether the rows it was fitted on speak for this chip and this kind of problem.

        Only plain products were measured: one entry, C written and not read.
        """
        plain = problem.batch == 1 and problem.beta == 0 and problem.alpha == 1
        plain &= problem.accumulate != "fp16"
        return (
            plain
            and profile.architecture in self.manifest.get("architectures", ())
            and problem.dtype in self.manifest.get("dtypes", ())
            and problem.layout in self.manifest.get("layouts", ())
        )

    def times_us(
        self, problem: Gemm, table: ConfigTable, profile: HardwareProfile, physics: EstimateColumns
    ) -> NDArray[np.float64]:
        """Predicted time of every configuration, in microseconds."""
        rows = feature_matrix(problem, table, profile, physics)
        return self.corrected_us(rows, physics.time_us, physics.roofline.least_us)

    def corrected_us(
        self, rows: NDArray[np.float32], estimate_us: NDArray[np.float64], least_us: Any
    ) -> NDArray[np.float64]:
        """Predicted times from features [configurations, features] and physics' estimate.

        All models speak of all rows, and the first is that of ``foremost_us``.
        """
        if not len(rows):
            return np.empty(0)
        ((places, exact),) = self.foremost_us([ToJudge(rows, estimate_us, least_us)])
        times = np.maximum(estimate_us * np.exp(self.predict(rows)), least_us)
        return with_first(times, places, exact, exact.min())

    def foremost_us(
        self, problems: Sequence[ToJudge]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Of each problem, some rows and their times: ``corrected_us`` says the same of them, and
        puts the first of these first.
        """
        return foremost_times(self.networks, self.trees, problems)

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """log(time / physics estimate) of every row of [configurations, features], by all."""
        said = self.trees.predict(rows)
        if not self.networks:
            return said
        total = sum(network.predict(rows) for network in self.networks)
        return np.asarray((said + total / len(self.networks)) / 2)

    def save(self, path: Path) -> None:
        """Write ``path`` (.npz) and its manifest (.json beside it), each whole or not at all.

        Two files cannot be replaced in one step. So the model comes first, holds its manifest too,
        and names the manifest that it finds: where that one still stands beside it, the second
        step was interrupted.
        """
        buffer = io.BytesIO()
        beside = path.with_suffix(".json")
        manifest = json.dumps(self.manifest, indent=1, sort_keys=True) + "\n"
        networks = {k: v for i, n in enumerate(self.networks) for k, v in n.arrays(i).items()}
        own = {
            "format": np.array([FORMAT]),
            "features": np.array(list(FEATURES)),
            "spread": np.array([self.low, self.high]),
            "manifest": np.array(manifest),
            "replaces": np.array(_digest(beside.read_bytes()) if beside.is_file() else ""),
        }
        arrays = self.trees.arrays() | networks | own
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        with atomic_write(path, "wb") as stream:
            stream.write(buffer.getvalue())
        with atomic_write(beside) as stream:
            stream.write(manifest)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def feature_fingerprint() -> str:
    """A digest of what the features are on fixed problems: a model fitted on others is stale.

    Values are rounded, so that another processor's last digit does not change it.
    """
    chip = load_profile("h200-sxm")
    digest = hashlib.sha256()
    for problem in (Gemm(512, 512, 8192), Gemm(1000, 1000, 1000, layout="nn")):
        table = candidates(problem, chip)[::37]
        rows = feature_matrix(problem, table, chip, estimate_columns(problem, table, chip))
        digest.update(np.round(rows, 3).astype("<f4").tobytes())
    return digest.hexdigest()[:12]


def load_ranker(path: str | os.PathLike[str]) -> Ranker:
    """Read a model file and its manifest. Raises ``ModelError`` for anything but a sound one."""
    file = Path(path)
    beside = file.with_suffix(".json")
    try:
        for part in (file, beside):
            if part.stat().st_size > MOST_BYTES:
                raise ModelError(f"{part}: larger than {MOST_BYTES} bytes")
        return _parse(file.read_bytes(), beside.read_bytes(), str(file))
    except OSError as error:
        raise ModelError(f"cannot read the model {file}: {error.strerror}") from None


def _parse(data: bytes, manifest_json: bytes, where: str) -> Ranker:
    arrays = _arrays(data, where)
    try:
        own, replaces = (arrays.get(name, np.array("")) for name in ("manifest", "replaces"))
        interrupted = str(replaces) == _digest(manifest_json)
        manifest = json.loads(str(own) if interrupted else manifest_json)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{where}: the manifest is not JSON: {error}") from None
    if not isinstance(manifest, dict):
        raise ModelError(f"{where}: the manifest must be a JSON object")
    for name in ("architectures", "dtypes", "layouts", "devices"):
        if not isinstance(manifest.get(name, []), list):
            raise ModelError(f"{where}: {name} in the manifest must be a list of names")
    version = arrays.get("format")
    if version is None or version.dtype.kind != "i" or version.tolist() != [FORMAT]:
        raise ModelError(f"{where}: not a model of format {FORMAT}; train it again")
    names = arrays.get("features")
    if names is None or names.dtype.kind != "U" or names.tolist() != list(FEATURES):
        raise ModelError(f"{where}: fitted on other features than this version has; train it again")
    spread = arrays.get("spread")
    numbers = spread is not None and spread.dtype.kind == "f" and spread.shape == (2,)
    if spread is None or not numbers or not -_WIDEST <= spread[0] <= spread[1] <= _WIDEST:
        raise ModelError(
            f"{where}: array 'spread' must hold two numbers from {-_WIDEST:g} to {_WIDEST:g}, "
            "the lesser first"
        )
    trees = Trees.checked(arrays, len(FEATURES), where)
    networks = Network.all_checked(arrays, len(FEATURES), where)
    return Ranker(trees, float(spread[0]), float(spread[1]), manifest, networks)


def _arrays(data: bytes, where: str) -> dict[str, NDArray[Any]]:
    """Every array of an .npz, with nothing unpickled and nothing inflated past ``MOST_BYTES``."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
                raise ModelError(f"{where}: larger than {MOST_BYTES} bytes")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except ModelError:
        raise
    except Exception as error:  # a hostile file may break the reader anywhere
        raise ModelError(f"{where}: not a model file: {error}") from None


def own_model_path() -> Path:
    """Where ``train`` installs a user's own model."""
    return user_path("models", "ranker.npz")


def default_ranker() -> Ranker | None:
    """The user's own model where there is one, else the shipped one, else None."""
    own = own_model_path()
    try:
        modified = os.stat(own).st_mtime_ns
    except OSError:
        return _shipped()
    try:
        return _cached(str(own), modified)
    except ModelError as error:
        warnings.warn(
            f"{error}; the shipped model is used: train your own again, or delete it",
            stacklevel=2,
        )
        return _shipped()


@lru_cache(maxsize=4)
def _cached(path: str, _modified: int) -> Ranker:
    return load_ranker(path)


@lru_cache(maxsize=1)
def _shipped() -> Ranker | None:
    folder = packaged("models")
    try:
        data = folder.joinpath("ranker.npz").read_bytes()
        manifest = folder.joinpath("ranker.json").read_bytes()
    except OSError:
        return None
    return _parse(data, manifest, "the shipped model")
