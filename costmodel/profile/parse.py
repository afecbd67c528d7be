"""From a TOML document to a ``HardwareProfile``, with every fault named by section and key."""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import repr as short
from typing import Any, NamedTuple

from costmodel.errors import ProfileError, unknown_name
from costmodel.profile.hardware import Evidence, HardwareProfile
from costmodel.profile.keys import (
    BACKENDS,
    CONFIDENCES,
    FIGURES,
    LARGEST,
    LISTS,
    MEMORY_FIGURES,
    MEMORY_KEYS,
    OWN_SECTIONS,
    SCHEMA,
    TEXTS,
    WORDS,
    Key,
    layout,
    may_be_left_out,
)
from costmodel.profile.knobs import knob_values
from costmodel.profile.memory import HOLDS, OWNERS, Memory


class Fault(NamedTuple):
    """What is wrong at a place of a file, and what to do about it (may be empty)."""

    place: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        if not self.place:
            return self.what
        return f"{self.place}{' ' if self.place.endswith(']') else ': '}{self.what}"

    @property
    def told(self) -> str:
        """The fault with its remedy, as sentences."""
        return f"{self}. {self.remedy[:1].upper()}{self.remedy[1:]}" if self.remedy else str(self)


def parse_profile(document: Mapping[str, Any], where: str) -> HardwareProfile:
    """Build a profile from a parsed TOML document.

    ``where`` names the document in errors. Raises ``ProfileError`` for a missing, unknown or
    mistyped key, a figure out of range, an unknown confidence, or a source without its sentence;
    the first fault is told, and how many more there are.
    """
    profile, faults = read_document(document)
    if profile is not None:
        return profile
    more = f" (and {len(faults) - 1} more: costmodel profiles validate)" if len(faults) > 1 else ""
    raise ProfileError(f"{where}: {faults[0]}{more}")


def read_document(document: Mapping[str, Any]) -> tuple[HardwareProfile | None, list[Fault]]:
    """The profile, or None and every fault of the document, in the order of the format."""
    reader = _Reader(document)
    profile = reader.profile()
    return (profile, []) if not reader.faults else (None, reader.faults)


class _Reader:
    """One document, the evidence gathered so far, and the faults found so far."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.evidence: dict[str, Evidence] = {}
        self.faults: list[Fault] = []

    def profile(self) -> HardwareProfile | None:
        self.check_layout()
        values: dict[str, Any] = {a: self.text(*place) for a, place in TEXTS.items()}
        values |= {a: self.texts(*place) for a, place in LISTS.items()}
        own = "memories" in self.document
        for attribute, spec in FIGURES.items():
            if not (own and spec.section == "shared"):
                values[attribute] = self.figure(attribute, spec, self.section(spec.section))
        rates = self.section("peak_tflops")
        values["peak_tflops"] = {
            rate: self.figure(f"peak_tflops.{rate}", Key("peak_tflops", rate, False, True), rates)
            for rate in rates
        }
        if "peak_tflops" in self.document and not rates and not self.faults:
            self.fault("[peak_tflops]", "needs a rate for at least one type")
        backend, target = values["backend"], values["target"]
        if isinstance(backend, str) and backend not in BACKENDS:
            self.fault("[identity] backend", str(unknown_name("backend", backend, BACKENDS)))
        digits = isinstance(target, str) and target.isascii() and target.isdigit()
        if backend == "cuda" and isinstance(target, str) and not (digits and len(target) < 5):
            self.fault("[identity] target", f'expected digits such as "90", got {short(target)}')
        values["memories"] = self.memories()
        values["persistent_grid"], values["knobs"] = self.knobs()
        if own and values["memories"]:
            first = [m for m in values["memories"] if "operands" in m.holds]
            values["shared_per_block_bytes"] = (first or values["memories"])[0].capacity_bytes
        return None if self.faults else HardwareProfile(**values, evidence=self.evidence)

    def fault(self, place: str, what: str, remedy: str = "") -> None:
        self.faults.append(Fault(place, what, remedy))

    def section(self, name: str) -> Mapping[str, Any]:
        """A section's content, empty where it is missing or no table."""
        content = self.document.get(name, {})
        return content if isinstance(content, dict) else {}

    def check_layout(self) -> None:
        """Every section and key that is expected is there, and no other."""
        schema = self.document.get("schema")
        if type(schema) is not int or schema != SCHEMA:
            self.fault("schema", f"expected {SCHEMA}, got {short(schema)}", f"schema = {SCHEMA}")
        sections = layout(self.document)
        for name in self.document:
            if name != "schema" and name not in {**sections, **dict.fromkeys(OWN_SECTIONS)}:
                self.fault("", str(unknown_name("section", name, [*sections, *OWN_SECTIONS])))
        for name in OWN_SECTIONS:
            if not isinstance(self.document.get(name, {}), dict):
                self.fault(f"[{name}]", "must be a table")
        for section, keys in sections.items():
            if section not in self.document:
                if not may_be_left_out(section, self.document):
                    self.fault("", f"section [{section}] is missing")
                continue
            if not isinstance(self.document[section], dict):
                self.fault(f"[{section}]", "must be a table")
                continue
            content = self.document[section]
            for key in content if section != "sources" else ():
                if key not in keys:
                    self.fault(f"[{section}] {key}", str(unknown_name("key", key, keys)))
            for key, needed in keys.items():
                if needed and key not in content:
                    self.fault(f"[{section}] {key}", "is missing", "an unknown figure is "
                               '{ value = "unknown" }')  # fmt: skip
        for key in self.section("sources"):
            self.text("sources", key)

    def text(self, section: str, key: str) -> str | None:
        content = self.section(section)
        if key not in content:
            return None  # told by check_layout
        value = content[key]
        if isinstance(value, str) and value.strip():
            return value
        self.fault(f"[{section}] {key}", f"expected a text, got {short(value)}")
        return None

    def texts(self, section: str, key: str) -> tuple[str, ...]:
        value = self.section(section).get(key, [])
        place = f"[{section}] {key}"
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fault(place, f"expected a list of texts, got {short(value)}")
            return ()
        for item in value:
            if key in WORDS and item not in WORDS[key]:
                self.fault(place, str(unknown_name("word", item, WORDS[key])))
        return tuple(value)

    def figure(self, attribute: str, spec: Key, content: Mapping[str, Any]) -> float | None:
        """The figure itself; its evidence is kept under ``attribute``."""
        place = f"[{spec.section}] {spec.key}"
        if spec.key not in content:
            return None
        entry = content[spec.key]
        if not isinstance(entry, dict) or "value" not in entry:
            self.fault(place, f"expected {{ value, source, confidence }}, got {short(entry)}")
            return None
        for name in entry:
            if name not in ("value", "source", "confidence"):
                self.fault(place, f"unknown entry {short(name)}")
        if entry["value"] == "unknown":
            if spec.required:
                self.fault(place, "is needed, it may not be 'unknown'")
            return None
        value = self.number(place, spec, entry["value"])
        source, confidence = entry.get("source"), entry.get("confidence")
        sources = self.section("sources")
        if not isinstance(source, str) or source not in sources:
            self.fault(place, f"source {short(source)} is not a key of [sources]",
                       "add the sentence that says where the figure comes from")  # fmt: skip
        elif not isinstance(confidence, str) or confidence not in CONFIDENCES:
            known = ", ".join(CONFIDENCES)
            self.fault(place, f"confidence {short(confidence)} is not one of {known}")
        elif value is not None:
            self.evidence[attribute] = Evidence(value, sources[source], confidence)
        return value

    def number(self, place: str, spec: Key, value: object) -> float | None:
        wanted = "a whole number" if spec.whole else "a number"
        kinds = int if spec.whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            self.fault(place, f"expected {wanted}, got {short(value)}")
            return None
        if not 0 <= value <= LARGEST or (value == 0 and not spec.zero):  # false for nan, too
            bound = "0 or more" if spec.zero else "above 0"
            self.fault(place, f"expected {wanted} {bound}, got {short(value)}")
            return None
        return value if spec.whole else float(value)

    def memories(self) -> tuple[Memory, ...]:
        """The chip's own memories, in the file's order."""
        found = []
        if "memories" in self.document and not self.section("memories"):
            self.fault("[memories]", "needs at least one memory, such as [memories.L1]")
        for name, content in self.section("memories").items():
            place = f"[memories.{name}]"
            if not isinstance(content, dict):
                self.fault(place, "must be a table")
                continue
            for key in content:
                if key not in MEMORY_KEYS:
                    self.fault(f"{place} {key}", str(unknown_name("key", key, MEMORY_KEYS)))
            numbers = {}
            for key, default in MEMORY_FIGURES.items():
                spec = Key(f"memories.{name}", key, required=True)
                if key not in content and default is None:
                    self.fault(f"{place} {key}", "is missing")
                value = self.figure(f"memories.{name}.{key}", spec, content)
                numbers[key] = int(value or default or 1)
            holds, per = content.get("holds"), content.get("per", "block")
            if not isinstance(holds, list) or not holds or not set(map(str, holds)) <= {*HOLDS}:
                self.fault(f"{place} holds", f"expected a list of {', '.join(HOLDS)}, got "
                           f"{short(holds)}")  # fmt: skip
                continue
            if not isinstance(per, str) or per not in OWNERS:
                self.fault(f"{place} per", f"{short(per)} is not one of {', '.join(OWNERS)}")
                continue
            found.append(Memory(name=name, holds=tuple(holds), per=per, **numbers))
        return tuple(found)

    def knobs(self) -> tuple[bool, dict[str, tuple[Any, ...]]]:
        """Whether the grid is persistent, and the values of each knob that is named."""
        content = dict(self.section("knobs"))
        persistent = content.pop("persistent_grid", False)
        if not isinstance(persistent, bool):
            self.fault(
                "[knobs] persistent_grid", f"expected true or false, got {short(persistent)}"
            )
        values: dict[str, tuple[Any, ...]] = {}
        for name, given in content.items():
            try:
                values[name] = knob_values(name, given)
            except ValueError as error:
                self.fault(f"[knobs] {name}", str(error))
        return persistent is True, values
