"""T4 1.0.0, the auto-tuning results format of Kernel Tuner and others: import and export.

A result is a configuration with times, measurements and a word for how it ended. The format has no
place for problem, device and software: an export puts them into ``metadata``, and whatever differs
within a file into ``measurements``, so that an import gives back the same rows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from costmodel.config import KNOBS
from costmodel.errors import RecordError
from costmodel.problem import Gemm
from costmodel.records.exchange.names import config_named, dtype_named, place, source_named
from costmodel.records.exchange.report import Given, ImportReport
from costmodel.records.log import decode
from costmodel.records.schema import (
    INVALIDITIES,
    NAMES,
    PROBLEM_COLUMNS,
    Row,
    make_row,
    validate_row,
)

VERSION = "1.0.0"
#: metadata's key for what the format has no place for
OWN = "costmodel"

#: microseconds in a unit of time, by the names that files have for it (one of them misspelt)
_MICROSECONDS = {
    "s": 1e6, "seconds": 1e6, "ms": 1e3, "milliseconds": 1e3, "miliseconds": 1e3,
    "us": 1.0, "microseconds": 1.0, "ns": 1e-3, "nanoseconds": 1e-3,
}  # fmt: skip
#: a file of its own for each of these: what a result is of, and where
_FILE_COLUMNS = (
    *PROBLEM_COLUMNS, "operator", "device", "device_name", "units", "driver", "cuda", "torch",
    "triton", "protocol", "source", "schema",
)  # fmt: skip
_TIMES = {"time": "time_us", "p10": "p10_us", "p90": "p90_us"}
#: columns that have a place in a result
_PLACED = (*KNOBS, *_TIMES.values(), "invalidity", "timestamp")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")


def export(rows: Iterable[Row]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Files for the rows: a name without a folder, and the document. Nothing is lost."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in _FILE_COLUMNS), []).append(row)
    for key, part in groups.items():
        first = part[0]
        shared = {
            name: first[name]
            for name in NAMES
            if name not in _PLACED and all(row[name] == first[name] for row in part)
        }
        document = {
            "schema_version": VERSION,
            "metadata": {"timeunit": "microseconds", OWN: shared},
            "results": [_result(row, shared) for row in part],
        }
        text = f"{first['device'] or first['device_name']}_{first['m']}x{first['n']}x{first['k']}"
        text = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{text}_{first['dtype']}_{first['layout']}")
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:8]
        yield f"{text[:80]}_{digest}.json", document


def _result(row: Row, shared: Mapping[str, Any]) -> dict[str, Any]:
    measured = [
        {"name": name, "value": row[column], "unit": "us"}
        for name, column in _TIMES.items()
        if row[column] is not None
    ]
    measured += [
        {"name": name, "value": row[name], "unit": ""}
        for name in NAMES
        if name not in shared and name not in _PLACED and row[name] is not None
    ]
    result: dict[str, Any] = {
        "configuration": {name: row[name] for name in KNOBS if row[name] is not None},
        "times": {},
        "invalidity": row["invalidity"],
        "correctness": 1 if row["invalidity"] == "correct" else 0,
        "objectives": ["time"],
        "measurements": measured,
    }
    return result | ({"timestamp": row["timestamp"]} if row["timestamp"] else {})


def violations(document: Any) -> Iterator[tuple[str, str]]:
    """Where a document breaks the published schema of T4 1.0.0, and how; nothing where it holds."""
    if not isinstance(document, Mapping):
        yield "document", f"must be an object, got {type(document).__name__}"
        return
    version = document.get("schema_version")
    if version is not None and not (isinstance(version, str) and _VERSION.fullmatch(version)):
        yield "schema_version", f"must be like 1.0.0, got {version!r:.40}"
    results = document.get("results")
    if not isinstance(results, list):
        yield "results", "must be a list"
        return
    for number, result in enumerate(results):
        for reason in _broken(result):
            yield f"results[{number}]", reason


def _broken(result: Any) -> Iterator[str]:
    if not isinstance(result, Mapping):
        yield f"must be an object, got {type(result).__name__}"
        return
    missing = {"configuration", "times", "invalidity", "correctness"} - set(result)
    if missing:
        yield f"lacks {', '.join(sorted(missing))}"
        return
    if not isinstance(result["configuration"], Mapping) or not isinstance(result["times"], Mapping):
        yield "configuration and times must be objects"
    if result["invalidity"] not in INVALIDITIES:
        yield f"invalidity must be one of {', '.join(INVALIDITIES)}"
    if not _number(result["correctness"]):
        yield "correctness must be a number"
    if not isinstance(result.get("timestamp", ""), str):
        yield "timestamp must be a text"
    for name in ("objectives", "measurements"):
        if not isinstance(result.get(name, []), list):
            yield f"{name} must be a list"
            return
    for item in result.get("measurements", []):
        value = item.get("value") if isinstance(item, Mapping) else None
        if not isinstance(value, (str, list)) and not _number(value):
            yield "a measurement must have a value that is a number, a text or a list"


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read(data: bytes, report: ImportReport, given: Given) -> None:
    """Take a T4 document's results. Raises ``RecordError`` for one that is none."""
    document = decode(data)
    bad: dict[str, str] = {}
    for where, reason in violations(document):
        if not where.startswith("results["):
            raise RecordError(f"not a T4 document: {where} {reason}")
        bad.setdefault(where, reason)
    if not str(document.get("schema_version", VERSION)).startswith("1."):
        raise RecordError(f"T4 version {document['schema_version']}; this reads 1.x")
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    own = metadata.get(OWN)
    for number, result in enumerate(document["results"]):
        where = f"results[{number}]"
        if where in bad:
            report.refuse(where, bad[where])
            continue
        with report.at(where):
            if isinstance(own, Mapping):
                report.rows.append(_own_row(result, own))
            else:
                report.rows.append(_foreign_row(result, metadata, number, report, given))


def _own_row(result: Mapping[str, Any], shared: Mapping[str, Any]) -> Row:
    row: dict[str, Any] = dict(shared) | dict(result["configuration"])
    for item in result.get("measurements", []):
        name = str(item["name"])
        row[_TIMES.get(name, name)] = item["value"]
    return validate_row(
        row | {"invalidity": result["invalidity"], "timestamp": result.get("timestamp")}
    )


def _foreign_row(
    result: Mapping[str, Any],
    metadata: Mapping[str, Any],
    number: int,
    report: ImportReport,
    given: Given,
) -> Row:
    """A result of another tuner: problem and device must be given."""
    if given.shape is None:
        raise RecordError("T4 does not say what was computed; say it with --shape M,N,K")
    if given.dtype is None or given.layout is None:
        raise RecordError("T4 does not say the types; say them with --dtype and --layout")
    problem = Gemm(*given.shape, dtype=dtype_named(given.dtype), layout=given.layout)
    config, foreign = config_named(result["configuration"])
    measured = {str(m.get("name")): m for m in result.get("measurements", [])}
    facts: dict[str, Any] = {"invalidity": result["invalidity"]}
    objective = (result.get("objectives") or ["time"])[0]
    spent = measured.pop(str(objective), {})
    unit = spent.get("unit") or metadata.get("timeunit") or "milliseconds"
    if unit not in _MICROSECONDS:
        raise RecordError(f"unknown unit of time {unit!r:.40}")
    scale = _MICROSECONDS[unit]
    runtimes = [t for t in result["times"].get("runtimes", []) if _number(t)]
    if result["invalidity"] == "correct":
        whole = spent.get("value")
        if not _number(whole):
            if not runtimes:
                raise RecordError(f"no {objective!r:.40} among its measurements, and no runtimes")
            whole = float(np.median(runtimes))
        facts["time_us"] = float(whole) * scale
    else:
        facts["reason"] = str(spent.get("value") or f"{result['invalidity']}, says the file")
    if runtimes and "time_us" in facts:
        low, high = np.quantile(np.asarray(runtimes, dtype=np.float64), (0.1, 0.9)) * scale
        facts |= {"p10_us": float(low), "p90_us": float(high), "count": len(runtimes)}
    for name in (*measured, *(n for n in result["times"] if n != "runtimes")):
        report.lost[str(name)[:60]] += 1
    stamp = result.get("timestamp")
    return make_row(
        problem, config, backend="triton", protocol="t4/1", run=report.run, sequence=number,
        source=source_named("kernel_tuner", foreign, given),
        timestamp=stamp.replace("+00:00", "Z").replace(" ", "T") if stamp else None,
        **place(given), **facts,
    )  # fmt: skip


def dumps(document: Mapping[str, Any]) -> str:
    """The document as text."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"
