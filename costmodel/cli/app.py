"""The command's frame: options that all commands share, and errors as one line."""

from __future__ import annotations

import sys
from importlib import import_module, metadata

import typer

from costmodel.errors import CostModelError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    # a fault of ours shows Python's own traceback: it can be pasted, and holds no local values
    pretty_exceptions_enable=False,
    help="Which Triton GEMM configuration is fastest for a shape on a chip, and why.",
)

#: importing one registers its commands, in the order of the help
COMMANDS = (
    "predicting",
    "doctor",
    "tuning",
    "ladder",
    "measuring",
    "exchange",
    "runs",
    "training",
    "judging",
    "profiles",
    "cache",
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
    for name in COMMANDS:
        import_module(f"costmodel.cli.{name}")
    try:
        app()
    except CostModelError as error:
        typer.echo(f"costmodel: {' '.join(str(error).split())}", err=True)
        sys.exit(2)
