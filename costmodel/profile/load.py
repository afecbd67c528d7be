"""Finding a profile by name or path: the user's own folder first, then the shipped ones."""

from __future__ import annotations

import os
import tomllib
from functools import lru_cache
from importlib.resources.abc import Traversable
from pathlib import Path

from costmodel.errors import ProfileError, unknown_name
from costmodel.paths import packaged, user_dir
from costmodel.profile.hardware import HardwareProfile
from costmodel.profile.parse import parse_profile

_SUFFIX = ".toml"


def load_profile(name_or_path: str | os.PathLike[str] | HardwareProfile) -> HardwareProfile:
    """Read a profile by name ("h200-sxm", in any case) or by path (ending in ``.toml``).

    A file of that name in ``user_folder()`` comes before the shipped one. A ``HardwareProfile``
    is given back as it is. Raises ``UnknownNameError`` with the closest names, and
    ``ProfileError`` that names the file and the key for a file that cannot be used.
    """
    if isinstance(name_or_path, HardwareProfile):
        return name_or_path
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise ProfileError(f"a profile is a name, a path or a HardwareProfile: {name_or_path!r}")
    text = str(os.fspath(name_or_path))
    if text.lower().endswith(_SUFFIX):
        return _read(Path(text).expanduser(), text)
    if isinstance(name_or_path, os.PathLike) or "/" in text or "\\" in text:
        raise ProfileError(f"{text}: the path of a profile ends in {_SUFFIX}")
    name = text.strip().lower()
    own = _user_files().get(name)
    if own is not None:
        return _read(own, str(own))
    if name not in _shipped_files():
        raise unknown_name("profile", text, list_profiles())
    return _shipped(name)


def list_profiles() -> list[str]:
    """Names that ``load_profile`` knows, the user's own and the shipped, sorted."""
    return sorted({*_user_files(), *_shipped_files()})


def user_folder() -> Path:
    """Where a user's own profiles stand. It need not exist."""
    return user_dir() / "profiles"


def _user_files() -> dict[str, Path]:
    try:
        paths = sorted(user_folder().iterdir())
    except OSError:  # no such folder, or not ours to read: then there are no own profiles
        return {}
    return {path.stem.lower(): path for path in paths if path.suffix.lower() == _SUFFIX}


@lru_cache(maxsize=1)
def _shipped_files() -> dict[str, Traversable]:
    files = (file for file in packaged("profiles").iterdir() if file.name.endswith(_SUFFIX))
    return {file.name.removesuffix(_SUFFIX): file for file in files}


@lru_cache
def _shipped(name: str) -> HardwareProfile:
    return _read(_shipped_files()[name], f"{name}{_SUFFIX}")


def _read(file: Path | Traversable, where: str) -> HardwareProfile:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"{where}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, or not TOML
        raise ProfileError(f"{where}: not a TOML file: {error}") from error
    return parse_profile(document, where)
