"""Measures a chip's own figures in a minute: what the estimate then uses in place of assumptions.

Each bandwidth and rate is read twice, by our kernels and by torch's own call, in turn and by the
same protocol. The figure is the higher of the two, since either shows that the chip reaches it; a
difference of more than ``AGREE`` is told, since it shows that one of the two was disturbed or is
poor. L2's bandwidth and the two latencies are told and not written: the estimate's own are of
loads that neighbours share and of a chip at work, which these probes are not.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from costmodel.config import KernelConfig
from costmodel.errors import DeviceError, NoCandidateError, ProfileError, UnsupportedError
from costmodel.measure.at_hand import require_chip, require_gpu
from costmodel.measure.bench import ProblemBench, new_run_id
from costmodel.measure.calibration_file import base_of, check_file, check_loads
from costmodel.measure.probing import copy_bandwidth, l2_bandwidth, load_latencies
from costmodel.predict import predict_best
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, load_profile, part_of, write_overlay
from costmodel.profile.keys import REACHED

COMMAND = "costmodel profiles calibrate"
#: our reading and torch's of one figure may differ by this share
AGREE = 0.05
#: configurations measured for a rate: the first that are predicted for its product
_FIRST = 3
#: the product of a rate: columns and K, and rows near this many
_WIDE, _LONG, _TALL = 8192, 8192, 8192
#: the largest tile that its rows and columns are whole multiples of, on either side
_SIDE = 256
#: digits that a figure is written with: repeats agree within 0.4 %
_DIGITS = 4


@dataclass(frozen=True)
class Reading:
    """One figure: the data sheet's, by our kernels and by torch's own call; None where unknown."""

    figure: str
    unit: str
    sheet: float | None
    ours: float | None
    torch: float | None = None
    written: bool = True

    @property
    def value(self) -> float:
        """The higher of the two readings."""
        return max(value for value in (self.ours, self.torch) if value is not None)

    @property
    def ratio(self) -> float | None:
        """Measured over the data sheet's."""
        return self.value / self.sheet if self.sheet else None

    @property
    def agreement(self) -> float | None:
        """Ours over torch's."""
        return self.ours / self.torch if self.ours and self.torch else None


@dataclass(frozen=True)
class Calibration:
    """What was read of a chip, and on what."""

    base: str
    readings: tuple[Reading, ...]
    provenance: dict[str, str]
    notes: tuple[str, ...]
    seconds: float

    @property
    def figures(self) -> dict[str, float]:
        """The overlay's figures, by the names that ``profiles show`` prints."""
        return {r.figure: _rounded(r.value) for r in self.readings if r.written}

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as ``--json`` prints them."""
        readings = [
            asdict(r) | {"value": r.value, "ratio": r.ratio, "agreement": r.agreement}
            for r in self.readings
        ]
        return {
            "base": self.base,
            "readings": readings,
            "figures": self.figures,
            "provenance": self.provenance,
            "notes": list(self.notes),
            "seconds": round(self.seconds, 1),
        }


def calibrate(
    profile: str | os.PathLike[str] | HardwareProfile | None = None,
    *,
    device: int = 0,
    units: int | None = None,
    workers: int | None = None,
    before: Callable[[str], object] | None = None,
) -> Calibration:
    """Measure copy and L2 bandwidth, load latencies, launch floor, and rates by type.

    ``profile`` is the GPU at hand's by default; ``units`` takes a slice of so many
    multiprocessors, whose stream stays torch's current one (``slices.enter``). ``before`` gets the
    base's name once it is known, and may raise: nothing is measured yet. Takes less than a
    minute. Raises ``DeviceError`` where there is no GPU, or another chip than ``profile``, and
    ``ProfileError`` for a profile that no overlay would find again (``base_of``).
    """
    require_gpu()
    import torch

    from costmodel.measure.compile_pool import CompilePool
    from costmodel.measure.environment import environment
    from costmodel.measure.slices import enter
    from costmodel.measure.timing import Stopwatch

    begun = time.monotonic()
    torch.cuda.set_device(device)
    granted = enter(units, device) if units is not None else None
    facts = environment(device, granted) | {"run": new_run_id()}
    chip = _chip(profile, facts, granted)
    base = base_of(profile if granted is None else chip, chip)
    if before is not None:
        before(base)
    products, notes = rate_products(chip)
    pool = CompilePool(chip, workers)
    try:
        pending = [
            part for problem, configs in products.values() for part in pool.submit(problem, configs)
        ]
        stopwatch = Stopwatch(device)
        stopwatch.warm_up()
        part = facts["units"] < torch.cuda.get_device_properties(device).multi_processor_count
        readings = list(memory_readings(stopwatch, chip, facts["units"], part))
        late = set(pool.wait(pending))
    finally:
        pool.close()
    stopwatch.warm_up()  # the GPU may have waited for the compilers
    for figure, (problem, configs) in products.items():
        bench = ProblemBench(problem, stopwatch, facts)
        ready = [config for config in configs if config not in late]
        reading, more = rate_reading(figure, bench, ready, chip)
        readings += [] if reading is None else [reading]
        notes += more
        del bench
        torch.cuda.empty_cache()
    notes += [_disagreement(reading) for reading in readings if _apart(reading)]
    provenance = _provenance(facts, stopwatch.protocol.name, units)
    seconds = time.monotonic() - begun
    return Calibration(base, tuple(readings), provenance, tuple(notes), seconds)


def write_calibration(found: Calibration, out: str | os.PathLike[str] | None = None) -> Path:
    """Write the overlay, by default where it takes the chip's place in the user's profiles.

    A profile of the user's own keeps its place: the overlay goes beside it, as
    ``<name>-measured``. Raises ``ProfileError`` as ``check_file``, and where the overlay cannot be
    written or does not load.
    """
    path = check_file(found.base, out)
    try:
        write_overlay(path, found.base, found.figures, found.provenance)
    except OSError as error:
        raise ProfileError(f"{path} cannot be written: {error.strerror or error}") from error
    check_loads(path)
    return path


def memory_readings(
    stopwatch: Any, chip: HardwareProfile, units: int, part: bool
) -> tuple[Reading, ...]:
    """Launch floor, bandwidths of copies and of L2, latencies; ``part`` of the chip is a slice."""
    ours, theirs = copy_bandwidth(stopwatch, chip.l2_bytes, part=part)
    dram_us, l2_us = load_latencies(stopwatch)
    l2 = l2_bandwidth(stopwatch, chip.l2_bytes, units)
    return (
        Reading("launch_floor_us", "us", None, stopwatch.floor().median_us),
        Reading("copy_bandwidth_gb_s", "GB/s", chip.bandwidth_gb_s, ours, theirs),
        Reading("l2_bandwidth_gb_s", "GB/s", None, l2, written=False),
        Reading("dram_latency_us", "us", None, dram_us, written=False),
        Reading("l2_latency_us", "us", None, l2_us, written=False),
    )


def rate_products(
    chip: HardwareProfile,
) -> tuple[dict[str, tuple[Gemm, list[KernelConfig]]], list[str]]:
    """For each rate to measure a product and its configurations, and why others are left out.

    Tiles of up to 256 by 256, and of 128 by 256, fill whole waves of the chip, so that no unit
    idles at the end: the estimate counts waves by itself.
    """
    found, notes = {}, []
    for figure, types in REACHED.items():
        rate = next((name for name in types if name in chip.peak_tflops), None)
        if rate is None:
            continue
        kind = {"dtype": "fp32", "precision": "tf32"} if rate == "tf32" else {"dtype": rate}
        problem = Gemm(_rows(chip.units), _WIDE, _LONG, **kind)  # type: ignore[arg-type]
        try:
            prediction = predict_best(problem, chip, use_measured=False)
        except (NoCandidateError, UnsupportedError) as error:
            notes.append(f"{figure} is not measured: {error}")
            continue
        found[figure] = problem, list(prediction.ranking.configs[:_FIRST])
    return found, notes


def rate_reading(
    figure: str, bench: ProblemBench, configs: Sequence[KernelConfig], chip: HardwareProfile
) -> tuple[Reading | None, list[str]]:
    """TFLOPS of the fastest configuration and of the vendor's product, each result checked."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # tf32, as ours
    try:
        rows = [bench.measure_vendor(), *map(bench.measure, configs), bench.measure_vendor()]
    finally:
        torch.set_float32_matmul_precision(before)
    notes = [
        f"{figure}: {row['template'] or 'torch'} gave no time: {row['reason']}"
        for row in rows[1:]
        if row["invalidity"] != "correct"
    ]
    rates = [
        bench.problem.flops / (row["time_us"] * 1e6) if row["invalidity"] == "correct" else None
        for row in rows
    ]
    ours, theirs = _most(rates[1:-1]), _most([rates[0], rates[-1]])
    if ours is None and theirs is None:
        return None, notes
    sheet = chip.peak_tflops.get(REACHED[figure][0])
    return Reading(figure, "TFLOPS", sheet, ours, theirs), notes


def _rows(units: int) -> int:
    """Rows near ``_TALL`` with which tiles of 128 by 256 and 256 by 256 come to whole waves."""
    tiles = _WIDE // _SIDE
    step = units // math.gcd(units, tiles)
    return _SIDE * step * max(1, round(_TALL / _SIDE / step))


def _most(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return max(known) if known else None


def _chip(
    profile: str | os.PathLike[str] | HardwareProfile | None, facts: dict[str, Any],
    granted: int | None,
) -> HardwareProfile:  # fmt: skip
    """What is calibrated: a slice of ``granted`` units is a chip of its own."""
    if profile is not None:
        chip = load_profile(profile)
        chip = chip if granted is None else part_of(chip, granted)
        require_chip(facts, chip)
        return chip
    if facts["device"] is None:
        raise DeviceError(
            f"no profile names this GPU, {facts['device_name']!r}, so there is none to calibrate: "
            "write one (costmodel profiles new) and name it with --profile"
        )
    return load_profile(facts["device"])


def _provenance(facts: dict[str, Any], protocol: str, units: int | None) -> dict[str, str]:
    versions = (
        f"torch {facts['torch']}, Triton {facts['triton']}, driver {facts['driver']}, "
        f"CUDA {facts['cuda']}, triton-costmodel {facts['costmodel']}, protocol {protocol}"
    )
    whole = f"{facts['device_name']}, {facts['units']} multiprocessors"
    return {
        "device": whole + (" in a green context" if units is not None else ""),
        "versions": versions,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": COMMAND + (f" --units {units}" if units is not None else ""),
    }


def _apart(reading: Reading) -> bool:
    return reading.agreement is not None and abs(reading.agreement - 1.0) > AGREE


def _disagreement(reading: Reading) -> str:
    return (
        f"{reading.figure}: our kernel reads {reading.ours:.4g} and torch {reading.torch:.4g} "
        f"{reading.unit}, {abs((reading.agreement or 1.0) - 1.0):.0%} apart"
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
