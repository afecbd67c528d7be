"""The vendor's times beside our fastest, from the shipped runs: writes ``vendor_<device>.npz``.

Of each problem: the median of the vendor's correct rows and the shortest of ours. One row a shape
and element size, the geometric mean over its types and layouts. ``python
data/models/vendor_table.py`` from the repository's root.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from costmodel.dtypes import DTYPES
from costmodel.records.store import packaged_runs

HERE = Path(__file__).parent
SHAPE = ["m", "n", "k"]
PROBLEM = ["device", *SHAPE, "dtype", "layout", "precision"]
PLAIN = {"batch": 1, "alpha": 1.0, "beta": 0.0, "invalidity": "correct"}


def main() -> None:
    """Write one file a device."""
    runs = packaged_runs([*PROBLEM, *PLAIN, "backend", "time_us"])
    for column, value in PLAIN.items():
        runs = runs[runs[column] == value]
    groups = runs.groupby([*PROBLEM, "backend"], dropna=False)["time_us"]
    vendor = groups.median().unstack("backend")["origin"]
    ours = groups.min().unstack("backend")["triton"]
    both = vendor.to_frame("vendor_us").assign(ours_us=ours).dropna().reset_index()
    both["element_bytes"] = [DTYPES[name].size_bytes for name in both["dtype"]]
    times = ["vendor_us", "ours_us"]
    both[times] = np.log(both[times].astype(float))
    for device, rows in both.groupby("device"):
        means = rows.groupby([*SHAPE, "element_bytes"])[times].mean().reset_index()
        columns = {name: means[name].to_numpy(np.int32) for name in [*SHAPE, "element_bytes"]}
        columns |= {name: np.exp(means[name]).to_numpy(np.float32) for name in times}
        np.savez_compressed(HERE / f"vendor_{device}.npz", **columns)


if __name__ == "__main__":
    main()
