"""What the checks for causes look at, and what they give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.config import ConfigTable, KernelConfig
from costmodel.physics.estimate import EstimateColumns, estimate_columns
from costmodel.predict import Prediction
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile


@dataclass(frozen=True)
class Cause:
    """One reason: a name, the numbers that show it, and what to do about it."""

    name: str
    evidence: str
    remedy: str


@dataclass(frozen=True)
class Case:
    """What the checks look at: the chosen configuration and the best that does not split K.

    ``even`` is the one that would be fastest if rounds could be cut into parts: the tile that the
    shape's size spoils, where it spoils one.
    """

    problem: Gemm
    profile: HardwareProfile
    config: KernelConfig
    time_us: float
    physics: EstimateColumns
    unsplit: KernelConfig
    unsplit_physics: EstimateColumns
    even: KernelConfig
    even_physics: EstimateColumns

    @classmethod
    def of(cls, prediction: Prediction) -> Case:
        """Price the configurations."""
        problem, profile, config = prediction.problem, prediction.profile, prediction.config
        unsplit, even = _best_unsplit(prediction), _best_evenly_divided(prediction)

        def physics(one: KernelConfig) -> EstimateColumns:
            return estimate_columns(problem, ConfigTable.of(one), profile)

        return cls(
            problem, profile, config, prediction.time_us, physics(config),
            unsplit, physics(unsplit), even, physics(even),
        )  # fmt: skip

    @property
    def tiles(self) -> int:
        """Output tiles of the chosen blocks, K not split."""
        return int(self.physics.waves.tiles[0])

    @property
    def unit_names(self) -> str:
        return f"{self.profile.units} {self.profile.unit_name}s"


def last_round_fill(physics: EstimateColumns) -> float:
    """Share of the last round's slots that have a program, for one configuration."""
    waves = physics.waves
    slots = float(waves.slots[0])
    return (float(waves.programs[0]) - (float(waves.rounds[0]) - 1) * slots) / slots


def _best_unsplit(prediction: Prediction) -> KernelConfig:
    """The first of the ranking that keeps K whole; the chosen one where none does."""
    if prediction.config.split_k == 1:
        return prediction.config
    rows = np.flatnonzero(prediction.ranking.configs.split_k == 1)
    return prediction.ranking.configs[int(rows[0])] if len(rows) else prediction.config


def _best_evenly_divided(prediction: Prediction) -> KernelConfig:
    """The plain tile (sides of powers of two, K whole) that physics would have the fastest if a
    round could be partly run.
    """
    table = prediction.ranking.configs
    odd = (table.block_m & (table.block_m - 1)) | (table.block_n & (table.block_n - 1))
    table = table[np.flatnonzero((table.split_k == 1) & (odd == 0))]
    if not len(table):
        return prediction.config
    physics = estimate_columns(prediction.problem, table, prediction.profile)
    waves = physics.waves
    rounds = np.maximum(waves.programs / waves.slots, 1.0)
    even_us = rounds * (waves.steps * physics.step_us + physics.epilogue_us / waves.rounds)
    return table[int(even_us.argmin())]
