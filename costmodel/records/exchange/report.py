"""What an import took, refused and lost; and what a format does not say and must be told."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from costmodel.errors import CostModelError
from costmodel.records.claims import Claim
from costmodel.records.schema import Row


@dataclass(frozen=True)
class Given:
    """Facts that come with no file of a format: the importer is told them, or leaves them null.

    ``shape`` is (M, N, K); ``key`` names the numbers of an autotuner's key in order. ``source``
    replaces the name that the format gives to the kernel.
    """

    device_name: str | None = None
    units: int | None = None
    driver: str | None = None
    torch: str | None = None
    triton: str | None = None
    shape: tuple[int, int, int] | None = None
    dtype: str | None = None
    layout: str | None = None
    key: tuple[str, ...] = ("M", "N", "K")
    source: str | None = None


@dataclass(frozen=True)
class Refusal:
    """A part of a file that was not taken: where it stands, and why."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass
class ImportReport:
    """One file's import. ``lost`` counts, by what has no place here, the entries that had it."""

    file: str
    format: str
    #: the id of the run that the rows belong to: made from the content, so that a file that is
    #: imported twice is known
    run: str
    rows: list[Row] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    assumed: list[str] = field(default_factory=list)
    #: rows and claims that the log held already
    known: int = 0

    def refuse(self, where: str, reason: object) -> None:
        """Note a part that is not taken."""
        self.refused.append(Refusal(where, str(reason)))

    def assume(self, what: str) -> None:
        """Note once what the file does not say."""
        if what not in self.assumed:
            self.assumed.append(what)

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Refuse what the block cannot make sense of, and go on behind it."""
        try:
            yield
        except CostModelError as error:
            self.refuse(where, error)
        except KeyError as error:
            self.refuse(where, f"{error} is missing")
        except (TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
            self.refuse(where, f"not laid out as the format says: {error}")

    def as_dict(self) -> dict[str, Any]:
        """Plain values; rows and claims by number."""
        return {
            "file": self.file,
            "format": self.format,
            "rows": len(self.rows),
            "failures": sum(row["invalidity"] != "correct" for row in self.rows),
            "claims": len(self.claims),
            "known": self.known,
            "refused": [{"where": r.where, "reason": r.reason} for r in self.refused],
            "lost": dict(self.lost),
            "assumed": self.assumed,
        }


Reader = Callable[[bytes, ImportReport, Given], None]


def run_id(what: str) -> str:
    """An id for rows that are heard now."""
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    digest = hashlib.sha256(f"{what}{os.getpid()}{time.monotonic_ns()}".encode()).hexdigest()
    return f"{moment}-{digest[:6]}"
