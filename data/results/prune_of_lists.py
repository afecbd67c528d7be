"""What our ranking finds in other people's lists: ``python data/results/prune_of_lists.py``.

Lists of 28 configurations of plain pointer kernels, drawn with a seed from the shipped H200 runs of
each held-out shape. Prints, for the best of the first 1, 3 and 6 predicted, the list's own best
time over theirs: geometric mean and worst over the shapes.
"""

from __future__ import annotations

import json

import numpy as np

from costmodel.price import price
from costmodel.profile import load_profile
from costmodel.records import packaged_runs
from costmodel.records.groups import groups_of
from costmodel.shapes import read_shapes

LENGTH, CHIP, FIRST = 28, "h200-sxm", (1, 3, 6)


def main() -> None:
    """Draw, rank, compare with what was measured."""
    kept = {shape.problem for shape in read_shapes("heldout")}
    sizes = {(p.m, p.n, p.k) for p in kept}
    frame = packaged_runs()
    frame = frame[[size in sizes for size in zip(frame["m"], frame["n"], frame["k"], strict=True)]]
    rng = np.random.default_rng(0)
    shares: dict[int, list[float]] = {first: [] for first in FIRST}
    for group in groups_of(frame, CHIP):
        plain = np.flatnonzero(group.table.is_template("tile"))
        if group.problem not in kept or len(plain) < LENGTH:
            continue
        rows = rng.choice(plain, LENGTH, replace=False)
        times = price(group.problem, group.table[rows], load_profile(CHIP)).time_us
        order = np.argsort([times.get(c, np.inf) for c in group.table[rows]], kind="stable")
        measured = group.time_us[rows]
        for first in FIRST:
            shares[first].append(float(measured.min() / measured[order[:first]].min()))
    found = {
        str(first): {
            "geomean": round(float(np.exp(np.log(values).mean())), 4),
            "min": round(min(values), 4),
        }
        for first, values in shares.items()
    }
    print(json.dumps({"lists": len(shares[1]), "length": LENGTH, "first": found}, indent=1))


if __name__ == "__main__":
    main()
