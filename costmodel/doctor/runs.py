"""Measured rows: broken lines, failures, impossible times, noise, and what a comparison shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from costmodel.config import KNOBS
from costmodel.doctor.messages import message_faults
from costmodel.explain.case import Cause
from costmodel.explain.layers import us
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, list_profiles, load_profile
from costmodel.profile.derive import part_named
from costmodel.records.log import LineProblem
from costmodel.records.schema import PROBLEM_COLUMNS, config_of, problem_of

#: "more than 10 % between runs" is what engineers call unsteady
UNSTEADY = 0.10
#: events resolve half a microsecond, and each of two ends may be off by as much (CUDA Runtime API,
#: cudaEventElapsedTime): what differs by less is not the machine's noise
RESOLUTION_US = 1.0
#: sizes of one dimension up to so far apart should run at much the same rate, and no larger one at
#: less than this share of the smaller one's
NEAR, COLLAPSE = 1.25, 0.8
#: rows of so many problems are looked at one by one
MOST_PROBLEMS = 64

Frame = Any


def unreadable(problems: list[LineProblem]) -> Iterator[Cause]:
    """What the reader left out: lines that are no rows, and times that no chip can reach."""
    impossible = [p for p in problems if p.reason.startswith("above the roofline")]
    broken = [p for p in problems if p not in impossible]
    if impossible:
        yield Cause(
            "above_roofline",
            f"{_rows(len(impossible))} faster than the chip can be, the first: {impossible[0]}",
            "the measurement is broken: no work was timed, the result was cached, or the sizes are "
            "others; check the result's numbers (readers leave such rows out)",
        )
    if broken:
        yield Cause(
            "broken_lines",
            f"{len(broken)} line{'s' * (len(broken) != 1)} cannot be read, the first: {broken[0]}",
            "they are left out and the file stays as it is; a torn last line is a process that was "
            "ended while it wrote",
        )


def failures(frame: Frame) -> Iterator[Cause]:
    """What did not run, or ran wrong, by the reasons that the rows give."""
    failed = frame[frame["invalidity"] != "correct"]
    for word, part in failed.groupby("invalidity"):
        known: dict[str, tuple[Cause, int]] = {}
        unknown: list[str] = []
        for reason in part["reason"].astype(str):
            causes = list(message_faults(reason))
            for cause in causes:
                first, count = known.get(cause.name, (cause, 0))
                known[cause.name] = first, count + 1
            if not causes:
                unknown.append(reason)
        for cause, count in known.values():
            yield Cause(cause.name, f"{_rows(count)}, the first: {cause.evidence}", cause.remedy)
        if unknown:
            yield Cause(
                f"failed_{word}",
                f"{_rows(len(unknown))}, the first: {unknown[0][:200]}",
                "run the first of them alone; its reason stands in the row",
            )


def unsteady(frame: Frame) -> Iterator[Cause]:
    """Repeats that differ, the first slower than the rest, and spread within a measurement."""
    good = correct(frame)
    keys = [*PROBLEM_COLUMNS, *KNOBS, "backend", "device_name"]
    cold: list[tuple[float, str]] = []
    noisy: list[tuple[float, str]] = []
    for _, part in good.sort_values(["timestamp", "run", "sequence"]).groupby(keys, dropna=False):
        times = part["time_us"].to_numpy(dtype=np.float64)
        if len(times) < 2 or np.ptp(times) < max(UNSTEADY * times.min(), RESOLUTION_US):
            continue
        ratio = float(times.max() / times.min())
        told = f"{_name(part.iloc[0])} read {', '.join(us(t) for t in times[:4])}"
        is_first = times.argmax() == 0 and times[0] > (1 + UNSTEADY) * np.median(times[1:])
        (cold if is_first else noisy).append((ratio, told))
    if cold:
        yield Cause(
            "cold_machine",
            f"{max(cold)[1]}: the first is {max(cold)[0] - 1:.0%} slower than a later one",
            "warm up until clocks are up and kernels are loaded; say whether L2 is cold, and keep "
            "it so for every run (`costmodel` flushes it)",
        )
    spread = (good["p90_us"] - good["p10_us"]).to_numpy(dtype=np.float64)
    times = good["time_us"].to_numpy(dtype=np.float64)
    wide = np.nan_to_num(spread) > np.maximum(UNSTEADY * times, RESOLUTION_US)
    if len(wide) and wide.mean() > 0.5:
        share = float(np.median(spread[wide] / times[wide]))
        noisy.append(
            (1 + share, f"{wide.sum()} of {_rows(len(wide))} spread by {share:.0%} in the median")
        )
    if noisy:
        yield Cause(
            "noisy_machine",
            max(noisy)[1] + f": more than {UNSTEADY:.0%} between runs",
            "pin the measuring process to a core, lock the clocks, let nothing else run on the "
            "GPU, flush L2 between runs, and take medians of more repeats",
        )


def behind_vendor(frame: Frame) -> Iterator[Cause]:
    """The best row of a problem against the vendor's GEMM in the same log."""
    worst: tuple[float, str] | None = None
    for problem, _, part in each_problem(correct(frame)):
        ours = part.loc[part["backend"] == "triton", "time_us"]
        vendor = part.loc[part["backend"] == "origin", "time_us"]
        if ours.empty or vendor.empty:
            continue
        ratio = float(ours.min() / vendor.median())
        if ratio > 1 + UNSTEADY and (worst is None or ratio > worst[0]):
            told = f"{problem}: {us(ours.min())} against the vendor's {us(vendor.median())}"
            worst = ratio, told
    if worst:
        yield Cause(
            "behind_vendor",
            f"{worst[1]}, {worst[0] - 1:.0%} slower",
            "`costmodel tune M N K --seeds 4` tries the vendor's own tile; the ladder shows "
            "which variable is missing",
        )


def size_collapse(frame: Frame) -> Iterator[Cause]:
    """A size that is far slower than its neighbours, all else equal."""
    good = correct(frame[frame["backend"] == "triton"])
    best: dict[tuple[Any, ...], list[tuple[int, float, Gemm]]] = {}
    for problem, profile, part in each_problem(good):
        for side in ("m", "n", "k"):
            rest = tuple(
                getattr(problem, name) for name in PROBLEM_COLUMNS if name not in (side, "layout")
            )
            rate = problem.flops / (float(part["time_us"].min()) * 1e6)
            best.setdefault((side, profile.name, *rest), []).append(
                (getattr(problem, side), rate, problem)
            )
    found: list[tuple[float, str, Gemm]] = []
    for (side, *_), sizes in best.items():
        ordered = sorted(sizes, key=lambda item: item[0])
        for (size, rate, _), (larger, slower, problem) in zip(ordered, ordered[1:], strict=False):
            if larger <= NEAR * size and slower < COLLAPSE * rate:
                told = (
                    f"{problem}: {slower:.0f} TFLOPS at {side.upper()} = {larger}, and {rate:.0f} "
                    f"at {size}"
                )
                found.append((slower / rate, told, problem))
    if found:
        _, told, problem = min(found, key=lambda item: item[0])
        odd = [name.upper() for name in "abc" if problem.odd_row_bytes(name, 16)]
        why = f"; rows of {', '.join(odd)} are no multiple of 16 bytes" if odd else ""
        yield Cause(
            "size_collapse",
            told + why,
            "tails: `costmodel explain` of that size names the wave or the rows; pad to a multiple "
            "of 16 bytes, or take a tile that divides it",
        )


def correct(frame: Frame) -> Frame:
    """Rows that ran, with their times."""
    return frame[(frame["invalidity"] == "correct") & frame["time_us"].notna()]


def unknown_chips(frame: Frame) -> Iterator[Cause]:
    """Rows of chips that no profile describes: nothing of theirs was compared with a roofline."""
    ran = correct(frame)
    strange = ran[~ran["device"].isin(_known_chips(ran))]
    if len(strange):
        names = strange["device"].fillna(strange["device_name"]).fillna("a nameless device")
        yield Cause(
            "unknown_chip",
            f"{_rows(len(strange))} of {', '.join(sorted(set(map(str, names))))}, which no profile "
            "describes: roofline and comparison were not looked at",
            "describe the chip (`costmodel profiles new`), or name its profile in the rows' device",
        )


def _known_chips(frame: Frame) -> list[str]:
    """Devices that have a profile, or are a slice of one that has."""
    named = [name for name in frame["device"].dropna().unique() if isinstance(name, str)]
    own = set(list_profiles())
    chips = {name: (part_named(name) or (name,))[0] for name in named}
    return [name for name, chip in chips.items() if chip in own]


def each_problem(frame: Frame) -> Iterator[tuple[Gemm, HardwareProfile, Frame]]:
    """Each problem of a chip that has a profile, with its rows; at most ``MOST_PROBLEMS``."""
    keys = ["device", *PROBLEM_COLUMNS]
    number = 0
    known = frame[frame["device"].isin(_known_chips(frame))]
    for _, part in known.groupby(keys, dropna=False, sort=False):
        if (number := number + 1) > MOST_PROBLEMS:
            return
        yield problem_of(facts_of(part.iloc[0])), load_profile(str(part["device"].iloc[0])), part


def facts_of(row: Any) -> dict[str, Any]:
    """A frame's row as plain values, null as None."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if value is None or str(value) in ("<NA>", "nan"):
        return None
    return value.item() if isinstance(value, np.generic) else value


def _name(row: Any) -> str:
    facts = facts_of(row)
    config = config_of(facts)
    return f"{'the vendor' if config is None else config} on {problem_of(facts)}"


def _rows(count: int) -> str:
    return f"{count} row" + "s" * (count != 1)
