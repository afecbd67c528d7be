"""``triton_prune``: our ranking in the place of a full search of ``@triton.autotune``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from costmodel.config import KNOBS, TEMPLATES, ConfigTable, KernelConfig
from costmodel.dropin.knob_names import config_of_parameters
from costmodel.dropin.together import compile_for_tuner
from costmodel.dropin.triton_args import problem_of_call
from costmodel.errors import CostModelError, NoCandidateError, unknown_name
from costmodel.measure.tune import survivors
from costmodel.price import price
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, resolve_profile
from costmodel.space.prune import prune
from costmodel.space.schema import as_held

#: what ``names`` may say of a parameter: a knob, a size, or an operand
NAMED = (*KNOBS, "m", "n", "k", "a", "b", "c")

ProblemOf = Callable[[Mapping[str, Any]], Gemm]


def triton_prune(
    top_k: int | float = 6,
    *,
    profile: str | HardwareProfile | None = None,
    names: Mapping[str, str] | None = None,
    problem: ProblemOf | None = None,
    template: str | None = None,
) -> dict[str, Any]:
    """What ``prune_configs_by`` of ``@triton.autotune`` takes, for a kernel that multiplies.

    Of the configurations given, those that the chip cannot run are dropped by arithmetic, before
    anything is compiled; of the rest the ``top_k`` best predicted are measured. A share counts
    survivors: 0.5 of 10 configurations, 4 of them rejected, is 3. Where one is left it is taken
    without a benchmark. A kernel whose parameters tell no tile or no problem keeps its whole
    list, with one warning.

    ``profile`` is the chip, the GPU at hand by default. ``names`` maps the kernel's parameters to
    ours where the usual names (BLOCK_SIZE_M, BLOCK_M, BM, GROUP_SIZE_M, SPLIT_K, M, N, K, a_ptr)
    do not tell: ``{"ROWS": "block_m", "tokens": "m"}``. ``problem`` makes the ``Gemm`` from the
    call's arguments instead. ``template`` is the kernel family that the kernel resembles, "tile"
    or "split_k" by its SPLIT_K; "persistent_tma" for one with descriptors.

    Raises ``NoCandidateError`` when the tuner runs and the chip can hold none of the list, and
    ``UnknownNameError`` for a name of ours or a template that there is not.

    >>> @triton.autotune(configs, key=["M", "N", "K"],
    ...                  prune_configs_by=costmodel.triton_prune(6))   # doctest: +SKIP
    """
    # what is said wrongly is an error here, not at the first launch
    survivors(1, top_k)
    for ours in (names or {}).values():
        if ours not in NAMED:
            raise unknown_name("knob or size", ours, NAMED)
    if template is not None and template not in TEMPLATES:
        raise unknown_name("template", template, TEMPLATES)
    return {"early_config_prune": Pruner(top_k, profile, names, problem, template)}


class Pruner:
    """Chooses from a list of ``triton.Config`` for one call; callable as ``early_config_prune``."""

    def __init__(
        self,
        top_k: int | float = 6,
        profile: str | HardwareProfile | None = None,
        names: Mapping[str, str] | None = None,
        problem: ProblemOf | None = None,
        template: str | None = None,
    ) -> None:
        self.top_k = top_k
        self.profile = profile
        self.names = dict(names or {})
        self.problem = problem
        self.template = template
        #: False where the tuner knows better what is left to compile
        self.together = True
        self._warned = False

    def __call__(self, configs: Sequence[Any], named_args: Any, **more: Any) -> list[Any]:
        """The configurations to measure, best predicted first; never empty."""
        chosen = self.choose(configs, {**(named_args or {}), **more})
        tuner = _tuner_above(sys._getframe(1))
        if tuner is not None:
            _skip_benchmark(tuner, alone=len(chosen) == 1)
            if self.together:
                compile_for_tuner(tuner, chosen, (named_args or {}).values(), more)
        return chosen

    def choose(self, configs: Sequence[Any], arguments: Mapping[str, Any]) -> list[Any]:
        """As a call, for arguments by name. Raises ``NoCandidateError`` where none can run."""
        ours = [self.config_of(config) for config in configs]
        known = [config for config in ours if config is not None]
        if len(known) < len(configs):
            return self._all(configs, "its configurations name no BLOCK_M, BLOCK_N and BLOCK_K")
        try:
            problem, chip = self.problem_of(arguments), resolve_profile(self.profile)
            # a list says warps and stages for every chip, and some have none
            known = [as_held(config, chip) for config in known]
            priced = price(problem, list(dict.fromkeys(known)), chip)
        except CostModelError as error:
            return self._all(configs, str(error))
        pairs = zip(configs, known, strict=True)
        left = [(priced.time_us[c], config) for config, c in pairs if c in priced.time_us]
        if not left:
            prune(problem, ConfigTable.of(known), chip)  # names the tightest limit
            raise NoCandidateError(f"the chip can run none of {len(configs)} configurations")
        left.sort(key=lambda item: item[0])
        return [config for _, config in left[: survivors(len(left), self.top_k)]]

    def config_of(self, config: Any) -> KernelConfig | None:
        """A ``triton.Config`` as ours, or None where it names no tile."""
        parameters = {
            **config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages,
        }  # fmt: skip
        return config_of_parameters(parameters, self.names, self.template)

    def problem_of(self, arguments: Mapping[str, Any]) -> Gemm:
        """The problem of a call. Raises ``ConfigError`` where its arguments do not tell."""
        if self.problem is not None:
            return self.problem(arguments)
        return problem_of_call(arguments, self.names)

    def _all(self, configs: Sequence[Any], why: str) -> list[Any]:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"costmodel cannot rank this kernel's configurations, so all {len(configs)} are "
                f"measured: {why}",
                stacklevel=4,
            )
        return list(configs)


class _Benchmark:
    """An autotuner's benchmark that is left out while there is nothing to compare."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find
        self.alone = False

    def __call__(self, call: Callable[[], Any], quantiles: Sequence[float]) -> Any:
        if self.alone:
            return [float("nan")] * len(quantiles)
        return self._find()(call, quantiles=quantiles)


def _tuner_above(frame: FrameType) -> Any:
    """Triton's tuner where it is what called ``early_config_prune``, which is not handed it."""
    base = sys.modules.get("triton.runtime.autotuner")
    caller = frame.f_locals.get("self")
    return caller if base is not None and isinstance(caller, base.Autotuner) else None


def _skip_benchmark(tuner: Any, *, alone: bool) -> None:
    """Let the tuner take the only configuration left without a benchmark: it times even one."""
    bench = vars(tuner).get("do_bench")
    if not isinstance(bench, _Benchmark):
        if not alone:
            return
        found = type(tuner).do_bench  # a cached property: it looks for a driver when asked
        own = bench
        bench = _Benchmark(lambda: own if own is not None else found.func(tuner))
        vars(tuner)["do_bench"] = bench
    bench.alone = alone
