"""FlagTune's ``benchmark_data.jsonl`` (schema 3): a row for each shape and configuration.

Written by FlagGems' collection: ``operator`` {id, variant}, ``workload`` {dimensions}, ``dtypes``
{inputs, outputs}, ``device`` {name}, ``benchmark_protocol``, ``inputs`` with the strides that were
normalised, ``config``, and ``latency_ms`` (the median) with 20 % and 80 % quantiles.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from costmodel.errors import RecordError
from costmodel.problem import Gemm
from costmodel.records.exchange.names import config_named, dtype_named, place, source_named
from costmodel.records.exchange.report import Given, ImportReport
from costmodel.records.log import MAX_LINE_BYTES, bounded_lines, decode
from costmodel.records.schema import Row, make_row

SCHEMA = 3
_PRODUCTS = ("mm", "bmm", "linear", "matmul")
#: entries that have no column, and none that identifies a run
_LOST = ("Count", "latency_p20_ms", "latency_p80_ms", "config_order", "input_row_index")


def read(data: bytes, report: ImportReport, given: Given) -> None:
    """Take the lines of a FlagTune log."""
    for number, line in bounded_lines(io.BytesIO(data)):
        if not line.strip():
            continue
        with report.at(f"line {number}"):
            if len(line) > MAX_LINE_BYTES:
                raise RecordError(f"longer than {MAX_LINE_BYTES} bytes")
            report.rows.append(_row(decode(line), number, report, given))


def _row(entry: Any, number: int, report: ImportReport, given: Given) -> Row:
    if not isinstance(entry, Mapping):
        raise RecordError(f"a row is a JSON object, got {type(entry).__name__}")
    if entry.get("schema_version") != SCHEMA:
        raise RecordError(
            f"schema_version must be {SCHEMA}, got {entry.get('schema_version')!r:.40}"
        )
    operator = entry["operator"]
    kernel, variant = str(operator["id"]), str(operator["variant"])
    if kernel.rpartition("/")[2] not in _PRODUCTS:
        raise RecordError(f"operator {kernel!r:.60} is no GEMM; known: {', '.join(_PRODUCTS)}")
    scope = entry.get("ranking_group", {}).get("latency_scope", "public_kernel")
    if scope != "public_kernel":
        raise RecordError(f"latency_scope {scope!r:.40} times a part of the product alone")
    config, foreign = config_named(entry["config"])
    facts: dict[str, Any] = {}
    latency = entry.get("latency_ms")
    if latency is None or entry.get("status", "ok") != "ok":
        facts = {"invalidity": "compile", "reason": f"no time: status {entry.get('status')!r:.60}"}
    else:
        facts = {"time_us": float(latency) * 1e3}
    for name in _LOST:
        if entry.get(name) is not None:
            report.lost[name] += 1
    protocol = entry.get("benchmark_protocol")
    name = protocol if isinstance(protocol, str) else "triton-do-bench/1"
    if isinstance(protocol, Mapping):
        report.lost["benchmark_protocol"] += 1
    return make_row(
        _problem(entry, report, given), config, backend="triton", protocol=f"flagtune:{name}"[:80],
        run=report.run, sequence=number, timestamp=None,
        source=source_named(f"{kernel}:{variant}", foreign, given),
        **place(given, entry["device"]["name"]), **facts,
    )  # fmt: skip


def _problem(entry: Mapping[str, Any], report: ImportReport, given: Given) -> Gemm:
    sizes = entry["workload"]["dimensions"]
    m, n, k = (sizes[name] for name in "MNK")
    inputs = entry.get("inputs", {})
    strides = inputs.get("stride_am"), inputs.get("stride_bk")
    if given.layout is not None:
        layout = given.layout
    elif None in strides:
        layout = "nn"
        report.assume('layout "nn": the rows do not say the strides')
    else:
        layout = _letter(strides[0], k, m, "stride_am") + _letter(strides[1], n, k, "stride_bk")
    types = entry["dtypes"]
    return Gemm(
        m, n, k, dtype=dtype_named(given.dtype or types["inputs"][0]), layout=layout,
        batch=sizes.get("B", 1), out_dtype=dtype_named(types["outputs"][0]),
    )  # fmt: skip


def _letter(stride: Any, row: int, rows: int, name: str) -> str:
    """The letter: n where stored rows follow each other by their length, t where neighbours do."""
    if stride == row or rows == 1:
        return "n"
    if stride == 1:
        return "t"
    raise RecordError(f"{name} {stride!r:.20} is neither {row} nor 1: a layout has no gaps")
