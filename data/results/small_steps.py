"""Least time of a K step by template, instruction and depth, read off the shipped runs.

``python data/results/small_steps.py`` prints it: deep pipelines (8 stages and more), one round of
programs, DRAM far from busy, tiles of at most 64 columns. What is left is what a step takes
however little it loads and multiplies; ``physics/estimate.py`` has it as constants.
"""

from __future__ import annotations

import pandas as pd

import costmodel as cm
from costmodel.config import TEMPLATES
from costmodel.physics.estimate import estimate_columns
from costmodel.records.groups import groups_of
from costmodel.records.store import packaged_runs
from costmodel.resources.matrix_unit import MatrixUnit, kernel_blocks

#: launch floor and first load on an H200, in us
START_US = 3.4


def main() -> None:
    """Print the tenth percentile and the median of the time a step."""
    profile = cm.load_profile("h200-sxm")
    parts = []
    for group in groups_of(packaged_runs(), profile.name):
        table, found = group.table, estimate_columns(group.problem, group.table, profile)
        rows, columns = kernel_blocks(table)
        part = pd.DataFrame(
            {
                "template": [TEMPLATES[code] for code in table.template],
                "unit": [MatrixUnit(int(code)).name for code in found.unit],
                "block_k": table.block_k,
                "us": (group.time_us - START_US) / found.waves.steps,
            }
        )
        dram_us = found.traffic.dram_bytes / (profile.copy_bandwidth_gb_s * 1e3)
        small = (rows <= 64) & (columns <= 64) & (table.num_stages >= 8) & (table.split_k == 1)
        small &= (found.waves.programs <= profile.units) & (found.waves.steps >= 12)
        parts.append(part[small & (dram_us < 0.5 * group.time_us)])
    steps = pd.concat(parts).groupby(["template", "unit", "block_k"])["us"]
    print(steps.describe(percentiles=[0.1, 0.5])[["count", "10%", "50%"]].round(3).to_string())


if __name__ == "__main__":
    main()
