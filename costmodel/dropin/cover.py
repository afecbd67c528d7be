"""Which few kernels serve every bucket of M best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: a further kernel must shorten the sum of all buckets' log times by this much to be compiled
_LEAST_GAIN = 0.003
#: log time of a bucket that nothing serves, above the slowest that something does
_UNSERVED = 10.0


def cover(times_us: NDArray[np.float64], needs: NDArray[np.bool_], limit: int) -> NDArray[np.bool_]:
    """Choose at most ``limit`` kernels so that the product of all buckets' times is small.

    ``times_us`` is [buckets, bundles], inf where a bundle cannot serve a bucket; ``needs`` is
    [bundles, kernels]: a bundle is served by all its kernels or not at all. Returns [kernels].
    Greedy: the bundle with the largest gain a new kernel first, then what nothing uses any more
    is dropped and its place is given away again, until nothing is gained.
    """
    chosen: NDArray[np.bool_] = np.zeros(needs.shape[1], dtype=bool)
    if not np.isfinite(times_us).any():
        return chosen
    finite = np.isfinite(times_us)
    logs = np.where(finite, np.log(np.where(finite, times_us, 1.0)), np.inf)
    worst = float(logs[finite].max()) + _UNSERVED
    while True:
        grown = _grow(chosen, logs, needs, limit, worst)
        best = _best(grown, logs, needs)[_served(grown, logs, needs)]
        used = np.asarray(needs[best].any(axis=0), dtype=bool)
        if np.array_equal(used, chosen):
            return chosen
        chosen = used


def _open(chosen: NDArray[np.bool_], needs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return ~np.asarray((needs & ~chosen).any(axis=1), dtype=bool)


def _best(
    chosen: NDArray[np.bool_], logs: NDArray[np.float64], needs: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """[buckets]: the fastest bundle that the chosen kernels serve."""
    return np.asarray(np.where(_open(chosen, needs), logs, np.inf).argmin(axis=1))


def _served(
    chosen: NDArray[np.bool_], logs: NDArray[np.float64], needs: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(logs[:, _open(chosen, needs)]).any(axis=1), dtype=bool)


def _grow(
    chosen: NDArray[np.bool_],
    logs: NDArray[np.float64],
    needs: NDArray[np.bool_],
    limit: int,
    worst: float,
) -> NDArray[np.bool_]:
    """Add bundles, the largest gain a new kernel first, while there is room and a gain."""
    capped = np.minimum(logs, worst)
    while True:
        now = np.where(_open(chosen, needs), capped, worst).min(axis=1)
        new = needs & ~chosen
        count = new.sum(axis=1)
        # [added, bundle]: whether the bundle is served once another is added
        served = (new.astype(np.int64) @ (~needs).T.astype(np.int64)).T == 0
        after = np.where(served[None], capped[:, None, :], worst).min(axis=2)
        gain = (now[:, None] - np.minimum(after, now[:, None])).sum(axis=0) / np.maximum(count, 1)
        gain[(count == 0) | (chosen.sum() + count > limit)] = -1.0
        pick = int(gain.argmax())
        if gain[pick] < _LEAST_GAIN:
            return chosen
        chosen = chosen | needs[pick]
