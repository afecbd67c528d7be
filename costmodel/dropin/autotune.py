"""``@costmodel.autotune``: Triton's autotuner with our ranking, and a log that is its cache."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from costmodel.config import KernelConfig
from costmodel.dropin.knob_names import KNOB_NAMES, mapping_of
from costmodel.dropin.pruner import ProblemOf, Pruner
from costmodel.dropin.together import compile_for_tuner
from costmodel.errors import ConfigError, CostModelError
from costmodel.paths import user_dir
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.records.log import RunLog
from costmodel.records.schema import Row, config_of, make_row
from costmodel.records.schema import problem_of as problem_of_row

#: what Triton's own benchmark reads: warm clocks, L2 flushed, a median
PROTOCOL = "triton-do_bench/1"
#: the grid where no configurations are given: what `candidates` offers a plain tile
_GRID: dict[str, tuple[int, ...]] = {
    "block_m": (16, 32, 64, 128, 256), "block_n": (16, 32, 64, 128, 256), "block_k": (32, 64, 128),
    "num_warps": (4, 8), "num_stages": (2, 3, 4, 5, 6, 8),
}  # fmt: skip
_FIXED = {"group_m": 8, "split_k": 1}


def autotune(
    configs: Sequence[Any] | None = None,
    key: Sequence[str] = ("M", "N", "K"),
    *,
    top_k: int | float = 6,
    profile: str | HardwareProfile | None = None,
    names: Mapping[str, str] | None = None,
    problem: ProblemOf | None = None,
    template: str | None = None,
    log: str | Path | None = None,
    **options: Any,
) -> Callable[[Any], Any]:
    """Decorator for a ``@triton.jit`` GEMM: measures the ``top_k`` best predicted, and remembers.

    As ``triton.autotune`` with ``triton_prune``, and besides: each time goes to ``log``
    (``autotune.jsonl`` in the user's folder) as a row that ``costmodel train`` reads, and a
    configuration that stands there for this kernel, problem, chip and software is not measured
    again, in this process or another. A list that grew by one measures one. Without ``configs`` a
    grid of tiles is ranked, for a kernel whose parameters have usual names.

    ``options`` are ``triton.autotune``'s (reset_to_zero, restore_value, pre_hook, do_bench, ...).
    Raises ``ConfigError`` where there are no configurations and no names to make them from.
    """
    pruner = Pruner(top_k, profile, names, problem, template)

    def decorate(fn: Any) -> Any:
        listed = list(configs) if configs else grid_for(fn.arg_names, names)
        return _tuner_class()(
            fn, listed, list(key), pruner, RunLog(log or user_dir() / "autotune.jsonl"), options
        )

    return decorate


def grid_for(arg_names: Iterable[str], names: Mapping[str, str] | None = None) -> list[Any]:
    """A grid of ``triton.Config`` in a kernel's own parameter names."""
    import triton

    found = mapping_of(dict.fromkeys(arg_names), names)
    if not {"block_m", "block_n", "block_k"} <= set(found):
        usual = ", ".join(KNOB_NAMES[knob][0] for knob in ("block_m", "block_n", "block_k"))
        raise ConfigError(
            f"give configs: the kernel's parameters name no tile (usual names: {usual}, ...)"
        )
    fixed = {
        found[knob]: value for knob, value in (("group_m", 8), ("split_k", 1)) if knob in found
    }
    grid = []
    for values in itertools.product(*_GRID.values()):
        knobs = dict(zip(_GRID, values, strict=True))
        if knobs["block_m"] * knobs["block_n"] > 128 * 256:
            continue  # as `candidates`: its sums would not fit 8 warps' registers
        blocks = {found[knob]: knobs[knob] for knob in ("block_m", "block_n", "block_k")}
        grid.append(
            triton.Config(
                blocks | fixed, num_warps=knobs["num_warps"], num_stages=knobs["num_stages"]
            )
        )
    return grid


def _tuner_class() -> Any:
    """The subclass of Triton's tuner, made when Triton is there."""
    from triton.runtime.autotuner import Autotuner

    class RankedAutotuner(Autotuner):  # type: ignore[misc]
        """Triton's tuner over a ranked head of the list, each time kept in a log."""

        def __init__(
            self, fn: Any, configs: list[Any], key: list[str], pruner: Pruner, log: RunLog,
            options: dict[str, Any],
        ) -> None:  # fmt: skip
            hooks = {name: options.pop(name, None) for name in ("reset_to_zero", "restore_value")}
            super().__init__(
                fn, fn.arg_names, configs, key, **hooks,
                prune_configs_by={"early_config_prune": pruner}, **options,
            )  # fmt: skip
            self.pruner = pruner
            pruner.together = False  # what the log knows needs no kernel
            protocol = "custom/1" if options.get("do_bench") else PROTOCOL
            self.memory = Memory(log, fn, protocol, pruner.names)

        def prune_configs(self, kwargs: dict[str, Any]) -> list[Any]:
            chosen: list[Any] = super().prune_configs(kwargs)
            problem = self._problem(kwargs)
            unknown = [config for config in chosen if self._recalled(problem, config) is None]
            compile_for_tuner(self, unknown, self.nargs.values(), kwargs)
            return chosen

        def _bench(self, *args: Any, config: Any, **meta: Any) -> Any:
            problem = self._problem(meta)
            known = self._recalled(problem, config)
            if known is not None:
                return [known] * 3
            times = super()._bench(*args, config=config, **meta)
            if problem is not None:
                self.memory.remember(problem, self.pruner.config_of(config), config, times)
            return times

        def _problem(self, meta: Mapping[str, Any]) -> Gemm | None:
            """None for a kernel that is no GEMM of ours: there is nothing to remember it by."""
            try:
                return self.pruner.problem_of({**self.nargs, **meta})
            except CostModelError:
                return None

        def _recalled(self, problem: Gemm | None, config: Any) -> float | None:
            if problem is None:
                return None
            return self.memory.recall(problem, self.pruner.config_of(config), config)

    return RankedAutotuner


class Memory:
    """A log's times by problem and configuration, for one kernel on this chip and software."""

    def __init__(self, log: RunLog, fn: Any, protocol: str, names: Mapping[str, str]) -> None:
        self.log = log
        self.protocol = protocol
        self._fn = fn
        self._names = names
        self._read_at: tuple[int, int] | None = None
        self._times: dict[tuple[Any, ...], float] = {}
        self._sequence = 0

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Columns that every row of this process has."""
        from costmodel.measure.bench import new_run_id

        return _environment() | {"run": new_run_id(), "protocol": self.protocol}

    def recall(self, problem: Gemm, ours: KernelConfig | None, config: Any) -> float | None:
        """The median in milliseconds, inf where it failed before, None where it is not known."""
        if ours is None:
            return None
        self._refresh()
        return self._times.get((problem, ours, self._kernel_of(config)))

    def remember(
        self, problem: Gemm, ours: KernelConfig | None, config: Any, times: Sequence[float]
    ) -> None:
        """Append one row: ``times`` are Triton's quantiles in milliseconds, the median first."""
        if ours is None or math.isnan(times[0]):
            return
        failed = not math.isfinite(times[0])
        outcome: dict[str, Any] = {"time_us": times[0] * 1e3}
        if failed:
            outcome = {"invalidity": "compile", "reason": "the tuner's benchmark raised an error"}
        self.log.append(
            make_row(
                problem, ours, backend="triton", kernel_hash=self._kernel_of(config),
                sequence=self._sequence, **self.facts, **outcome,
            )
        )  # fmt: skip
        self._sequence += 1

    def _refresh(self) -> None:
        try:
            status = self.log.path.stat()
        except OSError:
            return
        stamp = status.st_mtime_ns, status.st_size
        if stamp == self._read_at:
            return
        same = ("device_name", "units", "driver", "torch", "triton", "protocol")
        self._times = {}
        for row in self.log.read().rows:
            if all(row[name] == self.facts.get(name) for name in same):
                self._times[self._place(row)] = (row["time_us"] or math.inf) / 1e3
        self._read_at = stamp

    @staticmethod
    def _place(row: Row) -> tuple[Any, ...]:
        return problem_of_row(row), config_of(row), row["kernel_hash"]

    def _kernel_of(self, config: Any) -> str:
        """Hash of the kernel's source and of what its configuration says beyond our knobs."""
        fn = self._fn
        while not hasattr(fn, "cache_key") and hasattr(fn, "fn"):
            fn = fn.fn
        parameters = config.all_kwargs()
        ours = set(mapping_of(parameters, self._names).values())
        said = {name: str(parameters[name]) for name in sorted(set(parameters) - ours)}
        text = json.dumps([getattr(fn, "cache_key", getattr(fn, "__name__", "")), said])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _environment() -> dict[str, Any]:
    """``measure.environment`` where there is a GPU, else what the interpreter runs on."""
    from costmodel.measure.environment import environment

    try:
        return environment()
    except (AssertionError, RuntimeError):  # torch's words for "no GPU"
        from importlib import metadata

        return {
            "device": None, "device_name": "interpreter", "units": None, "driver": None,
            "torch": metadata.version("torch"), "triton": metadata.version("triton"),
        }  # fmt: skip
