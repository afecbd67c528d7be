"""Other tools' names for types, chips and knobs, as this package's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from costmodel.config import KernelConfig
from costmodel.dtypes import canonical_dtype
from costmodel.errors import CostModelError, RecordError
from costmodel.profile import list_profiles, load_profile
from costmodel.records.exchange.report import Given

#: knob -> the names it has elsewhere: Triton's tutorial and vLLM, FlagGems, Inductor, ours
_KNOBS: dict[str, tuple[str, ...]] = {
    "block_m": ("BLOCK_SIZE_M", "BLOCK_M", "block_m", "block_size_m"),
    "block_n": ("BLOCK_SIZE_N", "BLOCK_N", "block_n", "block_size_n"),
    "block_k": ("BLOCK_SIZE_K", "BLOCK_K", "block_k", "block_size_k"),
    "group_m": ("GROUP_SIZE_M", "GROUP_M", "group_m", "group_size_m"),
    "split_k": ("SPLIT_K", "split_k"),
    "num_warps": ("num_warps",),
    "num_stages": ("num_stages",),
}
_KNOB_OF = {theirs: ours for ours, names in _KNOBS.items() for theirs in names}
#: what ``triton.Config`` carries besides, at the value that changes nothing
_NEUTRAL: dict[str, Any] = {
    "num_ctas": 1,
    "num_buffers_warp_spec": 0,
    "num_consumer_groups": 0,
    "reg_dec_producer": 0,
    "reg_inc_consumer": 0,
}
#: quantised operands are named by weight and activation widths
_QUANTISED = {"fp8_w8a8": "fp8_e4m3", "int8_w8a8": "int8"}
_SOURCE_LIMIT = 200


def dtype_named(name: object) -> str:
    """This package's name for an element type. Raises ``UnknownNameError``."""
    text = str(name)
    return _QUANTISED.get(text) or canonical_dtype(text.removeprefix("tl."))


def device_named(device_name: str) -> str | None:
    """The profile that lists a driver's name for a chip; blanks may be written "_"."""
    wanted = device_name.replace("_", " ").lower()
    for name in list_profiles():
        try:
            names = load_profile(name).device_names
        except CostModelError:  # a broken profile of the user's own names nothing
            continue
        if wanted in (known.replace("_", " ").lower() for known in names):
            return name
    return None


def place(given: Given, device_name: str | None = None) -> dict[str, Any]:
    """The columns that say where and with what: from the file where it says, else as given."""
    name = device_name or given.device_name
    if not name:
        raise RecordError("the format does not name the chip; say it with --device-name")
    return {
        "device_name": name,
        "device": device_named(name),
        "units": given.units,
        "driver": given.driver,
        "torch": given.torch,
        "triton": given.triton,
    }


def config_named(knobs: Any) -> tuple[KernelConfig, str]:
    """A configuration from another tool's knobs, and the knobs that have no column, as text.

    The template is "tile", or "split_k" where K is cut; a knob that is not named is null, and
    loads are taken to be as wide as aligned ones are. The text, such as ";EVEN_K=True", belongs
    to the kernel's name: two configurations that differ in it are two kernels. Raises
    ``RecordError`` without a block in each dimension.
    """
    found: dict[str, Any] = {"group_m": None, "num_warps": None, "num_stages": None}
    foreign = []
    if not isinstance(knobs, Mapping):
        raise RecordError(f"a configuration is an object of knobs, got {type(knobs).__name__}")
    for name, value in knobs.items():
        ours = _KNOB_OF.get(str(name))
        if ours is not None:
            found[ours] = _whole(str(name), value)
        elif value is not None and name != "pre_hook" and _NEUTRAL.get(name) != value:
            foreign.append(f"{name}={value}")
    missing = [name for name in ("block_m", "block_n", "block_k") if name not in found]
    if missing:
        raise RecordError(f"no {' and '.join(missing)} among its knobs {_names(knobs)}")
    template = "split_k" if found.get("split_k", 1) > 1 else "tile"
    text = "".join(f";{knob}" for knob in sorted(foreign))
    return KernelConfig(template, **found), text


def source_named(kernel: str, foreign: str, given: Given) -> str:
    """The ``source`` of a row: whose kernel, with the knobs that have no column."""
    text = re.sub(r"\s+", " ", (given.source or kernel) + foreign)
    if len(text) > _SOURCE_LIMIT:
        raise RecordError(f"the kernel and its knobs take more than {_SOURCE_LIMIT} characters")
    return text


def _whole(name: str, value: Any) -> int:
    number = float(value) if isinstance(value, (int, float)) else float("nan")
    if isinstance(value, bool) or not number.is_integer():
        raise RecordError(f"{name} must be a whole number, got {value!r:.60}")
    return int(number)


def _names(knobs: Mapping[str, Any]) -> str:
    return ", ".join(str(name)[:40] for name in list(knobs)[:12]) or "(none)"
