"""The model file: trees as plain arrays, and nothing a hostile file can do but be refused."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from costmodel.errors import ModelError
from costmodel.learning.train import PARAMETERS
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.ranking import ranker as module
from costmodel.ranking.features import FEATURES
from costmodel.ranking.ranker import Ranker, default_ranker, load_ranker, own_model_path
from costmodel.ranking.trees import MOST_DEPTH, Trees, trees_of

H200 = load_profile("h200-sxm")
FEW = PARAMETERS | {"max_iter": 20}
MANIFEST = {"layouts": ["nt"], "architectures": ["hopper"], "dtypes": ["fp16"], "rows": 400}


def fitted(seed, columns, rows=600):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, columns)).astype(np.float32)
    y = np.sin(x[:, 0] * 2) + x[:, 1] * x[:, 2] + draw.normal(scale=0.1, size=rows)
    with threadpool_limits(1):  # beside other work, two threads wait for each other for seconds
        return HistGradientBoostingRegressor(random_state=seed, **FEW).fit(x, y), x


@pytest.fixture(scope="module")
def ranker():
    model, _ = fitted(3, len(FEATURES), rows=400)
    return Ranker(trees_of([model], len(FEATURES)), -0.2, 0.3, MANIFEST)


@pytest.fixture(scope="module")
def saved(ranker, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "own.npz"
    ranker.save(path)
    return path


@pytest.fixture
def altered(saved, tmp_path):
    """Write the saved model with some arrays exchanged (None: left out), and give its path."""

    def write(**changes):
        with np.load(saved, allow_pickle=False) as archive:
            arrays = dict(archive) | changes
        path = tmp_path / "altered.npz"
        np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
        path.with_suffix(".json").write_text(json.dumps(MANIFEST))
        return path

    return write


# --- trees ----------------------------------------------------------------------------------------


def test_the_arrays_predict_what_scikit_learn_predicts():
    model, x = fitted(0, 6)
    fresh = np.random.default_rng(9).normal(scale=3, size=(1000, 6))
    trees = trees_of([model], 6)
    for rows in (x, fresh):
        assert np.abs(trees.predict(rows) - model.predict(rows)).max() < 1e-9


def test_a_row_on_the_threshold_goes_left_as_in_scikit_learn():
    model, _ = fitted(0, 6)
    thresholds = [n["num_threshold"] for (p,) in model._predictors for n in p.nodes[:1]]
    rows = np.repeat(np.array(thresholds)[:, None], 6, axis=1)
    assert np.abs(trees_of([model], 6).predict(rows) - model.predict(rows)).max() < 1e-9


def test_several_models_become_their_mean():
    (one, x), (two, _) = fitted(1, 6), fitted(2, 6)
    mean = (one.predict(x) + two.predict(x)) / 2
    assert np.abs(trees_of([one, two], 6).predict(x) - mean).max() < 1e-9


def test_a_stump_is_read_by_hand():
    # feature 1 at most 0.5 gives -1, else 2; with a baseline of 10
    trees = Trees(
        feature=np.array([1, 0, 0], np.int32),
        threshold=np.array([0.5, 0.0, 0.0]),
        left=np.array([1, 1, 2], np.int32),
        right=np.array([2, 1, 2], np.int32),
        value=np.array([0.0, -1.0, 2.0]),
        roots=np.array([0], np.int32),
        baseline=10.0,
        depth=1,
        n_features=2,
    )
    rows = np.array([[9.0, 0.4], [9.0, 0.5], [-9.0, 0.6]])
    assert trees.predict(rows).tolist() == [9.0, 9.0, 12.0]
    assert trees.predict(rows[:0]).tolist() == []


# --- a sound file ---------------------------------------------------------------------------------


def test_a_saved_model_comes_back_as_it_was(ranker, saved):
    loaded = load_ranker(saved)
    rows = np.random.default_rng(5).normal(size=(200, len(FEATURES)))
    assert loaded.trees.predict(rows).tolist() == ranker.trees.predict(rows).tolist()
    assert (loaded.low, loaded.high, loaded.manifest) == (-0.2, 0.3, MANIFEST)


def test_saving_leaves_the_model_and_its_manifest_and_nothing_else(ranker, tmp_path):
    ranker.save(tmp_path / "deep" / "own.npz")
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["own.json", "own.npz"]
    assert json.loads((tmp_path / "deep" / "own.json").read_text()) == MANIFEST


def test_the_file_holds_no_object_array(saved):
    with np.load(saved, allow_pickle=False) as archive:
        assert {archive[name].dtype.kind for name in archive.files} <= set("ifU")


def test_a_model_speaks_for_the_architecture_and_types_that_it_was_fitted_on(ranker):
    assert ranker.applies(Gemm(1, 1, 1), H200)
    assert ranker.applies(Gemm(1, 1, 1), load_profile("h100-sxm"))
    assert not ranker.applies(Gemm(1, 1, 1, dtype="bf16"), H200)
    assert not ranker.applies(Gemm(1, 1, 1), load_profile("mi300x"))


def test_the_shipped_model_says_what_it_was_fitted_on(monkeypatch, tmp_path):
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))
    shipped = default_ranker()
    assert shipped is not None
    manifest = shipped.manifest
    assert manifest["features"] == list(FEATURES)
    assert "hopper" in manifest["architectures"] and "fp16" in manifest["dtypes"]
    assert manifest["rows"] > 10_000 and manifest["problems"] > 300
    assert {"triton-costmodel", "scikit-learn", "numpy"} <= set(manifest["versions"])
    assert manifest["runs_kernel_hash"] and manifest["runs_protocol"]
    assert shipped.low < 0 < shipped.high


def test_a_users_own_model_comes_before_the_shipped_one(ranker, monkeypatch, tmp_path):
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))
    ranker.save(own_model_path())
    found = default_ranker()
    assert found is not None and found.manifest == MANIFEST


# --- hostile files --------------------------------------------------------------------------------


def one_more(array, value):
    """A copy whose second node (a node of the first tree) holds something else."""
    changed = array.copy()
    changed[1] = value
    return changed


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("feature", len(FEATURES), "a node asks for a feature outside"),
        ("feature", -1, "a node asks for a feature outside"),
        ("left", 0, "left points backwards"),
        ("right", 0, "right points backwards"),
        ("left", 10**9, "left points backwards or outside"),
        ("right", -(10**9), "right points backwards or outside"),
        ("threshold", np.nan, "'threshold' holds numbers that are not finite"),
        ("threshold", np.inf, "'threshold' holds numbers that are not finite"),
        ("value", np.nan, "'value' holds numbers that are not finite"),
        ("roots", 10**9, "a root lies outside"),
        ("roots", -1, "a root lies outside"),
    ],
)
def test_one_wrong_number_in_a_node_is_refused_by_name(saved, altered, name, value, message):
    with np.load(saved) as archive:
        array = one_more(archive[name], value)
    with pytest.raises(ModelError, match=message):
        load_ranker(altered(**{name: array}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": None}, "not a model of format"),
        ({"format": np.array([1])}, "not a model of format 3; train it again"),
        ({"features": None}, "fitted on other features"),
        ({"features": np.array(list(FEATURES)[::-1])}, "fitted on other features"),
        ({"features": np.array(list(FEATURES)[:-1])}, "fitted on other features"),
        ({"features": np.arange(len(FEATURES))}, "fitted on other features"),
        ({"spread": np.array([0.1])}, "'spread' must hold two numbers"),
        ({"spread": np.array([np.nan, 0.1])}, "'spread' must hold two numbers"),
        ({"left": None}, "'left' is missing"),
        ({"left": np.zeros(3)}, "'left' is missing or is not 1-D of kind i"),
        ({"value": np.zeros((2, 2))}, "'value' is missing or is not 1-D of kind f"),
        ({"value": np.zeros(3)}, "node arrays are empty or differ in length"),
        ({"roots": np.array([], np.int32)}, "a root lies outside"),
        ({"depth": np.array([MOST_DEPTH + 1])}, f"depth <= {MOST_DEPTH}"),
        ({"depth": np.array([-1])}, f"depth <= {MOST_DEPTH}"),
        ({"baseline": np.array([np.inf])}, "'baseline' holds numbers that are not finite"),
        ({"baseline": np.array([0.0, 1.0])}, "one number each"),
    ],
)
def test_a_missing_or_misshapen_array_is_refused_by_name(altered, changes, message):
    with pytest.raises(ModelError, match=message):
        load_ranker(altered(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"format": np.array(["one"])},
        {"format": np.array([np.nan])},
        {"spread": np.array(["low", "high"])},
    ],
)
def test_text_where_a_number_belongs_is_refused(altered, changes):
    with pytest.raises(ModelError):
        load_ranker(altered(**changes))


def test_an_array_of_pickled_objects_is_refused_and_never_unpickled(altered, tmp_path):
    mark = tmp_path / "ran"

    class Hostile:
        def __reduce__(self):
            return (mark.touch, ())

    path = altered(value=np.array([Hostile()], dtype=object))
    with pytest.raises(ModelError, match="not a model file"):
        load_ranker(path)
    assert not mark.exists()
    path.write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(ModelError, match="not a model file"):
        load_ranker(path)
    assert not mark.exists()


def test_an_archive_that_inflates_past_the_limit_is_refused_before_it_is_read(altered, monkeypatch):
    path = altered()
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.npy", bytes(1 << 20))
    assert load_ranker(path).low == -0.2  # an array more does no harm
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    with pytest.raises(ModelError, match="larger than 1048576 bytes"):
        load_ranker(path)


def test_a_header_that_claims_more_than_the_file_holds_is_refused(altered):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    )
    path = altered(value=None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("value.npy", header.getvalue())
    with pytest.raises(ModelError, match="not a model file"):
        load_ranker(path)


def test_a_file_cut_off_anywhere_is_refused(saved, tmp_path):
    data = saved.read_bytes()
    path = tmp_path / "cut.npz"
    path.with_suffix(".json").write_text("{}")
    for length in range(0, len(data), 100):
        path.write_bytes(data[:length])
        with pytest.raises(ModelError):
            load_ranker(path)


def test_a_missing_file_or_manifest_is_named(saved, tmp_path):
    with pytest.raises(ModelError, match=r"nowhere\.npz: No such file"):
        load_ranker(tmp_path / "nowhere.npz")
    lone = tmp_path / "lone.npz"
    lone.write_bytes(saved.read_bytes())
    with pytest.raises(ModelError, match=r"lone\.npz"):
        load_ranker(lone)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"text"', "[" * 100_000])
def test_a_manifest_that_is_no_json_object_is_refused(altered, text):
    path = altered()
    path.with_suffix(".json").write_text(text)
    with pytest.raises(ModelError, match="manifest"):
        load_ranker(path)


def test_a_manifest_that_is_not_utf_8_is_refused(altered):
    path = altered()
    path.with_suffix(".json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ModelError):
        load_ranker(path)


@pytest.mark.parametrize("manifest", [{"architectures": 5}, {"architectures": None}])
def test_a_manifest_with_a_field_of_another_kind_applies_nowhere_or_is_refused(altered, manifest):
    path = altered()
    path.with_suffix(".json").write_text(json.dumps(manifest))
    try:
        found = load_ranker(path)
    except ModelError:
        return
    assert not found.applies(Gemm(1, 1, 1), H200)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_model_error(data, tmp_path):
    path = tmp_path / "noise.npz"
    path.with_suffix(".json").write_text("{}")
    path.write_bytes(data)
    with pytest.raises(ModelError):
        load_ranker(path)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_flipped_byte_is_refused_or_gives_a_model_that_predicts(data, saved, tmp_path):
    whole = bytearray(saved.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "flipped.npz"
    path.write_bytes(whole)
    path.with_suffix(".json").write_text(json.dumps(MANIFEST))
    try:
        found = load_ranker(path)
    except ModelError:
        return
    assert np.isfinite(found.trees.predict(np.zeros((3, len(FEATURES))))).all()


def test_the_shipped_model_was_fitted_on_the_features_of_this_version():
    shipped = module._shipped()
    assert shipped is not None
    assert shipped.manifest["feature_fingerprint"] == module.feature_fingerprint()
