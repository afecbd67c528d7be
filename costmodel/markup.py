"""Small pieces of HTML, for notebooks and reports: everything that comes in is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(rows: Iterable[Sequence[object]], head: Sequence[str] = (), caption: str = "") -> str:
    """A table of texts and numbers; numbers are right-aligned."""
    parts = ["<table>"]
    if caption:
        parts.append(f"<caption>{escape(caption)}</caption>")
    if head:
        cells = "".join(f"<th>{escape(name)}</th>" for name in head)
        parts.append(f"<thead><tr>{cells}</tr></thead>")
    parts.append("<tbody>")
    for row in rows:
        parts.append("<tr>" + "".join(map(_cell, row)) + "</tr>")
    return "".join([*parts, "</tbody></table>"])


def _cell(value: object) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    told = f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if number else str(value)
    style = ' style="text-align:right"' if number else ' style="text-align:left"'
    return f"<td{style}>{escape(told)}</td>"


def tag(name: str, text: object) -> str:
    """``<name>text</name>``."""
    return f"<{name}>{escape(str(text))}</{name}>"
