"""What the package wrote into the user's folder: cache show, cache clear."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli.app import app
from costmodel.cli.problem import AsJson
from costmodel.cli.show import print_json
from costmodel.errors import CostModelError
from costmodel.paths import user_dir

cache = typer.Typer(
    no_args_is_help=True,
    help="What was measured, tuned and trained here.\n\nExample: `costmodel cache show`",
)
app.add_typer(cache, name="cache")

#: every file that the package itself writes below the user's folder, with its meaning; profiles
#: there are the user's own, and not listed
WRITTEN = {
    "log.jsonl": "measured runs",
    "answers.jsonl": "tuned answers",
    "claims.jsonl": "imported claims",
    "models/ranker.npz": "own model",
    "models/ranker.json": "own model's manifest",
    "models/ranker.old.npz": "own model before that",
    "models/ranker.old.json": "its manifest",
}
_LOCKS = "gpu*.lock"


def written() -> dict[str, int]:
    """Name -> size in bytes of the package's files that exist."""
    folder = user_dir()
    names = [*WRITTEN, *sorted(path.name for path in folder.glob(_LOCKS))]
    return {name: (folder / name).stat().st_size for name in names if (folder / name).is_file()}


@cache.command()
def show(as_json: AsJson = False) -> None:
    """The folder and the size of each file in it that this package wrote.

    Example: `costmodel cache show --json`
    """
    found = written()
    if as_json:
        print_json({"folder": str(user_dir()), "files": found, "bytes": sum(found.values())})
    else:
        typer.echo(_listing(found))


@cache.command()
def clear(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove the files that this package wrote, and nothing else. Measured runs go too.

    Example: `costmodel cache clear --yes`
    """
    found = written()
    typer.echo(_listing(found))
    if not found:
        return
    if not yes:
        typer.confirm("Remove them?", abort=True)
    folder = user_dir()
    for name in found:
        _remove(folder / name)
    models = folder / "models"
    if models.is_dir() and not models.is_symlink() and not any(models.iterdir()):
        models.rmdir()
    typer.echo(f"removed {len(found)} file{'s' * (len(found) != 1)}")


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise CostModelError(f"cannot remove {path}: {error.strerror}") from error


def _listing(found: dict[str, int]) -> str:
    lines = [str(user_dir()) if found else f"{user_dir()}: nothing there"]
    lines += [
        f"  {size:>12} bytes  {name}  ({WRITTEN.get(name, 'a lock')})"
        for name, size in found.items()
    ]
    return "\n".join(lines)
