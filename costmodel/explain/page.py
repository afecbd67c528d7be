"""A report as one HTML page that needs no other file and runs no code: for sharing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path

from costmodel.explain.layers import us
from costmodel.explain.pictures import heat_map, rejection_picture, roofline_picture, time_picture
from costmodel.explain.report import Report, report
from costmodel.explain.text import SOURCES
from costmodel.markup import table, tag
from costmodel.paths import atomic_write
from costmodel.predict import Prediction

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1060px; margin: 2em auto; padding: 0 1em;
       color: #1a1a1a; background: #fff; }
h1 { font-size: 1.5em; margin-bottom: .1em; } h2 { font-size: 1.15em; margin: 1.8em 0 .4em;
       border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; margin: .5em 0; width: 100%; font-size: .92em; }
td, th { padding: .25em .7em; border-bottom: 1px solid #e4e4e4; vertical-align: top;
       text-align: left; overflow-wrap: anywhere; }
th { background: #f4f4f4; } td:first-child { white-space: nowrap; }
code { font: .92em ui-monospace, monospace; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: 1em; }
.pictures img { width: 100%; height: auto; }
.cause { border-left: 4px solid #D55E00; padding: .1em 0 .1em .9em; margin: .8em 0; }
.cause p { margin: .25em 0; } .note { color: #555; font-size: .9em; }
@media print { body { margin: 0; } h2 { break-after: avoid; } img, .cause { break-inside: avoid; } }
"""


def html_page(prediction: Prediction, best: Prediction | None = None, top: int = 8) -> str:
    """The whole report of a prediction as HTML, its pictures inside."""
    found = report(prediction, top=top, best=best)
    body = "\n".join(part for section in _SECTIONS for part in section(found, prediction))
    title = escape(f"{found.problem} on {found.profile}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body>\n{body}\n</body></html>\n"
    )


def write_page(
    prediction: Prediction,
    path: str | os.PathLike[str],
    best: Prediction | None = None,
    top: int = 8,
) -> None:
    """Write ``html_page`` to a file, whole or not at all."""
    with atomic_write(Path(path)) as stream:
        stream.write(html_page(prediction, best, top))
    os.chmod(path, 0o644)  # a temporary file is its owner's alone, and this one is to be shared


def _head(r: Report, _: Prediction) -> Iterator[str]:
    yield tag("h1", f"{r.problem} on {r.chip}")
    yield (
        f"<p><code>{escape(r.config)}</code>: <b>{us(r.time_us)}</b>, {r.tflops:.1f} TFLOPS, "
        f"{r.peak_share:.1%} of the peak, bound by {escape(r.bound)}.</p>"
    )
    low, high = r.interval
    beware = f" {r.beware.capitalize()}." if r.beware else ""
    yield (
        f'<p class="note">{escape(SOURCES.get(r.source, r.source))}; {r.spread} between '
        f"{us(low)} and {us(high)}.{beware}</p>"
    )
    if r.instead_of:
        yield (
            f"<p>Forced, instead of <code>{escape(r.instead_of.config)}</code> at "
            f"{us(r.instead_of.time_us)}.</p>"
        )


def _causes(r: Report, _: Prediction) -> Iterator[str]:
    yield tag("h2", "What keeps it from the roofline")
    if not r.causes:
        yield "<p>No cause that is known here.</p>"
    for cause in r.causes:
        yield (
            f'<div class="cause"><p><b>{escape(cause.name.replace("_", " "))}</b>: '
            f"{escape(cause.evidence)}.</p><p>Remedy: {escape(cause.remedy)}.</p></div>"
        )


def _pictures(_: Report, prediction: Prediction) -> Iterator[str]:
    yield tag("h2", "Pictures")
    yield '<div class="pictures">'
    for draw, what in (
        (roofline_picture, "configurations under the roofline"),
        (time_picture, "where the time goes"),
        (heat_map, "predicted time by tile"),
        (rejection_picture, "rejections by reason"),
    ):
        yield f'<img alt="{what}" src="{draw(prediction).data_uri()}">'
    yield "</div>"


def _layers(r: Report, _: Prediction) -> Iterator[str]:
    for number, layer in enumerate(r.layers, start=1):
        yield tag("h2", f"{number}. {layer.title.capitalize()}")
        yield table(layer.lines)


def _knobs(r: Report, _: Prediction) -> Iterator[str]:
    yield tag("h2", "4. Adaptation: one knob at a time")
    rows = []
    for near in r.neighbours:
        effect = near.rejection if near.change is None else f"{near.change:+.1%}"
        time = "cannot run" if near.time_us is None else us(near.time_us)
        rows.append((near.knob, near.value, time, effect or ""))
    yield table(rows, ("knob", "value", "predicted", "effect"))


def _others(r: Report, _: Prediction) -> Iterator[str]:
    yield tag("h2", "Ranked below")
    rows = [(other.config, us(other.time_us), f"{other.slower:+.1%}") for other in r.runners_up]
    yield table(rows, ("configuration", "predicted", "against the chosen"))
    yield tag("h2", f"Cannot run: {sum(g.count for g in r.rejections)} of {r.candidates}")
    told = [
        (g.meaning, g.count, g.example, f"{g.needed:,} of {g.limit:,} {g.unit}", g.repair or "")
        for g in r.rejections
    ]
    if told:
        yield table(told, ("rule", "count", "nearest", "needs", "repaired by"))
    if r.unknown:
        yield f'<p class="note">The profile does not know {escape("; ".join(r.unknown))}.</p>'
    yield '<p class="note">Written by triton-costmodel.</p>'


_SECTIONS = (_head, _causes, _pictures, _layers, _knobs, _others)
