"""Of many configurations only the best reach every model: the quickest speaks first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.ranking.network import Network
from costmodel.ranking.trees import Trees

Rows = NDArray[np.int64]
Logs = NDArray[np.float64]

#: rows that reach the models: the best by physics. Where the best measured configuration of the
#: held-out shapes stands by physics `costmodel evaluate --json` says (best_stands_by_physics)
SHORTLIST = 192
#: rows of the shortlist that the second network sees too, the best by the first; and the rows of
#: these that the other networks and the trees see, the best by both. What all of them would have
#: put first is lost by so few in one shape of a hundred (data/results/cascade.py)
FOR_SECOND, FOR_ALL = 16, 8
#: a place behind the last that was looked at, in microseconds or in their log
_STEP = 1e-9


class Narrowed(NamedTuple):
    """What networks leave of one problem's rows for all models to speak of.

    ``passes`` are, of each pass, the rows that go on and the logs of all rows' times that came;
    ``places`` are the rows left, by their place among all, with their ``features``, the logs of
    physics' ``estimate`` and of the ``least`` that they can take, and the networks' mean word,
    ``said`` (None where there are none).
    """

    passes: list[tuple[Rows, Logs]]
    places: Rows
    features: NDArray[np.float32]
    estimate: Logs
    least: Logs
    said: Logs | None

    def unfolded(self, exact: Logs) -> Logs:
        """Logs of all rows' times, those left as in ``exact``: the rest keep their order behind."""
        for first, rough in reversed(self.passes):
            exact = with_first(rough, first, exact)
        return exact


def narrowed(
    networks: Sequence[Network],
    features: NDArray[np.float32],
    estimate_us: NDArray[np.float64],
    least_us: Any,
) -> Narrowed:
    """One pass after another, each over the best of the pass before.

    Networks take one problem at a time: a product of matrices rounds by how many come along.
    """
    places, estimate = np.arange(len(features)), np.log(estimate_us)
    passes: list[tuple[Rows, Logs]] = []
    total, spoken = np.zeros(len(features)), 0
    few = len(features) <= FOR_ALL
    for speakers, count in ((networks[:1], FOR_SECOND), (networks[1:2], FOR_ALL)):
        total = total + sum(network.predict(features) for network in speakers)
        spoken += len(speakers)
        if speakers and not few:
            rough = estimate + total / spoken
            first = best_rows(rough, count)
            passes.append((first, rough))
            places, features, estimate = places[first], features[first], estimate[first]
            total = total[first]
    total = total + sum(network.predict(features) for network in networks[2:])
    least = np.log(np.maximum(np.broadcast_to(least_us, len(estimate_us))[places], _STEP))
    said = total / len(networks) if networks else None
    return Narrowed(passes, places, features, estimate, least, said)


def exact_logs(trees: Trees, some: Sequence[Narrowed]) -> list[Logs]:
    """Logs of the times of what is left of each problem.

    The trees' word counts as much as that of all networks; where there are none, it is alone. Trees
    cost less a row the more rows come along, and say the same.
    """
    words = trees.predict(np.concatenate([one.features for one in some]))
    found, done = [], 0
    for one in some:
        said = words[done : done + len(one.places)]
        done += len(one.places)
        said = said if one.said is None else (said + one.said) / 2
        found.append(np.maximum(one.estimate + said, one.least))
    return found


def best_rows(time: NDArray[np.float64], count: int) -> Rows:
    """The rows of the ``count`` least times, in the order of rows; of equal times, the first."""
    if len(time) <= count:
        return np.arange(len(time))
    last = np.partition(time, count - 1)[count - 1]
    # whom a partition keeps of equal times is up to the machine
    rows = np.flatnonzero(time <= last)
    if len(rows) > count:
        equal = np.flatnonzero(time[rows] == last)
        rows = np.delete(rows, equal[count - len(rows) :])
    return rows


def with_first(rough: Logs, first: Rows, exact: Logs) -> Logs:
    """Times, or their logs, of all rows, exact for the first: the rest keep their order behind."""
    # an even step a place: lifted to one value, rows would lose their order
    behind = np.empty(len(rough))
    behind[np.argsort(rough, kind="stable")] = exact.max() + _STEP * np.arange(1, len(rough) + 1)
    times: Logs = np.maximum(rough, behind)
    times[first] = exact
    return times
