"""README.md says what the package really prints, and names no figure that its source lacks."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CARD = json.loads((ROOT / "data/results/scorecard_h200-sxm.json").read_text())


def test_the_pages_say_what_their_sources_say_and_examples_print():
    command = [sys.executable, str(ROOT / "docs/update_readme.py"), "--check"]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr


def test_the_scorecards_figures_are_those_of_its_json():
    for count, figures in CARD["top"].items():
        for page, first, best in (
            ("README.md", "first choice", "best of {}"),
            ("README.zh-CN.md", "首选", "前 {} 个中最好"),
        ):
            name = first if count == "1" else best.format(count)
            text = (ROOT / page).read_text(encoding="utf-8")
            row = re.search(rf"\*\*costmodel\*\* \| {name} \|(.*)\|", text)
            assert row is not None
            told = [float(cell) for cell in row.group(1).split("|")]
            assert told == [round(figures[key], 3) for key in ("geomean", "p10", "min")]


def test_every_file_that_the_pages_link_to_is_there():
    for page in (
        ROOT / "README.md",
        ROOT / "README.zh-CN.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").glob("*.md"),
    ):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
