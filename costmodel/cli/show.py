"""Output: tables for people, JSON for programs. Results go to stdout, progress to stderr."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

#: a table's title, its columns, its rows
Section = tuple[str, Sequence[str], Sequence[Sequence[str]]]

#: the longest configuration beside five figures needs 90
WIDTH = 100
#: a number, a range of two, or nothing
_FIGURE = re.compile(r"[\d.-]*")


def print_json(value: Any) -> None:
    """One JSON document; what is not finite becomes null, since JSON has no word for it."""
    typer.echo(json.dumps(_plain(value), indent=2, allow_nan=False))


def three_digits(value: float) -> str:
    """A share as tables print it."""
    return f"{value:.3f}"


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table of texts; columns that hold figures alone are right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal or console.width > WIDTH:
        console.width = WIDTH
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        figures = all(_FIGURE.fullmatch(row[index]) for row in rows)
        table.add_column(Text(name), justify="right" if figures else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same table in Markdown."""
    marks = ["---", *("---:" for _ in columns[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (columns, marks, *rows))


def print_sections(sections: Iterable[Section], markdown: bool) -> None:
    """Tables one below the other, for a terminal or in Markdown."""
    for title, columns, rows in sections:
        if markdown:
            typer.echo(f"**{title}**\n\n{markdown_table(columns, rows)}\n")
        else:
            print_table(title, columns, rows)


@contextmanager
def working(message: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr while the block runs, only on a terminal.

    Yields a function that puts what is being done behind the message.
    """
    if not sys.stderr.isatty():
        yield lambda doing: None
        return
    from rich.console import Console

    with Console(stderr=True).status(message) as status:
        yield lambda doing: status.update(f"{message}: {doing}")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
