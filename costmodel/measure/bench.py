"""Measure configurations of one problem on the GPU at hand, each checked before its time counts."""

from __future__ import annotations

import time
from typing import Any

from costmodel.config import KernelConfig
from costmodel.measure.check import Reference, tolerance
from costmodel.measure.timing import Stopwatch
from costmodel.measure.vendor import vendor_launch
from costmodel.problem import Gemm
from costmodel.records.schema import Row, make_row
from costmodel.records.source_hash import kernel_hash


class ProblemBench:
    """Operands, reference and stopwatch for one problem; each ``measure`` returns a row.

    ``facts`` are the columns that all rows share (environment and run); their ``units`` are the
    size of a persistent grid. Operands are drawn anew
    from ``seed``. A configuration that fails is a row with its reason, not an exception.
    """

    def __init__(
        self, problem: Gemm, stopwatch: Stopwatch, facts: dict[str, Any], seed: int = 0
    ) -> None:
        import torch

        from costmodel.kernels.operands import epilogue_options, make_operands

        generator = torch.Generator(device=stopwatch.device).manual_seed(seed)
        self.problem = problem
        self.stopwatch = stopwatch
        self.facts = facts
        self.a, self.b, self.out = make_operands(problem, stopwatch.device, generator)
        self.epilogue = epilogue_options(problem, stopwatch.device, generator)
        bias = self.epilogue.get("bias")
        self.reference = Reference(problem, self.a, self.b, self.out, bias)
        self._sequence = 0

    def measure(self, config: KernelConfig) -> Row:
        """Compile (or take from the cache), run once, check, time."""
        from costmodel.kernels.launch import prepare

        problem = self.problem
        columns = {"backend": "triton", "kernel_hash": kernel_hash(config.template)}
        try:
            launch = prepare(
                self.a, self.b, config, out=self.out, alpha=problem.alpha, beta=problem.beta,
                precision=problem.precision, accumulate=problem.accumulate,
                units=self.facts.get("units"), **self.epilogue,
            ).run  # fmt: skip
        except Exception as error:
            return self._failure(config, columns, "constraints", error)
        return self._run(config, columns, launch)

    def measure_vendor(self) -> Row:
        """The vendor's GEMM under the same protocol: backend "origin"."""
        launch = vendor_launch(self.problem, self.a, self.b, self.out, self.epilogue.get("bias"))
        return self._run(None, {"backend": "origin", "kernel_hash": None}, launch)

    def _run(self, config: KernelConfig | None, columns: dict[str, Any], launch: Any) -> Row:
        try:
            self.reference.poison(self.out)
            launch()
            error = self.reference.error(self.out)
            timing = self.stopwatch.time(launch)
            off = float(error)
        except Exception as problem_met:
            word = "compile" if _is_compile_error(problem_met) else "runtime"
            return self._failure(config, columns, word, problem_met)
        limit = tolerance(self.problem)
        if not off <= limit:
            columns["invalidity"] = "correctness"
            columns["reason"] = f"relative error {off:.3g} exceeds {limit:.3g}"
        return self._row(
            config, columns, error=off, time_us=timing.median_us, p10_us=timing.p10_us,
            p90_us=timing.p90_us, count=timing.count,
        )  # fmt: skip

    def _failure(
        self, config: KernelConfig | None, columns: dict[str, Any], word: str, error: Exception
    ) -> Row:
        reason = f"{type(error).__name__}: {error}".strip()
        return self._row(config, columns | {"invalidity": word, "reason": reason})

    def _row(self, config: KernelConfig | None, columns: dict[str, Any], **more: Any) -> Row:
        self._sequence += 1
        sequence = int(self.facts.get("sequence", 0)) + self._sequence - 1
        facts = self.facts | {"sequence": sequence, "protocol": self.stopwatch.protocol.name}
        return make_row(self.problem, config, **(facts | columns | more))


def _is_compile_error(error: Exception) -> bool:
    """Whether Triton refused to compile or the driver to load (too much shared memory, say)."""
    names = {"CompilationError", "OutOfResources", "PTXASError", "CompileTimeAssertionFailure"}
    return type(error).__name__ in names or "PassManager::run failed" in str(error)


def new_run_id() -> str:
    """An id for a collecting run: sortable by time, unlike any other's."""
    import secrets

    return time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + secrets.token_hex(3)
