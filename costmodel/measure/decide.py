"""Which measured configuration is the answer: finalists, ties, and whether it was a gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.config import KernelConfig
from costmodel.errors import DeviceError
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.ranking.baselines import default_config
from costmodel.records.schema import Row, config_of
from costmodel.space.prune import broken_rule

#: two medians closer than this are a tie; repeats of one kernel differ by 0.4 % (H200, 180 us)
TIE = 0.005
#: the fastest few are timed once more, the vendor's GEMM between them: one noisy minimum is not
#: an answer
_FINALISTS = 3


@dataclass(frozen=True)
class Verdict:
    """The answer of a measurement. Times are medians in us; None is what did not run correctly."""

    config: KernelConfig
    time_us: float
    p10_us: float
    p90_us: float
    vendor_us: float | None
    default_us: float | None
    note: str


def usual_config(problem: Gemm, profile: HardwareProfile) -> KernelConfig | None:
    """What would run without tuning: the starting table's configuration, where the chip takes it.

    No measurement of the best few tells a gain unless this one stands beside them.
    """
    usual = default_config(problem)
    return usual if broken_rule(problem, usual, profile) is None else None


def finalists(rows: Sequence[Row], chosen: Sequence[KernelConfig]) -> list[KernelConfig]:
    """The few to time once more, of ``chosen`` in predicted order: tied ones, then by time.

    Those within the noise of the fastest come in predicted order: else noise would decide which
    of four tied ones are left out, and so which one wins.
    """
    times = {c: float(np.median(t)) for c, t in _times(rows).items() if c is not None}
    ran = [config for config in chosen if config in times]
    if not ran:
        return []
    tied = min(times[config] for config in ran) * (1 + TIE)
    return sorted(ran, key=lambda c: 0.0 if times[c] <= tied else times[c])[:_FINALISTS]


def decide(
    problem: Gemm,
    chosen: Sequence[KernelConfig],
    usual: KernelConfig | None,
    rows: Sequence[Row],
) -> Verdict:
    """The fastest finalist by its last time; inside the noise the better predicted one.

    ``chosen`` is in predicted order, so that a tie has the same answer every time. The note says
    "tie" where there was one, and "no gain" where the usual configuration or the vendor's GEMM is
    as fast. Raises ``DeviceError`` where no finalist ran correctly twice.
    """
    times = _times(rows)
    ours = {config: times[config][-1] for config in chosen if len(times.get(config, ())) > 1}
    if not ours:
        reasons = {row["reason"] for row in rows if row["reason"]}
        raise DeviceError(f"no candidate ran correctly on {problem}: " + "; ".join(sorted(reasons)))
    least = min(ours.values())
    tied = [config for config in ours if ours[config] <= least * (1 + TIE)]
    config = tied[0]
    row = [row for row in rows if config_of(row) == config][-1]
    vendor_us = float(np.median(times[None])) if None in times else None
    default_us = times[usual][-1] if usual in times and usual is not None else None
    notes = ["measured"]
    if len(tied) > 1:
        notes = [f"a tie of {len(tied)} within {TIE:.1%}: the best predicted of them"]
    as_fast = ours[config] * (1 + TIE)
    if default_us is not None and default_us <= as_fast:
        notes.append(f"no gain over the default, {usual}: {default_us:.2f} us")
    if vendor_us is not None and vendor_us <= as_fast:
        notes.append(f"no gain over the vendor's GEMM: {vendor_us:.2f} us")
    return Verdict(
        config, ours[config], row["p10_us"], row["p90_us"], vendor_us, default_us, "; ".join(notes)
    )


def _times(rows: Sequence[Row]) -> dict[KernelConfig | None, list[float]]:
    """Times of correct runs, in order; the vendor's under None."""
    found: dict[KernelConfig | None, list[float]] = {}
    for row in rows:
        if row["invalidity"] == "correct":
            found.setdefault(config_of(row), []).append(row["time_us"])
    return found
