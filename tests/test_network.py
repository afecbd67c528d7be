"""The networks beside the trees: their arithmetic, their file, and how they are fitted."""

import json

import numpy as np
import pytest

from costmodel.errors import ModelError
from costmodel.learning import networks
from costmodel.learning.networks import network_of
from costmodel.ranking.cascade import FOR_ALL, FOR_SECOND, ToJudge, best_rows, with_first
from costmodel.ranking.features import FEATURES
from costmodel.ranking.network import MOST_NETWORKS, Network
from costmodel.ranking.ranker import Ranker, load_ranker
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


def test_all_order_what_the_quickest_chose_and_no_other_row_is_first():
    count = 3 * FOR_SECOND
    rows = rows_of(np.linspace(0, 3, count), first=np.arange(count) % 2)
    networks_ = network(), network(3.0), network(-9.0)
    ranker = Ranker(STEP, 0.0, 0.0, {}, networks_)
    times = ranker.corrected_us(rows, np.ones(count), 0.0)
    # networks say x, 3 x and -9 x, of which the first two put the first rows first; trees say 1 or
    # 3, by whether a row is even: half of the one, half of the others' mean
    said = (np.where(np.arange(count) % 2, 3, 1) - 5 / 3 * rows[:, 1]) / 2
    chosen = np.arange(FOR_ALL)
    assert times[:FOR_ALL] == pytest.approx(np.exp(said[:FOR_ALL]), rel=1e-6)
    # by the word of all the last are faster; they stand right behind the first of those chosen
    first = said[:FOR_ALL].min()
    slower = np.setdiff1d(np.flatnonzero(said > first + 1e-5), chosen)
    faster = np.setdiff1d(np.flatnonzero(said < first - 1e-5), chosen)
    assert times[slower] == pytest.approx(np.exp(said[slower]), rel=1e-6) and len(slower)
    assert len(faster) and (times[faster] > np.exp(first)).all()
    assert times[faster] == pytest.approx(np.exp(first), rel=1e-6)
    assert (np.argsort(times[faster]) == np.argsort(said[faster])).all()


@pytest.mark.parametrize("count", range(5))
def test_the_first_of_a_few_rows_is_the_first_of_all(count):
    draw = np.random.default_rng(0)
    networks_ = tuple(network(slope) for slope in (1.0, 3.0, -2.0, 0.5)[:count])
    ranker = Ranker(STEP, 0.0, 0.0, {}, networks_)
    many = []
    for rows in (1, 3, FOR_ALL, FOR_ALL + 1, 50, 200):
        features = rows_of(draw.uniform(-1, 1, rows), draw.uniform(0, 1, rows))
        many.append(ToJudge(features, draw.uniform(5, 9, rows), 9.7))
    for one, (places, times) in zip(many, ranker.foremost_us(many), strict=True):
        whole = ranker.corrected_us(*one)
        assert len(places) == (min(FOR_ALL, len(whole)) if count else len(whole))
        assert whole[places].tolist() == times.tolist()
        assert (np.delete(whole, places) > times.min()).all()
        # the least that a row can take holds of each, to the last digit, and binds
        assert (whole >= 9.7).all()
    assert (whole == 9.7).any() or not count
    assert ranker.foremost_us([]) == [] and len(ranker.corrected_us(*many[0][:2], 0.0)) == 1
    assert len(ranker.corrected_us(many[0].features[:0], np.empty(0), 0.0)) == 0


def test_every_network_has_its_word():
    rows, said = rows_of(np.full(1, 2.0)), []
    for slopes in ((1.0,) * 4, (1.0, 1.0, 1.0, 5.0), (1.0, 1.0, 5.0, 1.0), (5.0, 1.0, 1.0, 1.0)):
        ranker = Ranker(LEAF, 0.0, 0.0, {}, tuple(network(slope) for slope in slopes))
        said.append(float(ranker.foremost_us([ToJudge(rows, np.ones(1), 0.0)])[0][1][0]))
    # trees say 0; networks 2, and with one of them 10 a mean of 4: half of that counts
    assert said == pytest.approx(np.exp([1.0, 2.0, 2.0, 2.0]))


def test_the_best_rows_are_those_of_a_stable_sort():
    draw = np.random.default_rng(0)
    for size in (1, 5, 6, 40):
        time = draw.integers(0, 9, size).astype(float)  # many equal
        with_nan = np.where(draw.uniform(size=size) < 0.9, np.nan, time)
        for some in (time, with_nan, np.full(size, np.inf)):
            stable = np.sort(np.argsort(some, kind="stable")[:6])
            assert best_rows(some, 6).tolist() == stable.tolist()


def test_few_rows_are_seen_by_all_and_without_networks_trees_are_alone():
    rows = rows_of(np.ones(FOR_ALL))
    both = np.concatenate([rows, rows])
    for networks_, some, said in (((network(5.0),), rows, 3.0), ((), both, 1.0)):
        ranker = Ranker(STEP, 0, 0, {}, networks_)
        got = ranker.corrected_us(some, np.full(len(some), 2.0), 0.0)
        assert got == pytest.approx(2 * np.exp(said))


@pytest.fixture
def altered(tmp_path):
    """Save a ranker with some arrays exchanged (None: left out), and give its path."""

    def write(**changes):
        path = tmp_path / "model.npz"
        Ranker(LEAF, -0.1, 0.1, {}, (network(),)).save(path)
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive) | changes
        np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
        path.with_suffix(".json").write_text(json.dumps({}))
        return path

    return write


def test_saved_networks_come_back_as_they_were(tmp_path):
    path = tmp_path / "model.npz"
    Ranker(LEAF, -0.1, 0.1, {}, (network(), network(2.0))).save(path)
    found = load_ranker(path).networks
    assert len(found) == 2
    for number, slope in enumerate((1.0, 2.0)):
        for name, array in network(slope).arrays(number).items():
            assert np.array_equal(found[number].arrays(number)[name], array), name


def test_a_file_without_a_network_is_a_ranker_without_one(altered):
    assert load_ranker(altered(**dict.fromkeys(network().arrays(0)))).networks == ()


def test_a_network_that_would_overflow_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    wide = np.full((WIDTH, WIDTH), 1e6, np.float32)
    zeros = np.zeros(WIDTH, np.float32)
    low, high = np.full(WIDTH, -100, np.float32), np.full(WIDTH, 100, np.float32)
    deep = Network(low, high, (wide, wide, wide[:, :1]), (zeros, zeros, zeros[:1]))
    Ranker(LEAF, -0.1, 0.1, {}, (deep,)).save(path)
    with pytest.raises(ModelError, match="network_0 may reach"):
        load_ranker(path)


@pytest.mark.parametrize("spread", [(0.1, -0.1), (-1e300, 1e300), (np.nan, 0.1), (1.0, 20.0)])
def test_a_spread_that_no_model_has_is_refused(altered, spread):
    with pytest.raises(ModelError, match="'spread' must hold two numbers from -10 to 10"):
        load_ranker(altered(spread=np.array(spread)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network_0_low": None}, "'network_0_low' is missing"),
        ({"network_0_high": np.zeros(WIDTH - 1)}, "'network_0_high' has the shape"),
        ({"network_0_weight_0": np.zeros((WIDTH, 2), int)}, "'network_0_weight_0' is missing or"),
        ({"network_0_weight_0": np.zeros((WIDTH + 1, 2))}, "'network_0_weight_0' has the shape"),
        ({"network_0_weight_0": np.zeros((WIDTH, 5000))}, "'network_0_weight_0' has the shape"),
        ({"network_0_weight_1": np.zeros((3, 1))}, "'network_0_weight_1' has the shape"),
        ({"network_0_weight_1": np.zeros((2, 2))}, "'network_0_weight_1' has the shape"),
        (dict.fromkeys(("network_0_weight_1", "network_0_bias_1")), "_weight_0' has the shape"),
        ({"network_0_bias_0": np.array([0, np.nan])}, "numbers past a million"),
        ({"network_0_bias_0": np.array([0, np.inf])}, "numbers past a million"),
        ({"network_0_bias_1": np.zeros((1, 1))}, "'network_0_bias_1' is missing or"),
        ({"network_0_weight_0": None, "network_0_weight_1": None}, "a network of 0 layers"),
        ({"network_7_low": np.zeros(WIDTH)}, "'network_1_low' is missing"),
        ({f"network_{i}_low": np.zeros(1) for i in range(MOST_NETWORKS + 1)}, "more than 16"),
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


def test_rows_behind_keep_their_order():
    # fourth, second and third place are lifted past 0.2, in their order
    rough = np.array([0.5, -2.0, -1.5, -3.0, 0.1])
    times = with_first(rough, np.array([0]), np.array([0.2]), 0.2)
    assert times[0] == 0.2 and np.argsort(times).tolist() == [0, 3, 1, 2, 4]


# --- fitting --------------------------------------------------------------------------------------


def cut(array, size=10):
    return [array[start : start + size] for start in range(0, len(array), size)]


def test_a_network_learns_a_bend_and_a_product_in_features_of_any_scale():
    draw = np.random.default_rng(0)
    rows = (draw.normal(size=(500, 3)) * [1, 100, 0.01] + [5, 0, 0]).astype(np.float32)
    wanted = np.abs(rows[:, 0] - 5.0) + rows[:, 1] * rows[:, 2]
    fitted = network_of(cut(rows), cut(wanted), cut(np.ones(500)), hidden=(32, 32), epochs=600)
    off = fitted.predict(rows) - wanted
    assert np.sqrt(np.mean(off**2)) < 0.2 * wanted.std()


def test_slow_rows_teach_little():
    rows = np.linspace(-1, 1, 200, dtype=np.float32)[:, None]
    fast = rows[:, 0] < 0
    parts = (rows, np.where(fast, 0.5, 3.0), np.where(fast, 1.0, 1e4))
    mixed = np.random.default_rng(0).permutation(200)  # shapes of fast rows and slow ones
    fitted = network_of(*(cut(part[mixed]) for part in parts), hidden=(8,), epochs=3000)
    assert fitted.predict(rows[fast]) == pytest.approx(0.5, abs=0.1)


def test_rows_are_drawn_as_often_as_they_count():
    counted = np.cumsum([0.5, 0.0, 0.3, 0.2])
    draw = np.random.default_rng(0)
    drawn = np.concatenate([networks._drawn_rows(counted, draw) for _ in range(1000)])
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    assert shares == pytest.approx([0.5, 0.0, 0.3, 0.2], abs=0.01) and shares[1] == 0


def test_slopes_are_those_of_the_loss():
    draw = np.random.default_rng(1)
    layers = [layer.astype(np.float64) for layer in networks._drawn([3, 5, 1], draw)]
    layers[2] += 0.1
    rows = networks._ROWS
    inputs, wanted = draw.normal(size=(2 * rows, 3)), draw.normal(size=2 * rows)

    def loss():
        error = (np.maximum(inputs @ layers[0] + layers[2], 0) @ layers[1] + layers[3])[:, 0]
        error = error - wanted
        shapes = (error[:rows], error[rows:])
        return np.mean([np.mean(one**2 + 3.0 * (one - one.mean()) ** 2) for one in shapes])

    slopes = networks._slopes(layers, inputs, wanted)
    for layer, slope in zip(layers, slopes, strict=True):
        at = tuple(draw.integers(size) for size in layer.shape)
        before, layer[at] = loss(), layer[at] + 1e-6
        assert (loss() - before) / 1e-6 == pytest.approx(slope[at], rel=1e-3, abs=1e-6)
        layer[at] -= 1e-6


def test_the_same_seed_gives_the_same_network():
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    parts = cut(rows), cut(rows[:, 0].astype(float)), cut(np.ones(40))
    one, two, other = (network_of(*parts, hidden=(4,), epochs=3, seed=s) for s in (1, 1, 2))
    assert np.array_equal(one.predict(rows), two.predict(rows))
    assert not np.array_equal(one.predict(rows), other.predict(rows))
