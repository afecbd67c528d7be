"""The same collection on one GPU and on two: how much faster, and what a killed worker costs.

    python data/results/two_gpus.py FOLDER

Needs two GPUs and the extra ``distributed``. Every kernel is compiled first, so that what is timed
is measuring. Then the same jobs run on one GPU, on two, and on two of which one worker is killed
(SIGKILL) once a third of the rows is in. Writes two_gpus_<chip>.json: seconds from the first row
to the last, the speed-up, rows of each GPU, and whether the three sets of rows are equal; and the
rows (``<chip>-cluster-000.parquet``).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.measure.bench import new_run_id
from costmodel.measure.cluster import collect_on, local_cluster
from costmodel.measure.compile_pool import CompilePool
from costmodel.measure.jobs import Job, sample_job
from costmodel.measure.worker import WorkerOptions
from costmodel.profile import HardwareProfile, resolve_profile
from costmodel.records.log import RunLog
from costmodel.records.schema import Row, row_key
from costmodel.records.store import read_runs, write_shards
from costmodel.shapes import read_shapes

#: of the rows, that are in when the worker is killed
_KILLED_AT = 1 / 3


def jobs_of(chip: HardwareProfile, shapes: int, configs: int, seed: int) -> list[Job]:
    """Jobs of training shapes, drawn evenly, whose configurations share few kernels."""
    every = read_shapes("train")
    places = np.random.default_rng(seed).choice(len(every), size=shapes, replace=False)
    problems = [every[place].problem for place in np.sort(places)]
    return [sample_job(problem, chip, configs, seed, kernels=0.0) for problem in problems]


def compiled(chip: HardwareProfile, jobs: list[Job]) -> float:
    """Compile all of it into Triton's cache; seconds taken."""
    begun = time.monotonic()
    pool = CompilePool(chip)
    try:
        pool.wait([part for job in jobs for part in pool.submit(job.problem, list(job.configs))])
    finally:
        pool.close()
    return time.monotonic() - begun


def measured(
    gpus: int, jobs: list[Job], chip: HardwareProfile, path: Path, kill: bool = False
) -> dict[str, Any]:
    """One collection into ``path``, and what its rows say."""
    log = RunLog(path)
    total = sum(len(job.configs) for job in jobs)
    arrived: list[float] = []
    killed: list[int] = []

    with local_cluster(gpus) as cluster:

        def row_came(row: Row) -> None:
            arrived.append(time.monotonic())
            if kill and not killed and len(arrived) >= total * _KILLED_AT:
                # of the run's name, as the cluster gives it: <run>-<worker>-<process id>
                killed.append(int(row["run"].rpartition("-")[2]))
                os.kill(killed[0], signal.SIGKILL)

        report = collect_on(
            cluster, jobs, log, chip, on_row=row_came, options=WorkerOptions(run=new_run_id())
        )
    rows = log.read().rows
    ours = [row for row in rows if row["backend"] == "triton"]
    keys = Counter(row_key(row) for row in ours)
    return {
        "gpus": gpus,
        "killed_workers": len(killed),
        "measuring_seconds": round(arrived[-1] - arrived[0], 2),
        "rows": len(ours),
        "rows_with_the_vendors": len(rows),
        "measured_twice": sum(count - 1 for count in keys.values()),
        "failed": report.failed,
        "rows_by_worker": dict(Counter(row["run"].rsplit("-", 2)[1] for row in ours)),
        "processes": len({row["run"] for row in ours}),
        "keys": set(keys),
    }


def main() -> None:
    """Compile, then one GPU, two, and two with a killed worker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shapes", type=int, default=48)
    parser.add_argument("--configs", type=int, default=100, help="a shape")
    parser.add_argument("--seed", type=int, default=21)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    chip = resolve_profile(None)
    jobs = jobs_of(chip, options.shapes, options.configs, options.seed)
    seconds = compiled(chip, jobs)
    print(f"{len(jobs)} shapes, compiled in {seconds:.0f} s", flush=True)
    found: dict[str, Any] = {}
    for name, gpus, kill in (("one", 1, False), ("two", 2, False), ("two_killed", 2, True)):
        found[name] = measured(gpus, jobs, chip, options.folder / f"{name}.jsonl", kill)
        print(name, {k: v for k, v in found[name].items() if k != "keys"}, flush=True)
    keys = [entry.pop("keys") for entry in found.values()]
    frame = read_runs(sorted(options.folder.glob("*.jsonl")))
    write_shards(frame, options.folder, f"{chip.name}-cluster")
    facts = {
        name: sorted(frame[name].dropna().unique().tolist())
        for name in ("device_name", "driver", "torch", "triton", "protocol")
    }
    result = {
        "shapes": options.shapes,
        "configs_a_shape": options.configs,
        "seed": options.seed,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "compile_seconds": round(seconds, 1),
        "speed_up": round(found["one"]["measuring_seconds"] / found["two"]["measuring_seconds"], 3),
        "row_sets_equal": keys[0] == keys[1] == keys[2],
        "runs": found,
    } | facts
    path = options.folder / f"two_gpus_{chip.name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
