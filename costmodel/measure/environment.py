"""What a measured time depends on besides the problem: device, driver, libraries, kernel source."""

from __future__ import annotations

import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any


def environment(device: int = 0, units: int | None = None) -> dict[str, Any]:
    """Columns of a row that say where and with what it was measured.

    In a slice of so many ``units`` the device is that part of the chip: "h200-sxm-64-units".
    """
    import torch

    from costmodel.profile import detect, slice_of

    properties = torch.cuda.get_device_properties(device)
    whole = int(properties.multi_processor_count)
    units = units or whole
    try:
        found = detect()
        chip = found.profile if units == whole else slice_of(found.profile, units)
        # a name that stands for no file would say nothing to whoever reads the log
        name: str | None = None if found.derived_from else chip.name
    except Exception:  # a chip without a profile is measured all the same
        name = None
    return {
        "device": name,
        "device_name": properties.name,
        "units": units,
        "driver": _driver_version(),
        "cuda": torch.version.cuda or getattr(torch.version, "hip", None),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "costmodel": _version("triton-costmodel"),
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _driver_version() -> str | None:
    """NVIDIA's kernel driver, from the kernel's own file or from nvidia-smi."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
        if found:
            return found.group(1)
    except OSError:
        pass
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.split("\n", 1)[0].strip() or None
