"""Where a calibration goes: the name that finds its base again, and a file that it may take.

Both are known before anything is measured, so that no reading is lost to a file that cannot be
written or that would not load.
"""

from __future__ import annotations

import os
from pathlib import Path

from costmodel.errors import CostModelError, ProfileError
from costmodel.profile import HardwareProfile, load_profile, user_folder
from costmodel.profile.load import own_file, read_toml
from costmodel.profile.overlay import is_overlay

_SUFFIX = ".toml"


def base_of(profile: str | os.PathLike[str] | HardwareProfile | None, chip: HardwareProfile) -> str:
    """The name by which an overlay finds the profile ``chip`` that ``profile`` stands for.

    Raises ``ProfileError`` for a chip that no name stands for, or another file's than its own.
    """
    if profile is None or isinstance(profile, HardwareProfile):
        return _found(chip.name, None, chip.name)
    text = str(os.fspath(profile))
    by_path = text.lower().endswith(_SUFFIX)
    file = Path(text).expanduser() if by_path else own_file(text)
    document = read_toml(file, str(file)) if file is not None else {}
    if is_overlay(document):  # a later calibration replaces it, with the same base
        return str(document["base"]).strip().lower()
    if not by_path or file is None:
        return text.strip().lower()
    own = file.resolve().parent == user_folder().resolve()
    return _found(file.stem.lower() if own else chip.name, chip, text)


def _found(name: str, chip: HardwareProfile | None, where: str) -> str:
    """``name``, where it loads, and loads ``chip`` if one is given."""
    try:
        there = load_profile(name)
    except (ProfileError, LookupError) as error:
        why = str(error)
    else:
        if chip is None or there == chip:
            return name
        why = f"{name!r} stands for other figures than this file's"
    raise ProfileError(
        f"{where}: a calibration finds its base by name, and {why}. Put the profile's file into "
        f"{user_folder()} under a name of its own, and give that name with --profile"
    )


def default_file(base: str) -> Path:
    """Where a calibration takes its base's place, or beside it where that is the user's own."""
    there = own_file(base)
    if there is None:
        return user_folder() / f"{base}{_SUFFIX}"
    if is_overlay(read_toml(there, str(there))):
        return there
    beside = f"{base}-measured"
    return own_file(beside) or user_folder() / f"{beside}{_SUFFIX}"


def check_file(base: str, out: str | os.PathLike[str] | None = None) -> Path:
    """The file for a calibration of ``base``, ``default_file`` without ``out``; makes its folder.

    Raises ``ProfileError`` rather than replace what is no calibration of this chip, and for a
    file that could not be written or would not be read as a profile.
    """
    path = default_file(base) if out is None else Path(out).expanduser()
    remedy = "name a file with --out" if out is None else "give --out another file"
    if path.suffix.lower() != _SUFFIX:
        raise ProfileError(f"{path}: the path of a profile ends in {_SUFFIX}: {remedy}")
    if path.is_dir():
        raise ProfileError(f"{path} is a folder: {remedy}")
    if path.exists():
        try:
            there = read_toml(path, str(path))
        except ProfileError as error:
            raise ProfileError(f"{error}; it is not replaced: {remedy}") from error
        if not is_overlay(there) or str(there["base"]).strip().lower() != base.lower():
            raise ProfileError(f"{path} holds other figures than a calibration of {base}: {remedy}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProfileError(f"{path.parent} cannot be made: {error.strerror}: {remedy}") from error
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ProfileError(f"{path.parent} cannot be written to: {remedy}")
    return path


def check_loads(path: Path) -> None:
    """Raise ``ProfileError`` where the overlay at ``path`` is no profile."""
    try:
        load_profile(path)
    except CostModelError as error:
        raise ProfileError(f"{path} was written, and cannot be used: {error}") from error
