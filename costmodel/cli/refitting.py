"""The learning curve and families left out: evaluate --curve, --families."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from costmodel.cli.show import Section, print_json, print_sections, three_digits, working
from costmodel.learning.refits import Figures, LeftOut, Point, Refits, as_dict


def refitted(
    runs: Sequence[Path] | None, profile: str, curve: bool, families: bool, plot: Path | None,
    as_json: bool, markdown: bool,
) -> None:  # fmt: skip
    """Fit, judge and print; with a folder ``plot``, draw the curve."""
    from costmodel.learning.evaluate import judging_and_training
    from costmodel.profile import load_profile

    chip = load_profile(profile)
    held, training = judging_and_training(runs or None, chip)
    if plot is not None and curve:
        plot.mkdir(parents=True, exist_ok=True)  # before the work, which a refusal would waste
    with working("fitting") as doing:
        refits = Refits(training, held, chip, doing=doing)
        points = refits.curve() if curve else []
        left_out = refits.families() if families else []
    if plot is not None and points:
        from costmodel.explain.plots import learning_curve

        learning_curve(points, plot / "learning_curve.png")
    if as_json:
        print_json(
            {"profile": chip.name, "n_shapes": len(held)} | as_dict(points, left_out, refits.seeds)
        )
        return
    head = f"{len(held)} held-out shapes on {chip.name}"
    typer.echo(f"{head}\n" if markdown else head)
    print_sections(sections(points, left_out), markdown)


def sections(points: Sequence[Point], left_out: Sequence[LeftOut]) -> list[Section]:
    """Both as tables of texts, those that there are."""
    found: list[Section] = []
    names = tuple(f"{of} {k}" for k in ("first", "3", "8") for of in ("mean", "10%", "worst"))
    if points:
        rows = [
            (str(p.shapes), str(p.rows), *_cells(p.top, ("geomean", "p10", "min"))) for p in points
        ]
        found.append(("Fitted on fewer shapes", ("shapes", "runs", *names), rows))
    if left_out:
        names = tuple(f"{of} {k}" for k in ("first", "3", "8") for of in ("mean", "worst"))
        rows = []
        for f in left_out:
            without, full = (_cells(top, ("geomean", "min")) for top in (f.top, f.full))
            counts = (str(f.problems), str(f.left_out), three_digits(f.nearest))
            rows += [(f.family, *counts, *without), ("  full", "", "", "", *full)]
        columns = ("family", "shapes", "left out", "nearest", *names)
        found.append(("Fitted without a family, judged on it", columns, rows))
    return found


def _cells(top: Figures, names: Sequence[str]) -> list[str]:
    return [three_digits(figures[name]) for figures in top.values() for name in names]
