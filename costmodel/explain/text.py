"""A report as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from costmodel.explain.report import Report, Resources

WIDTH = 100
_INDENT = 14

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
    for section in (_answer, _physics, _cut, _others, _rejections, _causes, _unknown):
        for label, sentence in section(report):
            lines += _paragraph(label, sentence)
    return "\n".join(lines)


def _unknown(r: Report) -> Iterator[tuple[str, str]]:
    if r.unknown:
        yield "unknown", "the profile does not know " + "; ".join(r.unknown)


def _paragraph(label: str, sentence: str) -> list[str]:
    head = f"{label:<{_INDENT}}"
    return textwrap.wrap(
        head + sentence, WIDTH, subsequent_indent=" " * _INDENT,
        break_long_words=True, break_on_hyphens=False,
    )  # fmt: skip


def _answer(r: Report) -> Iterator[tuple[str, str]]:
    low, high = r.interval
    yield "chosen", r.config
    yield (
        "time",
        f"{us(r.time_us)}, 90% between {us(low)} and {us(high)}; {SOURCES.get(r.source, r.source)}",
    )
    yield "rate", f"{r.tflops:.1f} TFLOPS, {r.peak_share:.1%} of the peak of {r.peak_tflops:g}"
    if not r.calibrated:
        yield "beware", "no run of this chip was measured: time and interval are not calibrated"
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
        pieces.append(f"adding parts {us(parts.split_us)}")
    if parts.dram_wait_us:
        pieces.append(f"waiting for DRAM {us(parts.dram_wait_us)}")
    yield "physics says", f"{us(parts.total_us)} = {' + '.join(pieces)}"
    yield (
        "in the loop",
        f"alone, arithmetic would take {us(parts.loop_arithmetic_us)}, memory "
        f"{us(parts.loop_memory_us)}, loads that the pipeline does not cover "
        f"{us(parts.loop_latency_us)}",
    )


def _cut(r: Report) -> Iterator[tuple[str, str]]:
    res, work, unit = r.resources, r.work, r.unit_name
    yield (
        "resources",
        _memories(res)
        if res.memories
        else f"{res.shared_bytes} of {res.shared_limit_bytes} bytes of SRAM, {res.registers} of "
        f"{res.registers_limit} registers a thread"
        + (f" ({res.spilled} spilled)" if res.spilled else "")
        + f"; {res.blocks_per_unit} block{_s(res.blocks_per_unit)} a {unit}, limited by "
        f"{res.limiter.replace('_', ' ')}; {res.instruction}",
    )
    split = f", {work.programs} programs" if work.programs != work.tiles else ""
    yield (
        "work",
        f"{work.tiles} tile{_s(work.tiles)}{split} on {work.slots} slots: {work.rounds} "
        f"round{_s(work.rounds)}, the last {work.last_round_fill:.0%} full; "
        f"{work.tile_use:.0%} of the tiles lies in C; {work.k_steps} K step{_s(work.k_steps)}"
        + (f" through {work.num_stages} stages" if work.num_stages else ""),
    )
    yield (
        "traffic",
        f"{work.dram_bytes / 1e6:.1f} MB from and to DRAM ({work.compulsory_bytes / 1e6:.1f} "
        f"compulsory), {work.l2_bytes / 1e6:.1f} MB from L2",
    )


def _memories(res: Resources) -> str:
    """Each named memory with what it holds, and the one that binds the block."""
    parts = []
    for use in res.memories:
        holds = ", ".join(kind.replace("_", " ") for kind in use.holds)
        what = holds + (f" in steps of {use.inner_step}" if use.inner_step else "")
        what += f", {use.buffers} buffers" if use.buffers > 1 else ""
        full = ", exactly full" if use.needed_bytes == use.capacity_bytes else ""
        parts.append(
            f"{use.name} {use.needed_bytes} of {use.capacity_bytes} bytes a {use.per} "
            f"({what}){full}"
        )
    inner = [use for use in res.memories if use.inner_step]
    if inner:
        least = min(inner, key=lambda use: use.inner_step)
        parts.append(f"{least.name} binds the step inside, {least.inner_step} of K")
    binding = ", ".join(use.name for use in res.memories if use.binds)
    return "; ".join([*parts, f"{binding} binds the block", res.instruction])


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


def us(value: float) -> str:
    """A time for reading: microseconds to two decimals below 10, one below 1000, else none."""
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    return f"{value:.{digits}f} us"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
