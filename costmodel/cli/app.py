"""The command's frame: options that all commands share, and errors as one line."""

from __future__ import annotations

import sys
from importlib import metadata

import typer

from costmodel.errors import CostModelError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="Which Triton GEMM configuration is fastest for a shape on a chip, and why.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(metadata.version("triton-costmodel"))
        raise typer.Exit


@app.callback()
def _frame(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Options before the command."""


def main() -> None:
    """Entry point: our own errors become one line and exit status 2."""
    from costmodel.cli import measuring  # noqa: F401  (registers its commands)

    try:
        app()
    except CostModelError as error:
        typer.echo(f"costmodel: {error}", err=True)
        sys.exit(2)
