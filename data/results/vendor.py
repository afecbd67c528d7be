"""Our kernels against the vendor's GEMM on the sets of ``data/shapes/vendor.csv``.

Five steps, of which ``trace``, ``search`` and ``final`` need the GPU:

    python data/results/vendor.py trace FOLDER       # which kernels the vendor's library launches
    python data/results/vendor.py search FOLDER      # times the most promising configurations
    python data/results/vendor.py plan FOLDER        # winners, and predictions with no such run
    python data/results/vendor.py final FOLDER       # both measured again, beside the vendor's
    python data/results/vendor.py table data/results # a FOLDER's table into docs/kernels.md

``trace`` writes ``vendor_kernels_<device>.csv``; with ``--kernels`` that file, a search looks at
the vendor's tiles too, and with ``--again N`` at the N fastest of ``--runs``. ``final`` writes
``vendor_h200.csv``. Each of its times is the median of three visits, ours and the vendor's in
turn, cold L2.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import costmodel as cm
from costmodel.config import TEMPLATES, ConfigTable, KernelConfig
from costmodel.errors import NoCandidateError
from costmodel.physics.estimate import estimate_columns
from costmodel.shapes import Shape, read_shapes
from costmodel.space.candidates import candidates
from costmodel.space.prune import prune
from costmodel.space.seeded import seeded_candidates

PROFILE = "h200-sxm"
VISITS = 3
#: ratios count up to this in a mean: one shape must not carry a set
CAP = 1.5
TABLE = "vendor_h200.csv"
PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"
BLOCK = re.compile(r"<!-- vendor table -->\n.*?\n<!-- end -->", re.DOTALL)
#: configurations searched a shape, by template: the first by physics, each a different tile
SEARCHED = {
    "tile": 4, "split_k": 5, "persistent_tma": 4, "warp_specialized": 20, "matvec": 24,
    "packed": 20,
}  # fmt: skip
#: places in physics' order from which training rows are taken: dense at its top, then thinner
SPREAD = (0, 1, 2, 4, 7, 11, 17, 26, 40, 60, 90, 140, 220, 350)
#: configurations of one tile that are searched, however many the order puts first
SAME_TILE = 3
COLUMNS = (
    "set", "m", "n", "k", "dtype", "layout", "config", "ours_us", "predicted", "predicted_us",
    "vendor_us", "error", "vendor_error", "roofline_us", "protocol", "device", "driver", "torch",
    "triton", "timestamp",
)  # fmt: skip


def promising(
    problem: cm.Gemm,
    wanted: dict[str, int],
    spread: bool = False,
    tile: tuple[int, int] | None = None,
) -> list[KernelConfig]:
    """The first configurations of every template by the physics estimate, or a spread of them.

    With the vendor's ``tile``, also the first of those that use it.
    """
    profile = cm.load_profile(PROFILE)
    found = []
    if tile is not None:
        found = _first(problem, seeded_candidates(problem, profile, tile), dict.fromkeys(wanted, 3))
    return list(
        dict.fromkeys(found + _first(problem, candidates(problem, profile), wanted, spread))
    )


def _first(
    problem: cm.Gemm, table: ConfigTable, wanted: dict[str, int], spread: bool = False
) -> list[KernelConfig]:
    profile = cm.load_profile(PROFILE)
    try:
        legal, _ = prune(problem, table, profile)
    except NoCandidateError:  # none of the vendor's tile
        return []
    order = np.argsort(estimate_columns(problem, legal, profile).time_us, kind="stable")
    found: list[KernelConfig] = []
    for template, count in wanted.items():
        rows = order[legal.template[order] == TEMPLATES.index(template)]
        if spread:
            found += list(legal[rows[[place for place in SPREAD if place < len(rows)]]])
        else:
            found += _different(legal[rows], count)
    return found


def _different(table: ConfigTable, count: int) -> list[KernelConfig]:
    seen: dict[tuple[int, int, bool], int] = {}
    found: list[KernelConfig] = []
    for row in range(len(table)):
        if len(found) == count:
            break
        config = table[row]
        tile = (config.block_m, config.block_n, config.swap)
        seen[tile] = seen.get(tile, 0) + 1
        if seen[tile] <= SAME_TILE or config.template == "matvec":
            found.append(config)
    return found


def trace(folder: Path, shapes: list[Shape]) -> None:
    """Write what the vendor's library launches for every shape, and the product's tile."""
    from costmodel.measure.vendor_kernels import VendorGemm, launches_of
    from costmodel.measure.vendor_trace import traced_kernels

    with (folder / f"vendor_kernels_{PROFILE}.csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("m", "n", "k", "dtype", "layout", "tile_m", "tile_n", "kernels"))
        for shape in shapes:
            p = shape.problem
            launched = VendorGemm(launches_of(traced_kernels(p, 0)))
            names = " + ".join(launch.kernel.name[:120] for launch in launched.launches)
            tile = launched.tile or (None, None)
            writer.writerow((p.m, p.n, p.k, p.dtype, p.layout, *tile, names))
            out.flush()


def vendor_tiles(path: Path | None) -> dict[tuple[str, ...], tuple[int, int]]:
    """The vendor's tile by (m, n, k, dtype, layout) as ``trace`` wrote them."""
    if path is None:
        return {}
    with path.open(newline="", encoding="utf-8") as lines:
        return {
            tuple(line[name] for name in ("m", "n", "k", "dtype", "layout")): (
                int(line["tile_m"]), int(line["tile_n"])
            )
            for line in csv.DictReader(lines)
            if line["tile_m"]
        }  # fmt: skip


def fastest(runs: list[Path], count: int) -> dict[cm.Gemm, list[KernelConfig]]:
    """The ``count`` fastest configurations of every problem among measured rows."""
    from costmodel.records.groups import groups_of
    from costmodel.records.store import read_runs

    if not count:
        return {}
    return {
        group.problem: list(group.table[np.argsort(group.time_us, kind="stable")[:count]])
        for group in groups_of(read_runs(runs), PROFILE)
    }


def search(
    folder: Path, shapes: list[Shape], seconds: float, wanted: dict[str, int], spread: bool,
    tiles: dict[tuple[str, ...], tuple[int, int]], before: dict[cm.Gemm, list[KernelConfig]],
) -> None:  # fmt: skip
    """Time the promising configurations of every shape; goes on where it stopped."""
    from costmodel.measure.bench import new_run_id
    from costmodel.measure.collect import Job, collect
    from costmodel.measure.worker import WorkerOptions
    from costmodel.records.log import RunLog
    from costmodel.records.store import read_runs, write_shards

    jobs = []
    for shape in shapes:
        p = shape.problem
        tile = tiles.get((str(p.m), str(p.n), str(p.k), p.dtype, p.layout))
        configs = before.get(p, []) + promising(p, wanted, spread, tile)
        jobs.append(Job(p, tuple(dict.fromkeys(configs))))
    print(len(jobs), "shapes,", sum(len(job.configs) for job in jobs), "configurations", flush=True)
    log = folder / "search.jsonl"
    report = collect(
        jobs, RunLog(log), cm.load_profile(PROFILE), seconds=seconds,
        options=WorkerOptions(run=new_run_id()),
    )  # fmt: skip
    print(vars(report), flush=True)
    write_shards(read_runs([log]), folder, "h200-vendor")
    log.unlink()


def plan(folder: Path, shapes: list[Shape], runs: list[Path]) -> None:
    """Winners among measured rows; predictions by models that saw no run of the shape."""
    from costmodel.learning.train import fit_without
    from costmodel.records.groups import groups_of
    from costmodel.records.store import read_runs

    groups = {g.problem: g for g in groups_of(read_runs(runs), PROFILE)}
    problems = [s.problem for s in shapes if s.problem in groups]
    with (folder / "plan.jsonl").open("w", encoding="utf-8") as stream:
        for half in (0, 1):
            asked = problems[half::2]
            ranker = fit_without(asked, PROFILE)
            for problem in asked:
                group = groups[problem]
                best = group.table[int(np.argmin(group.time_us))]
                predicted = cm.predict_best(
                    problem, PROFILE, model=ranker, use_measured=False
                ).config
                line = {"problem": vars(problem), "winner": best.as_dict()}
                stream.write(json.dumps(line | {"predicted": predicted.as_dict()}) + "\n")


def final(folder: Path, shapes: list[Shape]) -> None:
    """Measure winner, prediction and the vendor's in turn, and write the table."""
    from costmodel.measure.bench import new_run_id
    from costmodel.measure.compile_pool import CompilePool
    from costmodel.measure.worker import MeasuringProcess, WorkerOptions

    profile = cm.load_profile(PROFILE)
    plans = {}
    for line in (folder / "plan.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        pair = [KernelConfig(**entry[name]) for name in ("winner", "predicted")]
        plans[cm.Gemm(**entry["problem"])] = pair
    pool = CompilePool(profile)
    pending = [part for problem, pair in plans.items() for part in pool.submit(problem, pair)]
    pool.wait(pending)
    lines: list[dict[str, Any]] = []
    with MeasuringProcess(WorkerOptions(run=new_run_id())) as process:
        for shape in shapes:
            if pair := plans.get(shape.problem):
                asked = [pair[0], pair[1], None] * VISITS
                rows = list(process.measure(shape.problem, asked))
                lines.append(_line(shape, pair, rows, process.facts))
    pool.close()
    with (folder / TABLE).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    summary(lines)


def _line(
    shape: Shape, pair: list[KernelConfig], rows: list[dict[str, Any]], facts: dict[str, Any]
) -> dict[str, Any]:
    ours, predicted, vendor = (rows[i::3] for i in range(3))

    def middle(some: list[dict[str, Any]], name: str) -> float | None:
        good = [row[name] for row in some if row["invalidity"] == "correct"]
        return statistics.median(good) if good else None

    problem = shape.problem
    return {
        "set": shape.family, "m": problem.m, "n": problem.n, "k": problem.k,
        "dtype": problem.dtype, "layout": problem.layout,
        "config": str(pair[0]), "ours_us": middle(ours, "time_us"),
        "predicted": str(pair[1]), "predicted_us": middle(predicted, "time_us"),
        "vendor_us": middle(vendor, "time_us"),
        "error": middle(ours, "error"), "vendor_error": middle(vendor, "error"),
        "roofline_us": cm.physics.roofline.roofline(problem, cm.load_profile(PROFILE)).time_us,
        "protocol": rows[0]["protocol"], "timestamp": rows[0]["timestamp"],
        "device": facts["device_name"], "driver": facts["driver"], "torch": facts["torch"],
        "triton": facts["triton"],
    }  # fmt: skip


def figures(lines: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By set, and of all: capped geometric means, least ratios, shares of the roofline."""
    by_set: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if line["ours_us"] and line["vendor_us"]:
            by_set.setdefault(line["set"], []).append(line)
    everything = [line for some in by_set.values() for line in some]

    def mean(values: Any) -> float:
        return float(np.exp(np.nanmean(np.log(values))))

    found = {}
    for name, some in [*by_set.items(), ("all", everything)]:
        ours, predicted, vendor, roof = (
            np.array([float(line[key] or "nan") for line in some])
            for key in ("ours_us", "predicted_us", "vendor_us", "roofline_us")
        )
        ratio, foreseen = vendor / ours, vendor / predicted
        found[name] = {
            "shapes": len(some),
            "ours": mean(ratio.clip(max=CAP)), "least": float(ratio.min()),
            "faster": float((ratio > 1).mean()),
            "predicted": mean(foreseen.clip(max=CAP)),
            "predicted_least": float(np.nanmin(foreseen)),
            "roofline": mean(roof / ours), "vendor_roofline": mean(roof / vendor),
        }  # fmt: skip
    return found


def summary(lines: Iterable[dict[str, Any]]) -> None:
    """Print ``figures``, a set a line."""
    print("set         n   ours  least faster | predicted least | roofline: ours vendor")
    for name, f in figures(lines).items():
        print(
            f"{name:10s} {f['shapes']:4.0f}  {f['ours']:.3f} {f['least']:.3f}  {f['faster']:.2f}  "
            f"| {f['predicted']:.3f} {f['predicted_least']:.3f} "
            f"| {f['roofline']:.3f} {f['vendor_roofline']:.3f}"
        )


def page(lines: list[dict[str, Any]]) -> None:
    """Put ``figures`` into the page on the kernels, each mean beside its worst case."""
    rows = [
        "| set | shapes | best measured | worst | faster on | predicted | worst | of the roofline "
        "| cuBLAS of it |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, f in figures(lines).items():
        rows.append(
            f"| {name} | {f['shapes']:.0f} | {f['ours']:.3f} | {f['least']:.3f} "
            f"| {f['faster']:.0%} | {f['predicted']:.3f} | {f['predicted_least']:.3f} "
            f"| {f['roofline']:.3f} | {f['vendor_roofline']:.3f} |"
        )
    one = lines[0]
    rows.append(
        f"\n{one['device']}, driver {one['driver']}, torch {one['torch']}, Triton {one['triton']}, "
        f"{one['timestamp'][:10]}, protocol {one['protocol']}."
    )
    text = PAGE.read_text(encoding="utf-8")
    block = "<!-- vendor table -->\n" + "\n".join(rows) + "\n<!-- end -->"
    PAGE.write_text(BLOCK.sub(lambda _: block, text), encoding="utf-8")


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("trace", "search", "plan", "final", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shapes", default="vendor")
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="take each n-th shape")
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--runs", type=Path, nargs="*", default=[])
    parser.add_argument("--templates", nargs="*", choices=list(SEARCHED))
    parser.add_argument("--times", type=float, default=1.0, help="a wider or narrower search")
    parser.add_argument("--again", type=int, default=0, help="the fastest of --runs, so many")
    parser.add_argument("--kernels", type=Path, help="what ``trace`` wrote")
    parser.add_argument("--spread", action="store_true", help="rows to train on, not winners")
    options = parser.parse_args()
    shapes = [s for s in read_shapes(options.shapes) if s.family in (options.sets or [s.family])]
    shapes = shapes[:: options.every]
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.step == "trace":
        trace(options.folder, shapes)
    elif options.step == "search":
        names = options.templates or SEARCHED
        wanted = {name: max(1, round(SEARCHED[name] * options.times)) for name in names}
        tiles = vendor_tiles(options.kernels)
        search(
            options.folder,
            shapes,
            options.seconds,
            wanted,
            options.spread,
            tiles,
            fastest(options.runs, options.again),
        )
    elif options.step == "table":
        with (options.folder / TABLE).open(newline="", encoding="utf-8") as stream:
            page(list(csv.DictReader(stream)))
    elif options.step == "plan":
        plan(options.folder, shapes, options.runs)
    else:
        final(options.folder, shapes)


if __name__ == "__main__":
    main()
