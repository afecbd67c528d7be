"""Of many configurations only the best reach every model: the quickest speaks first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
#: these that the other networks and the trees see, the best by both. By the word of all the first
#: choice is thereby 0.05 % slower in the mean than if all saw every row, and over 1 % on 2 % of
#: the shapes (data/results/cascade.py)
FOR_SECOND, FOR_ALL = 12, 6
#: a place behind the last that was looked at, in microseconds
_STEP = 1e-9


class ToJudge(NamedTuple):
    """One problem's rows: ``features`` [rows, features], physics' estimate, and the least that a
    row can take, both in microseconds.
    """

    features: NDArray[np.float32]
    estimate_us: NDArray[np.float64]
    least_us: Any


@dataclass
class Narrowing:
    """One problem's rows on their way through the networks, fewer after each pass.

    ``places`` are the rows left, by their place among all, with their ``features``, the logs of
    physics' ``estimate``, and the sum of what ``spoken`` networks said, ``total``.
    """

    places: Rows
    features: NDArray[np.float32]
    estimate: Logs
    total: Logs
    spoken: int = 0

    def hear(self, word: Logs) -> None:
        """Add a network's word of each row."""
        self.total = self.total + word
        self.spoken += 1

    def keep(self, count: int) -> None:
        """Go on with the best ``count`` by the networks so far."""
        first = best_rows(self.estimate + self.total / self.spoken, count)
        self.places, self.features = self.places[first], self.features[first]
        self.estimate, self.total = self.estimate[first], self.total[first]


def narrowed(networks: Sequence[Network], problems: Iterable[ToJudge]) -> list[Narrowing]:
    """The rows of each problem that all networks speak of, and have spoken of."""
    found = [
        Narrowing(
            np.arange(len(one.features)), one.features, np.log(one.estimate_us),
            np.zeros(len(one.features)),
        )
        for one in problems
    ]  # fmt: skip
    kept = {0: FOR_SECOND, min(1, len(networks) - 1): FOR_ALL}
    # a network at a time, so that its weights stay in a core's cache
    for number, network in enumerate(networks):
        for some in _of_one_size(found):
            words = network.predict(np.stack([one.features for one in some]))
            for one, word in zip(some, words, strict=True):
                one.hear(word)
                if number in kept:
                    one.keep(kept[number])
    return found


def _of_one_size(problems: Iterable[Narrowing]) -> Iterable[list[Narrowing]]:
    """Those with as many rows left, together: their features can be stacked."""
    by_size: dict[int, list[Narrowing]] = {}
    for one in problems:
        by_size.setdefault(len(one.places), []).append(one)
    return by_size.values()


def foremost_times(
    networks: Sequence[Network], trees: Trees, problems: Sequence[ToJudge]
) -> list[tuple[Rows, NDArray[np.float64]]]:
    """Of each problem, the rows that all models spoke of, and their times in microseconds.

    The trees' word counts as much as that of all networks; where there are none, it is alone. Trees
    cost less a row the more rows come along, and say the same.
    """
    left = narrowed(networks, problems)
    words = trees.predict(np.concatenate([one.features for one in left])) if left else np.empty(0)
    found, done = [], 0
    for one, given in zip(left, problems, strict=True):
        said = words[done : done + len(one.places)]
        done += len(one.places)
        said = (said + one.total / one.spoken) / 2 if one.spoken else said
        least = np.broadcast_to(given.least_us, len(given.features))[one.places]
        found.append((one.places, np.maximum(np.exp(one.estimate + said), least)))
    return found


def best_rows(time: NDArray[np.float64], count: int) -> Rows:
    """The rows of the ``count`` least times, in the order of rows; of equal times, the first."""
    if len(time) <= count:
        return np.arange(len(time))
    last = np.partition(time, count - 1)[count - 1]
    if np.isnan(last):
        return np.sort(np.argsort(time, kind="stable")[:count])
    # whom a partition keeps of equal times is up to the machine
    rows = np.flatnonzero(time <= last)
    if len(rows) > count:
        equal = np.flatnonzero(time[rows] == last)
        rows = np.delete(rows, equal[count - len(rows) :])
    return rows


def with_first(
    rough: NDArray[np.float64], first: Rows, exact: NDArray[np.float64], past: float
) -> NDArray[np.float64]:
    """Times of all rows, exact for the first; the rest keep their order, all past ``past``."""
    # an even step a place: lifted to one value, rows would lose their order
    behind = np.empty(len(rough))
    behind[np.argsort(rough, kind="stable")] = past + _STEP * np.arange(1, len(rough) + 1)
    times: NDArray[np.float64] = np.maximum(rough, behind)
    times[first] = exact
    return times
