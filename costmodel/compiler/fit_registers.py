"""Fit the register formula to compiled truth: ``python -m costmodel.compiler.fit_registers``.

Two formulas share their terms (``register_terms``) and have coefficients a matrix unit each:

- *needed*: what a thread must hold at once; past its limit, the excess spills. A row that spilled
  says "more than the limit", one that did not says "no more than it took".
- *taken*: what the compiler takes where there is room, which is more, since it loads ahead. A row
  at its limit says "that or more".

So every row gives bounds, and the fit is the least sum of what breaks them: a linear programme,
with coefficients that are never negative since they count registers. "At most" binds the loop and
the store alike; "at least" binds the larger of them, so the programme is solved again with the
phase that the last solution names, until it names the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.compiler.survey import REGISTER_TARGETS, read_results
from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.resources.matrix_unit import MatrixUnit, matrix_unit
from costmodel.resources.register_terms import PHASES, register_limit, register_terms

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: what counts as spilling: a register or two that is saved once costs nothing
LEAST_SPILL = {"cuda": 64, "hip": 16}  # bytes of spill stores a thread; VGPRs
#: of 5 parts by the key's hash, those from this on are held out
_PARTS, _FIRST_HELD_OUT = 5, 3
#: registers by which a row should lie on its side of the limit: the granule of allocation
_MARGIN = 8.0
#: a row far below its limit says little about the limit
_FAR_WEIGHT = 0.1
#: a spill that goes unseen is worse than one that is feared: it costs several times the time
_SPILLING_WEIGHT = 2.0
#: registers added to what is needed, for the same reason: most of ptxas's spills that a fit
#: without them misses lack less than the margin; LLVM's are missed elsewhere
_CAUTION = {"cuda": 6.0, "hip": 0.0}
#: of two equally good fits, the one with less
_SHRINK = 1e-3
_MOST_TURNS = 10


@dataclass(frozen=True)
class Sample:
    """Compiled rows as columns: their terms by name, and the compiler's figures, one a row."""

    keys: NDArray[np.str_]
    targets: NDArray[np.str_]
    terms: dict[str, Array]
    unit: NDArray[np.int64]
    limit: Array
    registers: Array
    spill: Array
    spilling: Mask

    def __getitem__(self, rows: Mask) -> Sample:
        terms = {name: column[rows] for name, column in self.terms.items()}
        return Sample(
            self.keys[rows], self.targets[rows], terms, self.unit[rows], self.limit[rows],
            self.registers[rows], self.spill[rows], self.spilling[rows],
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def held_out(self) -> Mask:
        """Two of five rows, by the hash of their keys."""
        parts = [int(hashlib.sha256(str(key).encode()).hexdigest(), 16) for key in self.keys]
        return np.asarray([part % _PARTS >= _FIRST_HELD_OUT for part in parts])


def sample(entries: Iterable[dict[str, Any]]) -> Sample:
    """Columns of the entries that compiled to machine code."""
    rows = [entry for entry in entries if entry.get("registers")]
    terms: dict[str, list[float]] = {}
    found: list[tuple[str, int, float, bool]] = []
    for entry in rows:
        target, problem_fields, knobs = json.loads(entry["key"])
        problem, table = Gemm(**problem_fields), ConfigTable.of(KernelConfig(**knobs))
        profile = load_profile(REGISTER_TARGETS[target])
        for name, column in register_terms(problem, table, profile).items():
            terms.setdefault(name, []).append(float(column[0]))
        unit, limit = matrix_unit(problem, table, profile)[0], register_limit(table, profile)[0]
        spilling = entry["spill"] > LEAST_SPILL[profile.backend]
        found.append((target, int(unit), float(limit), spilling))
    targets, units, limits, spilled = zip(*found, strict=True)
    return Sample(
        np.array([entry["key"] for entry in rows]), np.array(targets),
        {name: np.array(column) for name, column in terms.items()}, np.array(units),
        np.array(limits), np.array([entry["registers"] for entry in rows], dtype=float),
        np.array([entry["spill"] for entry in rows], dtype=float), np.array(spilled),
    )  # fmt: skip


def fit(rows: Sample) -> dict[str, Any]:
    """Coefficients by matrix unit, formula, phase and term; those of 0 are left out."""
    kinds = [kind for kind in MatrixUnit if np.any(rows.unit == kind)]
    return {
        kind.name: {"needed": _needed(rows[rows.unit == kind]),
                    "taken": _taken(rows[rows.unit == kind])}
        for kind in kinds
    }  # fmt: skip


def _needed(rows: Sample) -> dict[str, dict[str, float]]:
    near = rows.limit - _MARGIN
    spilled = rows.spill > 0
    # a spill too small to count lies at the limit
    most = np.where(spilled, rows.limit, np.minimum(rows.registers, near))
    most = np.where(rows.spilling, np.inf, most)
    least = np.where(rows.spilling, rows.limit + _MARGIN, -np.inf)
    weight = np.where(~spilled & (rows.registers < near), _FAR_WEIGHT, 1.0)
    found = _bounded(rows, least, most, np.where(rows.spilling, _SPILLING_WEIGHT, weight))
    caution = _CAUTION["hip" if rows.unit[0] == MatrixUnit.MFMA else "cuda"]
    for phase in found.values():
        phase["fixed"] = round(phase.get("fixed", 0.0) + caution, 3)
    return found


def _taken(rows: Sample) -> dict[str, dict[str, float]]:
    # ptxas gives up on a function that spills very much and then takes few registers
    full = (rows.spill > 0) | (rows.registers >= rows.limit - 2)
    least = np.where(full, rows.limit, rows.registers)
    most = np.where(full, np.inf, rows.registers)
    return _bounded(rows, least, most, np.ones(len(rows)))


def _bounded(rows: Sample, least: Array, most: Array, weight: Array) -> dict[str, dict[str, float]]:
    """Coefficients for which the larger phase lies between ``least`` and ``most``, near enough."""
    # a term that none of these rows has would only lead the solver to another corner
    terms = {phase: [t for t in names if rows.terms[t].any()] for phase, names in PHASES.items()}
    phases = [np.stack([rows.terms[t] for t in names], axis=1) for names in terms.values()]
    lowest = _lowest(MatrixUnit(rows.unit[0]), terms)
    store_extras = rows.terms["split_sums"] + rows.terms["old_c"] > 0
    best, best_cost = [np.zeros(p.shape[1]) for p in phases], np.inf
    for start in (store_extras.astype(int), np.zeros(len(rows), dtype=int)):
        binding = start
        for _ in range(_MOST_TURNS):
            solved, cost = _programme(phases, binding, least, most, weight, lowest)
            if cost < best_cost:
                best, best_cost = solved, cost
            before = binding
            binding = np.argmax([p @ x for p, x in zip(phases, solved, strict=True)], axis=0)
            if np.array_equal(binding, before):
                break
    return {
        phase: {t: round(float(x), 3) for t, x in zip(names, values, strict=True) if x > 5e-4}
        for (phase, names), values in zip(terms.items(), best, strict=True)
    }


def _lowest(kind: MatrixUnit, terms: dict[str, list[str]]) -> Array:
    """Least coefficients of all phases: a sum takes a register; tcgen05's come in pieces."""
    whole = () if kind == MatrixUnit.TCGEN05 else ("sums", "held_sums")
    return np.array([float(term in whole) for names in terms.values() for term in names])


def _programme(
    phases: list[Array], binding: NDArray[np.intp], least: Array, most: Array, weight: Array,
    lowest: Array,
) -> tuple[list[Array], float]:  # fmt: skip
    """The x of every phase with the least weighted break of the bounds, and its cost.

    Unknowns: the coefficients of all phases, then the break of "at most" and of "at least", rows
    each. Only the ``binding`` phase of a row must reach ``least``.
    """
    from scipy.optimize import linprog
    from scipy.sparse import block_diag, coo_array, hstack, vstack

    count = len(weight)
    rows = np.arange(count)
    sides, bounds, breaks = [], [], []
    wide = block_diag(phases, format="csr")
    for number in range(len(phases)):
        part = wide[number * count : (number + 1) * count]
        capped, reached = np.isfinite(most), np.isfinite(least) & (binding == number)
        sides += [part[capped], -part[reached]]
        bounds += [most[capped], -least[reached]]
        breaks += [rows[capped], rows[reached] + count]
    bound, slack = np.concatenate(bounds), np.concatenate(breaks)
    slacks = coo_array(
        (-np.ones(len(bound)), (np.arange(len(bound)), slack)), (len(bound), 2 * count)
    )
    size = np.concatenate([phase.mean(axis=0) for phase in phases])
    cost = np.concatenate([_SHRINK * size + 1e-9, weight, weight])
    floor = np.concatenate([lowest, np.zeros(2 * count)])
    solved = linprog(
        cost, A_ub=hstack([vstack(sides), slacks]), b_ub=bound, method="highs",
        bounds=np.stack([floor, np.full(len(floor), np.inf)], axis=1),
    )  # fmt: skip
    widths = np.cumsum([phase.shape[1] for phase in phases])
    return np.split(solved.x[: widths[-1]], widths[:-1]), float(solved.fun)


def main() -> None:
    """Fit on every row and write the coefficients."""
    parser = argparse.ArgumentParser(description=__doc__)
    folder = Path("data/compiler")
    parser.add_argument("--rows", type=Path, default=folder / "registers_triton-3.6.0.jsonl")
    parser.add_argument("--out", type=Path, default=folder / "register_coefficients.json")
    options = parser.parse_args()
    rows = sample(read_results(options.rows))
    about = f"python -m costmodel.compiler.fit_registers on {len(rows)} rows of {options.rows.name}"
    text = json.dumps({"source": about, "coefficients": fit(rows)}, indent=1)
    options.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
