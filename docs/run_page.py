"""Run a page's commands: ``python docs/run_page.py docs/your-own-chip.md [--check]``.

In a ``console`` block a line that starts with "$ " is a command, a trailing backslash continues
it, and what follows is its output. Commands run in one empty folder, in order, with no profiles
but the shipped ones. A ``python`` block that ``<!-- output -->`` and a block follow is run there
too, and that block is its output. A ``toml`` block after ``<!-- append: FILE -->`` is appended to
that file.
``--check`` compares; without it the page is rewritten with the true output.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

BLOCK = re.compile(
    r"(?:<!-- append: (?P<file>\S+) -->\n)?```(?P<kind>console|toml|python)\n(?P<body>.*?)```"
    r"(?P<output>\n<!-- output -->\n```\n.*?```)?",
    re.DOTALL,
)


def run_page(text: str, folder: Path) -> str:
    """The page with the output that its commands print now."""
    return BLOCK.sub(lambda block: _block(block, folder), text)


def _block(block: re.Match[str], folder: Path) -> str:
    body = block["body"]
    if block["kind"] == "toml":
        if block["file"]:
            with (folder / block["file"]).open("a", encoding="utf-8") as stream:
                stream.write("\n" + body)
        return block[0]
    if block["kind"] == "python":
        printed = "\n".join(_output([sys.executable, "-P", "-c", body], folder))
        told = block["output"]
        return (
            block[0].replace(told, f"\n<!-- output -->\n```\n{printed}\n```") if told else block[0]
        )
    shown = []
    for command in re.findall(r"^\$ .*?(?<!\\)$", body, re.MULTILINE | re.DOTALL):
        shown += [command, *_output(shlex.split(command[2:].replace("\\\n", " ")), folder)]
    return block[0].replace(body, "\n".join(shown) + "\n")


def _output(command: list[str], folder: Path) -> list[str]:
    """Lines that a command prints, stdout and stderr in one, without blanks at their ends."""
    scripts = sysconfig.get_path("scripts")
    done = subprocess.run(
        command, cwd=folder, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "COSTMODEL_HOME": str(folder / "home"),
            "COLUMNS": "100",
        },
    )  # fmt: skip
    return [line.rstrip() for line in done.stdout.splitlines() if line.strip()]


def main() -> None:
    """Update or check the page that is named."""
    page = Path(sys.argv[1])
    old = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        new = run_page(old, Path(folder))
    if "--check" not in sys.argv:
        page.write_text(new, encoding="utf-8")
    elif new != old:
        raise SystemExit(f"{page} prints now:\n{new}")


if __name__ == "__main__":
    main()
