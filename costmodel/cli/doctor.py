"""Faults named from a file, a text or a configuration: doctor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli.app import app
from costmodel.cli.problem import AsJson, DType, Layout, Profile, problem_of
from costmodel.cli.show import print_json
from costmodel.errors import ConfigError
from costmodel.problem import Gemm


@app.command()
def doctor(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="Log (.jsonl, .parquet), PTX, TTGIR, assembly or any text; - reads stdin.",
        ),
    ] = None,
    problem: Annotated[
        str | None, typer.Option(help="Sizes for --config, such as 4096x4096x4096.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="Configuration to judge: 'tile 128x256x64 w4 s3'.")
    ] = None,
    profile: Profile = None,
    dtype: DType = "fp16",
    layout: Layout = "nt",
    as_json: AsJson = False,
) -> None:
    """Name the fault, its evidence and the remedy.

    Takes an error's text, a compiler's output, a log of measured runs or a configuration. Nothing
    found is exit status 0 too: `--json` says whether that is a clean bill.

    Example: `python train.py 2>&1 | costmodel doctor -`

    Example: `costmodel doctor --config "tile 128x256x64 w4 s3" --problem 4096x4096x4096
    --profile h200-sxm`
    """  # fmt: skip
    from costmodel.doctor import diagnose

    given: str | Path | None = None
    if source == "-" or (source is None and config is None and not sys.stdin.isatty()):
        # another program's output is of any encoding
        given = sys.stdin.buffer.read().decode("utf-8", errors="replace")
        if not given.strip():
            raise typer.BadParameter("nothing came in: pipe a text into `costmodel doctor -`")
    elif source is not None:
        given = Path(source)
    found = diagnose(
        given,
        problem=None if problem is None else _problem(problem, dtype, layout),
        profile=profile,
        config=config,
    )
    print_json(found.as_dict()) if as_json else typer.echo(found.text())


def _problem(text: str, dtype: str, layout: str) -> Gemm:
    sizes = text.lower().split("x")
    if len(sizes) != 3 or not all(size.isdecimal() for size in sizes):
        raise ConfigError(f"--problem reads 4096x4096x4096, got {text!r}")
    m, n, k = (int(size) for size in sizes)
    return problem_of(m, n, k, dtype, layout, 1)
