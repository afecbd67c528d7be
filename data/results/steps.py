"""What one K step of a tile costs when every unit has one: writes ``steps_<device>.csv``.

Each tile shape runs on a problem of exactly one wave, at two lengths of K: the difference is
steps alone, free of launch, first load and store. ``python data/results/steps.py [FOLDER]``
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

import costmodel as cm
from costmodel.config import KernelConfig
from costmodel.measure.bench import new_run_id
from costmodel.measure.compile_pool import CompilePool
from costmodel.measure.worker import MeasuringProcess, WorkerOptions
from costmodel.resources.warp_groups import column_runs

PROFILE = "h200-sxm"
SHORT, LONG = 1024, 8192
#: tiles along M and N: their product is the number of multiprocessors
WAVE = (12, 11)
#: rows, columns, warps that multiply, stages
TILES = (
    (128, 256, 8, 3), (128, 128, 8, 6), (128, 160, 8, 4), (128, 192, 8, 4), (128, 152, 8, 5),
    (128, 136, 8, 5), (128, 64, 8, 8), (128, 96, 8, 6), (256, 64, 8, 4), (256, 128, 8, 3),
    (192, 128, 12, 4), (192, 192, 12, 3), (192, 96, 12, 5), (64, 320, 4, 4), (64, 192, 4, 6),
    (64, 128, 4, 8), (64, 64, 4, 12), (128, 128, 4, 5), (128, 64, 4, 6),
)  # fmt: skip
BLOCK_K = 64


def main() -> None:
    """Measure and write."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    profile = cm.load_profile(PROFILE)
    jobs = []
    for rows, columns, warps, stages in TILES:
        config = KernelConfig(
            "warp_specialized", rows, columns, BLOCK_K, num_warps=warps, num_stages=stages,
            epilogue_parts=2,
        )  # fmt: skip
        for k in (SHORT, LONG):
            jobs.append((cm.Gemm(WAVE[0] * rows, WAVE[1] * columns, k), config))
    pool = CompilePool(profile)
    pool.wait([part for problem, config in jobs for part in pool.submit(problem, [config])])
    lines = []
    with MeasuringProcess(WorkerOptions(run=new_run_id())) as process:
        times = [list(process.measure(problem, [config]))[0] for problem, config in jobs]
        facts = process.facts
    pool.close()
    for (problem, config), short, long in zip(jobs[::2], times[::2], times[1::2], strict=True):
        step_us = (long["time_us"] - short["time_us"]) / ((LONG - SHORT) / BLOCK_K)
        loaded = (config.block_m + config.block_n) * BLOCK_K * problem.element_bytes
        flop = 2 * config.block_m * config.block_n * BLOCK_K
        lines.append(
            {
                "tile": f"{config.block_m}x{config.block_n}x{BLOCK_K}",
                "runs": "+".join(str(r) for (r,) in column_runs(np.array([config.block_n])) if r),
                "warps": config.num_warps,
                "stages": config.num_stages,
                "step_us": round(step_us, 4),
                "chip_tflops": round(flop * profile.units / step_us / 1e6, 1),
                "unit_l2_gb_s": round(loaded / step_us / 1e3, 1),
                "outside_steps_us": round(short["time_us"] - step_us * SHORT / BLOCK_K, 2),
            }
            | {name: facts[name] for name in ("device_name", "driver", "torch", "triton")}
        )
    with (folder / f"steps_{PROFILE}.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    for line in lines:
        print(*list(line.values())[:8])


if __name__ == "__main__":
    main()
