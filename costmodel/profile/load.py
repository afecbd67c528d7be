"""Finding a profile by name or path: the user's own folder first, then the shipped ones."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from costmodel.errors import ProfileError, unknown_name
from costmodel.paths import packaged, user_dir
from costmodel.profile.derive import part_named, slice_of
from costmodel.profile.hardware import HardwareProfile
from costmodel.profile.overlay import is_overlay, overlaid
from costmodel.profile.parse import parse_profile

_SUFFIX = ".toml"


def load_profile(name_or_path: str | os.PathLike[str] | HardwareProfile) -> HardwareProfile:
    """Read a profile by name ("h200-sxm", in any case) or by path (ending in ``.toml``).

    "h200-sxm-78-units" is a part of that chip (``slice_of``). A file of that name in
    ``user_folder()`` comes before the shipped one; a file that names a ``base`` is an overlay on
    that profile. A ``HardwareProfile`` is given back as it is. Raises ``UnknownNameError`` with
    the closest names, and ``ProfileError`` that names the file and the key for a file that cannot
    be used.
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
    return _by_name(text, frozenset())


def list_profiles() -> list[str]:
    """Names that ``load_profile`` knows, the user's own and the shipped, sorted.

    A user's own file may be broken: ``readable_profiles`` says which, and why.
    """
    return sorted({*_user_files(), *_shipped_files()})


def readable_profiles() -> tuple[dict[str, HardwareProfile], dict[str, str]]:
    """Every known profile by name, and for each that cannot be used the reason."""
    sound: dict[str, HardwareProfile] = {}
    broken: dict[str, str] = {}
    for name in list_profiles():
        try:
            sound[name] = load_profile(name)
        except (ProfileError, LookupError) as error:
            broken[name] = str(error)
    return sound, broken


def shipped_profiles() -> list[HardwareProfile]:
    """Every profile of the package itself, by name."""
    return [_shipped(name) for name in sorted(_shipped_files())]


def user_folder() -> Path:
    """Where a user's own profiles and overlays stand. It need not exist."""
    return user_dir() / "profiles"


def own_file(name: str) -> Path | None:
    """The user's own file that a profile's name stands for, in any case, or None."""
    return _user_files().get(name.strip().lower())


def part_of(chip: HardwareProfile, units: int) -> HardwareProfile:
    """So many units of a chip: the file of that part's name where there is one, else ``slice_of``.

    All of the chip's units are the chip itself. Raises ``ProfileError`` as both do.
    """
    if units == chip.units:
        return chip
    part = slice_of(chip, units)
    return load_profile(part.name) if part.name in list_profiles() else part


def read_toml(file: Path | Traversable, where: str) -> dict[str, Any]:
    """A TOML file's content. Raises ``ProfileError`` that says what is wrong with the file."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"{where}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, or not TOML
        raise ProfileError(f"{where}: not a TOML file: {error}") from error


def _by_name(text: str, above: frozenset[Path]) -> HardwareProfile:
    """A profile by name; the files of ``above`` are the overlays that ask for it."""
    name = text.strip().lower()
    own = _user_files().get(name)
    if own is not None and own.resolve() not in above:
        return _read(own, str(own), above)
    if name not in _shipped_files():
        part = part_named(name)
        if part is not None:
            return slice_of(_by_name(part[0], above), *part[1:])
        raise unknown_name("profile", text, list_profiles())
    return _shipped(name)


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


@cache
def _shipped(name: str) -> HardwareProfile:
    return _read(_shipped_files()[name], f"{name}{_SUFFIX}")


def _read(
    file: Path | Traversable, where: str, above: frozenset[Path] = frozenset()
) -> HardwareProfile:
    document: Mapping[str, Any] = read_toml(file, where)
    if not is_overlay(document):
        return parse_profile(document, where)
    seen = above | ({file.resolve()} if isinstance(file, Path) else set())
    return overlaid(document, where, lambda name: _by_name(name, seen))
