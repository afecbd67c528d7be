"""The way from a plain kernel to the tuned one, measured: ladder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costmodel.cli.app import app
from costmodel.cli.problem import AsJson, Layout, ProblemCommand, Profile, problem_of
from costmodel.cli.show import print_json, print_table, working
from costmodel.explain.theme import check_plot_file

if TYPE_CHECKING:
    from costmodel.measure.rungs import Ladder

RUNG_COLUMNS = (
    "rung", "change", "TFLOPS", "peak (gap)", "vendor (gap)", "gain", "error", "tried",
)  # fmt: skip


@app.command(cls=ProblemCommand)
def ladder(
    m: Annotated[int, typer.Argument(metavar="M", help="Rows of C.", envvar="COSTMODEL_M")],
    n: Annotated[int, typer.Argument(metavar="N", help="Columns of C.", envvar="COSTMODEL_N")],
    k: Annotated[
        int, typer.Argument(metavar="K", help="Length of the sums.", envvar="COSTMODEL_K")
    ],
    profile: Profile = None,
    dtype: Annotated[
        str, typer.Option(help="Element type of A and B.", envvar="COSTMODEL_DTYPE")
    ] = "fp16",
    layout: Layout = "nt",
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Timed launches a measurement; 5 to 15 by default.",
            envvar="COSTMODEL_REPEATS",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            help="Only the vendor's GEMM (origin) or only ours (triton); both by default.",
            envvar="COSTMODEL_BACKEND",
        ),
    ] = None,
    device: Annotated[int, typer.Option(min=0, help="GPU number.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="File for a picture of the rungs, such as ladder.png.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """From a plain Triton kernel to the tuned one on the GPU at hand, one variable a rung.

    Each rung is measured, with its gap to the chip's peak and to the vendor's GEMM.

    Example: `costmodel ladder 4096 4096 4096 --plot ladder.png`
    """  # fmt: skip
    from costmodel.measure.climb import ladder as climb

    if plot is not None:
        check_plot_file(plot)
    problem = problem_of(m, n, k, dtype, layout, 1)
    with working(f"measuring {problem}") as doing:
        result = climb(
            problem, profile, backend=backend, repeats=repeats, device=device, on_rung=doing
        )
    if as_json:
        print_json(result.as_dict())
    else:
        _print(result)
    if plot is not None:
        from costmodel.explain.plots import ladder_picture

        ladder_picture(result, plot)


def _print(result: Ladder) -> None:
    typer.echo(heading(result))
    if result.rungs:
        print_table("", RUNG_COLUMNS, rung_rows(result))
        for rung in result.rungs:
            if rung.note:
                typer.echo(f"{rung.name}: {rung.note}")


def heading(result: Ladder) -> str:
    """What the rungs are measured against, and both gaps at the ladder's foot and top."""
    lines = [
        f"{result.problem} on {result.profile.name}: bound by {result.bound}; "
        f"peak {result.peak_tflops:.1f} TFLOPS, roofline {result.roofline_tflops:.1f}"
    ]
    if result.vendor_us is not None and result.vendor_tflops is not None:
        error = "" if result.vendor_error is None else f", error {result.vendor_error:.1e}"
        lines.append(
            f"the vendor's GEMM: {result.vendor_us:.2f} us, {result.vendor_tflops:.1f} TFLOPS, "
            f"{result.vendor_tflops / result.peak_tflops:.0%} of peak{error}"
        )
    if result.vendor is not None:
        lines.append(str(result.vendor))
    if result.rungs:
        first, last = result.figures()[0], result.figures()[-1]
        lines.append(
            f"tuned: {last['config_text']}, {last['time_us']:.2f} us, "
            f"{last['tflops'] / first['tflops']:.2f} times the plain kernel's rate"
        )
    return "\n".join(lines)


def rung_rows(result: Ladder) -> Sequence[Sequence[str]]:
    """Cells for ``RUNG_COLUMNS``, a row a rung."""
    cells = []
    for row in result.figures():
        ratio, gain, error = row["vendor_ratio"], row["gain"], row["error"]
        cells.append(
            (
                row["rung"],
                row["change"],
                f"{row['tflops']:.1f}",
                f"{row['of_peak']:.0%} ({row['gap_to_peak']:+.0%})",
                "" if ratio is None else f"{ratio:.0%} ({row['gap_to_vendor']:+.0%})",
                "" if gain is None or not row["gained"] else f"{gain:+.1%}",
                "" if error is None else f"{error:.1e}",
                f"{row['tried']}" + (f" ({row['failed']} failed)" if row["failed"] else ""),
            )
        )
    return cells
