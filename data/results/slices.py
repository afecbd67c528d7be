"""Slices of one GPU as chips of their own: calibrated, and the same runs measured on each.

    python data/results/slices.py FOLDER --only calibrate
    python data/results/slices.py FOLDER --only collect --seconds 570
    python data/results/slices.py FOLDER --only collect --have EARLIER/*.parquet   # goes on

Needs the GPU. Writes an overlay and its readings for every slice (``<profile>.toml``,
``<profile>.json``) and the rows (``<chip>-slices-000.parquet``); rows of earlier calls in the same
folder stay, and are not measured again. All slices measure the same configurations, so kernels are
compiled once; ``transfer.py`` judges on the rows what a model says of a slice that it never saw.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import costmodel as cm
from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import DeviceError
from costmodel.measure.bench import new_run_id
from costmodel.measure.collect import collect
from costmodel.measure.jobs import Job, ranked_job, sample_job
from costmodel.measure.slices import granted_units
from costmodel.measure.worker import WorkerOptions
from costmodel.physics.estimate import estimate_columns
from costmodel.physics.roofline import roofline
from costmodel.profile import HardwareProfile, part_of, resolve_profile
from costmodel.records.log import RunLog
from costmodel.records.schema import KEY_COLUMNS, row_key
from costmodel.records.store import frame_rows, read_runs, write_shards
from costmodel.shapes import Shape, read_shapes
from costmodel.space.candidates import candidates
from costmodel.space.prune import prune

UNITS = (132, 78, 64, 32)
#: how many shapes of each set and type are drawn
DRAWN = {
    "heldout": {"fp16": 8, "bf16": 4, "fp8_e4m3": 4},
    "train": {"fp16": 14, "bf16": 7, "fp8_e4m3": 7},
}
#: what a shape's roofline may take on the smallest slice: a run of many milliseconds is dear
_LONGEST_US = 1_500.0
#: configurations that each slice's own estimate ranks first, and the shipped model for it, measured
#: on all
_FIRST, _RANKED = 5, 8
#: a calibration that is not done after this long is given up; the rows matter more
_CALIBRATION_SECONDS = 150.0
#: shares of the time that the first slice may take, for one of each other: it compiles for all.
#: Some 4,200 kernels at 22 a second (16 cores) are three minutes; timing takes one a slice
_FIRST_SHARES = 3
#: of the budget, kept back for the shards
_CLOSING_SECONDS = 10.0


def drawn_shapes(smallest: HardwareProfile, seed: int) -> list[Shape]:
    """The shapes, the same for the same seed: ``DRAWN`` of those that the smallest slice can do."""
    rng = np.random.default_rng(seed)
    found = []
    for name, wanted in DRAWN.items():
        shapes = read_shapes(name)
        for dtype, count in wanted.items():
            fit = [
                shape
                for shape in shapes
                if shape.problem.dtype == dtype
                and roofline(shape.problem, smallest).time_us <= _LONGEST_US
            ]
            places = np.sort(rng.choice(len(fit), size=min(count, len(fit)), replace=False))
            found += [fit[place] for place in places]
    # mixed, so that a collection cut short has of every kind
    return [found[place] for place in rng.permutation(len(found))]


def shared_configs(
    problem: cm.Gemm, chips: Iterable[HardwareProfile], count: int, kernels: float, seed: int
) -> ConfigTable:
    """Some ``count`` configurations: a draw on the whole chip, and the first of each slice."""
    chips = sorted(chips, key=lambda chip: -chip.units)
    found: list[KernelConfig] = []
    for chip in chips:
        legal, _ = prune(problem, candidates(problem, chip), chip)
        order = np.argsort(estimate_columns(problem, legal, chip).time_us, kind="stable")
        found += [*legal[order[:_FIRST]], *ranked_job(problem, chip, _RANKED).configs]
    drawn = sample_job(problem, chips[0], max(count - len(set(found)), 1), seed, kernels)
    return ConfigTable.of(list(dict.fromkeys([*found, *drawn.configs])))


def legal_job(problem: cm.Gemm, table: ConfigTable, chip: HardwareProfile) -> Job:
    """The shared configurations that are legal on this slice."""
    kept, _ = prune(problem, table, chip)
    return Job(problem, tuple(kept))


def calibrated(folder: Path, name: str, units: int | None) -> None:
    """Calibrate one slice in a process of its own: a slice is left only with its process."""
    command = [
        sys.executable, "-c", "from costmodel.cli import main; main()", "profiles", "calibrate",
        "--out", str(folder / f"{name}.toml"), "--json",
    ]  # fmt: skip
    command += [] if units is None else ["--units", str(units)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, encoding="utf-8", timeout=_CALIBRATION_SECONDS
        )
    except subprocess.TimeoutExpired:
        print(f"{name}: no calibration in {_CALIBRATION_SECONDS:.0f} s", flush=True)
        return
    if done.returncode:
        print(f"{name}: no calibration: {done.stderr.strip()[-500:]}", flush=True)
        return
    (folder / f"{name}.json").write_text(done.stdout, encoding="utf-8")
    print(f"{name}: calibrated", flush=True)


def main() -> None:
    """Calibrate, then collect slice by slice, within the budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=540.0, help="for all of it")
    parser.add_argument("--units", type=int, nargs="+", default=list(UNITS))
    parser.add_argument("--configs", type=int, default=200, help="a shape")
    parser.add_argument("--kernels", type=float, default=0.0, help="share of kernels to draw from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--have", type=Path, nargs="*", default=[], help="rows of earlier calls")
    parser.add_argument("--only", choices=("calibrate", "collect"), help="one of the two steps")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds - _CLOSING_SECONDS
    options.folder.mkdir(parents=True, exist_ok=True)
    whole = resolve_profile(None)
    chips = {}
    for units in options.units:
        granted = granted_units(units)
        chip = chips[units] = part_of(whole, granted)
        print(f"{units} units asked, {granted} granted: {chip.name}", flush=True)
    if options.only != "collect":
        for units, chip in chips.items():
            calibrated(options.folder, chip.name, None if chip is whole else units)
    if options.only != "calibrate":
        collected(options, whole, chips, until)


def collected(
    options: argparse.Namespace, whole: HardwareProfile, chips: dict[int, HardwareProfile],
    until: float,
) -> None:  # fmt: skip
    """Measure the same runs on every slice, each in its share of the time that is left."""
    smallest = min(chips.values(), key=lambda chip: chip.units)
    shapes = drawn_shapes(smallest, options.seed)
    tables = {
        shape.problem: shared_configs(
            shape.problem, chips.values(), options.configs, options.kernels, options.seed
        )
        for shape in shapes
    }
    print(len(shapes), "shapes,", sum(map(len, tables.values())), "configurations", flush=True)
    stem = f"{whole.name}-slices"
    log = RunLog(options.folder / "slices.jsonl")
    earlier = rows_here(options.folder, stem, log)
    have = [*options.have, *earlier]
    known = {row_key(row) for row in frame_rows(read_runs(have))} if have else set()
    for place, (units, chip) in enumerate(chips.items()):
        shares = len(chips) - place + (0 if place else _FIRST_SHARES - 1)
        own = 1 if place else _FIRST_SHARES
        seconds = max((until - time.monotonic()) * own / shares, 1.0)
        jobs = [legal_job(problem, table, chip) for problem, table in tables.items()]
        try:
            report = collect(
                jobs, log, chip, known=known, seconds=seconds,
                options=WorkerOptions(units=None if chip is whole else units, run=new_run_id()),
            )  # fmt: skip
        except DeviceError as error:  # the rows of the other slices are worth as much
            print(f"{chip.name}: {error}", flush=True)
        else:
            print(chip.name, vars(report), flush=True)
    left_out: list[str] = []
    frame = read_runs(
        rows_here(options.folder, stem, log),
        on_problem=lambda file, problem: left_out.append(problem.reason),
    )
    # a log that was kept stands in the shards too, there with rounded times
    write_shards(frame.drop_duplicates([*KEY_COLUMNS, "run", "sequence"]), options.folder, stem)
    if left_out:  # the log keeps what the shards lack
        print(f"{len(left_out)} rows are not in the shards, the first: {left_out[0]}", flush=True)
    else:
        log.path.unlink(missing_ok=True)


def rows_here(folder: Path, stem: str, log: RunLog) -> list[Path]:
    """The folder's shards and its log: ``write_shards`` replaces all shards of the stem."""
    return sorted(folder.glob(f"{stem}-*.parquet")) + ([log.path] if log.path.exists() else [])


if __name__ == "__main__":
    main()
