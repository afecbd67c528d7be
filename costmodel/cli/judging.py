"""The scorecard on held-out shapes: evaluate."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from costmodel.cli.app import app
from costmodel.cli.problem import AsJson
from costmodel.cli.show import (
    Section,
    print_json,
    print_sections,
    print_table,
    three_digits,
    working,
)
from costmodel.errors import CostModelError


@app.command()
def evaluate(
    runs: Annotated[
        list[Path] | None,
        typer.Option(help="Log or shard to judge by (repeatable); the shipped runs by default."),
    ] = None,
    profile: Annotated[str, typer.Option(help="Chip whose runs count.")] = "h200-sxm",
    model: Annotated[
        Path | None, typer.Option(help="Model file to judge; the installed one by default.")
    ] = None,
    physics: Annotated[bool, typer.Option("--physics", help="Judge the estimate alone.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Folder for pictures: predicted times, shares, intervals, the curve."),
    ] = None,
    drift: Annotated[
        bool,
        typer.Option("--drift", help="Instead: predicted against measured over time, by family."),
    ] = False,
    next_shapes: Annotated[
        Path | None,
        typer.Option("--next", help="With --drift: write what to measure next as a shape set."),
    ] = None,
    curve: Annotated[
        bool,
        typer.Option("--curve", help="Instead: fit again on 1/8 to all training shapes (minutes)."),
    ] = False,
    families: Annotated[
        bool,
        typer.Option("--families", help="Instead: fit again without each family (many minutes)."),
    ] = False,
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
) -> None:
    """How near the best measured configuration the ranking comes, on held-out shapes.

    Each share is the best measured time over the best time among the first k chosen.

    Example: `costmodel evaluate --profile h200-sxm --json`
    """
    if drift:
        _drift(runs, profile, model, next_shapes, as_json)
        return
    if plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise CostModelError("pictures need matplotlib: install the package's extra 'plot'")
    if curve or families:
        if model is not None or physics:
            raise CostModelError(
                "--curve and --families fit models of their own: leave out --model and --physics"
            )
        from costmodel.cli.refitting import refitted

        refitted(runs, profile, curve, families, plot, as_json, markdown)
        return
    from costmodel.learning.evaluate import evaluate as run_evaluate

    if plot is not None:
        plot.mkdir(parents=True, exist_ok=True)  # before the work, which a refusal would waste
    with working("ranking the held-out shapes"):
        judged = run_evaluate(runs or None, profile, model=model, physics_only=physics)
    card = judged.as_dict()
    if plot is not None:
        from costmodel.explain.plots import (
            calibration_picture,
            predicted_against_measured,
            share_over_measured,
        )

        predicted_against_measured(judged, plot / "predicted_against_measured.png")
        share_over_measured(judged, plot / "share_over_measured.png")
        calibration_picture(judged, plot / "calibration.png")
    if as_json:
        print_json(card)
        return
    head = f"{card['n_shapes']} held-out shapes on {profile}, ranked by {card['ranked_by']}"
    typer.echo(f"{head}\n" if markdown else head)
    print_sections(sections(card), markdown)


def _drift(
    runs: list[Path] | None, profile: str, model: Path | None, out: Path | None, as_json: bool
) -> None:
    """Whether the world moved away from the model, and where it knows too little."""
    from costmodel.learning.drift import drift as run_drift

    with working("holding predictions against runs"):
        found = run_drift(runs or None, profile, model=model)
    if out is not None:
        found.write_next(out)
    card = found.as_dict()
    if as_json:
        print_json(card)
        return
    typer.echo(f"measured over predicted time on {profile}, predicted by {card['ranked_by']}")
    periods = [
        (p["day"], str(p["rows"]), str(p["problems"]), *map(three_digits, (p["ratio"], p["low"])),
         three_digits(p["high"]), "moved" if p["moved"] else "")
        for p in card["periods"]
    ]  # fmt: skip
    columns = ("day", "runs", "problems", "median", "10%", "90%", "")
    print_table("Over time", columns, periods)
    families = [
        (f["dtype"], f["layout"], f["rows"], str(f["problems"]),
         "" if f["error"] is None else three_digits(f["error"]),
         "" if f["share"] is None else three_digits(f["share"]), f["need"] or "")
        for f in card["families"]
    ]  # fmt: skip
    columns = ("dtype", "layout", "rows of C", "problems", "error", "share", "needs data")
    print_table("By family", columns, families)
    if card["next"]:
        typer.echo("to measure next (--next FILE writes them for `costmodel collect --shapes`):")
    for problem in card["next"]:
        typer.echo(f"  {problem}")


def sections(card: Mapping[str, Any]) -> list[Section]:
    """The scorecard as tables of texts: no mean without its worst case beside it."""
    summary = ("geometric mean", "10th percentile", "worst")
    top = [(f"top {k}", *_cells(figures)) for k, figures in card["top"].items()]
    baselines = [(name, *_cells(figures)) for name, figures in card["baselines"].items()]
    worst = [
        (row["problem"], f"{row['share']:.3f}", row["chosen"], row["best"]) for row in card["worst"]
    ]
    others = [
        ("best configuration survives pruning", three_digits(card["prune_recall"])),
        ("Kendall's tau, mean", three_digits(card["kendall_tau"])),
        ("relative error of time, median of the first 16", three_digits(card["median_time_error"])),
        ("share of times inside the 90% interval", three_digits(card["interval_coverage"])),
        ("configurations a shape, median", f"{card['configs_per_shape_median']:.0f}"),
        ("distance to the nearest training shape", three_digits(card["nearest_training_shape"])),
    ]
    held = card["calibration"]
    groups = [("all", held["overall"]), *held["by_predicted_time"].items(),
              *held["by_family"].items()]  # fmt: skip
    intervals = [
        (
            name,
            str(row["problems"]),
            *map(three_digits, (row["coverage"], row["median_time_error"])),
        )
        for name, row in groups
    ]
    return [
        ("Share of the best, over shapes", ("first k", *summary), top),
        ("Other ways of choosing one", ("way", *summary), baselines),
        ("The five worst", ("shape", "share", "chosen", "best"), worst),
        ("Beside that", ("figure", "value"), others),
        ("The first eight of each shape, by predicted time and family",
         ("group", "shapes", "in the 90% interval", "median error of time"), intervals),
    ]  # fmt: skip


def _cells(figures: Mapping[str, float]) -> tuple[str, str, str]:
    geomean, p10, least = (three_digits(figures[name]) for name in ("geomean", "p10", "min"))
    return geomean, p10, least
