"""Our ranking as a policy of FlagGems' ``LibTuner``, with no change to FlagGems.

FlagGems (FlagOpen/FlagGems, src/flag_gems/utils/libentry.py) keeps a table of ``LibTuner``
subclasses by name; ``@libtuner(..., policy="costmodel")`` then takes ours. A policy is given a
function that times a configuration, the configurations, and the call's arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from costmodel.dropin.pruner import ProblemOf, Pruner
from costmodel.dropin.together import compile_for_tuner
from costmodel.errors import UnsupportedError
from costmodel.profile import HardwareProfile


def register_policy(
    name: str = "costmodel",
    *,
    top_k: int | float = 6,
    profile: str | HardwareProfile | None = None,
    names: Mapping[str, str] | None = None,
    problem: ProblemOf | None = None,
    template: str | None = None,
) -> Any:
    """Register the policy ``name`` and return its class; options are ``triton_prune``'s.

    Raises ``UnsupportedError`` where FlagGems is not installed, or has no policies yet.
    """
    try:
        from flag_gems.utils.libentry import LibTuner  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise UnsupportedError(f"FlagGems is not here to register with: {error}") from None
    if not hasattr(LibTuner, "register"):
        raise UnsupportedError("this FlagGems has no tuning policies: take 4.1 or newer")
    pruner = Pruner(top_k, profile, names, problem, template)

    @LibTuner.register(name)  # type: ignore[untyped-decorator,unused-ignore]
    class CostModelTuner(LibTuner):  # type: ignore[misc,unused-ignore]
        """Measures what our ranking puts first."""

        def policy(
            self,
            fn: Callable[[Any], list[float]],
            configs: Iterable[Any],
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
        ) -> tuple[Any, dict[Any, list[float]]]:
            named = dict(zip(self.arg_names, args, strict=False)) | kwargs
            chosen = pruner.choose(list(configs), named)
            if len(chosen) == 1:  # nothing to compare it with
                return chosen[0], {chosen[0]: [math.nan] * 3}
            compile_for_tuner(self, chosen, args, kwargs)
            timings = {config: fn(config) for config in chosen}
            return min(timings, key=lambda config: timings[config]), timings

    return CostModelTuner
