"""A profile file put to the test: every fault with its place and its remedy.

Beyond what ``parse_profile`` refuses, this looks for figures that contradict each other or stand
in another unit, and for names that nothing knows. Such a file loads, but it would mislead.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from costmodel.errors import CostModelError
from costmodel.profile.hardware import HardwareProfile
from costmodel.profile.keys import REACHED
from costmodel.profile.load import load_profile, read_toml, shipped_profiles
from costmodel.profile.overlay import is_overlay
from costmodel.profile.parse import Fault, read_document

#: Triton's targets by backend, as far as they are a closed list: NVIDIA's compute capabilities
#: (CUDA Programming Guide) and AMD's processors (LLVM AMDGPU usage) with matrix units or Triton
TARGETS: dict[str, tuple[str, ...]] = {
    "cuda": ("70", "72", "75", "80", "86", "87", "88", "89", "90", "100", "101", "103", "110",
             "120", "121"),
    "hip": ("gfx906", "gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950", "gfx1030",
            "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201",
            "gfx1250", "gfx926", "gfx928", "gfx936"),
}  # fmt: skip
#: FLOP a clock and unit come out as a power of two to this share; clocks are quoted in whole MHz
#: and rates rounded to a digit (a datasheet of 121 TFLOPS may mean 121.5)
POWER_OF_TWO = 0.005
#: figures with the range that every chip's lies in, and the unit that a stray one is likely in
_PLAUSIBLE: tuple[tuple[str, str, float, float, str], ...] = (
    ("bandwidth_gb_s", "[memory] bandwidth_gb_s", 20, 50_000, "10^9 bytes a second (4800)"),
    ("memory_bytes", "[memory] capacity_bytes", 2**28, 2**43, "bytes (151397597184)"),
    ("l2_bytes", "[memory] l2_bytes", 2**16, 2**32, "bytes (62914560)"),
    ("shared_per_block_bytes", "[shared] per_block_bytes", 2**12, 2**27, "bytes (232448)"),
    ("peak_clock_mhz", "[compute] peak_clock_mhz", 100, 6000, "MHz (1830)"),
    ("boost_clock_mhz", "[compute] boost_clock_mhz", 100, 6000, "MHz (1980)"),
    ("units", "[compute] units", 1, 4096, "a count of SMs, CUs or cores (132)"),
    ("launch_floor_us", "[measured] launch_floor_us", 0.1, 1000, "microseconds (2.7)"),
)  # fmt: skip


def check_file(path: Path) -> list[Fault]:
    """Every fault of a profile's file or of an overlay, in the order of the format.

    Raises ``ProfileError`` where the file cannot be read or is not TOML.
    """
    document = read_toml(path, str(path))
    if is_overlay(document):
        try:
            load_profile(path)
        except CostModelError as error:
            return [Fault("", str(error).removeprefix(f"{path}: "))]
        return []
    profile, faults = read_document(document)
    if profile is not None:
        faults = [*doubts(profile, path.stem), *_unused_sources(document)]
    return faults


def doubts(profile: HardwareProfile, stem: str | None = None) -> list[Fault]:
    """What is unlikely or contradicts itself in a profile that loads; ``stem`` is its file's."""
    return [
        *_names(profile, stem),
        *_out_of_range(profile),
        *_rates(profile),
        *_limits(profile),
    ]


def flop_per_clock(profile: HardwareProfile, rate: str = "fp16") -> float | None:
    """FLOP that a unit does a clock at a rate's peak, or None where the clock is not known."""
    peak, clock = profile.peak_tflops.get(rate), profile.peak_clock_mhz
    return peak * 1e6 / (profile.units * clock) if peak and clock else None


def _names(profile: HardwareProfile, stem: str | None) -> Iterator[Fault]:
    if stem is not None and profile.name != stem:
        yield Fault("[identity] name", f"{profile.name!r} stands in a file named {stem!r}",
                    f"name the file {profile.name}.toml, or write name = {stem!r}")  # fmt: skip
    if profile.name != profile.name.lower() or " " in profile.name:
        yield Fault("[identity] name", f"{profile.name!r} has capitals or spaces",
                    "lower case with hyphens, such as 'a100-sxm-80gb'")  # fmt: skip
    targets = TARGETS.get(profile.backend)
    if targets is not None and profile.target not in targets:
        near = difflib.get_close_matches(profile.target, targets, n=3, cutoff=0.3) or targets
        yield Fault("[identity] target", f"{profile.target!r} is no target of {profile.backend!r}",
                    "one of " + ", ".join(near))  # fmt: skip
    known = {chip.architecture for chip in shipped_profiles()}
    if profile.backend in TARGETS and profile.architecture not in known:
        near = difflib.get_close_matches(profile.architecture, known, n=1, cutoff=0.5)
        hint = f"write {near[0]!r}" if near else "known: " + ", ".join(sorted(known))
        yield Fault("[identity] architecture", f"{profile.architecture!r} is none that a shipped "
                    "profile has, so no trained model speaks for it", hint)  # fmt: skip


def _out_of_range(profile: HardwareProfile) -> Iterator[Fault]:
    for name, place, least, most, unit in _PLAUSIBLE:
        value = getattr(profile, name)
        if value is not None and not least <= value <= most:
            yield Fault(place, f"{value:g} lies outside {least:g} to {most:g}",
                        f"the unit is {unit}")  # fmt: skip


def _rates(profile: HardwareProfile) -> Iterator[Fault]:
    found = flop_per_clock(profile)
    if found is not None and profile.mma:
        power = 2.0 ** round(math.log2(found))
        if abs(found / power - 1) > POWER_OF_TWO:
            clock = profile.peak_tflops["fp16"] * 1e6 / (profile.units * power)
            yield Fault(
                "[peak_tflops] fp16",
                f"{profile.peak_tflops['fp16']:g} TFLOPS over {profile.units} units at "
                f"{profile.peak_clock_mhz:g} MHz are {found:.0f} FLOP a clock and unit, and matrix "
                "units do a power of two",
                f"check units, clock and whether the rate is dense; {power:.0f} would need "
                f"{clock:.0f} MHz",
            )
    fp16 = profile.peak_tflops.get("fp16")
    for name, rate in profile.peak_tflops.items():
        if fp16 and (name.startswith("fp8") or name == "int8") and rate > 4.5 * fp16:
            yield Fault(f"[peak_tflops] {name}", f"{rate:g} is {rate / fp16:.1f} times fp16",
                        "8-bit rates are one to four times fp16's, dense")  # fmt: skip
        if fp16 and name == "tf32" and rate > 1.01 * fp16:
            yield Fault("[peak_tflops] tf32", f"{rate:g} is above fp16", "half of fp16 is usual")
    for name, types in REACHED.items():
        reached, peak = getattr(profile, name), profile.peak_tflops.get(types[0])
        if reached and peak and reached > peak:
            yield Fault(f"[measured] {name}", f"{reached:g} is above the peak {peak:g}",
                        "the rate that large products reach")  # fmt: skip
    copied = profile.copy_bandwidth_gb_s
    if copied and copied > profile.bandwidth_gb_s:
        yield Fault("[memory] copy_bandwidth_gb_s", f"{copied:g} is above the memory's "
                    f"{profile.bandwidth_gb_s:g}", "bytes read plus written, a second")  # fmt: skip


def _limits(profile: HardwareProfile) -> Iterator[Fault]:
    unit = profile.shared_per_unit_bytes
    taken = profile.shared_per_block_bytes + (profile.shared_reserved_bytes or 0)
    if unit and taken > unit:
        yield Fault("[shared] per_block_bytes", f"a block's {taken} bytes, with what is reserved, "
                    f"are more than the unit's {unit}", "per_unit_bytes is the larger")  # fmt: skip
    threads, warps = profile.max_threads_per_block, profile.max_warps_per_unit
    if threads and warps and threads > warps * profile.warp_size:
        yield Fault("[limits] max_threads_per_block", f"{threads} threads are more than "
                    f"{warps} warps of {profile.warp_size}", "check warp_size")  # fmt: skip


def _unused_sources(document: Mapping[str, Any]) -> Iterator[Fault]:
    text = [entry.get("source") for entry in _entries(document)]
    for key in document["sources"]:
        if key not in text:
            yield Fault(f"[sources] {key}", "no figure names it", "delete the sentence")


def _entries(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for value in content.values():
        if isinstance(value, Mapping):
            if "value" in value:
                yield value
            else:
                yield from _entries(value)
