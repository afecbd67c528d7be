"""Hardware profiles: what the chip can do, where each figure comes from, and how to find one."""

from costmodel.profile.check import check_file
from costmodel.profile.derive import slice_of
from costmodel.profile.detect import Detection, detect, detect_profile, resolve_profile
from costmodel.profile.hardware import Evidence, HardwareProfile
from costmodel.profile.load import (
    list_profiles,
    load_profile,
    part_of,
    readable_profiles,
    user_folder,
)
from costmodel.profile.overlay import write_overlay
from costmodel.profile.parse import Fault, parse_profile

__all__ = [
    "Detection",
    "Evidence",
    "Fault",
    "HardwareProfile",
    "check_file",
    "detect",
    "detect_profile",
    "list_profiles",
    "load_profile",
    "parse_profile",
    "part_of",
    "readable_profiles",
    "resolve_profile",
    "slice_of",
    "user_folder",
    "write_overlay",
]
