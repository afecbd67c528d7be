"""The vendor's times beside those of our first choice: writes ``vendor_<device>.npz``.

``matmul`` hands a product to the vendor where its library was measured faster than what we would
run there, which is the first choice and not the best that a search finds. Its times are those of
the comparison with the vendor (data/results/vendor_h200.csv), and of the held-out shapes in the
shipped runs, which were measured exhaustively. One row a shape and element size, the geometric
mean over its types and layouts. ``python data/models/vendor_table.py`` from the repository's root,
after each training.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from costmodel.dtypes import DTYPES
from costmodel.learning.split import heldout_shapes
from costmodel.predict import rank
from costmodel.profile import load_profile
from costmodel.records.groups import groups_of
from costmodel.records.store import packaged_runs

HERE = Path(__file__).parent
COMPARED = HERE.parent / "results" / "vendor_h200.csv"
CHIP = "h200-sxm"
SHAPE = ["m", "n", "k"]
TIMES = ["vendor_us", "ours_us"]


def main() -> None:
    """Write the table of the H200."""
    rows = pd.concat([compared(), heldout()], ignore_index=True)
    rows["element_bytes"] = [DTYPES[name].size_bytes for name in rows["dtype"]]
    rows[TIMES] = np.log(rows[TIMES].astype(float))
    means = rows.groupby([*SHAPE, "element_bytes"])[TIMES].mean().reset_index()
    columns = {name: means[name].to_numpy(np.int32) for name in [*SHAPE, "element_bytes"]}
    columns |= {name: np.exp(means[name]).to_numpy(np.float32) for name in TIMES}
    np.savez_compressed(HERE / f"vendor_{CHIP}.npz", **columns)


def compared() -> pd.DataFrame:
    """Both times of the comparison's shapes."""
    frame = pd.read_csv(COMPARED).drop(columns="ours_us")
    return frame.rename(columns={"predicted_us": "ours_us"})[[*SHAPE, "dtype", *TIMES]]


def heldout() -> pd.DataFrame:
    """Both times of the held-out shapes: the model chooses among what was measured."""
    chip, held = load_profile(CHIP), heldout_shapes()
    found = []
    for group in groups_of(packaged_runs(), CHIP):
        if group.shape in held and np.isfinite(group.vendor_us):
            ranking, _ = rank(group.problem, group.table, chip)
            ours_us = group.time_us[ranking.order[0]]
            found.append((*group.shape, group.problem.dtype, group.vendor_us, ours_us))
    return pd.DataFrame(found, columns=[*SHAPE, "dtype", *TIMES])


if __name__ == "__main__":
    main()
