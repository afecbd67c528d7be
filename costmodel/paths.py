"""Where things live: read-only package data, and the user's own folder for everything written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any

HOME_VARIABLE = "COSTMODEL_HOME"


def user_dir() -> Path:
    """Folder for logs, tuned answers, own models and own profiles. It need not exist yet.

    ``COSTMODEL_HOME`` overrides the platform's data folder. Nothing is ever written beside the
    installed package, so a read-only install works.
    """
    return user_path()


def user_path(*parts: str) -> Path:
    """A path below the user's folder, from what the environment says now."""
    return _user_path(parts, *(os.environ.get(name) for name in _VARIABLES))


#: what the user's folder follows from, the package's own first
_VARIABLES = (HOME_VARIABLE, "XDG_DATA_HOME", "HOME", "LOCALAPPDATA")


@lru_cache(maxsize=64)
def _user_path(parts: tuple[str, ...], override: str | None, *_platform: str | None) -> Path:
    if override:
        return Path(override).expanduser().joinpath(*parts)
    import platformdirs

    return Path(platformdirs.user_data_dir("costmodel", appauthor=False), *parts)


def packaged(*parts: str) -> Traversable:
    """A file or folder of the shipped ``costmodel.data``."""
    return resources.files("costmodel.data").joinpath(*parts)


@contextmanager
def atomic_write(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Write ``path`` whole or not at all: a temporary file in the same folder, then a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
