"""Shape sets: CSV files of problems, one a row, with the family each belongs to."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path

from costmodel.errors import CostModelError, RecordError
from costmodel.paths import packaged
from costmodel.problem import Gemm


@dataclass(frozen=True)
class Shape:
    """A problem of a set, its family and where it was found."""

    problem: Gemm
    family: str
    source: str


def read_shapes(path: str | os.PathLike[str]) -> list[Shape]:
    """Read a CSV with columns m, n, k and optionally dtype, layout, batch, family, source.

    A name without a path is a shipped set ("train", "heldout"). Raises ``RecordError`` naming the
    file and line.
    """
    shipped = packaged("shapes", f"{path}.csv")
    try:
        if shipped.is_file():
            text = shipped.read_text(encoding="utf-8")
        else:
            text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"cannot read the shape set {path}: {error}") from None
    found = []
    reader = csv.DictReader(io.StringIO(text))
    for row in reader:
        try:
            problem = Gemm(
                int(row["m"]),
                int(row["n"]),
                int(row["k"]),
                dtype=row.get("dtype") or "fp16",
                layout=row.get("layout") or "nt",
                batch=int(row.get("batch") or 1),
            )
        except (KeyError, TypeError, ValueError, CostModelError) as error:
            raise RecordError(
                f"{path}, line {reader.line_num}: {error}; columns m, n, k are needed"
            ) from None
        found.append(Shape(problem, row.get("family") or "", row.get("source") or ""))
    if not found:
        raise RecordError(f"{path} holds no shapes; it needs a header m,n,k and a row a shape")
    return found
