"""From a TOML document to a ``HardwareProfile``, with errors that name the section and key."""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import repr as short
from typing import Any, NamedTuple, NoReturn

from costmodel.dtypes import OPERANDS
from costmodel.errors import ProfileError, unknown_name
from costmodel.profile.hardware import Evidence, HardwareProfile

SCHEMA = 1
BACKENDS: tuple[str, ...] = ("cuda", "hip")
CONFIDENCES: tuple[str, ...] = ("documented", "reported", "inferred", "measured")
#: what may stand in ``[peak_tflops]``: the operand types, and fp32 rounded to tf32 on the way in
RATES: tuple[str, ...] = (*OPERANDS, "tf32")
#: larger than any figure of a chip, and safe as a float and as an int64
LARGEST = 2**62


class _Key(NamedTuple):
    """Where a figure stands in the file, and what it may be."""

    section: str
    key: str
    whole: bool = True
    required: bool = False  # may not be "unknown"
    zero: bool = False  # may be 0
    optional: bool = False  # may be left out


_TEXTS = {
    **{key: ("identity", key) for key in ("name", "vendor", "model", "architecture")},
    **{key: ("identity", key) for key in ("backend", "target")},
    "unit_name": ("compute", "unit_name"),
}
_LISTS = {
    "mma": ("compute", "mma"),
    "async_copy": ("compute", "async_copy"),
    "device_names": ("identity", "device_names"),
}
#: words that rules look for: a misspelt one would silently mean a lesser chip
_WORDS = {
    "mma": ("mma.sync", "wgmma", "tcgen05", "mfma", "wmma"),
    "async_copy": ("cp.async", "tma", "buffer_load_to_lds"),
}
_FIGURES = {
    "units": _Key("compute", "units", required=True),
    "boost_clock_mhz": _Key("compute", "boost_clock_mhz", whole=False),
    "peak_clock_mhz": _Key("compute", "peak_clock_mhz", whole=False),
    "warp_size": _Key("compute", "warp_size", required=True),
    "memory_bytes": _Key("memory", "capacity_bytes"),
    "bandwidth_gb_s": _Key("memory", "bandwidth_gb_s", whole=False, required=True),
    "copy_bandwidth_gb_s": _Key("memory", "copy_bandwidth_gb_s", whole=False),
    "l2_bytes": _Key("memory", "l2_bytes"),
    "l2_partitions": _Key("memory", "l2_partitions"),
    "mall_bytes": _Key("memory", "mall_bytes", zero=True),
    "line_bytes": _Key("memory", "line_bytes"),
    "sector_bytes": _Key("memory", "sector_bytes"),
    "shared_per_block_bytes": _Key("shared", "per_block_bytes", required=True),
    "shared_per_unit_bytes": _Key("shared", "per_unit_bytes"),
    "shared_reserved_bytes": _Key("shared", "reserved_per_block_bytes", zero=True),
    "shared_granularity_bytes": _Key("shared", "allocation_granularity_bytes"),
    "registers_per_unit": _Key("registers", "per_unit"),
    "max_registers_per_thread": _Key("registers", "max_per_thread"),
    "register_granularity": _Key("registers", "allocation_granularity"),
    "max_warps_per_unit": _Key("limits", "max_warps_per_unit"),
    "max_blocks_per_unit": _Key("limits", "max_blocks_per_unit"),
    "max_threads_per_block": _Key("limits", "max_threads_per_block"),
    "subpartitions": _Key("limits", "subpartitions_per_unit"),
    "launch_floor_us": _Key("measured", "launch_floor_us", whole=False),
    "achievable_tflops_fp16": _Key(
        "measured", "achievable_tflops_fp16", whole=False, optional=True
    ),
}


def _layout() -> dict[str, dict[str, bool]]:
    """Section -> key -> whether it must be there."""
    layout: dict[str, dict[str, bool]] = {"peak_tflops": dict.fromkeys(RATES, False)}
    for section, key in (*_TEXTS.values(), *_LISTS.values()):
        layout.setdefault(section, {})[key] = key != "device_names"
    for spec in _FIGURES.values():
        layout.setdefault(spec.section, {})[spec.key] = not spec.optional
    return layout


_LAYOUT = _layout()


def required_keys() -> list[str]:
    """What a profile cannot do without, as "[section] key"."""
    texts = [f"[{section}] {key}" for section, key in _TEXTS.values() if section == "identity"]
    figures = [f"[{s.section}] {s.key}" for s in _FIGURES.values() if s.required]
    return [*texts, *figures, "[peak_tflops] a rate for at least one type"]


def parse_profile(document: Mapping[str, Any], where: str) -> HardwareProfile:
    """Build a profile from a parsed TOML document.

    ``where`` names the document in errors. Raises ``ProfileError`` for a missing, unknown or
    mistyped key, a figure out of range, an unknown confidence, or a source without its sentence.
    """
    return _Reader(document, where).profile()


class _Reader:
    """One document, the name to use for it in errors, and the evidence gathered so far."""

    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        self.document = document
        self.where = where
        self.evidence: dict[str, Evidence] = {}

    def profile(self) -> HardwareProfile:
        self.check_layout()
        values: dict[str, Any] = {a: self.text(*place) for a, place in _TEXTS.items()}
        values |= {a: self.texts(*place) for a, place in _LISTS.items()}
        values |= {a: self.figure(a, spec) for a, spec in _FIGURES.items()}
        values["peak_tflops"] = {
            rate: self.figure(f"peak_tflops.{rate}", _Key("peak_tflops", rate, False, True))
            for rate in self.document["peak_tflops"]
        }
        if not values["peak_tflops"]:
            raise ProfileError(f"{self.where}: [peak_tflops] needs a rate for at least one type")
        backend, target = values["backend"], values["target"]
        if backend not in BACKENDS:
            self.fail("identity", "backend", str(unknown_name("backend", backend, BACKENDS)))
        if backend == "cuda" and not (target.isascii() and target.isdigit() and len(target) < 5):
            self.fail("identity", "target", f'expected digits such as "90", got {short(target)}')
        return HardwareProfile(**values, evidence=self.evidence)

    def fail(self, section: str, key: str, what: str) -> NoReturn:
        raise ProfileError(f"{self.where}: [{section}] {key}: {what}")

    def check_layout(self) -> None:
        """Every section and key that is expected is there, and no other."""
        schema = self.document.get("schema")
        if type(schema) is not int or schema != SCHEMA:
            raise ProfileError(f"{self.where}: schema: expected {SCHEMA}, got {short(schema)}")
        sections = {**_LAYOUT, "sources": {}}
        for name in self.document:
            if name != "schema" and name not in sections:
                raise ProfileError(f"{self.where}: {unknown_name('section', name, sections)}")
        for section, keys in sections.items():
            if section not in self.document:
                raise ProfileError(f"{self.where}: section [{section}] is missing")
            content = self.document[section]
            if not isinstance(content, dict):
                raise ProfileError(f"{self.where}: [{section}] must be a table")
            for key in content if section != "sources" else ():
                if key not in keys:
                    raise ProfileError(
                        f"{self.where}: [{section}] {unknown_name('key', key, keys)}"
                    )
            for key, needed in keys.items():
                if needed and key not in content:
                    self.fail(section, key, "is missing")
        for key in self.document["sources"]:
            self.text("sources", key)

    def text(self, section: str, key: str) -> str:
        value = self.document[section][key]
        if not isinstance(value, str) or not value.strip():
            self.fail(section, key, f"expected a text, got {short(value)}")
        return value

    def texts(self, section: str, key: str) -> tuple[str, ...]:
        value = self.document[section].get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail(section, key, f"expected a list of texts, got {short(value)}")
        for item in value:
            if key in _WORDS and item not in _WORDS[key]:
                self.fail(section, key, str(unknown_name("word", item, _WORDS[key])))
        return tuple(value)

    def figure(self, attribute: str, spec: _Key) -> float | None:
        """The figure itself; its evidence is kept under ``attribute``."""
        section, key = spec.section, spec.key
        if key not in self.document[section]:
            return None
        entry = self.document[section][key]
        if not isinstance(entry, dict) or "value" not in entry:
            self.fail(section, key, f"expected {{ value, source, confidence }}, got {short(entry)}")
        for name in entry:
            if name not in ("value", "source", "confidence"):
                self.fail(section, key, f"unknown entry {short(name)}")
        if entry["value"] == "unknown":
            if spec.required:
                self.fail(section, key, "is needed, it may not be 'unknown'")
            return None
        value = self.number(spec, entry["value"])
        source, confidence = entry.get("source"), entry.get("confidence")
        sources = self.document["sources"]
        if not isinstance(source, str) or source not in sources:
            self.fail(section, key, f"source {short(source)} is not a key of [sources]")
        if not isinstance(confidence, str) or confidence not in CONFIDENCES:
            known = ", ".join(CONFIDENCES)
            self.fail(section, key, f"confidence {short(confidence)} is not one of {known}")
        self.evidence[attribute] = Evidence(value, sources[source], confidence)
        return value

    def number(self, spec: _Key, value: object) -> float:
        wanted = "a whole number" if spec.whole else "a number"
        kinds = int if spec.whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            self.fail(spec.section, spec.key, f"expected {wanted}, got {short(value)}")
        if not 0 <= value <= LARGEST or (value == 0 and not spec.zero):  # false for nan, too
            bound = "0 or more" if spec.zero else "above 0"
            self.fail(spec.section, spec.key, f"expected {wanted} {bound}, got {short(value)}")
        return value if spec.whole else float(value)
