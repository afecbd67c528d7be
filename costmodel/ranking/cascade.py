"""Of many configurations only the best reach every model: the quickest speaks first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.ranking.network import Network
from costmodel.ranking.trees import Trees

Rows = NDArray[np.int64]
Logs = NDArray[np.float64]
#: features [rows, features], physics' estimate in us [rows], and the least that a row can take
Features = tuple[NDArray[np.float32], NDArray[np.float64], Any]

#: rows that reach the models: the best by physics. Where the best measured configuration of the
#: held-out shapes stands by physics `costmodel evaluate --json` says (best_stands_by_physics)
SHORTLIST = 192
#: rows of the shortlist that the second network sees too, the best by the first; and the rows of
#: these that the other networks and the trees see, the best by both. What all of them would have
#: put first is lost by so few in one shape of a hundred (data/results/cascade.py)
FOR_SECOND, FOR_ALL = 16, 8
#: a place behind the last that was looked at, in microseconds or in their log
_STEP = 1e-9


@dataclass
class Narrowing:
    """One problem's rows on their way through the networks, fewer after each pass.

    ``places`` are the rows left, by their place among all, with their ``features``, the logs of
    physics' ``estimate`` and of the ``least`` that they can take, and the sum of what ``spoken``
    networks said, ``total``. ``passes`` are, of each pass, the rows that went on and the logs of
    the times of all that came.
    """

    places: Rows
    features: NDArray[np.float32]
    estimate: Logs
    least: Logs
    total: Logs
    spoken: int = 0
    passes: list[tuple[Rows, Logs]] = field(default_factory=list)

    def hear(self, network: Network) -> None:
        """Add a network's word."""
        self.total = self.total + network.predict(self.features)
        self.spoken += 1

    def keep(self, count: int) -> None:
        """Go on with the best ``count`` by the networks so far."""
        rough = self.estimate + self.total / self.spoken
        first = best_rows(rough, count)
        self.passes.append((first, rough))
        self.places, self.features = self.places[first], self.features[first]
        self.estimate, self.least = self.estimate[first], self.least[first]
        self.total = self.total[first]

    def unfolded(self, exact: Logs) -> Logs:
        """Logs of all rows' times, those left as in ``exact``: the rest keep their order behind."""
        for first, rough in reversed(self.passes):
            exact = with_first(rough, first, exact)
        return exact


def narrowed(networks: Sequence[Network], problems: Iterable[Features]) -> list[Narrowing]:
    """The rows of each problem that all networks speak of, and have spoken of."""
    found = []
    for features, estimate_us, least_us in problems:
        rows = len(features)
        least = np.log(np.maximum(np.broadcast_to(least_us, rows), _STEP))
        found.append(
            Narrowing(np.arange(rows), features, np.log(estimate_us), least, np.zeros(rows))
        )
    for speakers, count in (
        (networks[:1], FOR_SECOND), (networks[1:2], FOR_ALL), (networks[2:], None),
    ):  # fmt: skip
        # a network at a time, so that its weights stay in a core's cache; and to it a problem at a
        # time, since a product of matrices rounds by how many rows come along
        for network in speakers:
            for one in found:
                one.hear(network)
        if speakers and count:
            for one in found:
                one.keep(count)
    return found


def exact_logs(trees: Trees, problems: Sequence[Narrowing]) -> list[Logs]:
    """Logs of the times of what is left of each problem.

    The trees' word counts as much as that of all networks; where there are none, it is alone. Trees
    cost less a row the more rows come along, and say the same.
    """
    words = trees.predict(np.concatenate([one.features for one in problems]))
    found, done = [], 0
    for one in problems:
        said = words[done : done + len(one.places)]
        done += len(one.places)
        said = (said + one.total / one.spoken) / 2 if one.spoken else said
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
