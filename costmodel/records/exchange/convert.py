"""Import by format: read a file within bounds, take what it holds, add it to the log once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from costmodel.errors import RecordError, unknown_name
from costmodel.records.claims import ClaimBook
from costmodel.records.exchange import flaggems, flagtune, t4, triton_cache, tuned_table
from costmodel.records.exchange.report import Given, ImportReport, Reader
from costmodel.records.log import RunLog
from costmodel.records.quality import impossible
from costmodel.records.schema import Row, row_key


@dataclass(frozen=True)
class Format:
    """A format's name, what it is, its reader, and the most bytes that a file may have.

    A document of nested lists takes some 30 times its size in memory once it is parsed; lines are
    parsed one by one.
    """

    name: str
    meaning: str
    reader: Reader
    most_bytes: int


_DOCUMENT = 16 * 2**20
_LINES = 256 * 2**20

FORMATS = {
    f.name: f
    for f in (
        Format("t4", "T4 1.0.0 results, of Kernel Tuner and others", t4.read, _DOCUMENT),
        Format("flagtune", "FlagTune's benchmark_data.jsonl", flagtune.read, _LINES),
        Format("triton", "a .autotune.json of Triton's cache", triton_cache.read, _DOCUMENT),
        Format("flaggems", "FlagGems' benchmark log", flaggems.read, _LINES),
        Format("vllm", "a tuned table of vLLM", tuned_table.read, _DOCUMENT),
        Format("sglang", "a tuned table of SGLang", tuned_table.read, _DOCUMENT),
    )
}


def read_file(name: str, path: str | os.PathLike[str], given: Given | None = None) -> ImportReport:
    """What a file of the format holds, as rows and claims; what is no part of it is refused.

    Rows above the roofline are refused too. Raises ``UnknownNameError`` for the format and
    ``RecordError`` for a file that cannot be read, is too large, or is nothing of that format.
    """
    if name not in FORMATS:
        raise unknown_name("format", name, FORMATS)
    data = _content(Path(path), FORMATS[name].most_bytes)
    digest = hashlib.sha256(data).hexdigest()[:12]
    report = ImportReport(str(path), name, f"{name}-{digest}")
    try:
        FORMATS[name].reader(data, report, given or Given())
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
    sound = []
    for row in report.rows:
        why = impossible(row)
        if why is None:
            sound.append(row)
        else:
            report.refuse(f"row {row['sequence']}", why)
    report.rows = sound
    return report


def import_files(
    name: str,
    paths: Iterable[str | os.PathLike[str]],
    log: RunLog,
    book: ClaimBook | None = None,
    given: Given | None = None,
) -> list[ImportReport]:
    """Add the files' rows to ``log`` and their claims to ``book``, and say of each what was taken.

    What the log holds already is not added again, so an import may be repeated. Raises as
    ``read_file``; then nothing of any file was added.
    """
    reports = [read_file(name, path, given) for path in paths]
    held = {_identity(row) for row in log.read().rows} if log.path.exists() else set()
    for report in reports:
        fresh = [row for row in report.rows if _identity(row) not in held]
        held |= {_identity(row) for row in fresh}
        log.append_many(fresh)
        report.known = len(report.rows) - len(fresh)
        if report.claims:
            report.known += len(report.claims) - (book or ClaimBook()).append(report.claims)
    return reports


def _identity(row: Row) -> tuple[object, ...]:
    return (row["run"], row["sequence"], row["backend"], *row_key(row))


def _content(path: Path, most_bytes: int) -> bytes:
    try:
        if not path.is_file():  # a device or a pipe could go on for ever
            raise RecordError(f"there is no file at {path}")
        size = path.stat().st_size
        if size > most_bytes:
            raise RecordError(f"{path} takes {size} bytes; at most {most_bytes} are read")
        with path.open("rb") as stream:
            return stream.read(most_bytes)
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
