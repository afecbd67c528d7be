"""Measured runs as the columns that fitting and judging work on: one group a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import KNOBS, TEMPLATES, ConfigTable, KernelConfig
from costmodel.errors import RecordError
from costmodel.problem import Gemm
from costmodel.records.schema import PROBLEM_COLUMNS, config_of, problem_of
from costmodel.records.source_hash import kernel_hash

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


def groups_of(
    frame: pd.DataFrame, profile_name: str | None = None, *, source: str | None = None
) -> list[Group]:
    """Split a frame of rows by device and problem; failures and foreign rows are left out.

    ``source`` takes the runs of another tool's kernel by its name; None takes this package's own,
    and of a problem that today's kernels ran no row of older ones: they are other programs.
    Raises ``RecordError`` where nothing correct is left.
    """
    good = frame[(frame["invalidity"] == "correct") & frame["time_us"].notna()]
    theirs = good["source"]
    good = good[theirs.isna() if source is None else (theirs == source).fillna(False)]
    if profile_name is not None:
        good = good[good["device"] == profile_name]
    unknown = good.loc[good["device"].isna(), "device_name"]
    if len(unknown):
        raise RecordError(
            f"{len(unknown)} runs come from {unknown.iloc[0]!r}, for which there is no hardware "
            "profile; write one (data/profiles/README.md says how) and set `device` to its name"
        )
    if good.empty:
        others = sorted(theirs.dropna().unique().tolist())
        raise RecordError(
            "there are no correct runs to learn from"
            + (f" on {profile_name}" if profile_name else "")
            + (f" of {source}" if source else "")
            + (f"; there are runs of other kernels: {', '.join(others[:5])}" if others else "")
            + "; `costmodel collect` measures some"
        )
    return list(_groups(good if source else _without_outdated(good)))


def _without_outdated(good: pd.DataFrame) -> pd.DataFrame:
    """Rows without those of older kernels, wherever today's ran the same problem on the chip.

    What older kernels alone ran stays: they were much the same, and no row says less.
    """
    hashes = {name: kernel_hash(name) for name in TEMPLATES}
    ours = good["backend"] == "triton"
    current = ours & (good["kernel_hash"] == good["template"].map(hashes))
    keys = [good[name] for name in ("device", *PROBLEM_COLUMNS)]
    replaced = current.groupby(keys, dropna=False).transform("any")
    return good[current | ~ours | ~replaced]


def _groups(good: pd.DataFrame) -> Iterator[Group]:
    keys = ["device", *PROBLEM_COLUMNS]
    good = good.assign(group=good.groupby(keys, dropna=False, sort=True).ngroup())
    vendor = good[good["backend"] == "origin"].groupby("group")["time_us"].median()
    ours = good[good["backend"] == "triton"].sort_values(["group", "timestamp", "run", "sequence"])
    same = ours.groupby(["group", *KNOBS], dropna=False, sort=False)
    ours = ours.assign(config=same.ngroup(), number=same.cumcount())
    again = ours[ours["number"] > 0].groupby("config")["time_us"].median()
    once = ours[ours["number"] == 0]
    later = once["config"].map(again)
    once = once.assign(later=later, time_us=later.fillna(once["time_us"]))
    kinds = {name: index for index, name in enumerate(TEMPLATES)}
    knobs = {
        name: once[name].fillna(0).astype(np.int64).to_numpy()
        for name in KNOBS
        if name != "template"
    }
    knobs["template"] = once["template"].map(kinds).to_numpy(dtype=np.int64)
    times = once["time_us"].to_numpy(dtype=np.float64)
    remeasured = once["later"].notna().to_numpy()
    numbers = once["group"].to_numpy(dtype=np.int64)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    facts = once.iloc[starts][keys].to_dict("records")
    ends = [*starts[1:], len(numbers)]
    for fact, start, end in zip(facts, starts, ends, strict=True):
        rows = slice(int(start), int(end))
        yield Group(
            problem_of({name: plain(fact[name]) for name in PROBLEM_COLUMNS}),
            str(fact["device"]),
            ConfigTable(**{name: column[rows] for name, column in knobs.items()}),
            times[rows],
            remeasured[rows],
            float(vendor.get(numbers[start], np.nan)),
        )


def config_of_knobs(knobs: Any) -> KernelConfig:
    """A configuration from a frame's values of ``KNOBS``, in order."""
    values = {name: plain(value) for name, value in zip(KNOBS, knobs, strict=True)}
    config = config_of({"backend": "triton"} | values)
    assert config is not None
    return config


def plain(value: Any) -> Any:
    """A frame's scalar as Python's own; its missing values as None."""
    if value is None or str(value) in ("<NA>", "nan"):
        return None
    return value.item() if isinstance(value, np.generic) else value
