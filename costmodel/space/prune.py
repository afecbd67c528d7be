"""Reject what the chip cannot run, before anything is compiled, and say by how much."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import NoCandidateError
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.legality import Rule, check_problem, rules_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Rejection:
    """Why one configuration cannot run: ``needed`` against ``limit``, in ``unit``."""

    config: KernelConfig
    reason: str
    needed: int
    limit: int
    unit: str
    meaning: str
    problem: Gemm
    profile: HardwareProfile

    @property
    def repairs(self) -> list[KernelConfig]:
        """The smallest changes of one knob that make the configuration legal, each checked."""
        return repairs(self.problem, self.config, self.profile)

    @property
    def excess(self) -> str:
        """What is needed against what there is; of a limit of 0 only what is too much."""
        told = f"{self.needed} of {self.limit}" if self.limit else f"{self.needed}"
        return f"{told} {self.unit}".rstrip()

    def __str__(self) -> str:
        return f"{self.config}: {self.meaning}: {self.excess}"


class Rejections:
    """Every rejected configuration with its first broken rule, as columns; rows on access."""

    def __init__(
        self,
        problem: Gemm,
        profile: HardwareProfile,
        configs: ConfigTable,
        rule: NDArray[np.int64],
        needed: NDArray[np.int64],
        limit: NDArray[np.int64],
    ) -> None:
        self.problem = problem
        self.profile = profile
        self.configs = configs
        self.rule = rule
        self.needed = needed
        self.limit = limit
        self.rules = rules_of(profile)

    def __len__(self) -> int:
        return len(self.configs)

    def __getitem__(self, row: int) -> Rejection:
        rule = self.rules[int(self.rule[row])]
        return Rejection(
            self.configs[row], rule.name, int(self.needed[row]), int(self.limit[row]),
            rule.unit, rule.meaning, self.problem, self.profile,
        )  # fmt: skip

    def __iter__(self) -> Iterator[Rejection]:
        return (self[row] for row in range(len(self)))

    def to_frame(self) -> pd.DataFrame:
        """Every rejected configuration with its rule, what it needs and what there is."""
        import pandas as pd

        frame = pd.DataFrame([config.as_dict() for config in self.configs])
        frame["reason"] = [self.rules[int(rule)].name for rule in self.rule]
        frame["needed"], frame["limit"] = self.needed, self.limit
        frame["unit"] = [self.rules[int(rule)].unit for rule in self.rule]
        return frame

    def counts(self) -> dict[str, int]:
        """How many configurations each rule rejected, most first."""
        numbers = np.bincount(self.rule, minlength=len(self.rules))
        found = [(self.rules[i].name, int(numbers[i])) for i in np.argsort(-numbers) if numbers[i]]
        return dict(found)


def prune(
    problem: Gemm,
    configs: ConfigTable | Iterable[KernelConfig],
    profile: HardwareProfile,
) -> tuple[ConfigTable, Rejections]:
    """Split configurations into those that the chip can run and rejections with reasons.

    Pure arithmetic over columns: nothing is compiled. Raises ``UnsupportedError`` where no
    configuration could run the problem's dtype, and ``NoCandidateError`` where every one was
    rejected, naming the tightest limit and the smallest excess.
    """
    legal, rejections = judged(problem, ConfigTable.of(configs), profile)
    if len(rejections) and not len(legal):
        raise NoCandidateError(_nothing_left(rejections))
    return legal, rejections


def judged(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile
) -> tuple[ConfigTable, Rejections]:
    """As ``prune``, but all may be rejected. Raises ``UnsupportedError`` as ``prune`` does."""
    check_problem(problem, profile)
    count = len(table)
    broken = np.full(count, -1, dtype=np.int64)
    needed = np.zeros(count, dtype=np.int64)
    limit = np.zeros(count, dtype=np.int64)
    for index, rule in enumerate(rules_of(profile)):
        need, have = np.broadcast_arrays(*rule.needs(problem, table, profile))
        first = (need > have) & (broken < 0)
        broken[first] = index
        needed[first] = need[first]
        limit[first] = have[first]
    bad = broken >= 0
    rejections = Rejections(problem, profile, table[bad], broken[bad], needed[bad], limit[bad])
    return table[~bad], rejections


def _nothing_left(rejections: Rejections) -> str:
    excess = rejections.needed - rejections.limit
    # the rule that rejects most is the one to relax; within it, the row that misses by least
    tightest = np.bincount(rejections.rule).argmax()
    rows = np.flatnonzero(rejections.rule == tightest)
    nearest = rejections[int(rows[excess[rows].argmin()])]
    return (
        f"all {len(rejections)} configurations were rejected for {rejections.problem} on "
        f"{rejections.profile.name}; the tightest limit is {nearest.meaning} "
        f"({nearest.limit} {nearest.unit}), and the nearest configuration, {nearest.config}, "
        f"exceeds it by {nearest.needed - nearest.limit}"
    )


def broken_rule(problem: Gemm, config: KernelConfig, profile: HardwareProfile) -> Rule | None:
    """The first rule that one configuration breaks, or None."""
    table = ConfigTable.of(config)
    for rule in rules_of(profile):
        need, have = np.broadcast_arrays(*rule.needs(problem, table, profile))
        if (need > have).any():
            return rule
    return None


def _power_below(value: int) -> int:
    return 1 << (value - 1).bit_length() - 1


#: knobs that may be lowered to repair a configuration, with the next smaller value
_LOWER: dict[str, Callable[[int], int]] = {
    "num_stages": lambda v: v - 1,
    "block_n": _power_below,
    "block_m": _power_below,
    "block_k": _power_below,
    "num_warps": _power_below,
    "split_k": lambda v: v // 2,
    "epilogue_parts": lambda v: v - 1,
}
#: the least blocks that any chip's ``tl.dot`` takes of all types
_RAISED = {"block_m": 16, "block_n": 16, "block_k": 32}


def repairs(problem: Gemm, config: KernelConfig, profile: HardwareProfile) -> list[KernelConfig]:
    """One-knob repairs: for each knob, the largest smaller value that is legal.

    A block too small for ``tl.dot`` is raised, and a load width set to the usual one. More epilogue
    parts and template "tile" are tried too, and the knobs that the chip has. Every repair returned
    passes ``prune``; an already legal configuration has none.
    """
    if broken_rule(problem, config, profile) is None:
        return []
    found = []
    for knob, lower in _LOWER.items():
        value = getattr(config, knob)
        while value is not None and value > 1:
            value = lower(value)
            trial = replace(config, **{knob: value})  # type: ignore[arg-type]
            if broken_rule(problem, trial, profile) is None:
                found.append(trial)
                break
    others: list[dict[str, Any]] = [
        *({knob: least} for knob, least in _RAISED.items() if getattr(config, knob) < least),
        {"load_bits": config.load_bits and 128},
        {"epilogue_parts": 2},
        {"template": "tile", "epilogue_parts": 1, "split_k": 1},
    ]
    if profile.knobs:
        others.append(_within_knobs(config, profile))
    for change in others:
        trial = replace(config, **change)
        if trial != config and broken_rule(problem, trial, profile) is None:
            found.append(trial)
    return found


def _within_knobs(config: KernelConfig, profile: HardwareProfile) -> dict[str, Any]:
    """What has to change for a configuration to have this chip's knobs: the first value of each."""
    change: dict[str, Any] = {}
    for name, values in profile.knobs.items():
        if not name.startswith("block") and getattr(config, name) not in (values or (None,)):
            change[name] = values[0] if values else None
    return change | ({"split_k": 1} if change.get("template") == "tile" else {})
