"""Configurations in the order of their predicted times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable, KernelConfig
from costmodel.physics.estimate import BOUNDS
from costmodel.ranking.enough import enough, near_identical

if TYPE_CHECKING:
    import pandas as pd


def interval_of(
    time_us: float, spread: tuple[float, float], least_us: float
) -> tuple[float, float]:
    """90 % interval around a predicted time, from quantiles of log(measured / predicted)."""
    low, high = (max(time_us * float(np.exp(q)), float(least_us)) for q in spread)
    return low, high


def first_of(time_us: NDArray[np.float64], busy: NDArray[np.float64]) -> int:
    """The row that ``Ranking`` puts first."""
    ties = np.flatnonzero(time_us == time_us.min())
    return int(ties[busy[ties].argmax()])


@dataclass(frozen=True)
class Ranked:
    """One configuration with its predicted time, its 90 % interval and what bounds it."""

    config: KernelConfig
    time_us: float
    interval: tuple[float, float]
    bound: str


class Ranking:
    """Legal configurations, fastest first, as columns; rows are ``Ranked``.

    ``order`` are the rows' places in the table that was ranked; ``spread`` the 5 % and 95 %
    quantiles of log(measured / predicted), seen on ``devices`` (profile names). Of equal times the
    one that keeps more units ``busy`` comes first: what bounds both leaves it more room.
    """

    def __init__(
        self,
        configs: ConfigTable,
        time_us: NDArray[np.float64],
        bound: NDArray[np.int64],
        spread: tuple[float, float],
        least_us: float = 0.0,
        devices: tuple[str, ...] = (),
        busy: NDArray[np.float64] | None = None,
    ) -> None:
        keys = (time_us,) if busy is None else (-busy, time_us)
        self.order: NDArray[np.int64] = np.asarray(np.lexsort(keys), dtype=np.int64)  # stable
        self.configs = configs[self.order]
        self.time_us = time_us[self.order]
        self.spread = spread
        self.devices = devices
        self._least_us = least_us
        self._bound = bound[self.order]

    def __len__(self) -> int:
        return len(self.time_us)

    def __getitem__(self, row: int) -> Ranked:
        time_us = float(self.time_us[row])
        interval = interval_of(time_us, self.spread, self._least_us)
        return Ranked(self.configs[row], time_us, interval, BOUNDS[int(self._bound[row])])

    def __iter__(self) -> Iterator[Ranked]:
        return (self[row] for row in range(len(self)))

    def enough(self, within: float = 0.02, confidence: float = 0.9) -> int:
        """How many of the first to measure: see ``costmodel.ranking.enough``.

        The best of so many is, with probability ``confidence``, at most ``within`` slower than
        the best of all; both are shares. Raises ``ConfigError``.
        """
        kernel = near_identical(self.configs)
        return enough(self.time_us, kernel, self.spread, within, confidence)

    def to_frame(self, top: int | None = None) -> pd.DataFrame:
        """The first ``top`` rows, or all, as a DataFrame: a column a knob, time and bound."""
        import pandas as pd

        count = len(self) if top is None else min(top, len(self))
        frame = pd.DataFrame([config.as_dict() for config in self.configs[:count]])
        frame["time_us"] = self.time_us[:count]
        frame["bound"] = [BOUNDS[int(bound)] for bound in self._bound[:count]]
        return frame
