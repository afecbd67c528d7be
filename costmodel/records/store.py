"""Measured runs as Parquet shards, and one reader for logs, shards and folders of both."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from costmodel.config import KNOBS
from costmodel.errors import RecordError, unknown_name
from costmodel.paths import atomic_write, packaged
from costmodel.records.log import LineProblem, ReadReport, read_lines
from costmodel.records.quality import impossible, impossible_rows
from costmodel.records.schema import (
    COLUMNS,
    KEY_COLUMNS,
    MOST_INT64,
    NAMES,
    NEEDED_KNOBS,
    PROBLEM_COLUMNS,
    SCHEMA_VERSION,
    TIME_DECIMALS,
    Row,
    config_of,
    problem_of,
    validate_row,
)

if TYPE_CHECKING:
    import pandas as pd

    Frame: TypeAlias = pd.DataFrame

Source: TypeAlias = str | Path | Traversable
ProblemHandler: TypeAlias = Callable[[str, LineProblem], None]

LOG_SUFFIX = ".jsonl"
SHARD_SUFFIX = ".parquet"

#: what repeats most comes first; the whole key makes the order of a shard's rows a fixed one
_ORDER = ["device_name", "units", "backend", "dtype", "layout", "m", "n", "k", "template"]
_ORDER += [name for name in (*KEY_COLUMNS, "run", "sequence") if name not in _ORDER]


def write_shards(
    rows: Iterable[Row] | Frame, folder: str | Path, stem: str, max_bytes: int = 8_000_000
) -> list[Path]:
    """Write rows, failures too, as ``folder/stem-000.parquet``, ``stem-001`` and so on.

    Each shard takes at most ``max_bytes`` (a single row may take more) and is written whole or
    not at all; shards of the same stem from before are replaced. Times are rounded to
    ``TIME_DECIMALS`` decimals of a us. Rows are sorted by device, problem and configuration.
    Raises ``RecordError`` for no rows or for one that the schema does not allow.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", stem):
        raise RecordError(f"a shard's stem is letters, digits, '.', '_' and '-', got {stem!r}")
    table = _sorted(_table_of(rows))
    if table.num_rows == 0:
        raise RecordError(f"there are no rows to write to {Path(folder) / stem}")
    paths = []
    for number, data in enumerate(_encoded(table, max_bytes)):
        path = Path(folder) / f"{stem}-{number:03d}{SHARD_SUFFIX}"
        with atomic_write(path, "wb") as stream:
            stream.write(data)
        paths.append(path)
    pattern = re.compile(re.escape(stem) + r"-\d{3,}" + re.escape(SHARD_SUFFIX))
    for old in set(Path(folder).iterdir()) - set(paths):
        if pattern.fullmatch(old.name):
            old.unlink()
    return paths


def read_runs(
    sources: Source | Sequence[Source],
    columns: Sequence[str] | None = None,
    *,
    on_problem: ProblemHandler | None = None,
) -> Frame:
    """All rows of logs (.jsonl), shards (.parquet) and folders of both, as one DataFrame.

    Dtypes do not depend on the data: text "string", floats "float64" with NaN for null, a
    required int "int64", an optional one "Int64", bool "boolean". ``columns`` picks and orders
    columns. A folder's own files are read in the order of their names, not its sub-folders'. A
    row that stands in two sources comes twice. A log's bad lines, and rows of logs and shards
    whose time is below the roofline, are left out and go to ``on_problem(file, problem)``;
    without one, a warning sums them up.

    Raises ``RecordError`` for a source that is missing, damaged or of a newer schema, and where
    there is no row at all; ``UnknownNameError`` for a column that does not exist.
    """
    import pyarrow as pa

    for name in columns or ():
        if name not in NAMES:
            raise unknown_name("column", name, NAMES)
    given = [sources] if isinstance(sources, (str, Path, Traversable)) else list(sources)
    tables = []
    for source in given:
        for file in _files(Path(source) if isinstance(source, str) else source):
            read = _read_log if file.name.endswith(LOG_SUFFIX) else _read_shard
            tables.append(read(file, on_problem))
    table = pa.concat_tables(tables) if tables else _arrow_schema().empty_table()
    if table.num_rows == 0:
        raise RecordError(f"no measured rows in {', '.join(map(str, given)) or 'no source'}")
    return _frame(table.select(list(columns)) if columns is not None else table)


def packaged_runs(columns: Sequence[str] | None = None) -> Frame:
    """Every row of the shipped shards, ``runs/*.parquet`` of ``costmodel.data``."""
    return read_runs(packaged("runs"), columns)


def frame_rows(frame: Frame) -> list[Row]:
    """A DataFrame of ``read_runs`` with all its columns as rows, null as None."""
    return list(_table_of(frame).to_pylist())


def _arrow_schema() -> Any:
    import pyarrow as pa

    types = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    return pa.schema([(column.name, types[column.type]) for column in COLUMNS])


def _table_of(rows: Iterable[Row] | Frame) -> Any:
    """A checked Arrow table of the schema's columns, with the stored precision."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(rows, pd.DataFrame):
        known = rows[[name for name in NAMES if name in rows.columns]]
        try:
            table = pa.Table.from_pandas(known, preserve_index=False)
        except pa.ArrowException as error:
            raise RecordError(f"the DataFrame holds mixed types: {error}") from error
        return _rounded(_conformed(table, "the DataFrame"))
    checked = [validate_row(row) for row in rows]
    return _rounded(pa.Table.from_pylist(checked, schema=_arrow_schema()))


def _rounded(table: Any) -> Any:
    import pyarrow.compute as pc

    for name in ("time_us", "p10_us", "p90_us"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pc.round(table[name], TIME_DECIMALS))
    return table


def _sorted(table: Any) -> Any:
    return table.sort_by([(name, "ascending") for name in _ORDER])


def _encoded(table: Any, max_bytes: int) -> Iterator[bytes]:
    """The table as Parquet files of at most ``max_bytes``, halved until each fits."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 9}
    pq.write_table(table, buffer, use_dictionary=True, write_page_checksum=True, **options)
    if buffer.tell() <= max_bytes or table.num_rows == 1:
        yield buffer.getvalue()
        return
    half = table.num_rows // 2
    yield from _encoded(table.slice(0, half), max_bytes)
    yield from _encoded(table.slice(half), max_bytes)


def _files(source: Path | Traversable) -> list[Path | Traversable]:
    if source.is_dir():
        children = sorted(source.iterdir(), key=lambda child: child.name)
        return [c for c in children if c.name.endswith((LOG_SUFFIX, SHARD_SUFFIX)) and c.is_file()]
    if not source.is_file():
        raise RecordError(f"there is no log, shard or folder at {source}")
    if not source.name.endswith((LOG_SUFFIX, SHARD_SUFFIX)):
        raise RecordError(f"{source} is neither a {LOG_SUFFIX} log nor a {SHARD_SUFFIX} shard")
    return [source]


def _read_log(file: Path | Traversable, on_problem: ProblemHandler | None) -> Any:
    import pyarrow as pa

    try:
        with file.open("rb") as stream:
            report = read_lines(stream)
    except OSError as error:
        raise RecordError(f"cannot read the log {file}: {error.strerror}") from error
    sound, problems = quarantined(report)
    _tell(file, problems, on_problem, "lines")
    return pa.Table.from_pylist(sound, schema=_arrow_schema())


def quarantined(report: ReadReport) -> tuple[list[Row], list[LineProblem]]:
    """A log's rows but for those above the roofline, and its problems with these among them."""
    rows, problems = [], list(report.problems)
    for row, number in zip(report.rows, report.lines, strict=True):
        why = impossible(row)
        if why is None:
            rows.append(row)
        else:
            problems.append(LineProblem(number, why, _short(row)))
    return rows, sorted(problems, key=lambda problem: problem.line_number)


def _short(row: Row) -> str:
    """A row for a message."""
    return f"{problem_of(row)}, {config_of(row) or 'vendor'}, run {row['run'][:40]!a}"


def _tell(
    file: Path | Traversable, problems: list[LineProblem], handler: ProblemHandler | None, what: str
) -> None:
    if handler is not None:
        for problem in problems:
            handler(str(file), problem)
    elif problems:
        message = f"{file}: {len(problems)} {what} skipped, the first: {problems[0]}"
        warnings.warn(message, stacklevel=4)


def _read_shard(file: Path | Traversable, on_problem: ProblemHandler | None) -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.open("rb") as stream:
            table = pq.ParquetFile(stream, page_checksum_verification=True).read()
        table.validate(full=True)  # text that is not UTF-8 would fail later, without a name
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise RecordError(f"{file} cannot be read as Parquet: {first}") from error
    table = _conformed(table, str(file))
    bad = impossible_rows(table)
    if not bad:
        return table
    problems = []
    for place in bad:
        row = table.slice(place, 1).to_pylist()[0]
        problems.append(LineProblem(place + 1, str(impossible(row)), _short(row)))
    _tell(file, problems, on_problem, "rows")
    return table.take(np.setdiff1d(np.arange(table.num_rows), bad))


def _conformed(table: Any, where: str) -> Any:
    """The table in the schema's columns and types, each row as ``validate_row`` would have it."""
    import pyarrow as pa

    schema = _arrow_schema()
    present = set(table.column_names)
    missing = [c.name for c in COLUMNS if c.required and c.name not in present]
    if missing:
        raise RecordError(f"{where} lacks the columns {', '.join(missing)}")
    columns = []
    for field in schema:
        if field.name not in present:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        try:
            columns.append(table[field.name].cast(field.type))
        except pa.ArrowException as error:
            first = str(error).splitlines()[0]
            raise RecordError(f"{where}, column {field.name}: {first}") from error
    table = pa.table(columns, schema=schema)
    for place in _suspects(table):
        try:
            validate_row(table.slice(place, 1).to_pylist()[0])
        except RecordError as error:
            raise RecordError(f"{where}, row {place + 1}: {error}") from None
    return table


def _suspects(table: Any) -> list[int]:
    """Places of the rows that may be wrong: the checks of ``validate_row`` on whole columns.

    What depends on a problem's columns together, and the form of a timestamp or of a profile's
    name, is checked on one row of each distinct value: each row by itself would take seconds for
    a hundred thousand.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    rules = []  # one boolean array each: true is wrong, null is not
    for column in COLUMNS:
        values = table[column.name]
        if column.required:
            rules.append(values.is_null())
        if column.required and column.type is str:
            rules.append(pc.equal(values, ""))
        if column.known:
            known = pc.is_in(values, value_set=pa.array(column.known))
            rules.append(pc.and_(values.is_valid(), pc.invert(known)))
        if column.minimum is not None:
            rules.append(pc.less(values, column.minimum))
        if column.type is int and column.maximum < MOST_INT64:
            rules.append(pc.greater(values, column.maximum))
        if column.type is float:
            rules.append(pc.invert(pc.is_finite(values)))
    correct = pc.equal(table["invalidity"], "correct")
    explained = pc.not_equal(pc.fill_null(table["reason"], ""), "")
    rules.append(pc.and_(correct, table["time_us"].is_null()))
    rules.append(pc.equal(correct, explained))
    rules.append(pc.greater(table["p10_us"], table["p90_us"]))
    rules.append(pc.greater(table["schema"], SCHEMA_VERSION))
    origin = pc.equal(table["backend"], "origin")
    rules += [pc.and_(origin, table[name].is_valid()) for name in KNOBS]
    rules += [pc.and_(pc.invert(origin), table[name].is_null()) for name in NEEDED_KNOBS]
    bad = np.zeros(table.num_rows, dtype=bool)
    for rule in rules:
        bad |= rule.fill_null(False).to_numpy()
    for together in (PROBLEM_COLUMNS, ("timestamp",), ("device",)):
        bad |= ~table.select(list(together)).to_pandas().duplicated().to_numpy()
    return [int(place) for place in np.flatnonzero(bad)]


def _frame(table: Any) -> Frame:
    """A DataFrame whose dtypes follow from the schema alone."""
    import pandas as pd
    import pyarrow as pa

    mapping = {
        pa.string(): pd.StringDtype("pyarrow"),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    frame: Frame = table.to_pandas(types_mapper=mapping.get)
    required = [c.name for c in COLUMNS if c.type is int and c.required and c.name in frame]
    whole = [name for name in required if not frame[name].hasnans]
    return frame.astype(dict.fromkeys(whole, "int64"))
