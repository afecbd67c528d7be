"""Given configurations of one problem, priced: a predicted time each, or why it cannot run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costmodel.config import ConfigTable, KernelConfig
from costmodel.predict import rank
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.space.prune import Rejection, judged


@dataclass(frozen=True)
class Priced:
    """Configurations of one problem with predicted times, and those that the chip cannot run."""

    time_us: Mapping[KernelConfig, float]
    bound: Mapping[KernelConfig, str]
    interval: Mapping[KernelConfig, tuple[float, float]]
    rejections: Mapping[KernelConfig, Rejection]


def price(
    problem: Gemm, configs: Iterable[KernelConfig], profile: HardwareProfile, source: str = "model"
) -> Priced:
    """Predicted time or rejection of each configuration, by what ``source`` says ranked before."""
    legal, rejected = judged(problem, ConfigTable.of(list(configs)), profile)
    times: dict[KernelConfig, float] = {}
    bounds: dict[KernelConfig, str] = {}
    intervals: dict[KernelConfig, tuple[float, float]] = {}
    if len(legal):
        ranking, _ = rank(problem, legal, profile, "physics" if source == "physics" else None)
        for row in ranking:
            times[row.config] = row.time_us
            bounds[row.config], intervals[row.config] = row.bound, row.interval
    return Priced(times, bounds, intervals, {r.config: r for r in rejected})
