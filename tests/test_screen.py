"""The network before the trees: its arithmetic, its file, and how it is taught."""

import json

import numpy as np
import pytest

from costmodel.errors import ModelError
from costmodel.learning.distill import drawn_problems, lessons, taught
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.ranking.features import FEATURES
from costmodel.ranking.network import Network
from costmodel.ranking.ranker import RERANKED, Ranker, load_ranker
from costmodel.ranking.trees import MOST_NODES, Trees

WIDTH = len(FEATURES)
#: one leaf for all, and a tree of the first feature at 0.5: 1 below and 3 above
LEAF = Trees(
    np.array([0], np.int32), np.array([0.0]), np.array([0], np.int32), np.array([0], np.int32),
    np.array([0.0]), np.array([0], np.int32), 0.0, 0, WIDTH,
)  # fmt: skip
STEP = Trees(
    np.array([0, 0, 0], np.int32), np.array([0.5, 0, 0]), np.array([1, 1, 2], np.int32),
    np.array([2, 1, 2], np.int32), np.array([0.0, 1.0, 3.0]), np.array([0], np.int32),
    0.0, 1, WIDTH,
)  # fmt: skip


def network(slope=1.0):
    """``slope`` times the second feature, held to 0 ... 100."""
    weight = np.zeros((WIDTH, 2), np.float32)
    weight[1] = 1, -1
    last = np.array([[slope], [-slope]], np.float32)
    low, high = np.full(WIDTH, -100, np.float32), np.full(WIDTH, 100, np.float32)
    low[1] = 0
    return Network(low, high, (weight, last), (np.zeros(2, np.float32), np.zeros(1, np.float32)))


def rows_of(second, first=0.0):
    rows = np.zeros((len(second), WIDTH), np.float32)
    rows[:, 0], rows[:, 1] = first, second
    return rows


def test_a_network_by_hand_and_past_its_range():
    # max(x, 0) - max(-x, 0) is x; below 0 and past 100 it stays where it was fitted last
    assert network(2.0).predict(rows_of([0, 3, 100, 250, -7])).tolist() == [0, 6, 200, 200, 0]


def test_the_network_chooses_and_the_trees_order_what_it_chose():
    count = 3 * RERANKED
    rows = rows_of(np.linspace(0, 3, count), first=np.arange(count) % 2)
    ranker = Ranker(STEP, 0.0, 0.0, {}, network())
    times = ranker.corrected_us(rows, np.ones(count), 0.0)
    # the network puts the first rows first; the trees give them e or e^3, by whether they are even
    assert times[:RERANKED] == pytest.approx(np.where(np.arange(RERANKED) % 2, np.e**3, np.e))
    behind = times[RERANKED:]
    assert (behind > times[:RERANKED].max()).all() and (np.diff(behind) >= 0).all()


def test_few_rows_and_a_ranker_without_a_network_go_to_the_trees_alone():
    rows = rows_of(np.ones(RERANKED))
    for ranker, some in ((Ranker(STEP, 0, 0, {}, network()), rows),
                         (Ranker(STEP, 0, 0, {}), np.concatenate([rows, rows]))):  # fmt: skip
        assert ranker.corrected_us(some, np.full(len(some), 2.0), 0.0) == pytest.approx(2 * np.e)


@pytest.fixture
def altered(tmp_path):
    """Save a ranker with some arrays exchanged (None: left out), and give its path."""

    def write(**changes):
        path = tmp_path / "model.npz"
        Ranker(LEAF, -0.1, 0.1, {}, network()).save(path)
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive) | changes
        np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
        path.with_suffix(".json").write_text(json.dumps({}))
        return path

    return write


def test_a_saved_network_comes_back_as_it_was(altered):
    found = load_ranker(altered()).screen
    assert found is not None
    for name, array in network().arrays().items():
        assert np.array_equal(found.arrays()[name], array), name


def test_a_file_without_a_network_is_a_ranker_without_one(altered):
    assert load_ranker(altered(**dict.fromkeys(network().arrays()))).screen is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"screen_low": None}, "'screen_low' is missing"),
        ({"screen_high": np.zeros(WIDTH - 1)}, "'screen_high' has the shape"),
        ({"screen_weight_0": np.zeros((WIDTH, 2), int)}, "'screen_weight_0' is missing or"),
        ({"screen_weight_0": np.zeros((WIDTH + 1, 2))}, "'screen_weight_0' has the shape"),
        ({"screen_weight_0": np.zeros((WIDTH, 5000))}, "'screen_weight_0' has the shape"),
        ({"screen_weight_1": np.zeros((3, 1))}, "'screen_weight_1' has the shape"),
        ({"screen_weight_1": np.zeros((2, 2))}, "'screen_weight_1' has the shape"),
        ({"screen_weight_1": None, "screen_bias_1": None}, "'screen_weight_0' has the shape"),
        ({"screen_bias_0": np.array([0, np.nan])}, "numbers past a million"),
        ({"screen_bias_0": np.array([0, np.inf])}, "numbers past a million"),
        ({"screen_bias_1": np.zeros((1, 1))}, "'screen_bias_1' is missing or"),
        ({"screen_weight_0": None, "screen_weight_1": None}, "a screen of 0 layers"),
    ],
)  # fmt: skip
def test_a_network_that_does_not_fit_together_is_refused_by_name(altered, changes, message):
    with pytest.raises(ModelError, match=message):
        load_ranker(altered(**changes))


def test_trees_that_would_fill_memory_when_completed_are_refused():
    arrays = LEAF.arrays() | {"roots": np.zeros(1000, np.int32), "depth": np.array([16])}
    assert 1000 << 16 > MOST_NODES
    with pytest.raises(ModelError, match="too many nodes"):
        Trees.checked(arrays, WIDTH, "it")


# --- teaching -------------------------------------------------------------------------------------


def test_a_network_learns_a_bend_and_a_product_in_features_of_any_scale():
    draw = np.random.default_rng(0)
    rows = (draw.normal(size=(500, 3)) * [1, 100, 0.01] + [5, 0, 0]).astype(np.float32)
    wanted = np.abs(rows[:, 0] - 5.0) + rows[:, 1] * rows[:, 2]
    off = taught(rows, wanted, np.ones(500), hidden=(32, 32), epochs=1500).predict(rows) - wanted
    assert np.sqrt(np.mean(off**2)) < 0.2 * wanted.std()


def test_rows_without_weight_teach_nothing():
    rows = np.linspace(-1, 1, 200, dtype=np.float32)[:, None]
    counts = rows[:, 0] < 0
    wanted = np.where(counts, 0.5, 1e3)
    fitted = taught(rows, wanted, counts.astype(float), hidden=(8,), epochs=1500)
    assert fitted.predict(rows[counts]) == pytest.approx(0.5, abs=0.1)


def test_drawn_problems_are_the_same_each_time_of_the_types_given_and_up_to_16384():
    alike = [Gemm(64, 64, 64, dtype="bf16"), Gemm(64, 64, 64, layout="nn")]
    drawn = drawn_problems(alike, 200)
    assert drawn == drawn_problems(alike, 200)
    assert {(p.dtype, p.layout) for p in drawn} == {("bf16", "nt"), ("fp16", "nn")}
    sizes = np.array([(p.m, p.n, p.k) for p in drawn])
    assert sizes.min() >= 1 and sizes.max() <= 16384
    assert 0.1 < np.mean(sizes % 2) < 0.3  # odd ones are among them, and multiples are more


def test_every_shape_weighs_the_same_and_its_best_row_the_most():
    chip = load_profile("h200-sxm")
    problems = [Gemm(512, 512, 512), Gemm(64, 4096, 4096)]
    rows, said, weight = lessons(STEP, problems, chip)
    assert rows.shape == (256, WIDTH) and weight.sum() == pytest.approx(2)
    assert weight[:128].sum() == pytest.approx(1) and weight[:128].argmax() == 0
    assert set(said.tolist()) <= {1.0, 3.0}
