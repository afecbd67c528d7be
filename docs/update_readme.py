"""Bring README.md's figures up to date: ``python docs/update_readme.py [--check]``.

Runs the example and puts its true output below it, judges the ranker on the held-out shapes, and
writes the scorecard, its JSON and the pictures. ``--check`` only compares the example's output.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n<!-- example output -->\n```\n(.*?)```", re.DOTALL)
SCORECARD = re.compile(r"<!-- scorecard -->\n.*?(?=\n!\[)", re.DOTALL)
SCORES = ROOT / "data" / "results" / "scorecard_h200-sxm.json"


def example_output(text: str) -> tuple[str, str]:
    """What the first Python example prints now, and what the page says it prints."""
    found = EXAMPLE.search(text)
    if found is None:
        raise SystemExit("README.md has no example with an output block")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(found.group(1), "README.md", "exec"), {})  # noqa: S102  (our own page)
    return printed.getvalue(), found.group(2)


def scorecard_table(card: dict[str, Any]) -> str:
    """The scorecard as Markdown: no mean without its worst case beside it."""
    rows = ["| chosen by | measured | geometric mean | 10th percentile | worst |"]
    rows.append("|---|---|---|---|---|")

    def row(name: str, count: str, figures: dict[str, float]) -> None:
        cells = (f"{figures[key]:.3f}" for key in ("geomean", "p10", "min"))
        rows.append(f"| {name} | {count} | " + " | ".join(cells) + " |")

    for count, figures in card["top"].items():
        row("**costmodel**", "first choice" if count == "1" else f"best of {count}", figures)
    names = {
        "physics": "physics estimate alone",
        "starting_table": "starting-block table",
        "random": "random choice, expected",
    }
    for key, name in names.items():
        row(name, "first choice", card["baselines"][key])
    worst = "; ".join(f"{w['problem']} {w['share']:.3f}" for w in card["worst"])
    vendor = card["against_vendor"]
    return "\n".join(rows) + (
        f"\n\nFive worst first choices: {worst}. Kendall's tau {card['kendall_tau']:.3f}; pruning "
        f"kept the best on {card['prune_recall']:.0%} of the shapes; predicted times are off by "
        f"{card['median_time_error']:.1%} in the median, and the 90 % interval holds "
        f"{card['interval_coverage']:.0%}. Against cuBLAS on the same shapes, ratios capped at "
        f"1.5: the best measured configuration {vendor['best_measured']['geomean']:.3f} (worst "
        f"{vendor['best_measured']['min']:.3f}), the first choice "
        f"{vendor['first_choice']['geomean']:.3f} (worst {vendor['first_choice']['min']:.3f}).\n"
    )


def main() -> None:
    """Update the page, or check its example."""
    text = README.read_text(encoding="utf-8")
    new, old = example_output(text)
    if "--check" in sys.argv:
        if new != old:
            raise SystemExit(f"README.md's example prints now:\n{new}\nthe page says:\n{old}")
        return
    from costmodel.explain.plots import predicted_against_measured, share_over_measured
    from costmodel.learning.evaluate import evaluate

    card = evaluate()
    images = ROOT / "docs" / "images"
    predicted_against_measured(card, images / "predicted_against_measured.png")
    share_over_measured(card, images / "share_over_measured.png")
    figures = card.as_dict()
    SCORES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    text = EXAMPLE.sub(
        lambda m: f"```python\n{m.group(1)}```\n<!-- example output -->\n```\n{new}```", text
    )
    table = scorecard_table(figures)
    text = SCORECARD.sub(lambda _: f"<!-- scorecard -->\n{table}", text)
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
