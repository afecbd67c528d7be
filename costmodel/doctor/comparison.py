"""A few configurations measured side by side: what the slower one has that the faster lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from costmodel.config import ConfigTable, KernelConfig
from costmodel.doctor.configuration import HEALTHY
from costmodel.doctor.runs import UNSTEADY, correct, each_problem, facts_of
from costmodel.explain.case import Case, Cause
from costmodel.explain.causes import CHECKS
from costmodel.explain.knobs import forced
from costmodel.explain.layers import us
from costmodel.physics.estimate import estimate_columns
from costmodel.predict import Prediction, predict_best
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.records.schema import config_of
from costmodel.resources.matrix_unit import matrix_unit

#: a log of more configurations a problem is a sweep: slow ones belong to it
FEW = 8


def comparison_faults(frame: Any) -> Iterator[Cause]:
    """Pairs of rows that differ in one knob, and the best row against the best prediction."""
    for problem, profile, part in each_problem(correct(frame[frame["backend"] == "triton"])):
        times: dict[KernelConfig, float] = {}
        for _, row in part.iterrows():
            config = config_of(facts_of(row))
            if config is not None:
                times[config] = min(float(row["time_us"]), times.get(config, np.inf))
        best = predict_best(problem, profile, use_measured=False)
        if len(times) <= FEW:
            yield from _pairs(problem, profile, best, times)
        yield from _better_exists(best, times)


def _pairs(
    problem: Gemm, profile: HardwareProfile, best: Prediction, times: dict[KernelConfig, float]
) -> Iterator[Cause]:
    for slow, slow_us in times.items():
        for fast, fast_us in times.items():
            knobs = _differing(slow, fast)
            if slow_us < (1 + UNSTEADY) * fast_us or len(knobs) != 1:
                continue
            seen = (
                f"measured: {slow} takes {us(slow_us)}, {fast} {us(fast_us)} "
                f"({slow_us / fast_us - 1:+.0%} by {knobs[0]})"
            )
            lacking = _names(best, fast)
            if _unit(problem, profile, slow) != _unit(problem, profile, fast):
                lacking.discard("slow_instruction")
            own = [c for c in _causes(best, slow) if c.name not in lacking]
            for cause in own:
                yield Cause(cause.name, f"{seen}; {cause.evidence}", cause.remedy)
            if not own and knobs[0] == "num_stages":
                yield from _too_deep(problem, profile, slow, fast, seen)
            elif not own:
                yield Cause("slower_knob", seen, f"{knobs[0]}={getattr(fast, knobs[0])}")


def _too_deep(
    problem: Gemm, profile: HardwareProfile, slow: KernelConfig, fast: KernelConfig, seen: str
) -> Iterator[Cause]:
    if (slow.num_stages or 0) < (fast.num_stages or 0):
        yield Cause("uncovered_loads", seen, f"num_stages={fast.num_stages}")
        return
    physics = estimate_columns(problem, ConfigTable.of([slow, fast]), profile)
    few, many = (int(blocks) for blocks in physics.occupancy.blocks)
    steps = int(physics.waves.steps[0])
    why = f"a {profile.unit_name} holds {few} of its blocks and {many} of the other's"
    yield Cause(
        "pipeline_unfilled",
        f"{seen}: more stages, slower; {why}, and there are {steps} K steps",
        f"num_stages={fast.num_stages}: what depth gains, blocks side by side lose",
    )


def _better_exists(best: Prediction, times: dict[KernelConfig, float]) -> Iterator[Cause]:
    config, time_us = min(times.items(), key=lambda item: item[1])
    if not best.calibrated or best.interval[1] * (1 + HEALTHY) >= time_us:
        return
    known = _names(best, best.config)
    seen = f"measured: {config} takes {us(time_us)}"
    for cause in _causes(best, config):
        if cause.name not in known:
            yield Cause(cause.name, f"{seen}; {cause.evidence}", cause.remedy)
    yield Cause(
        "better_exists",
        f"the best row of {best.problem}, {config}, takes {us(time_us)}; {best.config} is "
        f"predicted at {us(best.time_us)}, 90% below {us(best.interval[1])}",
        f"measure {best.config}; where it reads as slow, the machine is: clocks, another process, "
        "a slice of the GPU",
    )


def _causes(best: Prediction, config: KernelConfig) -> list[Cause]:
    answer = forced(best, config)
    if not isinstance(answer, Prediction):
        return []
    case = Case.of(answer)
    return [cause for check in CHECKS for cause in check(case)]


def _unit(problem: Gemm, profile: HardwareProfile, config: KernelConfig) -> int:
    return int(matrix_unit(problem, ConfigTable.of(config), profile)[0])


def _names(best: Prediction, config: KernelConfig) -> set[str]:
    return {cause.name for cause in _causes(best, config)}


def _differing(one: KernelConfig, other: KernelConfig) -> list[str]:
    theirs = other.as_dict()
    knobs = [name for name, value in one.as_dict().items() if value != theirs[name]]
    # splitting K changes the template by itself
    return ["split_k"] if sorted(knobs) == ["split_k", "template"] else knobs
