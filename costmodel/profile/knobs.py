"""The knobs that a kernel on a chip has: the values that a profile allows for each."""

from __future__ import annotations

from reprlib import repr as short
from typing import Any

from costmodel.config import MOST_KNOB, OPTIONAL_KNOBS, TEMPLATES
from costmodel.errors import unknown_name

#: what a profile may say of a knob; how K is split and C is stored is up to the template
CHIP_KNOBS: tuple[str, ...] = (
    "template", "block_m", "block_n", "block_k", "group_m", "num_warps", "num_stages",
    "load_bits", "swap",
)  # fmt: skip


def knob_values(name: str, given: object) -> tuple[Any, ...]:
    """The values of one knob from a file's list; an empty list says that the chip lacks it.

    Raises ``ValueError`` (``UnknownNameError`` is not one, so its text is passed on) that says
    what the knob takes.
    """
    if name not in CHIP_KNOBS:
        raise ValueError(str(unknown_name("knob", name, [*CHIP_KNOBS, "persistent_grid"])))
    if not isinstance(given, list):
        raise ValueError(f"expected a list of values, got {short(given)}")
    if not given and name not in OPTIONAL_KNOBS:
        raise ValueError(f"only {', '.join(sorted(OPTIONAL_KNOBS))} may be empty (a chip lacks it)")
    for value in given:
        if name == "template":
            if not isinstance(value, str) or value not in TEMPLATES:
                raise ValueError(str(unknown_name("template", value, TEMPLATES)))
        elif name == "swap":
            if not isinstance(value, bool):
                raise ValueError(f"expected true or false, got {short(value)}")
        elif isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_KNOB:
            raise ValueError(f"expected whole numbers from 1 to {MOST_KNOB}, got {short(value)}")
    return tuple(given)
