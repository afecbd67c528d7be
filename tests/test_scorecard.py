"""What the model is held against: other ways of choosing, intervals, models that learned from less.

Choices and coverage are proved on small hand-made groups; refits run the real fit on few rows.
"""

import csv
import json
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from costmodel.cli import app as frame
from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import CostModelError
from costmodel.learning import refits as refitting
from costmodel.learning import train as fitting
from costmodel.learning.baselines import baselines, nearest_training, ridge
from costmodel.learning.calibration import calibration
from costmodel.learning.judged import Judged, judged, top_figures
from costmodel.learning.peers import (
    granted_rows,
    inductor_best,
    inductor_configs,
    inductor_first,
    nvmatmul_ways,
)
from costmodel.learning.refits import LeftOut, Point, Refits, family_sizes, refit
from costmodel.learning.shares import TOPS, row_weights
from costmodel.learning.train import prepare
from costmodel.paths import packaged
from costmodel.physics.estimate import estimate_columns
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.ranking.features import FEATURES
from costmodel.records.groups import Group
from costmodel.records.log import RunLog
from costmodel.records.schema import make_row
from costmodel.shapes import read_shapes

H200 = load_profile("h200-sxm")
PROBLEM = Gemm(512, 512, 512)


@pytest.fixture(autouse=True)
def _own_home(monkeypatch, tmp_path):
    """A user's folder without models and answers."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))


@pytest.fixture
def quick(monkeypatch):
    """Few trees, on one thread."""
    monkeypatch.setitem(fitting.PARAMETERS, "max_iter", 5)
    with threadpool_limits(1):
        yield


def group(configs, times, problem=PROBLEM):
    table = ConfigTable.of([KernelConfig.parse(text) for text in configs])
    again = np.zeros(len(table), dtype=bool)
    return Group(problem, "h200-sxm", table, np.array(times, float), again, float("nan"))


# --- Inductor -------------------------------------------------------------------------------------


def test_the_table_holds_what_torch_2_13_lists():
    triton = pytest.importorskip("torch._inductor.template_heuristics.triton")
    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the table was read off torch 2.13")
    lists = triton.BaseConfigHeuristic()
    # for scaled_mm Inductor drops steps of K below 32
    scaled = [c for c in lists.scaled_mm_configs if c.block_k >= 32]
    theirs = [
        (template, c.block_m, c.block_n, c.block_k, c.num_stages, c.num_warps, c.group_m, op)
        for op, template, configs in (
            ("mm", "tile", lists.mm_configs),
            ("mm", "persistent_tma", lists.persistent_mm_configs),
            ("scaled_mm", "tile", scaled),
            ("scaled_mm", "persistent_tma", lists.scaled_persistent_mm_configs),
        )
        for c in configs
    ]  # fmt: skip
    text = packaged("peers", "inductor_mm.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(text.splitlines()))[1:]
    assert [(row[0], *map(int, row[1:7]), row[7]) for row in rows] == theirs


def test_a_large_problem_has_the_list_as_it_stands():
    found = [str(config) for config in inductor_configs(Gemm(4096, 4096, 4096))]
    assert (len(found), found[0], found[-1]) == (
        21, "tile 32x32x16 w2 s1 g8", "tile 128x256x64 w8 s4 g8",
    )  # fmt: skip
    assert len(inductor_configs(Gemm(4096, 4096, 4096), "persistent_tma")) == 8
    scaled = inductor_configs(Gemm(4096, 4096, 4096, dtype="fp8_e4m3"))
    assert str(scaled[0]) == "tile 128x256x32 w8 s3 g8" and len(scaled) > 100


def test_blocks_are_cut_to_the_sides_and_warps_to_256_elements():
    # M = 1: 16 rows, so that 16 x 32 elements are 2 warps; 16 x 64 are 4; 16 x 128 are 8
    found = inductor_configs(Gemm(1, 4096, 4096))
    assert {config.block_m for config in found} == {16}
    assert str(found[0]) == "tile 16x32x16 w2 s1 g8"
    assert all(config.num_warps * 256 <= 16 * config.block_n for config in found)
    # 33 columns are rounded up to 64, 20 of K to 32
    sides = {(config.block_n, config.block_k) for config in inductor_configs(Gemm(64, 33, 20))}
    assert sides == {(32, 16), (32, 32), (64, 16), (64, 32)}


def test_entries_that_become_the_same_are_timed_once():
    found = inductor_configs(Gemm(1, 4096, 4096))
    assert len(found) == len(set(found)) < 21


def test_the_first_entry_and_the_whole_list_stand_at_their_nearest_rows():
    found = group(
        ["tile 32x32x16 w2 s2 g8", "tile 128x256x64 w8 s4 g8", "tile 128x256x64 w8 s4 g8 swap"],
        [30.0, 20.0, 10.0],
        Gemm(4096, 4096, 4096),
    )
    # the list swaps no operands: the row of 10 us is nobody's nearest
    assert (inductor_first(found).tolist(), inductor_best(found).tolist()) == ([0], [1])


def test_the_list_for_descriptors_joins_where_the_template_was_measured():
    both = ("tile", "persistent_tma")
    plain = ["tile 128x128x64 w4 s3 g8", "split_k 64x64x64 w4 s4 g8 split2"]
    assert inductor_best(group(plain, [20.0, 10.0]), both).tolist() == [0]
    with_tma = [*plain, "persistent_tma 128x256x64 w8 s3 g8"]
    assert inductor_best(group(with_tma, [20.0, 10.0, 15.0]), both).tolist() == [2]
    assert inductor_best(group(with_tma, [20.0, 10.0, 15.0])).tolist() == [0]


# --- nvMatmulHeuristics ---------------------------------------------------------------------------


def kernel(cta, warp, stages, split_k=1, swizzle=8):
    """What one of its answers says, by its own names."""
    tiles = {f"{of}_tile_{side}": size for of, sizes in (("cta", cta), ("warp", warp))
             for side, size in zip("mnk", sizes, strict=True)}  # fmt: skip
    return SimpleNamespace(stages=stages, split_k=split_k, swizzle_factor=swizzle, **tiles)


def test_warps_follow_from_the_tiles_and_what_it_leaves_open_is_granted():
    table = ConfigTable.of([KernelConfig.parse(text) for text in (
        "tile 256x128x64 w4 s4 g8", "tile 256x128x64 w8 s4 g8",
        "persistent_tma 256x128x64 w8 s4 g8 epi2", "tile 256x128x64 w8 s3 g8",
    )])  # fmt: skip
    # 256 x 128 over 64 x 64 is 8 warps
    asked = kernel((256, 128, 64), (64, 64, 64), 4)
    assert granted_rows(table, asked).tolist() == [1, 2]
    # of three stages for eight asked there is one row nearest in octaves: four
    assert granted_rows(table[np.array([1, 3])], kernel((256, 128, 64), (64, 64, 64), 8)) == [0]


def test_it_does_not_answer_for_a_chip_or_a_type_that_it_does_not_name():
    found = group(["tile 64x64x64 w4 s3 g8"], [1.0])
    assert nvmatmul_ways([found], load_profile("mi300x")) == {}
    whole = group(["tile 64x64x64 w4 s3 g8"], [1.0], Gemm(512, 512, 512, dtype="int8"))
    assert nvmatmul_ways([whole], H200) == {}


def test_where_it_is_installed_its_best_of_eight_is_no_worse_than_its_first():
    pytest.importorskip("nvMatmulHeuristics")
    blocks = [(m, n) for m in (16, 32, 64, 128, 256) for n in (16, 32, 64, 128, 256)]
    configs = [f"tile {m}x{n}x64 w4 s4 g8" for m, n in blocks]
    found = group(configs, np.arange(1.0, 1 + len(configs)))
    ways = nvmatmul_ways([found], H200)
    first, best = (found.time_us[ways[name](found)[0]] for name in ways)
    assert list(ways) == ["nvmatmul_first", "nvmatmul_best_of_8"] and best <= first


# --- what learns or needs no learning -------------------------------------------------------------


def test_the_random_baseline_is_the_expected_log_of_a_uniform_choice():
    # two configurations of 10 and 40 us: sqrt(1 * 1 / 4)
    two = group(["tile 16x16x16 w4 s1 g8", "tile 16x16x16 w4 s2 g8"], [10.0, 40.0])
    found = baselines([two], H200, [])
    assert found["random"] == {"geomean": 0.5, "p10": 0.5, "min": 0.5}
    assert not {"ridge", "nearest_training"} & set(found)


def test_the_nearest_problem_is_of_the_same_type_and_layout_where_there_is_one():
    slow, fast = "tile 64x64x64 w4 s3 g8", "tile 128x128x64 w8 s3 g8"
    near = group([slow, fast], [1.0, 2.0], Gemm(512, 512, 512, dtype="bf16"))
    far = group([slow, fast], [2.0, 1.0], Gemm(4096, 4096, 4096))
    farther = group([slow, fast], [1.0, 2.0], Gemm(8192, 4096, 4096))
    asked = group([slow, fast], [1.0, 2.0], Gemm(512, 512, 512))
    assert nearest_training([near, far, farther])(asked).tolist() == [1]
    # alone, the other type answers
    assert nearest_training([near])(asked).tolist() == [0]


def test_the_best_of_the_nearest_problem_is_mapped_to_the_nearest_measured_row():
    seen = group(["tile 128x128x64 w8 s3 g8"], [1.0], Gemm(1024, 1024, 1024))
    asked = group(["tile 16x16x16 w4 s3 g8", "tile 128x64x64 w8 s3 g8"], [1.0, 2.0])
    assert nearest_training([seen])(asked).tolist() == [1]


def test_ridge_finds_a_target_that_is_linear_in_a_feature():
    stages = [f"tile 64x64x64 w4 s{s} g8" for s in (1, 2, 3, 4, 5)]
    column = list(FEATURES).index("stages")

    def linear(problem):
        (item,) = prepare([group(stages, np.ones(5), problem)])
        log_ratio = -2.0 * item.features[:, column].astype(np.float64)
        return group(stages, item.estimate_us * np.exp(log_ratio), problem)

    choose = ridge(prepare([linear(Gemm(256 * i, 512, 1024)) for i in range(1, 9)]))
    asked = linear(Gemm(700, 900, 800))
    assert choose(asked).tolist() == np.argsort(asked.time_us).tolist()


def test_a_row_counts_by_the_cube_of_its_share_of_the_best():
    # 1, 1/8 and 1/64 of 73/64
    weights = row_weights(np.array([10.0, 20.0, 40.0])).tolist()
    assert weights == pytest.approx([64 / 73, 8 / 73, 1 / 73])


# --- intervals ------------------------------------------------------------------------------------


SPREAD = (float(np.log(0.9)), float(np.log(1.1)))


def told(problem, predicted, measured):
    count = len(predicted)
    table = ConfigTable.of([KernelConfig("tile", 16, 16, 16, num_stages=i + 1)
                            for i in range(count)])  # fmt: skip
    found = Group(problem, "h200-sxm", table, np.array(measured, float),
                  np.zeros(count, bool), float("nan"))  # fmt: skip
    return Judged(
        found, (1.0,) * len(TOPS), np.arange(count), np.array(predicted, float), SPREAD, 1
    )


def test_coverage_and_error_are_counted_by_predicted_time_and_by_family():
    decode, odd = (next(s.problem for s in read_shapes("heldout") if s.family == family)
                   for family in ("decode", "odd"))  # fmt: skip
    # ratios 1, 1.2 | 1, 0.8; predicted 8, 20 | 20, 100; errors 0, 1/6 | 0, 1/4
    found = calibration([told(decode, [8, 20], [8, 24]), told(odd, [20, 100], [20, 80])])
    assert found["level"] == 0.9
    assert found["overall"] == {"problems": 2, "coverage": 0.5, "median_time_error": 0.0833}
    assert found["by_predicted_time"] == {
        "under 10 us": {"problems": 1, "coverage": 1.0, "median_time_error": 0.0},
        "10 to 50 us": {"problems": 2, "coverage": 0.5, "median_time_error": 0.0833},
        "over 50 us": {"problems": 1, "coverage": 0.0, "median_time_error": 0.25},
    }
    assert found["by_family"] == {
        "decode": {"problems": 1, "coverage": 0.5, "median_time_error": 0.0833},
        "odd": {"problems": 1, "coverage": 0.5, "median_time_error": 0.125},
    }


def test_only_the_first_eight_choices_count_and_empty_groups_are_left_out():
    nine = told(PROBLEM, [20.0] * 9, [20.0] * 8 + [90.0])
    found = calibration([nine])
    assert found["overall"] == {"problems": 1, "coverage": 1.0, "median_time_error": 0.0}
    assert list(found["by_predicted_time"]) == ["10 to 50 us"]
    assert list(found["by_family"]) == ["other"]


def test_a_problem_is_judged_in_the_order_of_the_estimate_where_there_is_no_ranker():
    found = group([f"tile {m}x64x64 w4 s3 g8" for m in (16, 64, 128)], [30.0, 10.0, 20.0])
    seen = judged(found, H200, None)
    estimate_us = estimate_columns(PROBLEM, found.table, H200).time_us
    assert seen.order.tolist() == np.argsort(estimate_us, kind="stable").tolist()
    assert seen.best_by_physics == 1 + int((estimate_us < estimate_us[1]).sum())
    assert top_figures([seen], (3,)) == {"3": {"geomean": 1.0, "p10": 1.0, "min": 1.0}}


# --- refits ---------------------------------------------------------------------------------------


def of_family(name, family, count):
    """Groups of the first shapes of a family, four configurations each."""
    problems = [s.problem for s in read_shapes(name) if s.family == family and s.problem.k >= 64]
    configs = [f"tile {m}x64x32 w4 s2 g8" for m in (16, 32, 64, 128)]
    return [group(configs, [40.0, 30.0, 20.0, 10.0], p) for p in problems[:count]]


def test_published_shapes_are_no_family_and_all_others_are():
    for name in ("train", "heldout"):
        drawn = {s.family for s in read_shapes(name) if s.source == "drawn"}
        assert set(family_sizes(name)) == drawn
    assert {"decode", "prefill", "odd", "cube"} <= set(family_sizes("heldout"))


def test_the_curve_draws_shapes_each_part_within_the_next_and_the_same_each_time(quick):
    training = [*of_family("train", "decode", 8), *of_family("train", "prefill", 8)]
    fitted = []

    def noted(groups, seeds):
        fitted.append({g.shape for g in groups})
        return refit(groups, seeds)

    refits = Refits(training, of_family("heldout", "decode", 2), H200, (0,), noted)
    points = refits.curve()
    shapes = len({g.shape for g in training})
    assert [p.shapes for p in points] == [len(seen) for seen in fitted]
    assert points[0].shapes == round(shapes / 8) and points[-1].shapes == shapes
    assert all(a < b for a, b in zip(fitted, fitted[1:], strict=False))
    assert points[-1].rows == 4 * len(training)
    assert set(points[0].top) == {"1", "3", "8"} and points[0].top["8"]["min"] == 1.0
    again = Refits(training, of_family("heldout", "decode", 2), H200, (0,), noted)
    assert again.curve() == points


def test_a_family_is_left_out_whole_and_judged_on_its_own_shapes_beside_the_full_model(quick):
    training = [*of_family("train", "decode", 6), *of_family("train", "prefill", 6)]
    held = [*of_family("heldout", "decode", 2), *of_family("heldout", "odd", 1)]
    fitted, doing = [], []

    def noted(groups, seeds):
        fitted.append({g.shape for g in groups})
        return refit(groups, seeds)

    refits = Refits(training, held, H200, (0,), noted, doing.append)
    (found,) = refits.families()  # nothing of "odd" was learned, nothing of "prefill" is held
    without, full = fitted
    decode = family_sizes("train")["decode"]
    assert full == {g.shape for g in training} and without == full - decode
    assert (found.family, found.problems, found.left_out) == ("decode", 2, len(full & decode))
    assert found.top["1"]["min"] <= 1.0 and set(found.full) == {"1", "3", "8"}
    assert doing == [f"without the {found.left_out} shapes of decode", "on all shapes"]
    # the full model is fitted once
    refits.curve((1.0,))
    assert len(fitted) == 2


def test_the_nearest_shape_that_is_left_is_told_by_its_largest_difference():
    held = [group(["tile 64x64x64 w4 s3 g8"], [1.0], p)
            for p in (Gemm(100, 100, 100), Gemm(200, 100, 100), Gemm(100, 400, 100))]  # fmt: skip
    # 50 % over M = 150, 33 % under 200, 300 % over N = 100: the median is 50 %
    assert refitting._apart(held, [(150, 100, 100)]) == 0.5


@pytest.fixture
def two_families(tmp_path):
    """A log with four runs each of twelve training shapes and of two held-out ones."""
    log = RunLog(tmp_path / "runs.jsonl")
    groups = [*of_family("train", "decode", 6), *of_family("train", "prefill", 6),
              *of_family("heldout", "decode", 2)]  # fmt: skip
    for found in groups:
        log.append_many(
            [
                make_row(
                    found.problem, config, backend="triton", time_us=time_us, sequence=number,
                    protocol="cold-l2/1", device="h200-sxm", device_name="NVIDIA H200", run="r",
                    timestamp="2026-01-01T00:00:00Z", invalidity="correct",
                )
                for number, (config, time_us) in enumerate(
                    zip(found.table, (8000.0, 7000.0, 6000.0, 5000.0), strict=True)
                )
            ]
        )  # fmt: skip
    return log.path


def run(*arguments):
    for name in frame.COMMANDS:
        import_module(f"costmodel.cli.{name}")
    return CliRunner().invoke(frame.app, list(arguments))


def test_the_command_prints_and_draws_both(quick, two_families, tmp_path):
    pytest.importorskip("matplotlib")
    command = ["evaluate", "--runs", str(two_families), "--curve", "--families"]
    found = json.loads(run(*command, "--json", "--plot", str(tmp_path / "plots")).stdout)
    assert (found["n_shapes"], found["seeds"], found["profile"]) == (2, [0], "h200-sxm")
    assert [p["part"] for p in found["learning_curve"]] == [0.125, 0.25, 0.5, 1.0]
    assert [f["family"] for f in found["families_left_out"]] == ["decode"]
    picture = tmp_path / "plots" / "learning_curve.png"
    assert picture.read_bytes().startswith(b"\x89PNG")

    text = run(*command).stdout
    for words in ("Fitted on fewer shapes", "Fitted without a family", " full ", "decode"):
        assert words in text
    assert max(map(len, text.splitlines())) <= 100
    assert "| shapes | runs | mean first | " in run(*command, "--markdown").stdout


def test_models_of_their_own_take_no_other():
    result = run("evaluate", "--curve", "--physics")
    assert isinstance(result.exception, CostModelError)
    assert "leave out --model and --physics" in str(result.exception)


def test_pictures_say_how_many_lie_inside_and_draw_a_line_a_figure():
    pytest.importorskip("matplotlib")
    from costmodel.explain.plots import calibration_picture, learning_curve

    card = SimpleNamespace(judged=[told(PROBLEM, [8, 20, 60, 70], [8, 24, 60, 70])])
    axes = calibration_picture(card).figure.axes[0]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["90 % interval, 0.90 to 1.10", "inside, 75%", "outside, 25%"]
    above = [text.get_text() for text in axes.texts]
    assert above == [
        "under 10 µs\n100% inside", "10 to 50 µs\n0% inside", "over 50 µs\n100% inside",
    ]  # fmt: skip

    points = [
        Point(part, shapes, 10, {k: {"geomean": 0.9, "p10": 0.8, "min": 0.5} for k in "138"})
        for part, shapes in ((0.5, 8), (1.0, 16))
    ]
    means, worst = learning_curve(points).figure.axes
    assert (len(means.lines), len(worst.lines)) == (6, 3)
    assert means.lines[1].get_xydata().tolist() == [[8.0, 0.8], [16.0, 0.8]]
    assert worst.lines[0].get_xydata().tolist() == [[8.0, 0.5], [16.0, 0.5]]


def test_plain_values_are_json():
    figures = {"1": {"geomean": 0.9, "p10": 0.8, "min": 0.5}}
    found = refitting.as_dict(
        [Point(0.5, 8, 10, figures)], [LeftOut("odd", 2, 3, 0.5, figures, figures)], (0, 1)
    )
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_refits_without_a_held_out_shape_cannot_judge(tmp_path):
    log = RunLog(tmp_path / "log.jsonl")
    log.append(make_row(Gemm(40, 40, 40), KernelConfig("tile", 16, 16, 16), backend="triton",
                        time_us=10.0, sequence=0, protocol="p/1", device="h200-sxm", run="r",
                        device_name="NVIDIA H200", timestamp="2026-01-01T00:00:00Z"))  # fmt: skip
    from costmodel.learning.evaluate import judging_and_training

    with pytest.raises(CostModelError, match="no held-out shape on h200-sxm"):
        judging_and_training([log.path], H200)
