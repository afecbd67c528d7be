"""A configuration for a problem on a chip: what is wrong with it, priced beside the best."""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.config import KernelConfig
from costmodel.explain.case import Case, Cause
from costmodel.explain.causes import CHECKS
from costmodel.explain.knobs import forced, neighbours
from costmodel.explain.layers import us
from costmodel.explain.rejected import RejectedReport
from costmodel.predict import Prediction, predict_best
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile

#: what is slower than the best by less is healthy: the model's own error is a few per cent, and
#: runs differ by as much
HEALTHY = 0.10
#: causes that lie in a configuration, whatever it costs
_OWN = ("spill", "slow_instruction", "narrow_loads", "pipeline_unfilled")


def configuration_faults(
    problem: Gemm, config: KernelConfig, profile: HardwareProfile
) -> Iterator[Cause]:
    """Why this configuration cannot run, or why it is slower than the best. None if it is well."""
    best = predict_best(problem, profile, use_measured=False)
    answer = forced(best, config)
    if not isinstance(answer, Prediction):
        yield from RejectedReport.of(best, answer).causes
        return
    slower = answer.time_us / best.time_us - 1.0
    case = Case.of(answer)
    found = [cause for check in CHECKS for cause in check(case)]
    if slower <= HEALTHY:
        yield from (cause for cause in found if cause.name in _OWN and slower > HEALTHY / 2)
        return
    yield from (cause for cause in found if cause.name != "memory_bound")
    yield Cause(
        "slower_than_best",
        f"predicted at {us(answer.time_us)}, {slower:+.0%} against {best.config} "
        f"({us(best.time_us)})",
        _first_steps(answer, best),
    )


def _first_steps(answer: Prediction, best: Prediction) -> str:
    gains = sorted(
        (near.change, f"{near.knob}={near.value} ({near.change:+.0%})")
        for near in neighbours(answer)
        if near.change is not None and near.change < -0.02
    )
    if not gains:
        return f"no single knob helps: take {best.config}"
    return "one knob: " + ", ".join(told for _, told in gains[:3]) + f"; all: {best.config}"
