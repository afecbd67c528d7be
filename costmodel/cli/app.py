"""The command's frame: options that all commands share, and errors as one line."""

from __future__ import annotations

import sys
from importlib import import_module, metadata
from typing import NoReturn

import typer

from costmodel.errors import CostModelError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    # a fault of ours shows Python's own traceback: it can be pasted, and holds no local values
    pretty_exceptions_enable=False,
    help="Which Triton GEMM configuration is fastest for a shape on a chip, and why.\n\n"
    "Example: `costmodel predict 4096 4096 4096 --profile h200-sxm`",
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


#: wrong use of a command; typer carries its own copy of click, or uses an installed one
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Entry point: errors become one line.

    Exit status 2 for our own errors and wrong use, 1 for what the operating system refuses.
    """
    for name in COMMANDS:
        import_module(f"costmodel.cli.{name}")
    try:
        sys.exit(app(standalone_mode=False, prog_name="costmodel") or 0)
    except CostModelError as error:
        _refuse("costmodel", str(error))
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
            error.show()  # type: ignore[attr-defined]
            sys.exit(2)
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "costmodel"
        told = error.format_message().rstrip(".")  # type: ignore[attr-defined]
        _refuse(where, f"{told}; see {where} --help")
    except OSError as error:
        told = str(error)
        if error.filename is not None:
            told = f"{error.filename}: {error.strerror}"
        _refuse("costmodel", told, status=1)
    except typer.Abort:
        sys.exit(1)


def _refuse(where: str, told: str, status: int = 2) -> NoReturn:
    typer.echo(f"{where}: {' '.join(told.split())}", err=True)
    sys.exit(status)
