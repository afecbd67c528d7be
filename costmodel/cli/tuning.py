"""Measuring the best few of a prediction: tune."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

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
from costmodel.cli.show import print_json, print_table, working
from costmodel.errors import ConfigError

if TYPE_CHECKING:
    from costmodel.measure.tune import TuneResult

MEASURED_COLUMNS = ("configuration", "us", "p10", "p90", "TFLOPS", "predicted us")


@app.command(cls=ProblemCommand)
def tune(
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
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Configurations to measure.", show_default="8")
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Instead of --top-k: measure as many as bring the best of them so near the best "
            "of all, such as 2%.",
        ),
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="How surely it shall be --within.",
            show_default="90% where --within is given",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=0, help="Measure as many more with the vendor's own tile.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure the best few on the GPU at hand, beside the vendor's GEMM, and remember the best.

    Example: `costmodel tune 4096 4096 4096 --within 2% --confidence 90%`
    """
    from costmodel.measure.tune import tune as run_tune

    problem = problem_of(
        m, n, k, dtype, layout, batch, epilogue=epilogue, beta=beta, precision=precision
    )
    with working(f"measuring {problem}"):
        result = run_tune(
            problem, profile, top_k=top_k, seeds=seeds,
            within=None if within is None else share_of("--within", within),
            confidence=None if confidence is None else share_of("--confidence", confidence),
        )  # fmt: skip
    if as_json:
        print_json(result.as_dict())
        return
    typer.echo(summary(result))
    if result.rows:
        print_table("", MEASURED_COLUMNS, measured_rows(result))


def share_of(name: str, text: str) -> float:
    """A share that a person wrote, as 2% or as 0.02. Raises ``ConfigError`` naming the option."""
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share < 1:
        hint = f"; did you mean {text}%?" if 1 <= share < 100 and not percent else ""
        raise ConfigError(f"{name} takes a share below 1, such as 2% or 0.02, got {text!r}{hint}")
    return share


def summary(result: TuneResult) -> str:
    """The answer, the vendor's and the default beside it, what was promised, and the note."""
    prediction = result.prediction
    rate = prediction.problem.flops / (result.time_us * 1e6)
    lines = [
        f"{prediction.problem} on {prediction.profile.name}: {result.config}",
        f"{result.time_us:.2f} us, {rate:.1f} TFLOPS",
    ]
    if result.vendor_us is not None:
        lines[-1] += (
            f"; the vendor's GEMM {result.vendor_us:.2f} us, "
            f"{result.vendor_us / result.time_us:.2f} times as long"
        )
    if result.default is not None and result.default_us is not None:
        lines.append(
            f"the default, {result.default}: {result.default_us:.2f} us, "
            f"{result.default_us / result.time_us:.2f} times as long"
        )
    if result.within is not None and result.confidence is not None:
        lines.append(
            f"{result.measured} measured: within {100 * result.within:g}% of the best of "
            f"{len(prediction.ranking)}, with a probability of {100 * result.confidence:g}%"
            + ("" if prediction.calibrated else ", by a spread not calibrated on this chip")
        )
    if result.vendor is not None:
        lines.append(str(result.vendor))
    return "\n".join([*lines, result.note] if result.note else lines)


def measured_rows(result: TuneResult) -> Sequence[Sequence[str]]:
    """Cells for ``MEASURED_COLUMNS``: correct runs by time, then the failures with their word."""
    from costmodel.records.schema import config_of

    ranking = result.prediction.ranking
    predicted = {row.config: row.time_us for row in map(ranking.__getitem__, _head(len(ranking)))}
    flop = result.prediction.problem.flops / 1e6
    cells: list[Sequence[str]] = []
    for row in sorted(result.rows, key=lambda r: (r["time_us"] is None, r["time_us"] or 0.0)):
        config = config_of(row)
        name = "the vendor's GEMM" if config is None else str(config)
        name += " (default)" if config is not None and config == result.default else ""
        guess = predicted.get(config) if config is not None else None
        guess_text = "" if guess is None else f"{guess:.2f}"
        time_us = row["time_us"]
        if time_us is None or row["invalidity"] != "correct":
            cells.append((name, row["invalidity"], "", "", "", guess_text))
            continue
        edges = ("" if row[p] is None else f"{row[p]:.2f}" for p in ("p10_us", "p90_us"))
        cells.append((name, f"{time_us:.2f}", *edges, f"{flop / time_us:.1f}", guess_text))
    return cells


def _head(length: int) -> range:
    """Places of the ranking that can have been measured, as far as a table can show."""
    return range(min(length, 64))
