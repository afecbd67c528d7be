"""The profile of the GPU at hand. torch is imported here, and only when asked."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from costmodel.errors import ProfileError
from costmodel.profile.hardware import Evidence, HardwareProfile
from costmodel.profile.keys import required_keys
from costmodel.profile.load import list_profiles, load_profile, user_folder

#: attribute -> torch's name for it; these differ between boards of one model, so the device wins
_REPORTED = {
    "units": "multi_processor_count",
    "l2_bytes": "L2_cache_size",
    "shared_per_block_bytes": "shared_memory_per_block_optin",
    "memory_bytes": "total_memory",
}


def resolve_profile(
    profile: str | os.PathLike[str] | HardwareProfile | None,
) -> HardwareProfile:
    """``load_profile`` for a name, path or profile; ``detect_profile`` for None."""
    return detect_profile() if profile is None else load_profile(profile)


def detect_profile() -> HardwareProfile:
    """Profile of torch's current GPU: the one that lists its name under ``device_names``.

    Units, L2, shared memory and memory size are as the device reports them. Rates follow the
    number of units, so a device that shows a part of the chip's units has that part of its rate;
    the bandwidth is the whole chip's. Raises ``ProfileError`` where there is no torch, no GPU or
    no profile for it.
    """
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library that torch needs did not load
        raise ProfileError(
            f"cannot look for a GPU without torch ({error}); {_name_one()}"
        ) from error
    if not torch.cuda.is_available():
        raise ProfileError(f"torch sees no GPU; {_name_one()}")
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    for name in list_profiles():
        profile = load_profile(name)
        if device.name.lower() in (known.lower() for known in profile.device_names):
            return _as_reported(profile, device, f"torch {torch.__version__}")
    arch = getattr(device, "gcnArchName", "").split(":")[0] or f"{device.major}{device.minor}"
    raise ProfileError(
        f"no profile for this GPU, {device.name!r} (target {arch},"
        f" {device.multi_processor_count} units). Write one in {user_folder()} with [identity]"
        f' device_names = ["{device.name}"]; it needs {", ".join(required_keys())}.'
        f" Or {_name_one()}"
    )


def _name_one() -> str:
    return f"name a profile instead: {', '.join(list_profiles())}"


def _as_reported(profile: HardwareProfile, device: Any, software: str) -> HardwareProfile:
    reported = {name: getattr(device, theirs, None) for name, theirs in _REPORTED.items()}
    if (profile.l2_partitions or 1) > 1:
        # ROCm reports one die's L2, which ROCm/ROCm issue 4203 calls a bug: it may become the sum.
        del reported["l2_bytes"]
    changes: dict[str, Any] = {
        name: value
        for name, value in reported.items()
        if isinstance(value, int) and value > 0 and value != getattr(profile, name)
    }
    evidence = dict(profile.evidence)
    source = f"Reported by the device itself, {device.name}, through {software}."
    for name, value in changes.items():
        evidence[name] = Evidence(value, source, "measured")
    share = changes.get("units", profile.units) / profile.units
    if share != 1:
        changes["peak_tflops"] = {k: rate * share for k, rate in profile.peak_tflops.items()}
        if profile.achievable_tflops_fp16 is not None:
            changes["achievable_tflops_fp16"] = profile.achievable_tflops_fp16 * share
    return replace(profile, **changes, evidence=evidence)
