"""Commands that need no GPU: predict, explain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli.app import app
from costmodel.cli.problem import (
    AsJson,
    Batch,
    Beta,
    DType,
    Epilogue,
    K,
    Layout,
    M,
    N,
    Precision,
    ProblemCommand,
    Profile,
    problem_of,
)
from costmodel.cli.show import print_json, print_table
from costmodel.explain.theme import ENDINGS, check_plot_file
from costmodel.predict import Prediction

Top = Annotated[int, typer.Option(min=1, help="Configurations to list.")]


@app.command(cls=ProblemCommand)
def predict(
    m: M,
    n: N,
    k: K,
    profile: Profile = None,
    dtype: DType = "fp16",
    layout: Layout = "nt",
    batch: Batch = 1,
    epilogue: Epilogue = None,
    beta: Beta = 0.0,
    precision: Precision = None,
    top: Top = 5,
    as_json: AsJson = False,
) -> None:
    """The fastest configuration for a shape on a chip, without running anything.

    Example: `costmodel predict 4096 4096 4096 --profile h200-sxm --dtype bf16`
    """
    from costmodel.explain.text import SOURCES
    from costmodel.predict import predict_best

    prediction = predict_best(
        problem_of(
            m, n, k, dtype, layout, batch, epilogue=epilogue, beta=beta, precision=precision
        ),
        profile,
    )
    if as_json:
        print_json(prediction.as_dict(top))
        return
    low, high = prediction.interval
    typer.echo(
        f"{prediction.problem} on {prediction.profile.name}: {prediction.config}\n"
        f"{prediction.time_us:.2f} us ({prediction.spread} between {low:.2f} and {high:.2f}), "
        f"{prediction.tflops:.1f} TFLOPS, bound by {prediction.bound}; "
        f"{SOURCES[prediction.source]}" + (f"; {prediction.beware}" if prediction.beware else "")
    )
    flop = prediction.problem.flops / 1e6
    rows = []
    for place in range(min(top, len(prediction.ranking))):
        row = prediction.ranking[place]
        rows.append(
            (
                str(row.config),
                f"{row.time_us:.2f}",
                f"{row.interval[0]:.2f}-{row.interval[1]:.2f}",
                f"{flop / row.time_us:.1f}",
                row.bound,
            )
        )
    print_table("", ("configuration", "us", "90% interval", "TFLOPS", "bound"), rows)
    counts = prediction.rejections.counts()
    reasons = ", ".join(f"{count} {name}" for name, count in counts.items())
    typer.echo(
        f"{len(prediction.ranking)} configurations ranked, {len(prediction.rejections)} rejected"
        + (f": {reasons}" if reasons else "")
    )


@app.command(cls=ProblemCommand)
def explain(
    m: M,
    n: N,
    k: K,
    profile: Profile = None,
    dtype: DType = "fp16",
    layout: Layout = "nt",
    batch: Batch = 1,
    epilogue: Epilogue = None,
    beta: Beta = 0.0,
    precision: Precision = None,
    top: Top = 3,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Force a knob, such as num_stages=5 (repeatable)."),
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="Start from this one: 'tile 128x128x64 w8 s4'.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="File for the pictures, such as shape.png.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="File for the whole report as one HTML page.")
    ] = None,
    compile_it: Annotated[
        bool, typer.Option("--compile", help="Compile it, with no GPU: predicted beside actual.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Why that configuration, what bounds it, what each knob would change, and what it costs to
    force one.

    Example: `costmodel explain 512 512 8192 --profile h200-sxm --set num_stages=5`
    """  # fmt: skip
    from costmodel.config import KernelConfig
    from costmodel.explain.knobs import changed, forced, parse_settings
    from costmodel.explain.rejected import RejectedReport
    from costmodel.explain.report import report
    from costmodel.predict import predict_best

    for file, endings in ((plot, ENDINGS), (html, (".html",))):
        if file is not None:
            check_plot_file(file, endings)
    best = prediction = predict_best(
        problem_of(
            m, n, k, dtype, layout, batch, epilogue=epilogue, beta=beta, precision=precision
        ),
        profile,
    )
    knobs = parse_settings(settings or [])
    if config or knobs:
        wanted = changed(KernelConfig.parse(config) if config else best.config, knobs)
        answer = forced(best, wanted)
        if not isinstance(answer, Prediction):
            if plot is not None or html is not None or compile_it:
                raise typer.BadParameter(
                    f"{wanted} cannot run, so there is nothing to draw or compile: leave out "
                    "--plot, --html and --compile to see why"
                )
            refused = RejectedReport.of(best, answer)
            print_json(refused.as_dict()) if as_json else typer.echo(refused.text())
            return
        prediction = answer
    instead = None if prediction is best else best
    found = report(prediction, top=top, best=instead)
    if plot is not None:
        from costmodel.explain.pictures import overview

        overview(prediction, plot)
    if html is not None:
        from costmodel.explain.page import write_page

        write_page(prediction, html, instead, top=top)
    actual = None
    if compile_it:
        from costmodel.explain.compiled import compiled

        actual = compiled(prediction.problem, prediction.config, prediction.profile)
    if as_json:
        print_json(found.as_dict() | ({"compiled": actual.as_dict()} if actual else {}))
        return
    typer.echo(found.text())
    if actual:
        title = f"compiled for {actual.target} by Triton {actual.triton}"
        print_table(title, ("figure", "predicted", "actual"), actual.rows())
