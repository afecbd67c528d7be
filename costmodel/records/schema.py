"""One measured run as one flat row: its columns, how a row is made, checked and told apart."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import metadata
from typing import Any

import numpy as np

from costmodel.config import KNOBS, MOST_KNOB, TEMPLATES, KernelConfig
from costmodel.dtypes import DTYPES, LAYOUTS, OPERANDS, PRECISIONS
from costmodel.errors import CostModelError, RecordError, unknown_name
from costmodel.problem import EPILOGUES, MAX_DIMENSION, Gemm

#: raised only when an older reader would misunderstand a row; a new optional column does not
SCHEMA_VERSION = 1

BACKENDS = ("triton", "origin")
OPERATORS = ("gemm",)
#: the words of the T4 auto-tuning result format
INVALIDITIES = ("correct", "compile", "runtime", "correctness", "timeout", "constraints")

#: a nanosecond: CUDA events resolve about 0.5 us (CUDA Runtime API, cudaEventElapsedTime)
TIME_DECIMALS = 3
#: a compiler's message can run to pages; its head names the cause
REASON_LIMIT = 500

Row = dict[str, Any]

_SHORTEST_US = 10.0**-TIME_DECIMALS
#: a profile's name and never its path: a row must not make a reader open a file
_PROFILE_NAME = re.compile(r"(?!.*\.toml\Z)[a-z0-9][a-z0-9._-]{0,99}", re.IGNORECASE)
MOST_INT64 = 2**63 - 1


@dataclass(frozen=True)
class Column:
    """One column. ``required``: never null. ``key``: part of what makes two runs the same."""

    name: str
    type: type[int] | type[float] | type[str] | type[bool]
    required: bool
    meaning: str
    minimum: float | None = None
    maximum: int = MOST_INT64
    known: tuple[str, ...] = ()
    key: bool = False


def _size(name: str, meaning: str) -> Column:
    return Column(name, int, True, meaning, minimum=1, maximum=MAX_DIMENSION, key=True)


def _knob(name: str, meaning: str) -> Column:
    return Column(name, int, False, meaning, minimum=1, maximum=MOST_KNOB, key=True)


def _time(name: str, meaning: str) -> Column:
    return Column(name, float, False, meaning, minimum=_SHORTEST_US)


_OUTPUTS = tuple(DTYPES)

#: the single source of what a row holds, in the order in which it is written
COLUMNS: tuple[Column, ...] = (
    Column("schema", int, True, "version of this table", minimum=1),
    Column("backend", str, True, '"triton", or "origin": the vendor\'s', known=BACKENDS, key=True),
    Column("operator", str, True, "what was computed", known=OPERATORS, key=True),
    _size("m", "rows of C"),
    _size("n", "columns of C"),
    _size("k", "length of the sums"),
    Column("dtype", str, True, "element type of A and B", known=OPERANDS, key=True),
    Column("layout", str, True, "A's letter, B's letter, row-major", known=LAYOUTS, key=True),
    _size("batch", "number of equal products"),
    Column("out_dtype", str, True, "element type of C", known=_OUTPUTS, key=True),
    Column(
        "precision", str, False, "how fp32 is multiplied; else null", known=PRECISIONS, key=True
    ),
    Column("accumulate", str, True, "type of the running sum", known=_OUTPUTS, key=True),
    Column("alpha", float, True, "factor of A B", key=True),
    Column("beta", float, True, "factor of the old C", key=True),
    Column("epilogue", str, False, "bias and activation; null for none", known=EPILOGUES, key=True),
    Column("template", str, False, "kernel family; null for origin", known=TEMPLATES, key=True),
    _knob("block_m", "tile, along the problem's M"),
    _knob("block_n", "tile, along the problem's N"),
    _knob("block_k", "tile, along K"),
    _knob("group_m", "rows of tiles that share columns of B in L2"),
    _knob("split_k", "parts into which K is cut"),
    _knob("num_warps", "warps a block"),
    _knob("num_stages", "depth of the load pipeline"),
    _knob("load_bits", "widest load that the alignment hints promise"),
    Column("swap", bool, False, "the kernel computes the transposed product", key=True),
    _knob("epilogue_parts", "stores that an output tile is cut into"),
    _time("time_us", "median time of a run; null where none was taken"),
    _time("p10_us", "10th percentile"),
    _time("p90_us", "90th percentile"),
    Column("count", int, False, "timed runs", minimum=1),
    Column("error", float, False, "relative Frobenius error against a reference", minimum=0),
    Column("invalidity", str, True, "correct, or what failed", known=INVALIDITIES),
    Column("reason", str, False, "why it failed; null when correct"),
    Column("protocol", str, True, 'how it was timed, such as "cold-l2-clean/1"', key=True),
    Column("device", str, False, "hardware profile, such as h200-sxm"),
    Column("device_name", str, True, 'the driver\'s name, such as "NVIDIA H200"', key=True),
    Column("units", int, False, "multiprocessors the run could use", minimum=1, key=True),
    Column("driver", str, False, "driver version", key=True),
    Column("cuda", str, False, "CUDA (or ROCm) version"),
    Column("torch", str, False, "torch version", key=True),
    Column("triton", str, False, "triton version", key=True),
    Column("costmodel", str, False, "version of the writer"),
    Column("kernel_hash", str, False, "hash of the kernel's source; null for origin", key=True),
    Column("source", str, False, "whose kernel, where it is not this package's own", key=True),
    Column("run", str, True, "id of the collecting run"),
    Column("sequence", int, True, "place within that run, from 0", minimum=0),
    Column("timestamp", str, False, "when, ISO 8601 in UTC"),
)

NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)
PROBLEM_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(Gemm))
KEY_COLUMNS: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.key)
#: what was run where, how it was timed, and by which kernel; not with which software
MEASUREMENT_COLUMNS: tuple[str, ...] = tuple(
    name for name in KEY_COLUMNS if name not in ("driver", "torch", "triton")
)
#: the knobs that every chip has: null for the vendor's library alone
NEEDED_KNOBS: tuple[str, ...] = tuple(
    field.name for field in fields(KernelConfig) if "None" not in str(field.type)
)

_FACTS = frozenset(NAMES) - frozenset(PROBLEM_COLUMNS) - frozenset(KNOBS) - {"schema"}


@lru_cache(maxsize=1)
def _own_version() -> str:
    return metadata.version("triton-costmodel")


def make_row(problem: Gemm, config: KernelConfig | None, *, backend: str, **facts: Any) -> Row:
    """A checked row for one measurement or failure; ``facts`` are the other columns by name.

    Filled in where not given: ``operator`` "gemm", ``invalidity`` "correct", ``costmodel`` this
    version, ``timestamp`` now (pass None for an unknown one). Times in us are rounded to
    ``TIME_DECIMALS``, the error to 4 digits, ``reason`` is cut to ``REASON_LIMIT`` characters,
    and the error of a failed run that is not finite becomes null. Raises ``RecordError`` for a
    value that the schema does not allow and ``UnknownNameError`` for a fact that is no column.
    """
    for name in facts:
        if name not in _FACTS:
            raise unknown_name("column", name, _FACTS)
    row: Row = dict.fromkeys(NAMES)
    row.update(schema=SCHEMA_VERSION, operator="gemm", invalidity="correct")
    row.update(costmodel=_own_version(), timestamp=_now())
    row.update({name: getattr(problem, name) for name in PROBLEM_COLUMNS})
    if config is not None:
        row.update(config.as_dict())
    row.update({name: _plain(value) for name, value in facts.items()}, backend=backend)
    _tidy(row)
    return validate_row(row)


def validate_row(obj: object) -> Row:
    """Check a row read from anywhere; gives a new dict that holds every column and no other.

    A missing optional column becomes null. A key that is no column is ignored, so that what a
    later 0.x adds as an optional column stays readable. Raises ``RecordError`` with the reason.
    """
    if not isinstance(obj, Mapping):
        raise RecordError(f"a row is a JSON object, got {type(obj).__name__}")
    _check_version(obj)
    missing = [c.name for c in COLUMNS if c.required and obj.get(c.name) in (None, "")]
    if missing:
        raise RecordError(f"missing or empty: {', '.join(missing)}")
    row = {column.name: _checked(column, obj.get(column.name)) for column in COLUMNS}
    _check_outcome(row)
    try:
        problem_of(row)
        config_of(row)
    except CostModelError as error:
        raise RecordError(str(error)) from None
    return row


def problem_of(row: Mapping[str, Any]) -> Gemm:
    """The problem that a row measured."""
    return _problem(*(row[name] for name in PROBLEM_COLUMNS))


def config_of(row: Mapping[str, Any]) -> KernelConfig | None:
    """The configuration that a row measured; None for the vendor's library."""
    if row["backend"] == "origin":
        odd = [name for name in KNOBS if row[name] is not None]
        if odd:
            raise RecordError(f"backend origin has no knobs, but the row sets {', '.join(odd)}")
        return None
    return _config(*(row[name] for name in KNOBS))


def row_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What makes two rows the same measurement: all ``KEY_COLUMNS``, in order."""
    return tuple(row[name] for name in KEY_COLUMNS)


# A log repeats its problems and configurations thousands of times: building each anew was half
# of the time of reading one. The arguments' types are checked before, so 1 is never True here.
@lru_cache(maxsize=4096)
def _problem(*values: Any) -> Gemm:
    return Gemm(**dict(zip(PROBLEM_COLUMNS, values, strict=True)))


@lru_cache(maxsize=16384)
def _config(*values: Any) -> KernelConfig:
    return KernelConfig(**dict(zip(KNOBS, values, strict=True)))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _tidy(row: Row) -> None:
    """Bring a new row to the precision that is stored."""
    for name in ("time_us", "p10_us", "p90_us"):
        if isinstance(row[name], float):
            row[name] = round(row[name], TIME_DECIMALS)
    error = row["error"]
    if isinstance(error, float):
        failed = row["invalidity"] != "correct"
        row["error"] = None if failed and not math.isfinite(error) else float(f"{error:.4g}")
    reason = row["reason"]
    if isinstance(reason, str):
        whole = reason.encode("utf-8", "replace").decode("utf-8")
        row["reason"] = whole if len(whole) <= REASON_LIMIT else whole[: REASON_LIMIT - 3] + "..."


def _check_version(obj: Mapping[Any, Any]) -> None:
    version = obj.get("schema")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise RecordError(
            f"written in schema version {version} by costmodel {_shown(obj.get('costmodel'))}; "
            f"this costmodel {_own_version()} reads up to version {SCHEMA_VERSION}: upgrade it"
        )


def _checked(column: Column, value: Any) -> Any:
    """The value in its column's own type, or ``RecordError``. An empty text is null."""
    if value is None or value == "":
        return None
    name = column.name
    if column.type is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) <= MOST_INT64 else math.inf
    fits = isinstance(value, column.type) and isinstance(value, bool) == (column.type is bool)
    if not fits:
        wanted = column.type.__name__
        raise RecordError(f"{name} must be of type {wanted}, got {_shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise RecordError(f"{name} must be a finite number, got {value}")
    if column.known and value not in column.known:
        raise RecordError(str(unknown_name(name, _shorten(value), column.known)))
    if column.minimum is not None and value < column.minimum:
        raise RecordError(f"{name} must be at least {column.minimum:g}, got {value}")
    if column.type is int and value > column.maximum:
        raise RecordError(f"{name} must be at most {column.maximum}, got {_shown(value)}")
    if isinstance(value, str):
        _check_text(name, value)
    return value


def _check_text(name: str, value: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RecordError(f"{name} is not valid Unicode: {value[:40]!a}") from None
    if name == "device" and not _PROFILE_NAME.fullmatch(value):
        raise RecordError(f"device must be the name of a profile, got {_shown(value)}")
    if name == "timestamp":
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise RecordError(f"timestamp must be ISO 8601, got {_shown(value)}") from None
        if moment.utcoffset() != timedelta(0):
            raise RecordError(f"timestamp must be in UTC (end in Z), got {_shown(value)}")


def _check_outcome(row: Row) -> None:
    """A correct run has a time and no reason; a failed one has a reason."""
    correct = row["invalidity"] == "correct"
    if correct and row["time_us"] is None:
        raise RecordError("time_us is null although invalidity is correct")
    if correct and row["reason"]:
        raise RecordError("a correct run has no reason; set invalidity to what failed")
    if not correct and not row["reason"]:
        raise RecordError(f"a run that failed ({row['invalidity']}) needs a reason")
    low, high = row["p10_us"], row["p90_us"]
    if low is not None and high is not None and low > high:
        raise RecordError(f"p10_us {low} is above p90_us {high}")


def _shorten(value: str) -> str:
    return value if len(value) <= 40 else value[:37] + "..."


def _shown(value: object) -> str:
    """A value for a message: bounded, however long or deep it is."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        if isinstance(value, int) and abs(value) > MOST_INT64:
            return "a whole number past 64 bits"
        return ascii(_shorten(value)) if isinstance(value, str) else repr(value)
    return type(value).__name__ if isinstance(value, (dict, list)) else repr(value)
