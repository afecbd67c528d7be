"""FlagGems' benchmark log: torch's time and FlagGems' own for each shape, with no configuration.

Lines ``[INFO] {"op_name", "dtype", "mode", "level", "result": [{"shape_detail", "latency_base",
"latency", "speedup", ...}]}`` (benchmark/attri_util.py), times in ms. torch's time is the vendor's:
it becomes a row of backend "origin". FlagGems' own has no configuration, so it is a claim.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.errors import RecordError
from costmodel.problem import Gemm
from costmodel.records.claims import Claim
from costmodel.records.exchange.names import device_named, dtype_named, place
from costmodel.records.exchange.report import Given, ImportReport
from costmodel.records.log import MAX_LINE_BYTES, bounded_lines, decode
from costmodel.records.schema import make_row

_MARK = b"[INFO]"
_LOST = ("gbps", "gbps_base", "accuracy", "utilization", "compared_speedup", "legacy_shape")


def read(data: bytes, report: ImportReport, given: Given) -> None:
    """Take the result lines of a benchmark log; lines of other loggers are passed over."""
    for number, line in bounded_lines(io.BytesIO(data)):
        text = line.partition(_MARK)[2].strip() if _MARK in line[:200] else line.strip()
        if not text.startswith(b"{"):
            continue
        with report.at(f"line {number}"):
            if len(line) > MAX_LINE_BYTES:
                raise RecordError(f"longer than {MAX_LINE_BYTES} bytes")
            entry = decode(text)
            for place_, result in enumerate(entry["result"]):
                with report.at(f"line {number}, result[{place_}]"):
                    _take(entry, result, number * 10_000 + place_, report, given)


def _take(
    entry: Mapping[str, Any],
    result: Mapping[str, Any],
    number: int,
    report: ImportReport,
    given: Given,
) -> None:
    if result.get("error_msg"):
        raise RecordError(f"the benchmark failed: {result['error_msg']!s:.200}")
    problem = _problem(str(entry["op_name"]), result["shape_detail"], entry["dtype"], given)
    if given.layout is None:
        name = str(entry["op_name"])
        report.assume(f"layout {problem.layout!r} of {name:.40}: the log does not say the strides")
    facts = place(given)
    protocol = f"flaggems:{entry.get('mode', 'kernel')}"[:60]
    base, own = result.get("latency_base"), result.get("latency")
    if base is not None:
        report.rows.append(
            make_row(
                problem, None, backend="origin", protocol=protocol, run=report.run,
                sequence=number, timestamp=None, time_us=float(base) * 1e3, **facts,
            )
        )  # fmt: skip
    if own is not None:
        report.claims.append(
            Claim(
                "gemm", problem.m, problem.n, problem.k, problem.dtype, facts["device_name"],
                f"flaggems/{entry['op_name']}"[:100], report.run,
                device=device_named(facts["device_name"]), layout=problem.layout,
                time_us=float(own) * 1e3, vendor_us=None if base is None else float(base) * 1e3,
                triton=given.triton,
                detail="FlagGems' own choice; the log does not name its configuration",
            )
        )  # fmt: skip
        report.lost["configuration of latency (the log has none)"] += 1
    for name in _LOST:
        if result.get(name) is not None:
            report.lost[name] += 1


def _problem(operator: str, shapes: Any, dtype: Any, given: Given) -> Gemm:
    """The product of an operator's tensors, by torch's order of its arguments."""
    sizes = [tuple(s) for s in shapes if isinstance(s, Sequence) and not isinstance(s, str)]
    batch, beta, layout = 1, 0.0, "nn"
    if operator in ("mm", "matmul") and len(sizes) == 2:
        (m, k), (other, n) = sizes
    elif operator == "addmm" and len(sizes) == 3:
        (m, k), (other, n) = sizes[1:]
        beta = 1.0
    elif operator == "bmm" and len(sizes) == 2:
        (batch, m, k), (batch_b, other, n) = sizes
        if batch != batch_b:
            raise RecordError(f"the shapes {shapes!r:.100} do not fit each other")
    elif operator == "linear" and len(sizes) >= 2:
        (m, k), (n, other) = sizes[:2]
        layout = "nt"
    else:
        raise RecordError(
            f"operator {operator!r:.60} with {len(sizes)} tensors is no GEMM known here"
        )
    if k != other:
        raise RecordError(f"the shapes {shapes!r:.100} do not fit each other")
    return Gemm(
        m, n, k, dtype=dtype_named(given.dtype or dtype), layout=given.layout or layout,
        batch=batch, beta=beta,
    )  # fmt: skip
