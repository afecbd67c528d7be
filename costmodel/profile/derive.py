"""A profile for a device that differs from its file: a part of the chip, or a relative of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from costmodel.errors import ProfileError
from costmodel.profile.hardware import Evidence, HardwareProfile
from costmodel.profile.keys import REACHED

#: figures that the device itself tells; its boards differ in them
_REPORTED = (
    "units", "l2_bytes", "shared_per_block_bytes", "memory_bytes", "boost_clock_mhz",
)  # fmt: skip
#: a board that shows less memory than this share of the chip's has a part of it: what drivers
#: keep back is some percent (an H200 shows 143,156 of 144,384 MiB)
_WHOLE_MEMORY = 0.9
#: memory of a MIG slice comes in eighths, each with an eighth of the bandwidth (NVIDIA MIG user
#: guide, memory slices)
_MEMORY_SLICES = 8
#: share of its peak that a part of a chip holds where the whole chip's power is there for it. On
#: 80, 64 and 32 units of an H200 fp16 holds 0.948, 0.964 and 0.966, fp8 0.914, 0.940, 0.950, tf32
#: 0.934, 0.937, 0.952; on all 132 0.81, 0.81, 0.87 (data/results/calibration_h200-sxm*.json). int8
#: holds 0.62 to 0.68 on each: power is not what limits it
_WITH_POWER_TO_SPARE = {
    "achievable_tflops_fp16": 0.96,
    "achievable_tflops_bf16": 0.96,
    "achievable_tflops_fp8": 0.94,
    "achievable_tflops_tf32": 0.94,
}
#: bytes a boost clock that one unit can copy, read and written: 32 units of an H200 copy 3,067
#: GB/s, 64 as much as all 132 (the same files)
_UNIT_COPY_BYTES_PER_CLOCK = 48.0
#: how NVIDIA's driver names a slice: "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
_SLICE = " MIG "


class Difference(NamedTuple):
    """A figure of the file and what the device reports."""

    figure: str
    profile: Any
    device: Any


@dataclass(frozen=True, kw_only=True)
class Device:
    """What a driver tells of a device; None where it does not."""

    name: str
    backend: str
    target: str
    units: int
    l2_bytes: int | None = None
    shared_per_block_bytes: int | None = None
    memory_bytes: int | None = None
    boost_clock_mhz: float | None = None
    bandwidth_gb_s: float | None = None

    @property
    def chip_name(self) -> str:
        """The name without the part that says which slice it is."""
        return self.name.split(_SLICE)[0]

    @property
    def is_slice(self) -> bool:
        return _SLICE in self.name


Found = tuple[HardwareProfile, tuple[Difference, ...], tuple[str, ...]]


def relative_of(device: Device, profiles: Iterable[HardwareProfile]) -> HardwareProfile | None:
    """The profile of the same target nearest in units, then in name, or None.

    A slice's units say nothing of the chip that it is cut from.
    """

    def distance(profile: HardwareProfile) -> tuple[int, int, str]:
        names = [profile.model.lower(), device.chip_name.lower()]
        alike = len(os.path.commonprefix(names))
        apart = 0 if device.is_slice else abs(profile.units - device.units)
        return apart, -alike, profile.name

    same = [p for p in profiles if (p.backend, p.target) == (device.backend, device.target)]
    return min(same, key=distance, default=None)


def as_reported(
    profile: HardwareProfile, device: Device, software: str, relative: bool = False
) -> Found:
    """The profile with the device's own figures, what differed, and what was assumed."""
    reported = {name: getattr(device, name) for name in _REPORTED}
    notes = []
    if (profile.l2_partitions or 1) > 1:
        # ROCm reports one die's L2, which ROCm/ROCm issue 4203 calls a bug: it may become the sum.
        del reported["l2_bytes"]
    if "wmma" in profile.mma and device.units * 2 == profile.units:
        notes.append("the driver counts work-group processors, of two CUs each")
        del reported["units"]
    changes = {
        name: value
        for name, value in reported.items()
        if value is not None and value != getattr(profile, name)
    }
    differences = tuple(
        Difference(name, getattr(profile, name), value) for name, value in changes.items()
    )
    source = f"Reported by the device itself, {device.name}, through {software}."
    evidence = dict(profile.evidence)
    for name, value in changes.items():
        evidence[name] = Evidence(value, source, "measured")
    units = changes.pop("units", profile.units)
    chip = replace(profile, **changes, evidence=evidence)
    if relative:
        chip = _renamed(chip, device, units)
        notes.append(
            f"no profile names {device.name!r}: rates, limits and what the driver does not tell are"
            f" derived from {profile.name}, of the same target. Write one for exact answers:"
            " costmodel profiles new"
        )
        return chip, differences, tuple(notes)
    if units < profile.units:
        share = _memory_share(profile, device)
        chip = slice_of(chip, units, share)
        notes.append(
            f"the device shows {units} of {profile.units} {profile.unit_name}s"
            + (f" and {share:g} of the memory" if share < 1 else "")
            + f": a profile of its own, {chip.name}, with what such a part reaches"
        )
    elif units > profile.units:
        chip = _with_units(chip, units)
        notes.append(
            f"the device has {units} {profile.unit_name}s and {profile.name} {profile.units}: its "
            "rates are taken in proportion"
        )
    else:
        return chip, differences, tuple(notes)
    told = {**chip.evidence, "units": Evidence(units, source, "measured")}
    return replace(chip, evidence=told), differences, tuple(notes)


def slice_of(profile: HardwareProfile, units: int, memory_share: float = 1.0) -> HardwareProfile:
    """A part of a chip: so many of its units, and a share of its memory's bandwidth.

    For a MIG slice, a partition, or a CUDA green context, which reports the whole device's units.
    Peaks follow the units, bandwidths the share; L2 and memory size stay. A part of an NVIDIA chip
    with all of the memory is taken to be alone on it: it has the whole chip's power, and copies
    what its units can. The name says which part, since what was measured on the whole chip is not
    measured on it, and ``load_profile`` takes it: "h200-sxm-78-units", "h200-sxm-16-units-1of8".
    Raises ``ProfileError`` where the chip has no such part.
    """
    eighths = round(memory_share * _MEMORY_SLICES)
    if not 0 < units <= profile.units or not 0 < eighths <= _MEMORY_SLICES:
        raise ProfileError(
            f"{profile.name} has {profile.units} units and {_MEMORY_SLICES} parts of its memory: "
            f"there is no part of {units} and {eighths}"
        )
    chip = _with_units(profile, units)
    source = f"In proportion: a part of {profile.name} with {eighths}/8 of its memory."
    changes: dict[str, Any] = {}
    if eighths == _MEMORY_SLICES and profile.backend == "cuda":
        source = (
            f"Of a part that has {profile.name}'s power and memory to itself, by what parts of an "
            "H200 reached."
        )
        changes |= _alone(profile, chip)
    elif eighths < _MEMORY_SLICES:
        for name in ("bandwidth_gb_s", "copy_bandwidth_gb_s"):
            value = getattr(profile, name)
            if value is not None:
                changes[name] = value * eighths / _MEMORY_SLICES
    if (profile.l2_partitions or 1) > 1:
        dies = (profile.l2_partitions or 1) * units / profile.units
        changes["l2_partitions"] = max(round(dies), 1)
    new = {name: Evidence(value, source, "inferred") for name, value in changes.items()}
    return replace(
        chip, **changes, name=_part_name(profile.name, units, eighths), device_names=(),
        evidence={**chip.evidence, **new},
    )  # fmt: skip


def _alone(whole: HardwareProfile, part: HardwareProfile) -> dict[str, float]:
    """What a part reaches that has the whole chip's power and memory to itself."""
    changes = {}
    for name, share in _WITH_POWER_TO_SPARE.items():
        reached = getattr(whole, name)
        peak = next((part.peak_tflops[t] for t in REACHED[name] if t in part.peak_tflops), None)
        if reached is not None and peak is not None:
            changes[name] = min(reached, max(peak * share, getattr(part, name)))
    if whole.copy_bandwidth_gb_s is not None and whole.boost_clock_mhz is not None:
        own = part.units * _UNIT_COPY_BYTES_PER_CLOCK * whole.boost_clock_mhz / 1e3
        changes["copy_bandwidth_gb_s"] = min(whole.copy_bandwidth_gb_s, own)
    return changes


def _with_units(profile: HardwareProfile, units: int, clock_share: float = 1.0) -> HardwareProfile:
    """The profile with another number of units, at a share of its clock: rates in proportion."""
    part = units / profile.units * clock_share
    source = f"In proportion: {units} units for the {profile.units} of {profile.name}."
    evidence = dict(profile.evidence)
    evidence["units"] = Evidence(units, source, "inferred")
    rates = {name: rate * part for name, rate in profile.peak_tflops.items()}
    for name, rate in rates.items():
        evidence[f"peak_tflops.{name}"] = Evidence(rate, source, "inferred")
    known = {name: getattr(profile, name) for name in REACHED}
    reached = {name: rate * part for name, rate in known.items() if rate is not None}
    for name, rate in reached.items():
        evidence[name] = Evidence(rate, source, "inferred")
    return replace(profile, units=units, peak_tflops=rates, evidence=evidence, **reached)


def _part_name(name: str, units: int, eighths: int) -> str:
    memory = f"-{eighths}of{_MEMORY_SLICES}" if eighths < _MEMORY_SLICES else ""
    return f"{name}-{units}-units{memory}"


def part_named(text: str) -> tuple[str, int, float] | None:
    """The chip, units and share of memory that the name of a part holds, or None.

    >>> part_named("h200-sxm-16-units-1of8")
    ('h200-sxm', 16, 0.125)
    """
    found = re.fullmatch(rf"(.+)-(\d{{1,6}})-units(?:-(\d)of{_MEMORY_SLICES})?", text)
    if found is None:
        return None
    return found[1], int(found[2]), int(found[3] or _MEMORY_SLICES) / _MEMORY_SLICES


def _memory_share(profile: HardwareProfile, device: Device) -> float:
    """Share of the memory that a slice has, in eighths; 1 where it has nearly all."""
    if not profile.memory_bytes or not device.memory_bytes:
        return 1.0
    share = device.memory_bytes / profile.memory_bytes
    return 1.0 if share >= _WHOLE_MEMORY else max(round(share * _MEMORY_SLICES), 1) / _MEMORY_SLICES


def _renamed(chip: HardwareProfile, device: Device, units: int) -> HardwareProfile:
    """A relative's profile under the device's own name: rates by its units and clock."""
    source = f"Derived from {chip.name}, a chip of the same target, for {device.name}."
    clock_share = 1.0
    if device.boost_clock_mhz and chip.peak_clock_mhz:
        clock_share = min(device.boost_clock_mhz / chip.peak_clock_mhz, 1.0)
    share = _memory_share(chip, device) if device.is_slice else 1.0
    told: dict[str, Any] = {
        "bandwidth_gb_s": (device.bandwidth_gb_s or chip.bandwidth_gb_s) * share,
        "peak_clock_mhz": chip.peak_clock_mhz and chip.peak_clock_mhz * clock_share,
    }
    # what was measured on the relative was not measured on this one
    unmeasured: dict[str, Any] = dict.fromkeys(("copy_bandwidth_gb_s", "launch_floor_us", *REACHED))
    chip = _with_units(chip, units, clock_share)
    evidence = {
        name: each
        if device.name in each.source
        else Evidence(told.get(name, each.value), f"{source} {each.source}", "inferred")
        for name, each in chip.evidence.items()
        if name not in unmeasured
    }
    slug = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")
    return replace(
        chip, **told, **unmeasured, name=slug, model=device.name, device_names=(device.name,),
        evidence=evidence,
    )  # fmt: skip
