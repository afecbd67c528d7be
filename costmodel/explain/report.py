"""What stands behind a prediction: every figure of the estimate, and why it is no faster."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from costmodel.config import ConfigTable
from costmodel.explain.case import Cause, last_round_fill
from costmodel.explain.causes import causes
from costmodel.explain.knobs import Neighbour, neighbours
from costmodel.explain.layers import Layer, Row, layers
from costmodel.physics.estimate import EstimateColumns, estimate_columns
from costmodel.physics.roofline import copy_bandwidth_gb_s, peak_of
from costmodel.physics.traffic import beyond_l2_us
from costmodel.predict import Prediction
from costmodel.price import price
from costmodel.profile import HardwareProfile
from costmodel.resources.matrix_unit import MatrixUnit
from costmodel.resources.memories import MemoryUse, memory_uses
from costmodel.resources.occupancy import LIMITERS
from costmodel.space.prune import Rejections


@dataclass(frozen=True)
class RooflineFigures:
    """Least times in microseconds; intensity and ridge in FLOP a byte.

    ``bound`` is "compute" where the intensity lies past the ridge, else "memory". ``reached`` is
    the roofline's time over the predicted one.
    """

    compute_us: float
    memory_us: float
    floor_us: float
    arithmetic_intensity: float
    ridge: float
    bound: str
    reached: float


@dataclass(frozen=True)
class TimeParts:
    """The physics estimate, cut into parts that add up to ``total_us``.

    Launch and the first load; the K loop; the epilogues; adding split-K's parts, and copying
    operands into aligned rows; the wait for DRAM where its traffic takes longer than loop and
    epilogues; and what of the shorter of both does not hide behind the longer. The loop's three
    contenders
    (arithmetic, memory, latency) overlap: each is what it alone would take.
    """

    total_us: float
    start_us: float
    loop_us: float
    epilogue_us: float
    split_us: float
    dram_wait_us: float
    unhidden_us: float
    loop_arithmetic_us: float
    loop_memory_us: float
    loop_latency_us: float


@dataclass(frozen=True)
class Resources:
    """What a block takes of a unit, and how many fit; ``limiter`` is what stops one more."""

    shared_bytes: int
    shared_limit_bytes: int
    registers: int
    registers_limit: int
    spilled: int
    blocks_per_unit: int
    limiter: str
    instruction: str
    memories: tuple[MemoryUse, ...] = ()


@dataclass(frozen=True)
class Work:
    """How the problem is cut. A round is one program in every slot of the chip."""

    tiles: int
    programs: int
    slots: int
    rounds: int
    last_round_fill: float
    tile_use: float
    k_steps: int
    num_stages: int | None
    l2_bytes: float
    dram_bytes: float
    compulsory_bytes: float


@dataclass(frozen=True)
class RunnerUp:
    """A configuration ranked below; ``slower`` is its time over the chosen one's, less 1."""

    config: str
    time_us: float
    slower: float


@dataclass(frozen=True)
class RejectionGroup:
    """All configurations that broke one rule, with the one that misses it by least."""

    reason: str
    meaning: str
    count: int
    example: str
    needed: int
    limit: int
    unit: str
    repair: str | None


@dataclass(frozen=True)
class Report:
    """A prediction explained; ``as_dict`` gives plain values, ``text`` is for reading."""

    problem: str
    profile: str
    chip: str
    unit_name: str
    config: str
    time_us: float
    tflops: float
    peak_tflops: float
    peak_share: float
    interval: tuple[float, float]
    source: str
    calibrated: bool
    beware: str
    spread: str
    bound: str
    roofline: RooflineFigures
    parts: TimeParts
    resources: Resources
    work: Work
    runners_up: tuple[RunnerUp, ...]
    candidates: int
    rejections: tuple[RejectionGroup, ...]
    causes: tuple[Cause, ...]
    unknown: tuple[str, ...]
    layers: tuple[Layer, ...]
    neighbours: tuple[Neighbour, ...]
    #: where the configuration was forced: the one that would have been chosen, and its time
    instead_of: RunnerUp | None = None

    def as_dict(self) -> dict[str, Any]:
        """Nested plain values, as ``costmodel explain --json`` prints them."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("roofline", "parts", "resources", "work"):
            found[name] = asdict(found[name])
        for name in ("runners_up", "rejections", "causes", "neighbours"):
            found[name] = [asdict(item) for item in found[name]]
        found["layers"] = [layer.as_dict() for layer in self.layers]
        found["instead_of"] = asdict(self.instead_of) if self.instead_of else None
        return found

    def text(self) -> str:
        """Plain text of at most 100 columns, without colour codes."""
        from costmodel.explain.text import render

        return render(self)


def report(prediction: Prediction, *, top: int = 3, best: Prediction | None = None) -> Report:
    """Explain a prediction, with the ``top`` best configurations that were not chosen.

    ``best`` is the prediction without force, where this one's configuration was forced.
    """
    problem, profile = prediction.problem, prediction.profile
    physics = estimate_columns(problem, ConfigTable.of(prediction.config), profile)
    peak = peak_of(problem, profile)
    return Report(
        problem=str(problem),
        profile=profile.name,
        chip=profile.model,
        unit_name=profile.unit_name,
        config=str(prediction.config),
        time_us=prediction.time_us,
        tflops=prediction.tflops,
        peak_tflops=peak,
        peak_share=prediction.tflops / peak,
        interval=prediction.interval,
        source=prediction.source,
        calibrated=prediction.calibrated,
        beware=prediction.beware,
        spread=prediction.spread,
        bound=prediction.bound,
        roofline=_roofline(prediction, physics),
        parts=time_parts(prediction, physics),
        resources=_resources(prediction, physics),
        work=_work(prediction, physics),
        runners_up=_runners_up(prediction, top),
        candidates=len(prediction.ranking) + len(prediction.rejections),
        rejections=_rejected(prediction.rejections),
        causes=causes(prediction),
        unknown=unknown_figures(profile),
        layers=layers(Row(problem, prediction.config, profile, physics)),
        neighbours=neighbours(prediction),
        instead_of=None if best is None else _instead_of(prediction, best),
    )


#: figures of a profile that the estimate uses, and what it does without them
_USED_FIGURES = {
    "l2_bytes": "L2's size (4 MiB assumed)",
    "copy_bandwidth_gb_s": "the copy bandwidth (the data sheet's is used)",
    "launch_floor_us": "the launch floor (left out)",
    "achievable_tflops_fp16": "the rate that power allows (the peak is used)",
    "peak_clock_mhz": "the clock of the peak (1,500 MHz or the boost clock assumed)",
    "registers_per_unit": "registers a unit (65,536 assumed)",
    "shared_per_unit_bytes": "shared memory a unit (that of one block assumed)",
    "max_warps_per_unit": "warps a unit (not limited)",
}


def unknown_figures(profile: HardwareProfile) -> tuple[str, ...]:
    """What the estimate would use and the profile does not know, with what was done instead."""
    # registers and warps are no figures of a chip that names its own memories
    own = ("registers_per_unit", "shared_per_unit_bytes", "max_warps_per_unit")
    skipped = own if profile.memories else ()
    return tuple(
        told
        for name, told in _USED_FIGURES.items()
        if name not in skipped and getattr(profile, name) is None
    )


def time_parts(prediction: Prediction, physics: EstimateColumns) -> TimeParts:
    """Cut the estimate of one configuration (row 0) into parts that add up to its time."""
    total, step, epilogue, split = (
        float(column[0])
        for column in (physics.time_us, physics.step_us, physics.epilogue_us, physics.split_us)
    )
    loop = float(physics.waves.rounds[0] * physics.waves.steps[0]) * step
    dram = float(beyond_l2_us(physics.traffic, prediction.profile)[0])
    wait = max(dram - loop - epilogue, 0.0)
    start = float(np.broadcast_to(physics.start_us, 1)[0])
    unhidden = total - start - split - loop - epilogue - wait
    return TimeParts(
        total, start, loop, epilogue, split, wait, unhidden,
        float(physics.compute_us[0]), float(physics.memory_us[0]),
        max(float(physics.latency_us[0]) - start - split, 0.0),
    )  # fmt: skip


def _roofline(prediction: Prediction, physics: EstimateColumns) -> RooflineFigures:
    roof, problem = physics.roofline, prediction.problem
    return RooflineFigures(
        roof.compute_us, roof.memory_us, roof.floor_us,
        arithmetic_intensity=problem.arithmetic_intensity,
        ridge=peak_of(problem, prediction.profile) * 1e3 / copy_bandwidth_gb_s(prediction.profile),
        bound="compute" if roof.compute_us >= roof.memory_us else "memory",
        reached=roof.time_us / prediction.time_us,
    )  # fmt: skip


def _resources(prediction: Prediction, physics: EstimateColumns) -> Resources:
    profile, registers = prediction.profile, physics.registers
    spilled = float(registers.spilled[0])
    return Resources(
        shared_bytes=int(physics.footprint.shared_bytes[0]),
        shared_limit_bytes=profile.shared_per_block_bytes,
        registers=int(registers.allocated[0]),
        registers_limit=profile.max_registers_per_thread or (0 if profile.memories else 255),
        spilled=int(np.ceil(spilled)),
        blocks_per_unit=int(physics.occupancy.blocks[0]),
        limiter=LIMITERS[int(physics.occupancy.limiter[0])],
        instruction=_instruction(profile, MatrixUnit(int(physics.unit[0]))),
        memories=memory_uses(prediction.problem, prediction.config, profile),
    )


def _instruction(profile: HardwareProfile, unit: MatrixUnit) -> str:
    """The matrix unit by name: another vendor's, or RDNA's, is the one that its profile names."""
    if unit is MatrixUnit.OTHER or (unit is MatrixUnit.MFMA and "wmma" in profile.mma):
        return profile.mma[0]
    return unit.name.lower().replace("_", ".")


def _work(prediction: Prediction, physics: EstimateColumns) -> Work:
    waves, traffic = physics.waves, physics.traffic
    return Work(
        tiles=int(waves.tiles[0]),
        programs=int(waves.programs[0]),
        slots=int(waves.slots[0]),
        rounds=int(waves.rounds[0]),
        last_round_fill=last_round_fill(physics),
        tile_use=float(waves.tile_use[0]),
        k_steps=int(waves.steps[0]),
        num_stages=prediction.config.num_stages,
        l2_bytes=float(traffic.l2_bytes[0]),
        dram_bytes=float(traffic.dram_bytes[0] + traffic.store_bytes[0]),
        compulsory_bytes=prediction.problem.compulsory_bytes,
    )


def _predicted_us(prediction: Prediction) -> float:
    """The predicted time of what was measured: other predictions are compared with no other."""
    if prediction.source != "measured":
        return prediction.time_us
    config = prediction.config
    return price(prediction.problem, [config], prediction.profile).time_us[config]


def _instead_of(prediction: Prediction, best: Prediction) -> RunnerUp:
    time_us = best.time_us if prediction.source == "measured" else _predicted_us(best)
    return RunnerUp(str(best.config), time_us, time_us / prediction.time_us - 1.0)


def _runners_up(prediction: Prediction, top: int) -> tuple[RunnerUp, ...]:
    found: list[RunnerUp] = []
    own_us = _predicted_us(prediction)
    for row in range(len(prediction.ranking)):
        if len(found) >= top:
            break
        other = prediction.ranking[row]
        if other.config != prediction.config:
            slower = other.time_us / own_us - 1.0
            found.append(RunnerUp(str(other.config), other.time_us, slower))
    return tuple(found)


def _rejected(rejections: Rejections) -> tuple[RejectionGroup, ...]:
    groups: dict[str, RejectionGroup] = {}
    for rule in np.unique(rejections.rule):
        rows = np.flatnonzero(rejections.rule == rule)
        excess = rejections.needed[rows] - rejections.limit[rows]
        nearest = rejections[int(rows[excess.argmin()])]
        repairs = nearest.repairs
        groups[nearest.reason] = RejectionGroup(
            nearest.reason, nearest.meaning, len(rows), str(nearest.config),
            nearest.needed, nearest.limit, nearest.unit, str(repairs[0]) if repairs else None,
        )  # fmt: skip
    return tuple(sorted(groups.values(), key=lambda group: -group.count))
