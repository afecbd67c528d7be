"""A chip's own knobs put in place of the grid's: values it holds fixed, and knobs it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.config import TEMPLATES, ConfigTable, KernelConfig
from costmodel.profile import HardwareProfile
from costmodel.resources.legality import knobs_set_otherwise


def values_of(profile: HardwareProfile, name: str, usual: Sequence[Any]) -> Sequence[Any]:
    """Values of a knob to try on a chip: its own, else the usual ones; [None] where it has none."""
    own = profile.knobs.get(name)
    return usual if own is None else own or (None,)


def least_of(profile: HardwareProfile, name: str, usual: int) -> int:
    """What is little of a knob on a chip: the usual, or the least that the chip takes."""
    return max(usual, int(min(profile.knobs.get(name) or (usual,))))


def has_template(profile: HardwareProfile, name: str) -> bool:
    """Whether a chip's kernels come in this template."""
    return name in values_of(profile, "template", TEMPLATES)


def as_held(config: KernelConfig, profile: HardwareProfile) -> KernelConfig:
    """A configuration with what the chip holds fixed, or lacks, in place of what it says."""
    held: dict[str, Any] = {
        name: values[0] if values else None
        for name, values in profile.knobs.items()
        if len(values) <= 1
    }
    return replace(config, **held)


def with_its_knobs(table: ConfigTable, profile: HardwareProfile) -> ConfigTable:
    """The rows that set no knob otherwise than the chip does."""
    if not profile.knobs:
        return table
    return table[np.flatnonzero(knobs_set_otherwise(table, profile) == 0)]
