"""Every command of a page that promises it is run, and prints what the page says."""

import csv
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

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
