"""Arrows run one way: a room imports from rooms above it in CONTRIBUTING.md's table alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: a method that is there for convenience, and imports when it is called
ALLOWED = {("predict", "explain")}


def rooms() -> list[str]:
    """The rooms in the order of the page's table."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    return [name.rstrip("/") for row in rows for name in re.findall(r"`(.+?)`", row)]


def sources() -> Iterator[tuple[str, Path]]:
    """Every module of the package with the room it is in."""
    for path in (ROOT / "costmodel").rglob("*.py"):
        if path.parent != ROOT / "costmodel" or path.stem != "__init__":
            yield path.relative_to(ROOT / "costmodel").parts[0].removesuffix(".py"), path
    for path in (ROOT / "kernels").glob("*.py"):
        yield "kernels", path


def imported(path: Path) -> Iterator[str]:
    """Rooms that a module imports from, at its top or later."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module == "costmodel":
            names = [f"costmodel.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            first, _, rest = name.partition(".")
            if first == "costmodel" and rest:
                yield rest.partition(".")[0]


def test_every_room_is_on_the_page_and_the_page_names_no_other() -> None:
    assert sorted(set(rooms())) == sorted({room for room, _ in sources()})


def test_no_room_imports_from_one_below_it() -> None:
    place = {name: number for number, name in enumerate(rooms())}
    upward = {
        (room, other, path.name)
        for room, path in sources()
        for other in imported(path)
        if other != room and place[other] > place[room] and (room, other) not in ALLOWED
    }
    assert not upward
