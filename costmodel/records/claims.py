"""What others' tables claim: winners without times, and times without a configuration.

A claim is no measured run: it answers nothing and trains nothing. It is shown beside what was
measured, as a candidate to try or as the vendor's gap that somebody else saw.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from costmodel.config import KernelConfig
from costmodel.dtypes import canonical_dtype
from costmodel.errors import CostModelError, RecordError
from costmodel.paths import user_dir
from costmodel.problem import MAX_DIMENSION
from costmodel.records.log import MAX_LINE_BYTES as _LONGEST
from costmodel.records.log import LineProblem, append_lines, bounded_lines, decode, excerpt

#: raised when an older reader would misunderstand a line
VERSION = 1
#: what was computed: a plain product, one with a scale for each block of its operands, or the
#: products of a mixture of experts in one launch
OPERATORS = ("gemm", "scaled_gemm", "fused_moe")

_TEXT_LIMIT = 300


@dataclass(frozen=True)
class Claim:
    """One line of somebody's table. ``k`` is None where the table does not say it.

    ``config`` is the winner, or None; ``time_us`` and ``vendor_us`` are times that came without a
    configuration. ``detail`` holds what has no field here. Raises ``RecordError``.
    """

    operator: str
    m: int
    n: int
    k: int | None
    dtype: str
    device_name: str
    source: str
    origin: str
    device: str | None = None
    layout: str | None = None
    config: KernelConfig | None = None
    time_us: float | None = None
    vendor_us: float | None = None
    triton: str | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise RecordError(f"operator must be one of {OPERATORS}, got {self.operator!r:.60}")
        for name in ("m", "n", "k"):
            size = getattr(self, name)
            whole = isinstance(size, int) and not isinstance(size, bool)
            unsaid = name == "k" and size is None
            if not unsaid and not (whole and 1 <= size <= MAX_DIMENSION):
                raise RecordError(f"{name} must be from 1 to {MAX_DIMENSION}, got {size!r:.60}")
        for name in ("time_us", "vendor_us"):
            time = getattr(self, name)
            if time is not None and not (isinstance(time, float) and 0 < time < math.inf):
                raise RecordError(f"{name} must be a positive number, got {time!r:.60}")
        for name in ("dtype", "device_name", "source", "origin"):
            if not getattr(self, name):
                raise RecordError(f"{name} is missing")
        for name in ("device_name", "source", "origin", "device", "layout", "triton", "detail"):
            text = getattr(self, name)
            if text is not None and not (isinstance(text, str) and len(text) <= _TEXT_LIMIT):
                raise RecordError(f"{name} must be a text of at most {_TEXT_LIMIT} characters")
        object.__setattr__(self, "dtype", canonical_dtype(self.dtype))
        if self.config is None and self.time_us is None and self.vendor_us is None:
            raise RecordError("a claim needs a configuration or a time")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class ClaimBook:
    """The claims that were imported, one JSON object a line; the user's own file by default."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = user_dir() / "claims.jsonl" if path is None else Path(path)

    def append(self, claims: Iterable[Claim]) -> int:
        """Add those that are not there yet; gives their number."""
        known = set(self.read()[0])
        fresh = [claim for claim in dict.fromkeys(claims) if claim not in known]
        lines = (
            json.dumps({"claim": VERSION} | claim.as_dict(), allow_nan=False) for claim in fresh
        )
        append_lines(self.path, [line.encode("ascii") + b"\n" for line in lines])
        return len(fresh)

    def read(self) -> tuple[list[Claim], list[LineProblem]]:
        """The claims in order, and the lines that are none. A missing file holds none."""
        claims: list[Claim] = []
        problems = []
        try:
            with self.path.open("rb") as stream:
                for number, line in bounded_lines(stream):
                    try:
                        claims.append(_parsed(line))
                    except (CostModelError, TypeError, KeyError) as error:
                        problems.append(LineProblem(number, str(error), excerpt(line)))
        except FileNotFoundError:
            return [], []
        except OSError as error:
            raise RecordError(f"cannot read {self.path}: {error.strerror}") from error
        return claims, problems


def _parsed(line: bytes) -> Claim:
    if len(line) > _LONGEST:
        raise RecordError(f"longer than {_LONGEST} bytes")
    content = decode(line)
    if not isinstance(content, Mapping) or content.get("claim") != VERSION:
        raise RecordError(f"not a claim of version {VERSION}")
    fields = {name: value for name, value in content.items() if name != "claim"}
    config = fields.pop("config", None)
    return Claim(**fields, config=None if config is None else KernelConfig(**config))
