"""Which few kernels serve every bucket of M best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: a further kernel must shorten the sum of all buckets' log times by this much to be compiled
_LEAST_GAIN = 0.003
#: log time of a bucket that nothing serves, above the slowest that something does
_UNSERVED = 10.0

Mask = NDArray[np.bool_]


def cover(times_us: NDArray[np.float64], needs: Mask, limit: int) -> Mask:
    """Choose at most ``limit`` kernels so that the product of all buckets' times is small.

    ``times_us`` is [buckets, bundles], inf where a bundle cannot serve a bucket; ``needs`` is
    [bundles, kernels]: a bundle is served by all its kernels or not at all. Returns [kernels].
    Greedy, the bundle with the largest gain a new kernel first; then as long as a kernel is found
    without which the rest, grown again, does better.
    """
    finite = np.isfinite(times_us)
    if not finite.any():
        return np.zeros(needs.shape[1], dtype=bool)
    logs = np.log(np.where(finite, times_us, 1.0))
    worst = float(logs[finite].max()) + _UNSERVED
    buckets = _Buckets(np.where(finite, logs, worst), needs, limit, worst)
    none = np.zeros(needs.shape[1], dtype=bool)
    chosen = buckets.grown(none, none)
    while buckets.cost(chosen) > buckets.least:
        trials = [
            buckets.grown(chosen & ~one, one)
            for one in np.eye(len(chosen), dtype=bool)[np.flatnonzero(chosen)]
        ]
        best = min(trials, key=buckets.cost, default=chosen)
        if not buckets.cost(best) < buckets.cost(chosen) - _LEAST_GAIN:
            break
        chosen = buckets.grown(best, none)
    return chosen


@dataclass(frozen=True)
class _Buckets:
    """``logs`` of times [buckets, bundles], ``worst`` where a bundle cannot."""

    logs: NDArray[np.float64]
    needs: Mask
    limit: int
    worst: float

    @property
    def least(self) -> float:
        """What it costs where every bucket has its own best: nothing can be gained from there."""
        return float(self.logs.min(axis=1).sum()) + _LEAST_GAIN

    def times(self, chosen: Mask) -> NDArray[np.float64]:
        """Log time of every bundle [buckets, bundles], ``worst`` where a kernel is missing."""
        closed = (self.needs & ~chosen).any(axis=1)
        return np.where(closed, self.worst, self.logs)

    def cost(self, chosen: Mask) -> float:
        return float(self.times(chosen).min(axis=1).sum())

    def grown(self, chosen: Mask, forbidden: Mask) -> Mask:
        """Add bundles while there is room and a gain, then drop what no bucket uses; repeat."""
        while True:
            more = self._added(chosen, forbidden)
            times = self.times(more)
            best = times.argmin(axis=1)[times.min(axis=1) < self.worst]
            used = np.asarray(self.needs[best].any(axis=0), dtype=bool)
            if np.array_equal(used, chosen):
                return chosen
            chosen = used

    def _added(self, chosen: Mask, forbidden: Mask) -> Mask:
        barred = (self.needs & forbidden).any(axis=1)
        while True:
            now = self.times(chosen).min(axis=1)
            new = self.needs & ~chosen
            count = new.sum(axis=1)
            # [added, bundle]: whether the bundle is served once another is added
            missing = (~self.needs).astype(np.float32) @ new.T.astype(np.float32)
            after = np.where(missing[None] == 0, self.logs[:, None, :], self.worst).min(axis=2)
            gain = (now[:, None] - np.minimum(after, now[:, None])).sum(axis=0)
            gain /= np.maximum(count, 1)
            gain[barred | (count == 0) | (chosen.sum() + count > self.limit)] = -1.0
            pick = int(gain.argmax())
            if gain[pick] < _LEAST_GAIN:
                return chosen
            chosen = chosen | self.needs[pick]
