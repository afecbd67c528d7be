"""What is kept a kind of problem, and the answers from it: those that pricing everything gives."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import costmodel as cm
from costmodel.config import KNOBS, ConfigTable
from costmodel.dtypes import LAYOUTS
from costmodel.errors import CostModelError, ProblemError, UnsupportedError
from costmodel.physics.estimate import PricedColumns, estimate_columns
from costmodel.physics.sizes import Sizes
from costmodel.predict import predict_best, predict_many, rank
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.ranking.cascade import SHORTLIST
from costmodel.ranking.features import FEATURES, feature_matrix
from costmodel.ranking.shelf import shelf_of
from costmodel.space import kinds
from costmodel.space.candidates import candidates
from costmodel.space.kinds import ByKind, groups_kind_of, kind_of
from costmodel.space.prune import prune

H200 = load_profile("h200-sxm")


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path_factory):
    """A user's folder without models and answers."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path_factory.mktemp("home")))


def legal(problem, chip=H200):
    return prune(problem, candidates(problem, chip), chip)[0]


#: multiples and odd numbers, small axes and axes of one entry
size = st.builds(
    lambda number, multiple: number * multiple, st.integers(1, 200), st.sampled_from([1, 2, 8, 64])
)
problem = st.builds(
    Gemm,
    size,
    size,
    size,
    dtype=st.sampled_from(["fp16", "bf16", "fp8_e4m3", "fp32", "int8"]),
    layout=st.sampled_from(LAYOUTS),
    batch=st.sampled_from([1, 1, 3]),
    beta=st.sampled_from([0.0, 0.0, 1.0]),
)
chip = st.sampled_from(["h200-sxm", *cm.list_profiles()]).map(load_profile)


@settings(max_examples=60, deadline=None)
@given(problem, chip)
def test_the_answer_is_the_first_of_the_whole_ranking(asked, profile):
    try:
        found = predict_best(asked, profile)
    except CostModelError as error:
        with pytest.raises(type(error)):
            prune(asked, candidates(asked, profile), profile)
        return
    ranking, source = rank(asked, legal(asked, profile), profile)
    first = ranking[0]
    assert (found.config, found.time_us, found.interval, found.bound, found.source) == (
        first.config, first.time_us, first.interval, first.bound, source,
    )  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(size, size, size), min_size=1, max_size=6))
def test_many_shapes_are_answered_as_each_alone(shapes):
    asked = [*shapes, shapes[0]]
    for one, alone in zip(predict_many(asked, H200), asked, strict=True):
        other = predict_best(alone, H200)
        assert one.problem == Gemm(*alone)
        assert (one.config, one.time_us, one.interval, one.bound) == (
            other.config, other.time_us, other.interval, other.bound,
        )  # fmt: skip


def test_no_shapes_have_no_answers_and_an_impossible_one_is_an_error():
    assert predict_many([], H200) == []
    with pytest.raises(ProblemError):
        predict_many([(64, 64, 64), (64, 0, 64)], H200)
    with pytest.raises(UnsupportedError):
        predict_many([(64, 64, 64)], "a100-sxm-80gb", dtype="fp8_e4m3")


def test_physics_alone_answers_many_shapes_too():
    shapes = [(512, 512, 512), (512, 512, 1024)]
    for shape, found in zip(shapes, predict_many(shapes, H200, model="physics"), strict=True):
        times = estimate_columns(Gemm(*shape), legal(Gemm(*shape)), H200).time_us
        assert (found.source, found.time_us) == ("physics", times.min())


# --- problems of one kind as columns --------------------------------------------------------------


def test_rows_of_several_problems_are_priced_as_each_alone():
    problems = [Gemm(512, 768, 1024), Gemm(4096, 256, 2048), Gemm(128, 8192, 512)]
    priced = shelf_of(problems[0], H200).priced(problems, H200)
    starts = [0, *priced.ends]
    for number, one in enumerate(problems):
        rows = slice(starts[number], starts[number + 1])
        alone = estimate_columns(one, legal(one), H200)
        for field in fields(PricedColumns):
            if field.name not in ("waves", "traffic", "roofline"):
                mine = getattr(priced.physics, field.name)[rows]
                assert np.array_equal(mine, getattr(alone, field.name)), field.name
        assert np.array_equal(priced.physics.roofline.time_us[rows].max(), alone.roofline.time_us)
        configs = [priced.config(row) for row in range(rows.start, rows.stop, 97)]
        assert configs == list(legal(one))[::97]


def test_a_shortlist_has_the_features_of_its_rows():
    one = Gemm(1000, 3000, 1016, layout="nn")
    (short,) = shelf_of(one, H200).priced([one], H200).shortlists(H200)
    assert short.rated.features.shape == (SHORTLIST, len(FEATURES))
    assert np.array_equal(
        short.rated.features, feature_matrix(one, legal(one)[short.rows], H200, None)
    )


def test_sizes_are_each_problems_on_its_rows_and_the_rest_is_the_kinds():
    problems = [Gemm(3, 5, 7, layout="nn"), Gemm(11, 13, 17, layout="nn", batch=2)]
    sizes = Sizes(problems, [2, 1])
    assert sizes.m.tolist() == [3, 3, 11] and sizes.batch.tolist() == [1, 1, 2]
    assert sizes.flops.tolist() == [2 * 3 * 5 * 7] * 2 + [2 * 11 * 13 * 17 * 2]
    # (3 * 7 + 5 * 7 + 3 * 5) * 2 bytes
    assert sizes.compulsory_bytes.tolist()[:2] == [142.0] * 2
    assert (sizes.element_bytes, sizes.layout) == (2, "nn")
    assert sizes.take(np.array([2])).k.tolist() == [17]


@settings(max_examples=30, deadline=None)
@given(problem, st.sampled_from(["h200-sxm", "mi300x"]).map(load_profile))
def test_a_kind_fixes_what_its_rows_take_whatever_the_sizes(asked, profile):
    one = Gemm(
        asked.m * 3 if asked.m > 8 else asked.m, asked.n, asked.k * 5, dtype=asked.dtype,
        layout=asked.layout, batch=asked.batch, beta=asked.beta,
    )  # fmt: skip
    if kind_of(one) != kind_of(asked):
        return
    table = legal(asked, profile)[::29] if asked.dtype != "fp8_e4m3" else ConfigTable.of([])
    mine, other = (estimate_columns(p, table, profile) for p in (asked, one))
    assert np.array_equal(mine.fixed.matrix, other.fixed.matrix)
    assert np.array_equal(mine.footprint.shared_bytes, other.footprint.shared_bytes)
    assert np.array_equal(mine.registers.wanted, other.registers.wanted)


def test_alignment_divisibility_of_k_and_axes_of_one_entry_tell_kinds_apart():
    base = Gemm(512, 512, 512)
    assert kind_of(base) == kind_of(Gemm(1024, 4096, 128))
    for other in (
        Gemm(512, 512, 516), Gemm(512, 516, 512), Gemm(512, 512, 544), Gemm(1, 512, 512),
        Gemm(512, 512, 512, dtype="bf16"), Gemm(512, 512, 512, batch=2),
        Gemm(512, 512, 512, beta=1.0), Gemm(512, 512, 512, epilogue="bias"), Gemm(512, 6, 512),
    ):  # fmt: skip
        assert kind_of(other) != kind_of(base), other
    # warp groups copy what is not aligned, and know no other difference of sizes
    assert groups_kind_of(Gemm(512, 512, 544)) == groups_kind_of(base)
    assert groups_kind_of(Gemm(512, 512, 513)) != groups_kind_of(base)


def test_what_is_kept_is_made_once_and_the_oldest_kind_goes_first(monkeypatch):
    monkeypatch.setattr(kinds, "_MOST_KINDS", 2)
    made = []
    kept = ByKind(lambda asked, profile: made.append(asked.k) or asked.k, lambda asked: asked.k)
    for k in (16, 32, 16, 48, 16, 32):
        assert kept.of(Gemm(16, 16, k), H200) == k
    assert made == [16, 32, 48, 32]


# --- limits of a launch, and questions asked again ------------------------------------------------


def test_a_batch_past_the_grids_limit_leaves_the_kernels_that_walk_it():
    large = Gemm(64, 64, 64, batch=70_000)
    found = predict_best(large, H200)
    assert found.config.template == "persistent_tma"
    assert found.config == rank(large, legal(large), H200)[0][0].config


def test_a_whole_number_in_another_guise_is_refused_after_the_right_one_was_answered():
    predict_best((64, 64, 64), H200)
    for wrong in ((64.0, 64, 64), (64, 64, "64"), (True, 64, 64)):
        with pytest.raises(ProblemError):
            predict_best(wrong, H200)
    assert predict_best([64, 64, 64], H200).problem == Gemm(64, 64, 64)


def test_a_question_asked_again_has_the_very_answer():
    one = predict_best((96, 96, 96), "h200-sxm")
    assert predict_best((96, 96, 96), "h200-sxm") is one
    assert predict_best((96, 96, 96), "h200-sxm", dtype="bf16") is not one


def test_the_grid_of_a_kind_gives_each_of_its_problems_its_candidates_once():
    for one in (Gemm(512, 512, 512), Gemm(64, 4096, 8192), Gemm(3, 5000, 1001)):
        table = cm.candidates(one, H200)
        rows = np.stack([getattr(table, knob) for knob in KNOBS], axis=1)
        assert len(np.unique(rows, axis=0)) == len(table)
