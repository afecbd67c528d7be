"""Versions in their own order: 3.10 is newer than 3.9."""

from __future__ import annotations

import re
from collections.abc import Iterable


def version_key(version: str) -> tuple[tuple[int, ...], bool, str]:
    """A key that sorts versions by their numbers; of equal ones a pre-release comes first.

    >>> sorted(["3.10.0", "3.9.0", "3.10.0rc1", "3.10"], key=version_key)
    ['3.9.0', '3.10', '3.10.0rc1', '3.10.0']
    """
    release = re.match(r"\D*((?:\d{1,9})(?:\.\d{1,9})*)", version)
    numbers = tuple(int(part) for part in release.group(1).split(".")) if release else ()
    rest = version[release.end() :] if release else version
    return numbers, not re.match(r"[._-]?(a|b|c|rc|dev|alpha|beta|pre)", rest), rest


def newest_first(versions: Iterable[str]) -> list[str]:
    """The versions, the newest first; an unknown one ("") last."""
    return sorted(set(versions), key=version_key, reverse=True)
