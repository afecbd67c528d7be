"""A report as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from costmodel.explain.layers import us
from costmodel.explain.report import Report

WIDTH = 100
_INDENT = 15

#: how the answer was found, for reading
SOURCES = {
    "measured": "measured on this chip before",
    "model": "predicted by the model",
    "physics": "estimated by physics alone",
    "default": "the starting table's, for want of data",
}


def render(report: Report) -> str:
    """All sections, wrapped to ``WIDTH`` columns."""
    lines = [f"{report.problem} on {report.profile} ({report.chip})", ""]
    for section in (_answer, _physics):
        for label, sentence in section(report):
            lines += paragraph(label, sentence)
    for number, layer in enumerate(report.layers, start=1):
        lines += ["", f"{number}. {layer.title}"]
        for label, sentence in layer.lines:
            lines += paragraph(label, sentence)
    lines += ["", f"{len(report.layers) + 1}. adaptation: one knob at a time"]
    for label, sentence in _knobs(report):
        lines += paragraph(label, sentence)
    lines.append("")
    for section in (_others, _rejections, _causes, _unknown):
        for label, sentence in section(report):
            lines += paragraph(label, sentence)
    return "\n".join(lines)


def _knobs(r: Report) -> Iterator[tuple[str, str]]:
    by_knob: dict[str, list[str]] = {}
    for near in r.neighbours:
        effect = f"cannot run ({near.rejection})" if near.change is None else f"{near.change:+.1%}"
        by_knob.setdefault(near.knob, []).append(f"{near.value} {effect}")
    for knob, effects in by_knob.items():
        yield knob, "; ".join(effects)


def _unknown(r: Report) -> Iterator[tuple[str, str]]:
    if r.unknown:
        yield "unknown", "the profile does not know " + "; ".join(r.unknown)


def paragraph(label: str, sentence: str) -> list[str]:
    """A label and its sentence, wrapped beside it."""
    head = f"{label:<{_INDENT}}"
    return textwrap.wrap(
        head + sentence, WIDTH, subsequent_indent=" " * _INDENT,
        break_long_words=True, break_on_hyphens=False,
    )  # fmt: skip


def _answer(r: Report) -> Iterator[tuple[str, str]]:
    low, high = r.interval
    yield "forced" if r.instead_of else "chosen", r.config
    if r.instead_of:
        yield (
            "instead of",
            f"{r.instead_of.config}: {us(r.instead_of.time_us)}; forcing costs "
            f"{r.time_us / r.instead_of.time_us - 1.0:+.1%}",
        )
    yield (
        "time",
        f"{us(r.time_us)}, {r.spread} between {us(low)} and {us(high)}; "
        f"{SOURCES.get(r.source, r.source)}",
    )
    yield "rate", f"{r.tflops:.1f} TFLOPS, {r.peak_share:.1%} of the peak of {r.peak_tflops:g}"
    if r.beware:
        yield "beware", r.beware
    yield "bound", f"by {r.bound}, in the estimate"


def _physics(r: Report) -> Iterator[tuple[str, str]]:
    roof, parts = r.roofline, r.parts
    side = "past" if roof.bound == "compute" else "below"
    yield (
        "roofline",
        f"arithmetic {us(roof.compute_us)}, memory {us(roof.memory_us)}, launch floor "
        f"{us(roof.floor_us)}; {roof.arithmetic_intensity:.1f} FLOP a byte, {side} the ridge at "
        f"{roof.ridge:.0f}: {roof.bound}-bound at best; {roof.reached:.0%} of the roofline reached",
    )
    pieces = [f"start {us(parts.start_us)}", f"K loop {us(parts.loop_us)}"]
    pieces.append(f"epilogue {us(parts.epilogue_us)}")
    if parts.split_us:
        what = "copying rows" if r.config.startswith("packed") else "adding parts"
        pieces.append(f"{what} {us(parts.split_us)}")
    if parts.dram_wait_us:
        pieces.append(f"waiting for DRAM {us(parts.dram_wait_us)}")
    pieces.append(f"not hidden {us(parts.unhidden_us)}")
    yield "physics says", f"{us(parts.total_us)} = {' + '.join(pieces)}"


def _others(r: Report) -> Iterator[tuple[str, str]]:
    for number, other in enumerate(r.runners_up):
        label = "next best" if number == 0 else ""
        yield label, f"{other.config}: {us(other.time_us)}, {other.slower:+.1%}"


def _rejections(r: Report) -> Iterator[tuple[str, str]]:
    rejected = sum(group.count for group in r.rejections)
    yield "candidates", f"{r.candidates}, of which the chip cannot run {rejected}"
    for group in r.rejections:
        repair = f" (would run: {group.repair})" if group.repair else ""
        yield (
            "",
            f"{group.count} {group.reason}, {group.meaning}; the nearest, {group.example}: "
            f"needs {group.needed}, limit {group.limit} {group.unit}".rstrip()
            + repair,
        )


def _causes(r: Report) -> Iterator[tuple[str, str]]:
    if not r.causes:
        yield "causes", "none known that keeps this shape from the roofline"
    for number, cause in enumerate(r.causes):
        label = "causes" if number == 0 else ""
        yield label, f"{cause.name}: {cause.evidence}. Remedy: {cause.remedy}."
