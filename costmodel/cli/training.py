"""Refitting the ranking model: train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli.app import app
from costmodel.cli.problem import AsJson
from costmodel.cli.show import print_json, working

#: rows and lines left out that are shown; ``--json`` has all
_SHOWN = 10


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
    alone: Annotated[
        bool, typer.Option("--alone", help="Leave the shipped runs out: learn from the logs alone.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(help="Learn from another tool's kernel, as its rows name it; needs --out."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Install the model even where it is worse.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit the ranking model on logs merged with the shipped runs, and install it if it is no worse.

    Old and new model are compared on the same held-out shapes, which never take part. The model
    that is replaced stays beside the new one as `*.old.npz`.

    Example: `costmodel train runs.jsonl`
    """
    from costmodel.learning.gate import RefusedModelError
    from costmodel.learning.train import train as run_train

    try:
        with working("fitting"):
            report = run_train(
                logs or None, profile, out=out, shipped=not alone, source=source, force=force
            )
    except RefusedModelError as refused:
        if as_json:
            print_json({"installed": False, "gate": refused.verdict.as_dict()})
        raise
    scores = report.manifest.get("scores", {})
    ranker = report.ranker
    if as_json:
        print_json(
            {
                "installed": True,
                "path": None if report.path is None else str(report.path),
                "kept": None if report.kept is None else str(report.kept),
                "shapes": report.shapes,
                "rows": report.rows,
                "devices": report.manifest.get("devices", []),
                "spread": [ranker.low, ranker.high],
                "scores": scores,
                "gate": report.verdict.as_dict(),
                "left_out": [f"{file}, {problem}" for file, problem in report.problems],
            }
        )
        return
    for file, problem in report.problems[:_SHOWN]:
        typer.echo(f"left out: {file}, {problem}")
    if len(report.problems) > _SHOWN:
        typer.echo(f"left out: {len(report.problems) - _SHOWN} more; --json has all")
    typer.echo(f"fitted on {report.rows} runs of {report.shapes} problems; model in {report.path}")
    if scores:
        typer.echo(
            f"cross-validated: the first choice reaches {scores['cv_top1_geomean']:.3f} of the "
            f"best (geometric mean), {scores['cv_top1_min']:.3f} on the worst shape"
        )
    typer.echo(report.verdict.scores())
    for reason in report.verdict.reasons:
        typer.echo(f"installed by force although {reason}")
    if report.kept is not None:
        typer.echo(f"the old model is kept as {report.kept}")
