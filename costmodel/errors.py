"""The errors a user meets: what was wrong, where, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CostModelError(Exception):
    """Base of every error this package raises on purpose."""


class ProblemError(CostModelError, ValueError):
    """A problem that no chip could run: a bad size, dtype or layout."""


class ConfigError(CostModelError, ValueError):
    """A kernel configuration that is malformed, or that a launcher cannot run on these tensors."""


class ProfileError(CostModelError, ValueError):
    """A hardware profile that cannot be read, or a chip that cannot be identified."""


class UnsupportedError(CostModelError, ValueError):
    """A problem that is well formed but that the chip in question cannot run."""


class NoCandidateError(CostModelError, ValueError):
    """Every candidate was rejected. Names the tightest limit and the smallest excess."""


class RecordError(CostModelError, ValueError):
    """A log or shard of measured runs that cannot be used."""


class ModelError(CostModelError, ValueError):
    """A trained-model file that cannot be used."""


class DeviceError(CostModelError, RuntimeError):
    """Something that needs a GPU was asked for where there is none, or it failed there."""


class UnknownNameError(CostModelError, LookupError):
    """A name that is not in a closed list. The message holds the closest names."""

    def __str__(self) -> str:  # LookupError's subclasses would print the repr
        return str(self.args[0]) if self.args else ""


def unknown_name(kind: str, given: object, known: Iterable[str]) -> UnknownNameError:
    """Build the error for a name outside a closed list, with the closest known names.

    >>> str(unknown_name("dtype", "float61", ["fp16", "fp32", "float16"]))
    "unknown dtype 'float61'; did you mean 'float16'?"
    """
    names = sorted(known)
    text = str(given).lower()
    # a name cut short comes first, whatever else looks like it
    begun = [name for name in names if len(text) > 1 and name.startswith(text)]
    close = sorted(begun, key=len) + difflib.get_close_matches(text, names, n=3, cutoff=0.5)
    close = list(dict.fromkeys(close))[:3]
    if close:
        hint = "did you mean " + " or ".join(repr(name) for name in close) + "?"
    else:
        hint = "known: " + ", ".join(names)
    return UnknownNameError(f"unknown {kind} {given!r}; {hint}")
