"""Does a model carry over to a chip that it never saw? Slices of one GPU are such chips.

    python data/results/transfer.py [FOLDER] --runs ROWS ...
    python data/results/transfer.py [FOLDER] --calibrated data/results --added

Of each slice left out, on shapes held out besides, among the configurations that were measured on
it and on the chip whose choice is reused: the share of the best that is reached by

- ``physics``: the estimate alone;
- ``reused``: the choice of the whole chip (or the largest other slice), its fastest measured;
- ``model``: the ranker (trees and networks) fitted on all other slices' runs of other shapes;
- ``model+N``: the same with N runs of this slice added, drawn from shapes that are not held out.

Writes ``transfer_<chip>.json``. ``--runs`` names the shards that ``slices.py`` writes: rows of two
slices or more, as ``data/runs``, the default, holds. ``--calibrated`` names a folder of overlays
by profile (``slices.py`` writes these) or of readings (``calibration_<profile>.json``), whose
figures then count; it writes ``transfer_calibrated_<chip>.json``. ``--added`` without numbers
leaves the last of the ways out, which are most of the fits.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import KNOBS
from costmodel.errors import RecordError
from costmodel.learning.shares import shares_of, summary
from costmodel.learning.split import heldout_shapes, training_groups
from costmodel.learning.train import fit
from costmodel.physics.estimate import estimate_columns
from costmodel.profile import load_profile, write_overlay
from costmodel.profile.derive import part_named
from costmodel.ranking.ranker import Ranker
from costmodel.records.groups import Group, groups_of
from costmodel.records.store import packaged_runs, read_runs

CHIP = "h200-sxm"
ADDED = (50, 200, 1000)
#: draws of the added runs, whose shares are taken together
DRAWS = 1
#: first choices whose best counts: the places of 1 and 3 in ``shares.TOPS``
_TOPS = {"top1": 0, "top3": 1}
_SEEDS = (0,)
_WORDS = {
    "physics": "physics alone",
    "reused": "the best of {source} multiprocessors, reused",
    "model": "model fitted on the other slices",
}

Order = NDArray[np.int64]


def units_of(device: str) -> int:
    """Units of a slice by its name, or of the whole chip."""
    return load_profile(device).units


def by_device(groups: Sequence[Group], chip: str) -> dict[str, list[Group]]:
    """The chip's groups and its slices', the largest first."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        part = part_named(group.device)
        if group.device == chip or (part is not None and part[0] == chip):
            found.setdefault(group.device, []).append(group)
    return dict(sorted(found.items(), key=lambda item: -units_of(item[0])))


def taken(group: Group, rows: Order) -> Group:
    """Some rows of a group."""
    return replace(
        group,
        table=group.table[rows],
        time_us=group.time_us[rows],
        remeasured=group.remeasured[rows],
    )


def common(group: Group, other: Group) -> tuple[Group, NDArray[np.float64]]:
    """The rows that were measured on another slice too, and their times there."""
    times = dict(zip(_keys(other), other.time_us.tolist(), strict=True))
    keys = _keys(group)
    rows = np.array([row for row, key in enumerate(keys) if key in times], dtype=np.int64)
    return taken(group, rows), np.array([times[keys[row]] for row in rows])


def _keys(group: Group) -> list[tuple[int, ...]]:
    columns = [np.asarray(getattr(group.table, knob)).tolist() for knob in KNOBS]
    return list(zip(*columns, strict=True))


def added_runs(groups: Sequence[Group], count: int, seed: int) -> list[Group]:
    """``count`` runs of a slice, drawn evenly from all of its groups."""
    sizes = [len(group.time_us) for group in groups]
    rng = np.random.default_rng([seed, count])
    chosen = np.sort(rng.choice(sum(sizes), size=min(count, sum(sizes)), replace=False))
    ends = np.cumsum(sizes)
    found = []
    for group, size, end in zip(groups, sizes, ends, strict=True):
        rows = chosen[(chosen >= end - size) & (chosen < end)] - (end - size)
        if len(rows):
            found.append(taken(group, rows))
    return found


def order_by(ranker: Ranker, group: Group) -> Order:
    """A group's rows as the model ranks them, on the group's own slice."""
    chip = load_profile(group.device)
    physics = estimate_columns(group.problem, group.table, chip)
    times = ranker.times_us(group.problem, group.table, chip, physics)
    return np.argsort(times, kind="stable")


def transferred(
    groups: Sequence[Group],
    learned: Sequence[Group],
    chip: str = CHIP,
    added: Sequence[int] = ADDED,
    draws: int = DRAWS,
    left_out: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The table, by slice left out; ``learned`` are the groups that may be learned from.

    ``left_out`` names the slices to leave out, each in its turn; all by default.

    Raises ``RecordError`` where there are not two slices: nothing carries over from one to none.
    """
    known, lessons = by_device(groups, chip), by_device(learned, chip)
    if len(known) < 2:
        raise RecordError(
            f"these rows are of {', '.join(known) or 'no slice'} alone, and two slices of {chip} "
            "are needed: measure some by data/results/slices.py, and name its shards with --runs"
        )
    held = heldout_shapes()
    table: dict[str, Any] = {}
    for device, own in known.items():
        if left_out and device not in left_out:
            continue
        reference = next(name for name in known if name != device)
        elsewhere = {group.problem: group for group in known[reference]}
        tested = [
            common(group, elsewhere[group.problem])
            for group in own
            if group.shape in held and group.problem in elsewhere
        ]
        tested = [(group, times) for group, times in tested if len(times) > 1]
        if not tested:
            continue
        others = [group for name, some in lessons.items() if name != device for group in some]
        shares: dict[str, list[tuple[float, ...]]] = {"physics": [], "reused": [], "model": []}
        ranker = fit(others, seeds=_SEEDS, folds=0)
        for group, times in tested:
            estimate_us = estimate_columns(group.problem, group.table, load_profile(device)).time_us
            shares["physics"].append(shares_of(group, np.argsort(estimate_us, kind="stable")))
            shares["reused"].append(shares_of(group, np.argsort(times, kind="stable")))
            shares["model"].append(shares_of(group, order_by(ranker, group)))
        mine = lessons.get(device, [])
        for count in added:
            if sum(len(group.time_us) for group in mine) < count:
                continue
            for draw in range(draws):
                more = added_runs(mine, count, draw)
                ranker = fit([*others, *more], seeds=_SEEDS, folds=0)
                shares.setdefault(f"model+{count}", []).extend(
                    shares_of(group, order_by(ranker, group)) for group, _ in tested
                )
        table[device] = {
            "units": units_of(device),
            "reused_from": reference,
            "learned_from": {
                name: len(some) for name, some in lessons.items() if name != device
            },
            "shapes": len(tested),
            "configs_per_shape_median": float(np.median([len(times) for _, times in tested])),
            "ways": {
                way: {
                    name: summary(np.array([each[place] for each in some]))
                    for name, place in _TOPS.items()
                }
                for way, some in shares.items()
            },
        }  # fmt: skip
    return table


def use_overlays(folder: Path) -> None:
    """Let a folder's overlays stand for the profiles that they are named after."""
    home = Path(tempfile.mkdtemp(prefix="costmodel-"))
    (home / "profiles").mkdir()
    for overlay in folder.glob("*.toml"):
        shutil.copy(overlay, home / "profiles")
    for readings in folder.glob("calibration_*-*.json"):
        told = json.loads(readings.read_text(encoding="utf-8"))
        if "figures" in told:
            path = home / "profiles" / f"{readings.stem.partition('_')[2]}.toml"
            write_overlay(path, told["base"], told["figures"], told["provenance"])
    os.environ["COSTMODEL_HOME"] = str(home)


def main() -> None:
    """Fit, judge, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent)
    parser.add_argument("--runs", type=Path, nargs="+", help="logs or shards; the shipped runs")
    parser.add_argument("--calibrated", type=Path, help="folder of overlays by profile")
    parser.add_argument("--left-out", nargs="+", help="slices to leave out; the file keeps others")
    parser.add_argument("--added", type=int, nargs="*", default=ADDED, help="runs to add")
    options = parser.parse_args()
    if options.calibrated:
        use_overlays(options.calibrated)
    frame = read_runs(options.runs) if options.runs else packaged_runs()
    try:
        table = transferred(
            groups_of(frame), training_groups(frame), added=options.added,
            left_out=options.left_out,
        )  # fmt: skip
    except RecordError as error:
        raise SystemExit(f"transfer.py: {error}") from None
    facts = {
        name: sorted(frame[name].dropna().unique().tolist())
        for name in ("device_name", "driver", "torch", "triton", "protocol")
    }
    found = {
        "chip": CHIP,
        "profiles": "calibrated" if options.calibrated else "derived",
        "draws": DRAWS,
        "slices": table,
        "runs": facts | {"rows": len(frame)},
    }
    options.folder.mkdir(parents=True, exist_ok=True)
    kind = "transfer_calibrated" if options.calibrated else "transfer"
    path = options.folder / f"{kind}_{CHIP}.json"
    if options.left_out and path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if before | {"slices": {}} == found | {"slices": {}}:
            found["slices"] = before["slices"] | table
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("\n".join(page_table(found["slices"])))
    print(path)


def page_table(table: dict[str, Any]) -> list[str]:
    """Lines of the page's table: geometric mean, tenth percentile and least share."""
    lines = [
        "| slice | chosen by | first choice: mean, 10th percentile, worst | best of 3 |",
        "|---|---|---|---|",
    ]
    for entry in sorted(table.values(), key=lambda entry: -entry["units"]):
        units = entry["units"]
        for way, tops in entry["ways"].items():
            figures = (
                ", ".join(f"{tops[name][key]:.3f}" for key in ("geomean", "p10", "min"))
                for name in _TOPS
            )
            words = _WORDS[way.partition("+")[0]].format(
                source=load_profile(entry["reused_from"]).units
            )
            words += f", {way.partition('+')[2]} runs of the slice added" if "+" in way else ""
            lines.append(f"| {units} | {words} | {' | '.join(figures)} |")
    return lines


if __name__ == "__main__":
    main()
