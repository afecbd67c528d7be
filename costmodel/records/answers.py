"""Measured answers: what ``tune`` found, remembered for this very problem and chip alone."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from costmodel.config import KernelConfig
from costmodel.errors import CostModelError
from costmodel.paths import user_path
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.records.log import alone, append_lines
from costmodel.records.schema import PROBLEM_COLUMNS
from costmodel.records.source_hash import kernel_hash


@dataclass(frozen=True)
class Answer:
    """The fastest configuration measured, its time, the vendor's, and when."""

    config: KernelConfig
    time_us: float
    p10_us: float
    p90_us: float
    vendor_us: float | None
    timestamp: str


def answers_path() -> Path:
    """The user's file of tuned answers: JSON Lines, the last line for a problem counts."""
    return user_path("answers.jsonl")


def remember(problem: Gemm, profile: HardwareProfile, answer: Answer) -> None:
    """Append an answer. It is found again while the chip's units and the kernel are the same."""
    line = {
        "problem": {name: getattr(problem, name) for name in PROBLEM_COLUMNS},
        "profile": profile.name,
        "units": profile.units,
        "kernel_hash": kernel_hash(answer.config.template),
        "config": answer.config.as_dict(),
        "time_us": answer.time_us,
        "p10_us": answer.p10_us,
        "p90_us": answer.p90_us,
        "vendor_us": answer.vendor_us,
        "timestamp": answer.timestamp,
    }
    append_lines(answers_path(), [json.dumps(line, allow_nan=False).encode() + b"\n"])


@contextmanager
def measuring_on(device: int) -> Iterator[None]:
    """Hold GPU ``device`` of this user against his other threads and processes.

    Two that tune at once would time each other's kernels, and measure the same shape twice.
    Raises ``RecordError`` where the user's folder cannot be written to.
    """
    with alone(user_path(f"gpu{device}.lock")):
        yield


def recall(problem: Gemm, profile: HardwareProfile) -> Answer | None:
    """The remembered answer for exactly this problem on this chip, or None."""
    state = answers_state()
    if state is None:
        return None
    return _load(*state).get((problem, profile.name, profile.units))


def answers_state() -> tuple[str, int, int] | None:
    """The file of answers with its time and size: while it stays the same, so do they."""
    path = answers_path()
    try:
        status = os.stat(path)
    except OSError:
        return None
    return str(path), status.st_mtime_ns, status.st_size


def now() -> str:
    """The time of an answer, ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@lru_cache(maxsize=2)
def _load(path: str, _modified: int, _size: int) -> dict[tuple[Gemm, str, int], Answer]:
    found: dict[tuple[Gemm, str, int], Answer] = {}
    try:
        texts = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found  # what cannot be read holds no answer
    for text in texts:
        try:
            line = json.loads(text)
            key, answer = _parse(line)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError, CostModelError):
            continue  # a torn or foreign line is no answer
        if kernel_hash(answer.config.template) == line["kernel_hash"]:
            found[key] = answer
    return found


def _time(value: Any) -> float:
    """A time that a clock can show, in microseconds."""
    number = float(value)
    if not 0 < number < math.inf:
        raise ValueError(f"no time: {value}")
    return number


def _parse(line: Mapping[str, Any]) -> tuple[tuple[Gemm, str, int], Answer]:
    vendor = line["vendor_us"]
    answer = Answer(
        config=KernelConfig(**line["config"]),
        time_us=_time(line["time_us"]),
        p10_us=_time(line["p10_us"]),
        p90_us=_time(line["p90_us"]),
        vendor_us=None if vendor is None else _time(vendor),
        timestamp=str(line["timestamp"]),
    )
    return (Gemm(**line["problem"]), str(line["profile"]), int(line["units"])), answer
