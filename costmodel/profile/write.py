"""A new profile's file: what is known put in its place, the rest unknown, each key explained."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from costmodel.profile.keys import FIGURES, LISTS, SCHEMA, TEXTS, Key

#: what a figure means, for whoever fills the file in
MEANINGS: dict[str, str] = {
    "units": "what holds a block: SMs, CUs, cores",
    "boost_clock_mhz": "the highest clock",
    "peak_clock_mhz": "the clock that the matrix rates are quoted at",
    "warp_size": "threads of a warp; 1 where there are none",
    "memory_bytes": "size of the device's memory",
    "bandwidth_gb_s": "the memory's peak, in 10^9 bytes a second",
    "copy_bandwidth_gb_s": "what a device copy reaches, bytes read plus written",
    "l2_bytes": "one L2 cache",
    "l2_partitions": "L2 caches that share no contents",
    "mall_bytes": "a cache on the memory's side of L2; 0 where there is none",
    "line_bytes": "a cache line",
    "sector_bytes": "what a miss fetches",
    "shared_per_block_bytes": "on-chip SRAM that one block may have",
    "shared_per_unit_bytes": "and all blocks of a unit together",
    "shared_reserved_bytes": "taken on top of what a block asks for",
    "shared_granularity_bytes": "what a block asks for is rounded up to this",
    "registers_per_unit": "32-bit registers of a unit",
    "max_registers_per_thread": "that the compiler gives a thread at most",
    "register_granularity": "a thread's registers are rounded up to this",
    "max_warps_per_unit": "warps that a unit holds at a time",
    "max_blocks_per_unit": "blocks that a unit holds at a time",
    "max_threads_per_block": "threads of a block",
    "subpartitions": "parts of a unit with registers of their own",
    "launch_floor_us": "an empty kernel, in microseconds",
}
_HEAD = (
    "# Every figure has a source (a key of [sources]) and a confidence: documented,",
    '# reported, inferred or measured. What nobody knows is { value = "unknown" }.',
    "# Check this file: costmodel profiles validate FILE",
)
_OWN = """\
# A chip whose on-chip memories are not a GPU's names them instead of [shared] and [registers]:
# holds = of operands, inner_a, inner_b, accumulator, epilogue; buffers that overlap loads.
# [memories.L1]
# holds = ["operands"]
# capacity_bytes = { value = 524_288, source = "user", confidence = "documented" }
# buffers = { value = 2, source = "user", confidence = "documented" }

# A knob that the chip lacks is an empty list, one that it holds fixed has one value.
# [knobs]
# num_warps = []
# num_stages = [1]
"""


def profile_text(
    values: Mapping[str, Any], rates: Mapping[str, float], source: str, confidence: str
) -> str:
    """The commented TOML of a new profile.

    ``values`` by ``HardwareProfile``'s attribute names; those that are missing become unknown,
    and unknown figures that the format requires are the caller's to supply. ``rates`` are
    TFLOPS by type. All figures get the one ``source``, a sentence, and its ``confidence``.
    """
    lines = [*_HEAD, "", f"schema = {SCHEMA}"]
    evidence = f'source = "user", confidence = "{confidence}"'
    for section in _sections():
        lines += ["", f"[{section}]"]
        if section == "peak_tflops":
            lines.append(
                "# dense, with fp32 accumulation; a type without a native rate is left out"
            )
            lines += [
                f"{name} = {{ value = {rate:g}, {evidence} }}" for name, rate in rates.items()
            ]
            continue
        lines += list(_keys(section, values, evidence))
    lines += ["", "[sources]", f"user = {json.dumps(source, ensure_ascii=False)}", "", _OWN]
    return "\n".join(lines)


def _sections() -> list[str]:
    return ["identity", "compute", "peak_tflops", "memory", "shared", "registers", "limits",
            "measured"]  # fmt: skip


def _keys(section: str, values: Mapping[str, Any], evidence: str) -> Iterator[str]:
    for attribute, (where, key) in TEXTS.items():
        if where == section:
            yield f"{key} = {json.dumps(values.get(attribute, ''), ensure_ascii=False)}"
    for attribute, spec in FIGURES.items():
        if spec.section == section and not (spec.optional and attribute not in values):
            yield f"# {MEANINGS[attribute]}" if attribute in MEANINGS else ""
            yield _figure(spec, values.get(attribute), evidence)
    for attribute, (where, key) in LISTS.items():
        if where == section:
            yield f"{key} = {json.dumps(list(values.get(attribute, ())), ensure_ascii=False)}"


def _figure(spec: Key, value: Any, evidence: str) -> str:
    if value is None:
        return f'{spec.key} = {{ value = "unknown" }}'
    shown = f"{value:_}" if spec.whole and value >= 10_000 else f"{value:g}"
    if spec.whole and value < 10_000:
        shown = str(value)
    return f"{spec.key} = {{ value = {shown}, {evidence} }}"
