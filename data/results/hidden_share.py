"""What physics alone reaches on training rows by the share of work that does not hide.

``python data/results/hidden_share.py`` writes hidden_share_h200-sxm.json: for values of
``_UNHIDDEN`` (costmodel/physics/estimate.py) the shares of the best of the first choice, over every
second training shape of the shipped runs; and what a megabyte of a split K's parts costs, by least
squares of relative errors over the rows of "warp_specialized" whose programs run in one round.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from costmodel.learning.shares import shares_of, summary
from costmodel.learning.split import training_groups
from costmodel.physics import estimate
from costmodel.profile import load_profile
from costmodel.records.groups import Group
from costmodel.records.store import packaged_runs

HERE = Path(__file__).parent
CHIP = load_profile("h200-sxm")
VALUES = (0.0, 0.1, 0.15, 0.2, 0.3)


def first_choices(groups: list[Group], unhidden: float) -> dict[str, float]:
    """Shares of the best that the estimate's first choice reaches."""
    before, estimate._UNHIDDEN = estimate._UNHIDDEN, unhidden
    try:
        times = [estimate.estimate_columns(g.problem, g.table, CHIP).time_us for g in groups]
    finally:
        estimate._UNHIDDEN = before
    orders = [np.argsort(time_us, kind="stable") for time_us in times]
    return summary(np.array([shares_of(g, o)[0] for g, o in zip(groups, orders, strict=True)]))


def part_cost_us(groups: list[Group]) -> float:
    """Microseconds a megabyte of parts, beside a constant, the steps and DRAM's traffic."""
    terms, times = [], []
    for group in groups:
        found = estimate.estimate_columns(group.problem, group.table, CHIP)
        kept = group.table.is_template("warp_specialized") & (group.table.split_k > 1)
        kept &= found.waves.rounds == 1
        columns = (np.ones(len(kept)), found.waves.steps * found.step_us, found.memory_us,
                   found.traffic.part_bytes / 1e6)  # fmt: skip
        terms.append(np.stack(columns, axis=1)[kept])
        times.append(group.time_us[kept])
    rows, time_us = np.concatenate(terms), np.concatenate(times)
    weights = np.linalg.lstsq(rows / time_us[:, None], np.ones(len(rows)), rcond=None)[0]
    return round(float(weights[-1]), 3)


def main() -> None:
    """Write both."""
    groups = training_groups(packaged_runs(), CHIP.name)[::2]
    found = {
        "problems": len(groups),
        "first_choice_by_unhidden": {str(v): first_choices(groups, v) for v in VALUES},
        "us_per_megabyte_of_parts": part_cost_us(groups),
    }
    text = json.dumps(found, indent=1) + "\n"
    (HERE / "hidden_share_h200-sxm.json").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
