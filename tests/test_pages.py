"""Every command of a page that promises it is run, and prints what the page says."""

import csv
import json
import re
import runpy
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.learning.networks import HIDDEN
from costmodel.learning.train import PARAMETERS
from costmodel.ranking.cascade import FOR_ALL, FOR_SECOND, SHORTLIST
from costmodel.ranking.features import FEATURES, FIXED

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["your-own-chip.md"])
def test_the_commands_of_a_page_print_what_it_says(page):
    command = [sys.executable, "-P", str(ROOT / "docs/run_page.py"), str(ROOT / "docs" / page)]
    answer = subprocess.run([*command, "--check"], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr


def winners():
    """The committed rows of vLLM's winners, and the script that wrote them."""
    with (ROOT / "data/results/vllm_winners.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return rows, runpy.run_path(str(ROOT / "data/results/vllm_winners.py"))


def test_six_of_ten_winners_from_outside_stand_in_the_top_quarter_of_the_estimate():
    rows, _ = winners()
    assert len(rows) == 110 and all(row["percentile"] for row in rows)
    assert sum(float(row["percentile"]) <= 25 for row in rows) >= 0.6 * len(rows)
    known = [float(row["percentile"]) for row in rows if row["K"]]  # none of its K assumed
    assert sum(place <= 25 for place in known) >= 0.6 * len(known)


@pytest.mark.parametrize("number", [5, 30, 47, 70, 80, 105])
def test_a_winners_row_is_what_the_script_finds_now(number):
    rows, script = winners()
    plain = [{key: row[key] for key in script["KNOBS"] + ("device", "kind", "N", "K", "M")}
             for row in rows]  # fmt: skip
    found = script["place"](plain, plain[number])
    assert {key: str(found[key]) for key in ("candidates", "rank", "percentile")} == {
        key: rows[number][key] for key in ("candidates", "rank", "percentile")
    }


def test_the_pages_table_of_winners_is_that_of_the_rows(capsys):
    rows, script = winners()
    script["summary"](rows)
    assert capsys.readouterr().out.strip() in (ROOT / "docs/model.md").read_text(encoding="utf-8")


def measuring_page():
    return (ROOT / "docs/measuring.md").read_text(encoding="utf-8")


def result(name):
    return json.loads((ROOT / "data/results" / name).read_text(encoding="utf-8"))


def test_two_gpus_measure_as_the_page_says():
    found = result("two_gpus_h200-sxm.json")
    one, two, killed = (found["runs"][name] for name in ("one", "two", "two_killed"))
    assert found["row_sets_equal"] and one["rows"] == two["rows"] == killed["rows"] == 4800
    assert killed["killed_workers"] == 1 and killed["processes"] == 3
    assert [run["measured_twice"] for run in (one, two, killed)] == [0, 0, 0]
    assert found["speed_up"] == pytest.approx(
        one["measuring_seconds"] / two["measuring_seconds"], abs=1e-3
    )
    for figure in ("45.4 s", "22.8 s", f"{found['speed_up']:.2f} times", "27.2 s"):
        assert figure in measuring_page()


def test_the_readings_of_a_calibration_are_those_on_the_page():
    chip = result("calibration_error_h200-sxm.json")["h200-sxm"]["ours_over_torch"]
    short = {"copy_bandwidth_gb_s": "copy"}
    for figure, ratio in chip.items():
        name = short.get(figure, figure.removeprefix("achievable_tflops_"))
        assert f"{name} {ratio:.3f}" in measuring_page()


@pytest.mark.parametrize(
    ("rows_of", "told"),
    [
        ("triton_prune_nvidia-h200.csv", "reached {mean:.3f} of its own full search's"),
        ("flag_gems_nvidia-h200.csv", "reached {mean:.3f} of the default policy's"),
    ],
)
def test_the_guide_tells_what_our_ranking_reached_beside_a_full_search(rows_of, told):
    with (ROOT / "data/results" / rows_of).open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    shares = [float(row["fraction"]) for row in rows]
    worst = min(rows, key=lambda row: float(row["fraction"]))
    full, ours = (sum(float(row[f"{x}_tuning_s"]) for row in rows) for x in ("full", "pruned"))
    assert len(rows) == 20 and all(int(row["pruned_measured"]) <= 6 for row in rows)
    guide = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    size = "x".join(worst[side] for side in "mnk")
    _, _, tail = guide.partition(told.format(mean=statistics.geometric_mean(shares)))
    assert tail.startswith(f" in geometric mean, {min(shares):.3f} at worst ({size}")
    assert f"{ours:.1f} s of tuning for {full:.1f} s" in tail[:200]


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_readme_tells_the_rungs_of_the_ladder(page):
    found = result("ladder_h200-sxm_4096.json")
    first, *_, last_of_one, tuned = (rung["tflops"] for rung in found["rungs"])
    text = (ROOT / page).read_text(encoding="utf-8")
    words = re.search(r"4096x4096x4096[,,] ?fp16[:: ].*", text).group()
    told = [int(number) for number in re.findall(r"(?<![\d.x])\d{3}(?![\d.x])", words)]
    assert told[:4] == [round(x) for x in (first, last_of_one, tuned, found["vendor_tflops"])]


def test_the_page_of_logs_tells_what_was_learned_from_a_tuning_that_was_heard():
    found = result("autotune_log.json")
    first = found["first_choice"]
    assert (found["rows"], found["shapes"], found["kernel"]) == (1596, 57, "triton/gemm")
    page = " ".join((ROOT / "docs/log-format.md").read_text(encoding="utf-8").split())
    model, physics = first["model"], first["physics"]
    told = (
        f"reached {model['geomean']:.3f} of the best ({model['min']:.3f} at worst), the "
        f"estimate's alone {physics['geomean']:.3f} ({physics['min']:.3f})"
    )
    assert told in page


def test_the_page_of_the_model_tells_its_sizes():
    page = " ".join((ROOT / "docs/model.md").read_text(encoding="utf-8").split())
    assert f"-> features {len(FEATURES)} ratios" in page
    assert f"{len(FIXED)} of the {len(FEATURES)} features" in page
    assert f"a small network on the best {SHORTLIST} by physics" in page
    assert (
        f"a larger one on its best {FOR_SECOND}, two more and the trees on the best {FOR_ALL}"
        in page
    )
    assert f"picks {FOR_SECOND}; with the second it picks {FOR_ALL} of these" in page
    past = result("scorecard_h200-sxm.json")["best_stands_by_physics"]["past_shortlist"]
    assert f"sees the best {SHORTLIST} by physics: on {past} of the 110 held-out" in page
    trees = f"{PARAMETERS['max_iter']} trees of {PARAMETERS['max_leaf_nodes']} leaves"
    assert trees in page and HIDDEN == ((64,) * 3, (256,) * 3, (256,) * 3, (256,) * 3)
    assert "four networks (three layers of 256, and of 64 in the first)" in page


def test_the_errors_before_and_after_a_calibration_are_those_on_the_page():
    for entry in result("calibration_error_h200-sxm.json").values():
        before, after = (100 * entry[f"median_error_{when}"] for when in ("before", "after"))
        assert f"{before:.1f} and {after:.1f} %" in measuring_page()


def test_the_pages_table_of_slices_is_that_of_its_figures():
    script = runpy.run_path(str(ROOT / "data/results/transfer.py"))
    page = (ROOT / "docs/model.md").read_text(encoding="utf-8")
    for name in ("transfer_h200-sxm.json", "transfer_calibrated_h200-sxm.json"):
        assert "\n".join(script["page_table"](result(name)["slices"])) in page, name


def test_the_page_tells_what_size_and_kernels_are_worth():
    found = result("capacity_h200-sxm.json")
    page = (ROOT / "docs/model.md").read_text(encoding="utf-8")
    large, small = "600 trees of 255 leaves, 8 deep", "300 trees of 63 leaves, 8 deep"
    network = "network 256x256x256, 60"

    def err(learned, what):
        return f"{100 * found[learned][what]['within']:.1f} %"

    told = f"err by {err('all rows', large)} and a network by {err('all rows', network)}"
    assert told in page and f"quarter of the leaves by {err('all rows', small)}" in page
    without = "without its kernels"
    assert f"kernels by {err(without, large)} and {err(without, network)}" in page


def test_the_readme_tells_what_the_shipped_model_was_fitted_on():
    manifest = json.loads((ROOT / "data/models/ranker.json").read_text(encoding="utf-8"))
    told = f"fitted on {manifest['rows']:,} configurations of {manifest['problems']:,} problems"
    assert told in (ROOT / "README.md").read_text(encoding="utf-8")
