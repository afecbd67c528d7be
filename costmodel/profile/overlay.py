"""Overlays: a small file that replaces some figures of a profile by measured ones.

    schema = 1
    base = "h200-sxm"

    [provenance]
    device = "NVIDIA H200"
    versions = "torch 2.11.0, Triton 3.6.0, driver 580.159.04"
    date = "2026-11-30"
    command = "costmodel profiles calibrate"

    [figures]
    copy_bandwidth_gb_s = 4312.5
    achievable_tflops_fp16 = 803.0

Figures go by the names that ``costmodel profiles show`` prints. Every replaced figure's evidence
is the provenance, with confidence "measured"; all else is the base's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

from costmodel.errors import ProfileError, unknown_name
from costmodel.paths import atomic_write
from costmodel.profile.hardware import Evidence, HardwareProfile
from costmodel.profile.keys import FIGURES, LARGEST, RATES, SCHEMA

#: what an overlay says of the run behind its figures
PROVENANCE: tuple[str, ...] = ("device", "versions", "date", "command")
_SECTIONS = ("schema", "base", "name", "provenance", "figures")
_RATE = "peak_tflops."


def is_overlay(document: Mapping[str, Any]) -> bool:
    """Whether a TOML document is an overlay: it names its base."""
    return "base" in document


def overlaid(
    document: Mapping[str, Any], where: str, find: Callable[[str], HardwareProfile]
) -> HardwareProfile:
    """The base with the overlay's figures put in; ``find`` gives the base by its name.

    The profile keeps the base's name unless the overlay has one of its own, so measured answers
    and calibrated models of that chip stay its own. Raises ``ProfileError`` that names the key.
    """
    _check(document, where)
    base = find(document["base"])
    run = document["provenance"]
    source = (
        f"Measured on {run['device']}, {run['date']}, with {run['versions']}, "
        f"by `{run['command']}`."
    )
    changes: dict[str, Any] = {}
    rates, evidence = dict(base.peak_tflops), dict(base.evidence)
    for name, value in document["figures"].items():
        if name.startswith(_RATE):
            rates[name.removeprefix(_RATE)] = float(value)
        else:
            changes[name] = int(value) if FIGURES[name].whole else float(value)
        evidence[name] = Evidence(value, source, "measured")
    if "name" in document:
        changes["name"] = document["name"]
    return replace(base, **changes, peak_tflops=rates, evidence=evidence)


def write_overlay(
    path: Path,
    base: str,
    figures: Mapping[str, float],
    provenance: Mapping[str, str],
    name: str | None = None,
) -> None:
    """Write an overlay whole or not at all. Raises ``ProfileError`` before anything is written.

    ``figures`` by the names that ``costmodel profiles show`` prints; ``provenance`` has the keys
    of ``PROVENANCE``. A file ``<base>.toml`` in the user's profile folder takes the base's place.
    """
    document: dict[str, Any] = {"schema": SCHEMA, "base": base}
    document |= {"name": name} if name else {}
    document |= {"provenance": dict(provenance), "figures": dict(figures)}
    _check(document, str(path))
    lines = [f"{key} = {_toml(document[key])}" for key in ("schema", "base", "name")
             if key in document]  # fmt: skip
    for section in ("provenance", "figures"):
        lines += ["", f"[{section}]"]
        lines += [f"{_toml(key)} = {_toml(value)}" for key, value in document[section].items()]
    with atomic_write(path) as stream:
        stream.write("\n".join(lines) + "\n")


def _check(document: Mapping[str, Any], where: str) -> None:
    for key in document:
        if key not in _SECTIONS:
            raise ProfileError(f"{where}: {unknown_name('section of an overlay', key, _SECTIONS)}")
    schema = document.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise ProfileError(f"{where}: schema: expected {SCHEMA}, got {short(schema)}")
    for key in ("base", "name"):
        if key in document and not _is_text(document[key]):
            raise ProfileError(f"{where}: {key}: expected a profile's name")
    for section in ("provenance", "figures"):
        if not isinstance(document.get(section), Mapping):
            raise ProfileError(f"{where}: section [{section}] is missing")
    for key in PROVENANCE:
        if not _is_text(document["provenance"].get(key)):
            raise ProfileError(f"{where}: [provenance] {key}: expected a text that tells the run")
    for key in document["provenance"]:
        if key not in PROVENANCE:
            raise ProfileError(f"{where}: [provenance] {unknown_name('key', key, PROVENANCE)}")
    known = [*FIGURES, *(_RATE + rate for rate in RATES)]
    for name, value in document["figures"].items():
        if name not in known:
            raise ProfileError(f"{where}: [figures] {unknown_name('figure', name, known)}")
        whole = name in FIGURES and FIGURES[name].whole
        number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not number or not 0 < value <= LARGEST:
            what = "a whole number" if whole else "a number"
            raise ProfileError(f"{where}: [figures] {name}: expected {what} above 0, got {value!r}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _toml(value: object) -> str:
    """A text, quoted key or number in TOML; JSON's escapes are TOML's too."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
