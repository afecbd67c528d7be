"""Predicted registers and spills beside the compiler's own, as figures and as Markdown.

``verify`` writes the table to ``docs/registers-table.md``. "All rows" are those the shipped
coefficients were fitted on; "held out" are two of five rows, predicted by a fit on the rest;
"candidates" are drawn from those of real shapes, near a limit or not, and were never fitted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.compiler.fit_registers import Sample, fit
from costmodel.config import KernelConfig
from costmodel.problem import Gemm
from costmodel.resources.registers import coefficients, predicted

VENDORS = {"NVIDIA": "sm_", "AMD": "gfx"}


@dataclass(frozen=True)
class Figures:
    """How well spills are told, and how far registers are off where nothing spills."""

    compiled: int
    spilling: int
    flagged: int
    rightly: int
    register_error: float

    @property
    def recall(self) -> float:
        """Share of the spilling rows that are flagged."""
        return self.rightly / self.spilling if self.spilling else 1.0

    @property
    def precision(self) -> float:
        """Share of the flagged rows that spill."""
        return self.rightly / self.flagged if self.flagged else 1.0

    def __str__(self) -> str:
        return (
            f"{self.compiled} | {self.spilling} | {self.flagged} | {self.rightly} | "
            f"{self.recall:.3f} | {self.precision:.3f} | {self.register_error:.0f}"
        )


def figures(rows: Sample, of: dict[str, Any]) -> Figures:
    """Figures of some compiled rows under given coefficients."""
    needed, taken = predicted(rows.terms, rows.unit, of)
    flagged = needed > rows.limit
    whole = rows.spill == 0
    error = np.abs(np.minimum(taken, rows.limit) - rows.registers)[whole]
    return Figures(
        len(rows), int(rows.spilling.sum()), int(flagged.sum()),
        int((flagged & rows.spilling).sum()), float(np.median(error)) if len(error) else 0.0,
    )  # fmt: skip


def held_out_figures(rows: Sample) -> dict[str, Figures]:
    """Figures a vendor of the rows held out, by a fit on the others."""
    held = rows.held_out
    of = fit(rows[~held])
    return {name: figures(rows[held & _of(rows, mark)], of) for name, mark in VENDORS.items()}


def table(rows: Sample, plain: Sample, errors: list[str], version: str) -> str:
    """The comparison as Markdown: a row a vendor and a target, then every wrong verdict."""
    head = "compiled | spilling | flagged | rightly | recall | precision | registers off, median"
    of = coefficients()
    lines = [
        f"# Registers and spills against Triton {version}", "",
        "Written by `make verify-compiler`. Spilling: over 64 bytes of spill stores a thread "
        "(NVIDIA, `ptxas -v`), over 16 VGPRs (AMD). The rows are drawn to lie near the limits; "
        "those called candidates are what four real shapes have, and were not fitted. "
        "Registers: the median absolute error where nothing spills.", "",
        f"| rows | {head} |", "|---" * 8 + "|",
    ]  # fmt: skip
    held = held_out_figures(rows)
    for name, mark in VENDORS.items():
        lines.append(f"| {name}, all rows | {figures(rows[_of(rows, mark)], of)} |")
        lines.append(f"| {name}, held out | {held[name]} |")
        lines.append(f"| {name}, candidates | {figures(plain[_of(plain, mark)], of)} |")
    for target in dict.fromkeys(rows.targets.tolist()):
        lines.append(f"| {target} | {figures(rows[rows.targets == target], of)} |")
    lines += ["", f"Not compiled: {len(errors)}."]
    lines += [f"- {errors.count(error)} times: {error}" for error in sorted(set(errors))]
    return "\n".join(lines + ["", *_wrong(rows, of)]) + "\n"


def _wrong(rows: Sample, of: dict[str, Any]) -> list[str]:
    needed, _ = predicted(rows.terms, rows.unit, of)
    wrong = np.flatnonzero((needed > rows.limit) != rows.spilling)
    lines = [
        "## Every wrong verdict", "",
        "| target | problem | configuration | needed, of | registers | spill |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in wrong:
        target, problem, knobs = json.loads(str(rows.keys[row]))
        beta = " beta" if problem["beta"] else ""
        precision = f" {problem['precision']}" if problem["precision"] else ""
        lines.append(
            f"| {target} | {Gemm(**problem)}{precision}{beta} | {KernelConfig(**knobs)} | "
            f"{needed[row]:.0f} of {rows.limit[row]:.0f} | {rows.registers[row]:.0f} | "
            f"{rows.spill[row]:.0f} |"
        )
    return lines


def _of(rows: Sample, mark: str) -> NDArray[np.bool_]:
    return np.asarray(np.char.startswith(rows.targets, mark), dtype=bool)
