"""The profile of the GPU at hand. torch is imported here, and only when asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from costmodel.errors import ProfileError
from costmodel.profile.derive import Device, Difference, as_reported, relative_of
from costmodel.profile.hardware import HardwareProfile
from costmodel.profile.keys import required_keys
from costmodel.profile.load import list_profiles, load_profile, readable_profiles, user_folder


@dataclass(frozen=True)
class Detection:
    """The GPU at hand: its profile, what the device reports otherwise, and what was assumed.

    ``derived_from`` names the relative that lent its figures to a GPU without a file: such a
    profile is found again by no name.
    """

    profile: HardwareProfile
    device_name: str
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    derived_from: str | None = None


def resolve_profile(
    profile: str | os.PathLike[str] | HardwareProfile | None,
) -> HardwareProfile:
    """``load_profile`` for a name, path or profile; ``detect_profile`` for None."""
    return detect_profile() if profile is None else load_profile(profile)


def detect_profile() -> HardwareProfile:
    """Profile of torch's current GPU: see ``detect``."""
    return detect().profile


def detect() -> Detection:
    """Profile of torch's current GPU, with the figures that the device itself reports.

    Units, L2, shared memory, memory size and clock are the device's; the file that lists its name
    under ``device_names`` gives the rest. A device that shows a part of the chip (a MIG slice, a
    partition) gets a profile of its own name, scaled; a GPU that no file names one derived from
    its nearest relative of the same target, all of it marked inferred. A green context is not
    seen here, since the device reports all of its units: ``slice_of`` makes that profile. Raises
    ``ProfileError`` where there is no torch, no GPU, or no relative.
    """
    device, software = _device()
    sound, broken = readable_profiles()
    notes = [f"{name} was skipped, it is broken: {reason}" for name, reason in broken.items()]
    for profile in sound.values():
        if device.chip_name.lower() in (known.lower() for known in profile.device_names):
            chip, differences, more = as_reported(profile, device, software)
            return Detection(chip, device.name, differences, (*notes, *more))
    relative = relative_of(device, sound.values())
    if relative is not None:
        chip, differences, more = as_reported(relative, device, software, relative=True)
        return Detection(chip, device.name, differences, (*notes, *more), relative.name)
    raise ProfileError(
        f"no profile for this GPU, {device.name!r} (target {device.target}, {device.units} units),"
        f" and none of its target to derive one from. Write one: costmodel profiles new, into"
        f' {user_folder()}, with [identity] device_names = ["{device.name}"]; it needs'
        f" {', '.join(required_keys())}. Or {_name_one()}"
    )


def _device() -> tuple[Device, str]:
    """What torch says of the current GPU, and which torch says it."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library that torch needs did not load
        raise ProfileError(
            f"cannot look for a GPU without torch ({error}); {_name_one()}"
        ) from error
    if not torch.cuda.is_available():
        raise ProfileError(f"torch sees no GPU; {_name_one()}")
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return device_of(found), f"torch {torch.__version__}"


def device_of(properties: Any) -> Device:
    """A device from torch's properties of it; what one torch does not tell is None."""

    def number(name: str) -> int | None:
        value = getattr(properties, name, None)
        return value if isinstance(value, int) and value > 0 else None

    gcn = getattr(properties, "gcnArchName", "").split(":")[0]
    clock, memory_clock, bus = map(number, ("clock_rate", "memory_clock_rate", "memory_bus_width"))
    return Device(
        name=properties.name,
        backend="hip" if gcn.startswith("gfx") else "cuda",
        target=gcn if gcn.startswith("gfx") else f"{properties.major}{properties.minor}",
        units=properties.multi_processor_count,
        l2_bytes=number("L2_cache_size"),
        shared_per_block_bytes=number("shared_memory_per_block_optin"),
        memory_bytes=number("total_memory"),
        boost_clock_mhz=clock / 1000 if clock else None,  # told in kHz
        # two transfers a clock on a bus of so many bits
        bandwidth_gb_s=2 * memory_clock * bus / 8e6 if memory_clock and bus else None,
    )


def _name_one() -> str:
    return f"name a profile instead: {', '.join(list_profiles())}"
