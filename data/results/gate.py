"""What the gate before a new model does with a good and with poisoned logs, on all shipped rows.

``python data/results/gate.py`` fits three models (minutes each) and writes gate_h200-sxm.json. The
logs are cut from the shipped training rows of 200 shapes: as they were measured; with the times of
each shape shuffled, which contradicts what is known; and shuffled under the name of an unknown
kernel, which contradicts nothing.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from costmodel.learning.gate import RefusedModelError
from costmodel.learning.split import heldout_shapes
from costmodel.learning.train import train
from costmodel.records.store import packaged_runs, write_shards

HERE = Path(__file__).parent
SHAPES, SEED = 200, 5
SIZES = ["m", "n", "k", "dtype", "layout"]


def cut(runs: pd.DataFrame) -> pd.DataFrame:
    """Our correct rows of some training shapes."""
    good = runs[(runs["invalidity"] == "correct") & (runs["backend"] == "triton")]
    held = heldout_shapes()
    shapes = [key for key in good[SIZES].drop_duplicates().itertuples(index=False, name=None)
              if key[:3] not in held]  # fmt: skip
    drawn = np.random.default_rng(SEED).choice(len(shapes), SHAPES, replace=False)
    kept = pd.DataFrame([shapes[i] for i in drawn], columns=SIZES)
    return good.merge(kept, on=SIZES)


def shuffled(rows: pd.DataFrame) -> pd.DataFrame:
    """The times of each shape in another order."""
    draw = np.random.default_rng(SEED)
    times = rows.groupby(SIZES)["time_us"].transform(lambda t: draw.permutation(t.to_numpy()))
    return rows.assign(time_us=times, p10_us=times, p90_us=times)


def verdict_on(rows: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """What the gate says of a log of these rows."""
    log = write_shards(rows, folder, "log")
    try:
        report = train(log, out=folder / "model.npz")
    except RefusedModelError as error:
        return {"installed": False} | error.verdict.as_dict()
    return {"installed": True} | report.verdict.as_dict()


def main() -> None:
    """Try each log."""
    rows = cut(packaged_runs())
    logs = {
        "good": rows,
        "shuffled": shuffled(rows),
        "shuffled, unknown kernel": shuffled(rows).assign(kernel_hash="0" * 12),
    }
    found: dict[str, Any] = {"shapes": SHAPES, "rows": len(rows)}
    for name, log in logs.items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = verdict_on(log, Path(folder))
        print(name, json.dumps(found[name]), flush=True)
        (HERE / "gate_h200-sxm.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
