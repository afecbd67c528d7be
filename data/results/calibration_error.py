"""Predicted-time error before and after ``costmodel profiles calibrate``, on a GPU and its slices.

``python data/results/calibration_error.py`` writes calibration_error_h200-sxm.json: over the rows
of data/runs/h200-sxm-slices-000.parquet, the median of |log(measured / physics estimate)| with the
shipped profile (a slice's is derived from the chip's) and with the figures that were measured on
it, and the share of rows whose estimate came nearer. Beside it stand both readings of each figure
(calibration_<profile>.json, as ``costmodel profiles calibrate --json`` prints them).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.physics.estimate import estimate_columns
from costmodel.profile import HardwareProfile, load_profile, write_overlay
from costmodel.records.groups import Group, groups_of
from costmodel.records.store import read_runs

HERE = Path(__file__).parent
ROWS = HERE.parent / "runs" / "h200-sxm-slices-000.parquet"


def calibrated(told: dict[str, Any]) -> HardwareProfile:
    """The profile with measured figures in place of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measured.toml"
        write_overlay(path, told["base"], told["figures"], told["provenance"])
        return load_profile(path)


def off(groups: list[Group], chip: HardwareProfile) -> NDArray[np.float64]:
    """|log(measured / estimate)| of every row."""
    return np.concatenate([
        np.abs(np.log(g.time_us / estimate_columns(g.problem, g.table, chip).time_us))
        for g in groups
    ])  # fmt: skip


def main() -> None:
    """Write the errors of each slice."""
    groups = groups_of(read_runs([ROWS]))
    found: dict[str, Any] = {}
    for name in sorted({g.device for g in groups}, key=lambda n: -load_profile(n).units):
        told = json.loads((HERE / f"calibration_{name}.json").read_text(encoding="utf-8"))
        own = [g for g in groups if g.device == name]
        before = off(own, load_profile(name))
        after = off(own, calibrated(told))
        found[name] = {
            "rows": len(before),
            "median_error_before": round(float(np.median(before)), 4),
            "median_error_after": round(float(np.median(after)), 4),
            "rows_nearer": round(float(np.mean(after < before)), 3),
            "seconds": told["seconds"],
            "ours_over_torch": {
                r["figure"]: round(r["agreement"], 3) for r in told["readings"] if r["agreement"]
            },
        }
    text = json.dumps(found, indent=1) + "\n"
    (HERE / "calibration_error_h200-sxm.json").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
