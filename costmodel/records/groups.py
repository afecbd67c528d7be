"""Measured runs as the columns that fitting and judging work on: one group a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from costmodel.config import KNOBS, TEMPLATES, ConfigTable
from costmodel.errors import RecordError
from costmodel.problem import Gemm
from costmodel.records.schema import PROBLEM_COLUMNS, problem_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Group:
    """All correct runs of one problem on one device: configurations and times, aligned.

    A configuration that was measured again has the median of its later times: its first one,
    which may have been chosen for being small, no longer counts. ``vendor_us`` is the median of
    the vendor's runs, or NaN.
    """

    problem: Gemm
    device: str
    table: ConfigTable
    time_us: NDArray[np.float64]
    remeasured: NDArray[np.bool_]
    vendor_us: float

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.problem.m, self.problem.n, self.problem.k


def groups_of(frame: pd.DataFrame, profile_name: str | None = None) -> list[Group]:
    """Split a frame of rows by device and problem; failures and foreign rows are left out.

    Raises ``RecordError`` where nothing correct is left.
    """
    good = frame[(frame["invalidity"] == "correct") & frame["time_us"].notna()]
    if profile_name is not None:
        good = good[good["device"] == profile_name]
    unknown = good.loc[good["device"].isna(), "device_name"]
    if len(unknown):
        raise RecordError(
            f"{len(unknown)} runs come from {unknown.iloc[0]!r}, for which there is no hardware "
            "profile; write one (data/profiles/README.md says how) and set `device` to its name"
        )
    if good.empty:
        raise RecordError(
            "there are no correct runs to learn from"
            + (f" on {profile_name}" if profile_name else "")
            + "; `costmodel collect` measures some"
        )
    return list(_groups(good))


def _groups(good: pd.DataFrame) -> Iterator[Group]:
    keys = ["device", *PROBLEM_COLUMNS]
    for _, part in good.groupby(keys, dropna=False, sort=True):
        ours = part[part["backend"] == "triton"].sort_values(["timestamp", "run", "sequence"])
        vendor = part.loc[part["backend"] == "origin", "time_us"]
        if ours.empty:
            continue
        first = part.iloc[0]
        number = ours.groupby(list(KNOBS), dropna=False).cumcount()
        later = ours[number > 0].groupby(list(KNOBS), dropna=False)["time_us"].median()
        once = ours[number == 0].set_index(list(KNOBS))
        again = later.reindex(once.index)
        times = again.fillna(once["time_us"]).to_numpy(dtype=np.float64)
        once = once.reset_index()
        columns = {
            name: once[name].fillna(0).astype(np.int64).to_numpy()
            for name in KNOBS
            if name != "template"
        }
        kinds = {name: index for index, name in enumerate(TEMPLATES)}
        columns["template"] = once["template"].map(kinds).to_numpy(dtype=np.int64)
        facts = {name: _plain(first[name]) for name in PROBLEM_COLUMNS}
        yield Group(
            problem_of(facts),
            str(first["device"]),
            ConfigTable(**columns),
            times,
            again.notna().to_numpy(),
            float(vendor.median()) if len(vendor) else float("nan"),
        )


def _plain(value: object) -> object:
    """A frame's scalar as Python's own; its missing values as None."""
    if value is None or str(value) in ("<NA>", "nan"):
        return None
    return value.item() if isinstance(value, np.generic) else value
