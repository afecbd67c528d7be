"""How many of a ranking to measure, so that the best of them is near the best of all.

A candidate's log time is its predicted one plus an error of three independent normal parts::

    log t_i = log p_i + s + u_kernel(i) + v_i
    var s : var u : var v = SHARED : (1 - SHARED) ALIKE : (1 - SHARED) (1 - ALIKE)

``s`` is common to a problem (its clock, its DRAM): it makes all candidates slower together and
changes no choice, so it drops out. ``u`` is common to near-identical candidates. Their sum has the
width of the ranking's spread: sigma = (q95 - q05) / 3.29. A spread's upper side is the wider one
on the H200; each side at its own width would draw fewer fast surprises than the runs hold, so both
have the mean width. The best of the first k is near the best of all where
min(t_1 .. t_k) <= (1 + within) min(t_1 .. t_n); how often, seeded draws count, for every k at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.config import KNOBS, ConfigTable
from costmodel.errors import ConfigError

#: share of the error's variance that is common to all candidates of a problem. Without it too many
#: are measured; this is the largest at which four promises held on all held-out problems of the
#: H200, and their first 32 candidates alone give 0.3 to 0.4 (`python data/results/enough.py`)
SHARED = 0.05
#: correlation of what is left between near-identical candidates, among the first 32 of the same
#: problems (the same command)
ALIKE = 0.4
#: knobs in which near-identical candidates may differ: the inner loop's instructions stay
_SMALL_KNOBS = ("group_m", "num_stages", "epilogue_parts")
#: 90 % of a normal lies within so many standard deviations of its mean
_Z90 = 1.6449
#: draws: they place a probability of 90 % within 0.7 %
_DRAWS = 2048
#: a candidate predicted so many standard deviations behind the first is never the best
_REACH = 5.0
#: candidates that are drawn at most: a wide spread reaches far, and memory is draws x candidates
_MOST = 1024


def near_identical(table: ConfigTable) -> NDArray[np.int64]:
    """A number a row [rows]: equal where only order of tiles, stages or epilogue differ."""
    knobs = [getattr(table, name) for name in KNOBS if name not in _SMALL_KNOBS]
    numbers = np.unique(np.stack(knobs, axis=1), axis=0, return_inverse=True)[1]
    return np.asarray(numbers, dtype=np.int64).ravel()


def chances(
    time_us: NDArray[np.float64],
    kernel: NDArray[np.int64],
    spread: tuple[float, float],
    within: float,
    *,
    shared: float = SHARED,
    alike: float = ALIKE,
) -> NDArray[np.float64]:
    """Probability that the best of the first k is within ``within`` of the best of all, k from 1.

    ``time_us`` are predicted times [candidates] in the order of measuring, ``kernel`` their
    ``near_identical`` numbers, ``spread`` the 5 % and 95 % quantiles of log(measured / predicted).
    Never falls with k. Candidates behind the last one returned have no chance to be the best.
    """
    sigma = float(np.sqrt(1 - shared)) * (spread[1] - spread[0]) / (2 * _Z90)
    logs = np.log(time_us / time_us.min())
    count = min(int(np.flatnonzero(logs <= _REACH * sigma)[-1]) + 1, _MOST)
    kernels, own = np.unique(kernel[:count], return_inverse=True)
    random = np.random.default_rng(0)  # the same answer for the same ranking
    common = random.standard_normal((_DRAWS, len(kernels)), dtype=np.float32)[:, own.ravel()]
    single = random.standard_normal((_DRAWS, count), dtype=np.float32)
    draws = np.float32(sigma * np.sqrt(alike)) * common
    draws += np.float32(sigma * np.sqrt(1 - alike)) * single
    draws += logs[:count].astype(np.float32)
    best = np.minimum.accumulate(draws, axis=1)
    near = best <= best[:, -1:] + np.float32(np.log1p(within))
    return np.asarray(near.mean(axis=0))


def enough(
    time_us: NDArray[np.float64],
    kernel: NDArray[np.int64],
    spread: tuple[float, float],
    within: float,
    confidence: float,
) -> int:
    """The least k whose chance is at least ``confidence``; arguments as those of ``chances``.

    All where times are unknown (infinite): nothing then speaks against any. Raises
    ``ConfigError`` unless 0 <= within < 1 and 0 < confidence < 1.
    """
    _check("within", within, within >= 0)
    _check("confidence", confidence, confidence > 0)
    if not np.isfinite(time_us).all():
        return len(time_us)
    found = chances(time_us, kernel, spread, within)
    return int(np.argmax(found >= confidence)) + 1


def _check(name: str, value: float, positive: bool) -> None:
    if not positive or not value < 1:  # also what is no number
        least = "at least 0" if name == "within" else "above 0"
        raise ConfigError(
            f"{name} must be a share {least} and below 1, such as 0.02 for 2 %, got {value!r}"
        )
