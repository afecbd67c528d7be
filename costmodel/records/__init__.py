"""Measured runs: schema, append-only log, store, exchange formats."""

from __future__ import annotations

from costmodel.records.log import LineProblem, ReadReport, RunLog, require_rows
from costmodel.records.schema import (
    COLUMNS,
    SCHEMA_VERSION,
    Row,
    config_of,
    make_row,
    problem_of,
    row_key,
    validate_row,
)
from costmodel.records.store import frame_rows, packaged_runs, read_runs, write_shards

__all__ = [
    "COLUMNS",
    "SCHEMA_VERSION",
    "LineProblem",
    "ReadReport",
    "Row",
    "RunLog",
    "config_of",
    "frame_rows",
    "make_row",
    "packaged_runs",
    "problem_of",
    "read_runs",
    "require_rows",
    "row_key",
    "validate_row",
    "write_shards",
]
