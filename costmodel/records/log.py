"""The append-only log of measured runs: JSON Lines, safe for several writers at once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from costmodel.errors import RecordError
from costmodel.records.schema import Row, row_key, validate_row

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

#: a row takes about 1 KB; what is a thousand times longer is no row, and is not loaded
MAX_LINE_BYTES = 1 << 20

_EXCERPT_CHARACTERS = 80
_BINARY = getattr(os, "O_BINARY", 0)  # without it Windows writes \r\n
#: msvcrt locks a range of bytes that nobody else can then read, so one past any log's end
_WINDOWS_LOCK_OFFSET = 2**31 - 2


@dataclass(frozen=True)
class LineProblem:
    """A line of a log that is no row: its number from 1, why, and how it begins."""

    line_number: int
    reason: str
    excerpt: str

    def __str__(self) -> str:
        return f"line {self.line_number}: {self.reason} [{self.excerpt}]"


@dataclass(frozen=True)
class ReadReport:
    """The rows of a log in order, the number of each one's line, and the lines that are none."""

    rows: list[Row] = field(default_factory=list)
    problems: list[LineProblem] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


class RunLog:
    """A log of measured runs at ``path``; the file need not exist before the first append.

    Any number of processes and threads may append to one file: each call adds its rows whole
    and together. The file is never rewritten.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(self, row: Row) -> None:
        """Add one row. Raises ``RecordError`` for a row or a path that cannot be used."""
        self.append_many([row])

    def append_many(self, rows: Iterable[Row]) -> None:
        """Add rows in one write: all are checked before any is written.

        Raises ``RecordError`` as ``append``. The bytes are handed to the operating system, not
        forced to the disk.
        """
        append_lines(self.path, [_encode(row) for row in rows])

    def read(self) -> ReadReport:
        """All rows, and every line that is not one; the file is left as it is.

        A bad line never raises. Raises ``RecordError`` where there is no file to read.
        """
        try:
            with self.path.open("rb") as stream:
                return read_lines(stream)
        except FileNotFoundError:
            raise RecordError(
                f"there is no log at {self.path}; `costmodel collect` writes one"
            ) from None
        except OSError as error:
            raise RecordError(f"cannot read the log {self.path}: {error.strerror}") from error

    def keys(self) -> set[tuple[Any, ...]]:
        """``row_key`` of every row, failures included: what a resumed run need not repeat.

        A log that does not exist yet has none.
        """
        return {row_key(row) for row in self.read().rows} if self.path.exists() else set()


def append_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Append whole lines (each ending in a newline) to a file, together, beside other writers.

    Raises ``RecordError`` for a path that cannot be used.
    """
    data = b"".join(lines)
    if not data:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | _BINARY
        descriptor = os.open(path, flags, 0o644)
        try:
            with _exclusive(descriptor):
                _append(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RecordError(
            f"cannot append to {path}: {error.strerror}; give a writable path on a file system "
            "that has locks"
        ) from error


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock of a file that is there for nothing else, against threads and processes.

    Raises ``RecordError`` for a path that cannot be used.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _BINARY, 0o644)
    except OSError as error:
        raise RecordError(f"cannot lock {path}: {error.strerror}") from error
    try:
        with _exclusive(descriptor):
            yield
    finally:
        os.close(descriptor)


def read_lines(stream: IO[bytes]) -> ReadReport:
    """Rows and problems of a log that is open for reading in binary."""
    report = ReadReport()
    for number, line in bounded_lines(stream):
        if not line.strip():
            continue
        try:
            if len(line) > MAX_LINE_BYTES:
                raise RecordError(f"longer than {MAX_LINE_BYTES} bytes")
            report.rows.append(validate_row(decode(line)))
            report.lines.append(number)
        except RecordError as error:
            report.problems.append(LineProblem(number, str(error), excerpt(line)))
    return report


def require_rows(report: ReadReport, path: object) -> list[Row]:
    """The report's rows; ``RecordError`` where none of them holds a time to learn from."""
    if any(row["invalidity"] == "correct" for row in report.rows):
        return report.rows
    parts = [f"{path} holds no measured rows"]
    if report.rows:
        parts.append(f"its {len(report.rows)} rows are all failures")
    if report.problems:
        count = len(report.problems)
        parts.append(f"{count} of its lines could not be read, the first: {report.problems[0]}")
    parts.append("measure some with `costmodel collect`, or give another log")
    raise RecordError("; ".join(parts))


def bounded_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Numbered lines without their ends; an overlong one cut to one byte past the bound."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        rest = line
        while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE_BYTES + 1)
        yield number, line.rstrip(b"\r\n") if line.endswith(b"\n") else line


def _encode(row: Row) -> bytes:
    text = json.dumps(validate_row(row), allow_nan=False, separators=(",", ":"))
    line = text.encode("ascii") + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise RecordError(f"a row may take {MAX_LINE_BYTES} bytes, this one takes {len(line)}")
    return line


def decode(line: bytes) -> Any:
    """What a line of JSON holds. Raises ``RecordError`` that says where it breaks."""
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        what = "not JSON" if line.rstrip().endswith(b"}") else "cut off, or not JSON"
        raise RecordError(f"{what}: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise RecordError("nested too deeply; a row is flat") from None
    except ValueError as error:  # a whole number of thousands of digits
        raise RecordError(f"not readable: {error}") from None


def excerpt(line: bytes) -> str:
    """The line's beginning with nothing in it that a terminal would obey."""
    text = line[: 4 * _EXCERPT_CHARACTERS].decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() else "?" for c in text[:_EXCERPT_CHARACTERS])
    return shown + ("..." if len(text) > _EXCERPT_CHARACTERS else "")


def _append(descriptor: int, data: bytes) -> None:
    """Write at the end; a line that a crash left open is closed first, so it takes no row along."""
    if os.lseek(descriptor, 0, os.SEEK_END) > 0:
        os.lseek(descriptor, -1, os.SEEK_END)
        if os.read(descriptor, 1) != b"\n":
            data = b"\n" + data
    rest = memoryview(data)
    while rest:  # one write, save where the system takes only a part of it
        rest = rest[os.write(descriptor, rest) :]


@contextmanager
def _exclusive(descriptor: int) -> Iterator[None]:
    """Hold the advisory lock of an open file; waits for as long as another writer has it."""
    if sys.platform == "win32":
        _lock_windows(descriptor, msvcrt.LK_NBLCK)
        try:
            yield
        finally:
            _lock_windows(descriptor, msvcrt.LK_UNLCK)
    else:
        # flock, not lockf: it belongs to the open file, so it keeps two threads apart as well
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


if sys.platform == "win32":
    import errno
    import time

    def _lock_windows(descriptor: int, mode: int) -> None:
        while True:
            os.lseek(descriptor, _WINDOWS_LOCK_OFFSET, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, mode, 1)
                return
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EDEADLK):
                    raise
                time.sleep(0.01)
