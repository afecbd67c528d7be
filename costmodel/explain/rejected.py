"""A configuration that the chip cannot run: by how much, and what repairs it at which price."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from costmodel.config import ConfigTable
from costmodel.explain.case import Cause
from costmodel.explain.layers import us
from costmodel.physics.estimate import BOUNDS, estimate_columns
from costmodel.predict import Prediction
from costmodel.price import price
from costmodel.resources.footprint import PARTS, footprint
from costmodel.space.prune import Rejection


@dataclass(frozen=True)
class Repair:
    """A legal configuration one knob away; ``slower`` is against the best of all, less 1."""

    config: str
    time_us: float
    slower: float


@dataclass(frozen=True)
class RejectedReport:
    """What ``explain`` says of a configuration that cannot run.

    ``bound`` is what would bound it if it could: physics prices it all the same. ``parts_bytes``
    is its shared memory by part.
    """

    problem: str
    profile: str
    config: str
    rejected: bool
    reason: str
    meaning: str
    needed: int
    limit: int
    unit: str
    bound: str
    parts_bytes: dict[str, int]
    repairs: tuple[Repair, ...]
    causes: tuple[Cause, ...]

    @classmethod
    def of(cls, best: Prediction, rejection: Rejection) -> RejectedReport:
        """``best`` is what would be chosen: repairs are priced beside it."""
        problem, profile, config = best.problem, best.profile, rejection.config
        repaired = price(problem, rejection.repairs, profile, best.source).time_us
        repairs = tuple(
            Repair(str(config), time_us, time_us / best.time_us - 1.0)
            for config, time_us in sorted(repaired.items(), key=lambda item: item[1])
        )
        physics = estimate_columns(problem, ConfigTable.of(config), profile)
        held = footprint(problem, config, profile)
        return cls(
            str(problem), profile.name, str(config), True, rejection.reason, rejection.meaning,
            rejection.needed, rejection.limit, rejection.unit, BOUNDS[int(physics.bound[0])],
            {name: getattr(held, name) for name in PARTS}, repairs,
            (Cause(rejection.reason, _told(rejection), _remedy(repairs)),),
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Plain values, with ``bound`` and ``causes`` as every explanation has them."""
        return asdict(self)

    def text(self) -> str:
        """At most 100 columns, as the report of a configuration that runs."""
        from costmodel.explain.text import paragraph

        lines = [f"{self.problem} on {self.profile}", ""]
        for label, sentence in self._sections():
            lines += paragraph(label, sentence)
        return "\n".join(lines)

    def _sections(self) -> Iterator[tuple[str, str]]:
        yield "cannot run", self.config
        yield "rule", self.causes[0].evidence
        if self.reason == "shared_memory":
            parts = {name: size for name, size in self.parts_bytes.items() if size}
            yield "by part", ", ".join(f"{name[:-6]} {size}" for name, size in parts.items())
        for number, repair in enumerate(self.repairs):
            told = f"{repair.config}: {us(repair.time_us)}, {repair.slower:+.1%} against the best"
            yield "repairs" if number == 0 else "", told
        if not self.repairs:
            yield "repairs", "no change of one knob makes it run"


def _told(rejection: Rejection) -> str:
    over = rejection.needed - rejection.limit
    if not rejection.unit:
        return rejection.meaning
    return (
        f"{rejection.meaning}: needs {rejection.needed} of {rejection.limit} {rejection.unit}, "
        f"{over} too many"
    )


def _remedy(repairs: tuple[Repair, ...]) -> str:
    if not repairs:
        return "no change of one knob makes it run: start from the configuration that is predicted"
    return "; ".join(repair.config for repair in repairs)
