"""What the timing protocol costs and cures; run on a GPU, writes ``protocol_<device>.csv``.

Times the same kernels with L2 flushed by reading (the protocol), by writing, and not at all, and
an empty kernel. ``python data/results/protocol.py [OUTPUT_FOLDER]``
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import costmodel as cm
from costmodel.measure.bench import ProblemBench, new_run_id
from costmodel.measure.environment import environment
from costmodel.measure.timing import Stopwatch

SHAPES = ((1, 4096, 4096), (16, 4096, 4096), (512, 4096, 4096), (4096, 4096, 4096))


def main() -> None:
    """Measure and write the rows."""
    import torch

    stopwatch = Stopwatch()
    stopwatch.warm_up()
    facts = environment() | {"run": new_run_id()}
    written = torch.zeros(stopwatch._words // 2, dtype=torch.int32, device="cuda")
    flushes = {"read": stopwatch.flush, "written": written.zero_, "none": lambda: None}
    rows: list[dict[str, Any]] = []
    floor = stopwatch.floor()
    rows.append({"problem": "empty kernel", "flush": "read", "ours_us": floor.median_us})
    for shape in SHAPES:
        problem = cm.Gemm(*shape)
        config = cm.predict_best(problem, use_measured=False).config
        for name, flush in flushes.items():
            stopwatch.flush = flush  # type: ignore[method-assign]
            bench = ProblemBench(problem, stopwatch, facts)
            ours, vendor = bench.measure(config), bench.measure_vendor()
            rows.append(
                {
                    "problem": str(problem),
                    "flush": name,
                    "ours_us": ours["time_us"],
                    "vendor_us": vendor["time_us"],
                    "config": str(config),
                }
            )
    for row in rows:
        row |= {key: facts[key] for key in ("device_name", "driver", "torch", "triton")}
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    with (folder / f"protocol_{facts['device']}.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[1]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
