"""The roofline: the least time that arithmetic or memory traffic alone would take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.physics.sizes import Sizes, one_of
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.matrix_unit import compute_dtype, precision_of


@dataclass(frozen=True)
class Roofline:
    """Times in microseconds, of one problem or a problem a row; ``time_us`` has the floor too."""

    compute_us: Any
    memory_us: Any
    floor_us: float
    #: the arithmetic at the highest clock: the data sheet's peak may be at a lower one
    least_compute_us: Any
    #: nothing can take less: that, or compulsory bytes at the data sheet's bandwidth
    least_us: Any

    @property
    def time_us(self) -> Any:
        # fmax: a side of which nothing is known does not count
        return np.fmax(self.compute_us, self.memory_us) + self.floor_us


def roofline(problem: Gemm | Sizes, profile: HardwareProfile) -> Roofline:
    """FLOP over the dense peak, compulsory bytes over the bandwidth that a copy reaches.

    An unknown copy bandwidth is the data sheet's, an unknown launch floor 0.
    """
    peak_tflops = peak_of(problem, profile)
    compute_us = problem.flops / (peak_tflops * 1e6)
    memory_us = problem.compulsory_bytes / (copy_bandwidth_gb_s(profile) * 1e3)
    spare = 1.0
    if profile.peak_clock_mhz and profile.boost_clock_mhz:
        spare = min(profile.peak_clock_mhz / profile.boost_clock_mhz, 1.0)
    least_compute_us = compute_us * spare
    least_us = np.fmax(least_compute_us, problem.compulsory_bytes / (profile.bandwidth_gb_s * 1e3))
    floor_us = profile.launch_floor_us or 0.0
    return Roofline(compute_us, memory_us, floor_us, least_compute_us, least_us)


def peak_of(problem: Gemm | Sizes, profile: HardwareProfile) -> float:
    """Dense peak for the problem's types, in TFLOPS."""
    problem = one_of(problem)
    precision = precision_of(problem, profile) if problem.dtype == "fp32" else None
    peak = profile.peak(compute_dtype(problem, profile) or problem.dtype, precision)
    if not peak:
        raise ValueError(f"{profile.name} has no rate for {problem.dtype}")
    return peak


def rate_of(problem: Gemm | Sizes, profile: HardwareProfile) -> str:
    """Which of the profile's ``peak_tflops`` the problem's products go by."""
    problem = one_of(problem)
    kind = compute_dtype(problem, profile) or problem.dtype
    return "tf32" if kind == "fp32" and precision_of(problem, profile) != "ieee" else kind


def copy_bandwidth_gb_s(profile: HardwareProfile) -> float:
    """What a large copy reaches, in GB/s of bytes read and written."""
    return profile.copy_bandwidth_gb_s or profile.bandwidth_gb_s
