"""What there must be before anything is measured: a GPU, its libraries, and the right chip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.errors import DeviceError
from costmodel.profile import HardwareProfile


def require_gpu() -> None:
    """Raise ``DeviceError`` with what is missing, before a process is started for nothing."""
    try:
        import torch
    except ImportError:
        raise DeviceError(
            "measuring needs a GPU, torch and triton (the package's extra 'gpu'); predict needs "
            "none of them"
        ) from None
    if not torch.cuda.is_available():
        raise DeviceError("measuring needs a GPU that torch can see; predict needs none")


def require_chip(facts: Mapping[str, Any], profile: HardwareProfile) -> None:
    """Raise ``DeviceError`` where a measuring process' facts name another chip than ``profile``."""
    at_hand = facts["device"] or profile.name
    if at_hand != profile.name:
        raise DeviceError(
            f"the GPU at hand is {at_hand}, not {profile.name}: leave the profile out to measure "
            "it, or use predict for the other chip"
        )
