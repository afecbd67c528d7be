"""Bring the pages' figures up to date: ``python docs/update_readme.py [--check | --pages]``.

Runs the example of README.md and README.zh-CN.md and puts its true output below it, judges the
ranker on the held-out shapes, and writes the scorecard, its JSON and the pictures; the guide's
figure of other people's lists comes from its JSON. ``--check`` only compares what the pages say,
``--pages`` writes them from the JSON files that are there.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs" / "guide.md"
#: page -> the words of its scorecard
PAGES = {ROOT / "README.md": "en", ROOT / "README.zh-CN.md": "zh"}
EXAMPLE = re.compile(r"```python\n(.*?)```\n<!-- example output -->\n```\n(.*?)```", re.DOTALL)
SCORECARD = re.compile(r"<!-- scorecard -->\n.*?(?=\n!\[)", re.DOTALL)
_OUTPUT = "<!-- example output -->\n```\n"
LISTS = re.compile(r"<!-- lists:6 -->.*?<!-- /lists -->", re.DOTALL)
SCORES = ROOT / "data" / "results" / "scorecard_h200-sxm.json"
FAMILIES = ROOT / "data" / "results" / "families_h200-sxm.json"
LADDER = ROOT / "data" / "results" / "ladder_h200-sxm_4096.json"
PRUNED = ROOT / "data" / "results" / "prune_of_lists_h200-sxm.json"

#: what a rung's file has beside its configuration, in the order of ``Rung``
_RUNG = (
    "time_us", "p10_us", "p90_us", "error", "tried", "failed", "gained", "change", "note",
)  # fmt: skip
#: what the page shows of other ways of choosing, where it was judged
_BASELINES = (
    "ridge", "physics", "nearest_training", "nvmatmul_best_of_8", "inductor_list",
    "starting_table", "random",
)  # fmt: skip

WORDS = {
    "en": {
        "head": "| chosen by | measured | geometric mean | 10th percentile | worst |",
        "first": "first choice",
        "best_of": "best of {}",
        "physics": "physics estimate alone",
        "ridge": "ridge regression on the same features",
        "nearest_training": "best of the nearest training shape",
        "inductor_list": "PyTorch Inductor's list",
        "nvmatmul_best_of_8": "nvMatmulHeuristics",
        "starting_table": "starting-block table",
        "random": "random choice, expected",
        "all": "all of it",
        "below": "Five worst first choices: {worst}. Kendall's tau {tau:.3f}; pruning kept the "
        "best on {recall:.0%} of the shapes; predicted times are off by {error:.1%} in the "
        "median, and the 90 % interval holds {coverage:.0%}. Against cuBLAS on the same shapes, "
        "ratios capped at 1.5: the best measured configuration {best:.3f} (worst {best_min:.3f}), "
        "the first choice {first:.3f} (worst {first_min:.3f}).",
        "families": "With a shape's whole family (decode, "
        "odd, long K, ...; {families} of them, "
        "{problems} shapes) left out of the fit, the first choice reaches {one[0]:.3f} (worst "
        "{one[1]:.3f}), the best of 3 {three[0]:.3f} ({three[1]:.3f}), of 8 {eight[0]:.3f} "
        "({eight[1]:.3f}); fitted on all, the same shapes {full:.3f} "
        "([by family](data/results/families_h200-sxm.json)).",
    },
    "zh": {
        "head": "| 选择方式 | 测量个数 | 几何平均 | 第 10 百分位 | 最差 |",
        "first": "首选",
        "best_of": "前 {} 个中最好",
        "physics": "仅物理估计",
        "ridge": "同样特征上的岭回归",
        "nearest_training": "最近训练形状的最优配置",
        "inductor_list": "PyTorch Inductor 的候选表",
        "nvmatmul_best_of_8": "nvMatmulHeuristics",
        "starting_table": "起始分块表",
        "random": "随机选择(期望)",
        "all": "整个表",
        "below": "最差的五个首选:{worst}。Kendall's tau {tau:.3f};剪枝后最优配置仍在的形状占 "
        "{recall:.0%};预测时间的相对误差中位数 {error:.1%},90 % 区间覆盖 {coverage:.0%}。与 cuBLAS "
        "相比(比值以 1.5 封顶):测得的最好配置 {best:.3f}(最差 {best_min:.3f}),首选 "
        "{first:.3f}(最差 {first_min:.3f})。",
        "families": "若训练时去掉该形状所属的整个类别"
        "(decode、odd、long K 等 {families} 类,"
        "{problems} 个形状),首选为 {one[0]:.3f}(最差 {one[1]:.3f}),前 3 个中最好 {three[0]:.3f}"
        "({three[1]:.3f}),前 8 个 {eight[0]:.3f}({eight[1]:.3f});用全部数据训练时首选为 {full:.3f}"
        "([各类别](data/results/families_h200-sxm.json))。",
    },
}


def example_output(text: str, name: str) -> tuple[str, str]:
    """What the first Python example prints now, and what the page says it prints."""
    found = EXAMPLE.search(text)
    if found is None:
        raise SystemExit(f"{name} has no example with an output block")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(found.group(1), name, "exec"), {})  # noqa: S102  (our own page)
    return printed.getvalue(), found.group(2)


def scorecard_table(card: dict[str, Any], language: str) -> str:
    """The scorecard as Markdown: no mean without its worst case beside it."""
    words = WORDS[language]
    rows = [words["head"], "|---|---|---|---|---|"]

    def row(name: str, count: str, figures: dict[str, float]) -> None:
        cells = (f"{figures[key]:.3f}" for key in ("geomean", "p10", "min"))
        rows.append(f"| {name} | {count} | " + " | ".join(cells) + " |")

    for count, figures in card["top"].items():
        told = words["first"] if count == "1" else words["best_of"].format(count)
        row("**costmodel**", told, figures)
    measured = {"inductor_list": words["all"], "nvmatmul_best_of_8": words["best_of"].format(8)}
    for key in _BASELINES:
        if key in card["baselines"]:
            row(words[key], measured.get(key, words["first"]), card["baselines"][key])
    vendor = card["against_vendor"]
    below = words["below"].format(
        worst="; ".join(f"{w['problem']} {w['share']:.3f}" for w in card["worst"]),
        tau=card["kendall_tau"], recall=card["prune_recall"], error=card["median_time_error"],
        coverage=card["interval_coverage"], best=vendor["best_measured"]["geomean"],
        best_min=vendor["best_measured"]["min"], first=vendor["first_choice"]["geomean"],
        first_min=vendor["first_choice"]["min"],
    )  # fmt: skip
    families = json.loads(FAMILIES.read_text(encoding="utf-8"))["families_left_out"]
    return "\n".join(rows) + f"\n\n{below}\n\n{families_sentence(families, language)}\n"


def families_sentence(found: list[dict[str, Any]], language: str) -> str:
    """What a model that saw no shape of a family reaches on it, over all families."""
    problems = sum(family["problems"] for family in found)

    def of(which: str, count: str) -> tuple[float, float]:
        logs = sum(f["problems"] * math.log(f[which][count]["geomean"]) for f in found)
        return math.exp(logs / problems), min(f[which][count]["min"] for f in found)

    return WORDS[language]["families"].format(
        families=len(found), problems=problems, one=of("top", "1"), three=of("top", "3"),
        eight=of("top", "8"), full=of("full", "1")[0],
    )  # fmt: skip


def lists_sentence(found: dict[str, Any]) -> str:
    """What the first few of other people's lists hold."""
    six, first = (found["first"][count] for count in ("6", "1"))
    return (
        f"<!-- lists:6 -->the best of 6 reached {six['geomean']:.3f} of the list's best in "
        f"geometric mean over {found['lists']} shapes, {six['min']:.3f} at worst; the first choice "
        f"{first['geomean']:.3f} and {first['min']:.3f}<!-- /lists -->"
    )


def refreshed(card: dict[str, Any], pruned: dict[str, Any]) -> dict[Path, str]:
    """Every page as it should be."""
    pages = {}
    for page, language in PAGES.items():
        text = page.read_text(encoding="utf-8")
        new, _ = example_output(text, page.name)
        text = EXAMPLE.sub(
            lambda m, new=new: f"```python\n{m.group(1)}```\n{_OUTPUT}{new}```", text
        )
        table = scorecard_table(card, language)
        pages[page] = SCORECARD.sub(lambda _, t=table: f"<!-- scorecard -->\n{t}", text)
    sentence = lists_sentence(pruned)
    pages[GUIDE] = LISTS.sub(lambda _: sentence, GUIDE.read_text(encoding="utf-8"))
    return pages


def climbed(document: dict[str, Any]) -> Any:
    """The ladder that ``costmodel ladder 4096 4096 4096 --json`` wrote, to be drawn."""
    import costmodel as cm
    from costmodel.config import KernelConfig
    from costmodel.measure.rungs import Ladder, Rung

    rungs = [
        Rung(
            rung["rung"], tuple(rung["variable"]), KernelConfig(**rung["config"]),
            *(rung[name] for name in _RUNG),
        )
        for rung in document["rungs"]
    ]  # fmt: skip
    return Ladder(
        cm.Gemm(4096, 4096, 4096), cm.load_profile(document["profile"]), tuple(rungs),
        document["vendor_us"], document["vendor_error"], None, [],
    )  # fmt: skip


def main() -> None:
    """Update the pages, or check them."""
    if not {"--check", "--pages"} & set(sys.argv):
        from costmodel.explain.plots import (
            calibration_picture,
            ladder_picture,
            predicted_against_measured,
            share_over_measured,
        )
        from costmodel.learning.evaluate import evaluate

        card = evaluate()
        images = ROOT / "docs" / "images"
        predicted_against_measured(card, images / "predicted_against_measured.png")
        share_over_measured(card, images / "share_over_measured.png")
        calibration_picture(card, images / "calibration.png")
        ladder_picture(climbed(json.loads(LADDER.read_text("utf-8"))), images / "ladder.png")
        SCORES.write_text(json.dumps(card.as_dict(), indent=1) + "\n", encoding="utf-8")
    figures, pruned = (json.loads(path.read_text(encoding="utf-8")) for path in (SCORES, PRUNED))
    for page, text in refreshed(figures, pruned).items():
        old = page.read_text(encoding="utf-8")
        if "--check" not in sys.argv:
            page.write_text(text, encoding="utf-8")
        elif text != old:
            raise SystemExit(f"{page.name} says other than its sources; it should read:\n{text}")


if __name__ == "__main__":
    main()
