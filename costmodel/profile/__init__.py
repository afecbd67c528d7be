"""Hardware profiles: what the chip can do, where each figure comes from, and how to find one."""

from costmodel.profile.detect import detect_profile, resolve_profile
from costmodel.profile.hardware import Evidence, HardwareProfile
from costmodel.profile.load import list_profiles, load_profile
from costmodel.profile.parse import parse_profile

__all__ = [
    "Evidence",
    "HardwareProfile",
    "detect_profile",
    "list_profiles",
    "load_profile",
    "parse_profile",
    "resolve_profile",
]
