"""Every command of a page that promises it is run, and prints what the page says."""

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
