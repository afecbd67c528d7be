"""Refitting the ranking model: train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli.app import app
from costmodel.cli.problem import AsJson
from costmodel.cli.show import print_json, working


@app.command()
def train(
    logs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[LOG]...", help="Logs or shards; the shipped runs by default."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Learn from this chip's runs alone; all by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Model file (.npz) to write; your own model by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit the ranking model on measured runs; held-out shapes never take part.

    Example: `costmodel train runs.jsonl --out ranker.npz`
    """
    from costmodel.learning.train import train as run_train

    with working("fitting"):
        report = run_train(logs or None, profile, out=out)
    scores = report.manifest.get("scores", {})
    ranker = report.ranker
    if as_json:
        print_json(
            {
                "path": None if report.path is None else str(report.path),
                "shapes": report.shapes,
                "rows": report.rows,
                "devices": report.manifest.get("devices", []),
                "spread": [ranker.low, ranker.high],
                "scores": scores,
            }
        )
        return
    typer.echo(f"fitted on {report.rows} runs of {report.shapes} problems; model in {report.path}")
    if scores:
        typer.echo(
            f"cross-validated: the first choice reaches {scores['cv_top1_geomean']:.3f} of the "
            f"best (geometric mean), {scores['cv_top1_min']:.3f} on the worst shape"
        )
