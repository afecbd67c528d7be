"""Predicted beside actual: ``python -m costmodel.compiler.verify`` surveys the compiler.

Compiles random configurations for every target that Triton has (what the results file holds
already is not compiled again), compares ``footprint`` with the compiler's own figure, and writes
a table with every miss over 32 KiB to ``docs/compiler-table.md``. A smaller number is compiled to
machine code, for registers and spills: ``docs/registers-table.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.compiler import register_report
from costmodel.compiler.fit_registers import sample
from costmodel.compiler.register_survey import all_register_draws, candidate_draws
from costmodel.compiler.survey import (
    REGISTER_TARGETS,
    TARGETS,
    draws,
    own_draws,
    read_results,
    survey,
)
from costmodel.config import KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.resources.footprint import footprint

#: totals up to this may be the scratch of an epilogue, which no limit is near
SMALL_BYTES = 32 * 1024


@dataclass(frozen=True)
class Comparison:
    """One compiled configuration: what was predicted and what the compiler took, in bytes."""

    target: str
    problem: Gemm
    config: KernelConfig
    predicted: int
    actual: int
    limit: int

    @property
    def counts(self) -> bool:
        """Whether the total is over ``SMALL_BYTES`` on either side."""
        return max(self.predicted, self.actual) > SMALL_BYTES

    @property
    def verdict_is_right(self) -> bool:
        """Whether "fits" or "does not fit" was said rightly."""
        return (self.predicted <= self.limit) == (self.actual <= self.limit)


def compare(entries: Iterable[dict[str, Any]], version: str | None = None) -> list[Comparison]:
    """Comparisons for the entries of a results file that compiled, under its Triton's rules."""
    found = []
    for entry in entries:
        if "shared" not in entry:
            continue
        target, problem_fields, knobs = json.loads(entry["key"])
        problem, config = Gemm(**problem_fields), KernelConfig(**knobs)
        profile = load_profile(TARGETS[target])
        found.append(
            Comparison(
                target, problem, config,
                footprint(problem, config, profile, version).shared_bytes, entry["shared"],
                profile.shared_per_block_bytes,
            )
        )  # fmt: skip
    return found


def table(comparisons: list[Comparison], version: str) -> str:
    """The comparison as Markdown: a row a target, then every miss that counts."""
    lines = [
        f"# `footprint` against Triton {version}",
        "",
        "Written by `make verify-compiler`; over 32 KiB means predicted or actual.",
        "",
        "| target | compiled | over 32 KiB | exact of those | verdict right, of all |",
        "|---|---|---|---|---|",
    ]
    for target in TARGETS:
        rows = [c for c in comparisons if c.target == target]
        large = [c for c in rows if c.counts]
        if not large:
            continue
        exact = sum(c.predicted == c.actual for c in large)
        right = sum(c.verdict_is_right for c in rows)
        lines.append(
            f"| {target} | {len(rows)} | {len(large)} | {exact} ({exact / len(large):.1%}) | "
            f"{right} ({right / len(rows):.1%}) |"
        )
    lines += ["", "## Every miss over 32 KiB", ""]
    lines += ["| target | problem | configuration | predicted | actual | verdict |"]
    lines += ["|---|---|---|---|---|---|"]
    for c in comparisons:
        if c.counts and c.predicted != c.actual:
            precision = f" {c.problem.precision}" if c.problem.precision else ""
            beta = " beta" if c.problem.beta else ""
            verdict = "right" if c.verdict_is_right else "**wrong**"
            lines.append(
                f"| {c.target} | {c.problem}{precision}{beta} | {c.config} | {c.predicted} | "
                f"{c.actual} | {verdict} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Survey, compare, write."""
    import triton

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="configurations a target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--targets", nargs="*", default=list(REGISTER_TARGETS), choices=list(REGISTER_TARGETS)
    )
    parser.add_argument("--folder", type=Path, default=Path("data/compiler"))
    parser.add_argument("--table", type=Path, default=Path("docs/compiler-table.md"))
    parser.add_argument("--registers", type=Path, default=Path("docs/registers-table.md"))
    parser.add_argument("--shared-only", action="store_true", help="leave out registers and spills")
    options = parser.parse_args()
    results = options.folder / f"survey_triton-{triton.__version__}.jsonl"
    for part in (draws, own_draws):
        shared = [target for target in options.targets if target in TARGETS]
        wanted = [d for t in shared for d in part(t, options.count, options.seed)]
        _report(survey(wanted, results))
    text = table(compare(read_results(results), triton.__version__), triton.__version__)
    options.table.write_text(text, encoding="utf-8")
    print(text.split("## Every miss")[0])
    if options.shared_only:
        return
    results = options.folder / f"registers_triton-{triton.__version__}.jsonl"
    plain = options.folder / f"candidate_registers_triton-{triton.__version__}.jsonl"
    for kind, path in ((all_register_draws, results), (candidate_draws, plain)):
        wanted = [d for t in options.targets for d in kind(t)]
        _report(survey(wanted, path, full=True))
    text = registers_table(results, plain, triton.__version__)
    options.registers.write_text(text, encoding="utf-8")
    print(text.split("## Every wrong")[0])


def registers_table(results: Path, plain: Path, version: str) -> str:
    """The part on registers and spills, from files of full compiles: enriched, and candidates."""
    entries = read_results(results)
    errors = [entry["error"] for entry in entries if "error" in entry]
    return register_report.table(sample(entries), sample(read_results(plain)), errors, version)


def _report(entries: Iterable[dict[str, Any]]) -> None:
    for number, entry in enumerate(entries, start=1):
        if number % 100 == 0 or "error" in entry:
            print(number, entry.get("error", ""), flush=True)


if __name__ == "__main__":
    main()
