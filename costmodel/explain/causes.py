"""Why a shape cannot reach the roofline on a chip: named causes, each with numbers and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from costmodel.explain import config_causes, shape_causes
from costmodel.explain.case import Case, Cause
from costmodel.predict import Prediction

Check = Callable[[Case], Iterator[Cause]]
CHECKS: tuple[Check, ...] = (
    shape_causes.memory_bound,
    shape_causes.low_block_count,
    shape_causes.long_k,
    shape_causes.partial_wave,
    shape_causes.unaligned_rows,
    config_causes.slow_instruction,
    config_causes.spill,
    config_causes.narrow_loads,
    config_causes.pipeline_unfilled,
    config_causes.uncovered_loads,
    config_causes.launch_bound,
)


def causes(prediction: Prediction) -> tuple[Cause, ...]:
    """Every cause that holds, what the shape dictates first and the configuration's own last."""
    case = Case.of(prediction)
    return tuple(cause for check in CHECKS for cause in check(case))
