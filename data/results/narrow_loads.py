"""Bytes a clock and unit that pointers load, by the width of their words.

``python data/results/narrow_loads.py`` writes narrow_loads_h200-sxm.json: of the training rows of
"tile" and "split_k" that give each unit two programs and more and take 15 us and more, the
quantiles of all operands' bytes over clocks and units, by the narrower operand's word; and, of
operands with words below 16 bytes, of theirs alone. They bound ``_WORDS_PER_CLOCK``
(costmodel/physics/traffic.py) from below: a run has a start and an end besides.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from costmodel.learning.split import training_groups
from costmodel.physics.estimate import estimate_columns
from costmodel.profile import load_profile
from costmodel.records.groups import Group
from costmodel.records.store import packaged_runs
from costmodel.resources.footprint import load_bytes

HERE = Path(__file__).parent
CHIP = load_profile("h200-sxm")
LEAST_US, LEAST_PROGRAMS = 15.0, 2.0
#: of a launch, before the first and behind the last load
BESIDE_US = 4.0
QUANTILES = (0.5, 0.9, 0.99)

Column = NDArray[np.float64]


def rates(group: Group) -> tuple[Column, Column, Column]:
    """Narrower word in bytes, and bytes a clock and unit: of both operands, of narrow ones."""
    table, problem = group.table, group.problem
    found = estimate_columns(problem, table, CHIP)
    kept = table.is_template("tile") | table.is_template("split_k")
    a_unit = found.waves.programs / CHIP.units
    kept &= (a_unit >= LEAST_PROGRAMS) & (group.time_us >= LEAST_US)
    clocks = np.maximum(group.time_us - BESIDE_US, 1.0) * (
        CHIP.peak_clock_mhz or CHIP.boost_clock_mhz or 0
    )
    widths = [np.broadcast_to(load_bytes(problem, table, o), len(table)) for o in "ab"]
    rows = np.minimum(table.block_m, problem.m), np.minimum(table.block_n, problem.n)
    moved = [
        a_unit * found.waves.steps * count * table.block_k * problem.element_bytes / clocks
        for count in rows
    ]
    narrow = sum(np.where(w < 16, m, 0.0) for w, m in zip(widths, moved, strict=True))
    return np.minimum(*widths)[kept], (moved[0] + moved[1])[kept], np.asarray(narrow)[kept]


def main() -> None:
    """Write the quantiles."""
    by_word = defaultdict(list)
    for group in training_groups(packaged_runs(), CHIP.name):
        for word, every, narrow in zip(*rates(group), strict=True):
            by_word[int(word)].append((every, narrow))
    found = {}
    for word, some in sorted(by_word.items()):
        every, narrow = np.array(some).T
        found[f"{word} bytes"] = {
            "rows": len(some),
            "all": {str(q): round(float(np.quantile(every, q)), 1) for q in QUANTILES},
            "narrow": {str(q): round(float(np.quantile(narrow, q)), 1) for q in QUANTILES},
        }
    text = json.dumps(found, indent=1) + "\n"
    (HERE / "narrow_loads_h200-sxm.json").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
