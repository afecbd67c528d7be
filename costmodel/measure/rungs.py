"""The ladder from a plain kernel to the tuned one, a variable at a time: its steps, its result.

The way an engineer tunes by hand: start plain, change one variable, measure, keep what gained,
write it down, go on with the next. Here the steps are data and each step's values are a small set
that the estimate picks; ``costmodel.measure.climb`` measures them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from costmodel.config import KNOBS, TEMPLATES, ConfigTable, KernelConfig
from costmodel.errors import NoCandidateError
from costmodel.measure.vendor_kernels import VendorGemm
from costmodel.physics.estimate import estimate_columns
from costmodel.physics.roofline import peak_of, roofline
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.records.schema import Row
from costmodel.space.prune import prune
from costmodel.space.worth import sensible_loads

#: a kernel as one writes it first: small blocks, loads of one 16-bit element, no order of tiles
PLAIN = KernelConfig(
    "tile", 64, 64, 32, group_m=1, num_warps=4, num_stages=2, load_bits=16
)  # fmt: skip
#: configurations that a rung tries at most
MOST_TRIED = 24


@dataclass(frozen=True)
class Step:
    """One variable: the knobs that are it, the values that each may take, and why there may be
    nothing to try.
    """

    name: str
    values: Mapping[str, tuple[Any, ...]]
    without: str = "no other value can run here"

    @property
    def knobs(self) -> tuple[str, ...]:
        return tuple(self.values)

    def value(self, config: KernelConfig) -> str:
        """The variable's value in a configuration, as text."""
        if self.knobs == KNOBS:
            return str(config)
        texts = [_knob(name, getattr(config, name)) for name in self.knobs]
        return ("x" if "block_m" in self.knobs else " ").join(texts)


def _knob(name: str, value: Any) -> str:
    if name == "swap":
        return "swapped" if value else "as given"
    return f"{value} bits" if name == "load_bits" else str(value)


_BLOCKS = {
    "block_m": (16, 32, 64, 128, 256),
    "block_n": (16, 32, 64, 128, 256),
    "block_k": (16, 32, 64, 128),
}
STEPS: tuple[Step, ...] = (
    Step("blocks", _BLOCKS),
    Step("load width", {"load_bits": (16, 32, 64, 128)}),
    Step(
        "pipeline depth",
        {"num_stages": (1, 2, 3, 4, 5, 6, 8, 12)},
        "loads this narrow are not pipelined, or no other depth fits",
    ),
    # what narrow loads held back
    Step("blocks again", _BLOCKS),
    Step("warps", {"num_warps": (1, 2, 4, 8, 16)}),
    Step(
        "order of tiles",
        {"group_m": (1, 2, 4, 8, 16, 32)},
        "there is one row of tiles",
    ),
    Step("operand swap", {"swap": (False, True)}),
    Step("split of K", {"template": ("split_k",), "split_k": (2, 4, 8, 16, 32, 64)}),
    Step("accumulation", {}, "sums in fp16 are a choice of the problem, never of a kernel for it"),
    Step(
        "template",
        {"template": tuple(name for name in TEMPLATES if name not in ("tile", "split_k"))},
        "no other template takes this configuration",
    ),
    Step("its blocks", _BLOCKS),
    Step("its depth", {"num_stages": (2, 3, 4, 5, 6, 8)}, "no other depth fits"),
    Step("epilogue", {"epilogue_parts": (1, 2)}, "this template stores a tile whole"),
)
#: the last rung: whole configurations, the model's first choices among them
TUNED = Step("tuned", dict.fromkeys(KNOBS, ()))


def choices(
    step: Step,
    problem: Gemm,
    profile: HardwareProfile,
    config: KernelConfig,
    most: int = MOST_TRIED,
) -> list[KernelConfig]:
    """The values of one variable to measure on top of ``config``, best estimate first.

    All that the chip can run and that are another kernel than ``config``, at most ``most`` of
    them; none where the variable has no other value here. Equal estimates keep the values' order.
    """
    if not step.values:
        return []
    knobs = {name: (value,) for name, value in config.as_dict().items()} | dict(step.values)
    table = ConfigTable.grid(**knobs)
    own = ConfigTable.of(config)
    same = np.all([getattr(table, name) == getattr(own, name) for name in KNOBS], axis=0)
    # groups of more rows of tiles than there are: the order is that of a smaller group
    rows, columns = -(-problem.m // table.block_m), -(-problem.n // table.block_n)
    grouped = table.group_m < 2 * np.where(table.swap != 0, columns, rows)
    other = ~same & (grouped | (table.group_m == own.group_m)) & sensible_loads(problem, table)
    try:
        legal, _ = prune(problem, table[np.flatnonzero(other)], profile)
    except NoCandidateError:
        return []
    times = estimate_columns(problem, legal, profile).time_us
    return list(legal[np.argsort(times, kind="stable")[:most]])


def changed(step: Step, before: KernelConfig, after: KernelConfig) -> str:
    """The variable's value before and after, as text: "64x64x32 to 128x128x64"."""
    return str(after) if step is TUNED else f"{step.value(before)} to {step.value(after)}"


def kept(step: Step, config: KernelConfig) -> str:
    """The variable's value that stays, as text."""
    return f"kept {step.value(config)}".rstrip()


def why_kept(step: Step, tried: int, slower: float | None) -> str:
    """Why a rung keeps the old value: nothing to try, none ran, or none gained.

    ``slower`` is the best other value's time over the old one's, less 1; None where none ran.
    """
    if not tried:
        return step.without
    if slower is None:
        return f"none of the {tried} tried ran correctly"
    return f"nothing gained, the best of {tried} tried took {slower:+.1%} time"


#: columns of a row that say by what a ladder was measured, and when
_SOFTWARE = ("device_name", "driver", "torch", "triton", "timestamp")


@dataclass(frozen=True)
class Rung:
    """One step's outcome: what was chosen, its time in us, and how it was chosen.

    ``knobs`` are the variable's; ``tried`` configurations were measured and ``failed`` of them
    did not run correctly. ``error`` is the relative Frobenius error against float64. A rung that
    ``gained`` nothing has the configuration and the time of the rung before, and a ``note`` why.
    """

    name: str
    knobs: tuple[str, ...]
    config: KernelConfig
    time_us: float
    p10_us: float | None
    p90_us: float | None
    error: float | None
    tried: int
    failed: int
    gained: bool
    change: str
    note: str = ""


@dataclass(frozen=True)
class Ladder:
    """Every rung from the plain kernel to the tuned one, and what it is measured against.

    ``vendor_us`` is the median time of the vendor's GEMM in the same run, None where it was not
    measured; ``vendor`` are the kernels that it launched, where a profiler showed them.
    """

    problem: Gemm
    profile: HardwareProfile
    rungs: tuple[Rung, ...]
    vendor_us: float | None
    vendor_error: float | None
    vendor: VendorGemm | None
    rows: list[Row] = field(repr=False)

    @property
    def peak_tflops(self) -> float:
        """The chip's dense peak for the problem's types."""
        return peak_of(self.problem, self.profile)

    @property
    def vendor_tflops(self) -> float | None:
        return None if self.vendor_us is None else self.rate(self.vendor_us)

    @property
    def bound(self) -> str:
        """What the roofline says limits the problem: "compute" or "memory"."""
        limits = roofline(self.problem, self.profile)
        return "memory" if limits.memory_us > limits.compute_us else "compute"

    @property
    def roofline_tflops(self) -> float:
        """The rate that the larger of arithmetic and compulsory traffic allows."""
        limits = roofline(self.problem, self.profile)
        return self.rate(max(limits.compute_us, limits.memory_us))

    def rate(self, time_us: float) -> float:
        """TFLOPS of the problem in so many microseconds."""
        return self.problem.flops / (time_us * 1e6)

    def figures(self) -> list[dict[str, Any]]:
        """Each rung's figures. Ratios and gaps are shares: -0.4 is 40 % short, gain 0.1 is +10 %.

        ``gap_to_peak`` and ``gap_to_vendor`` are rates over the peak's and the vendor's, less 1;
        ``gain`` is the rate over that of the rung before, less 1.
        """
        found = []
        before: float | None = None
        for rung in self.rungs:
            share = self.rate(rung.time_us) / self.peak_tflops
            ratio = None if self.vendor_us is None else self.vendor_us / rung.time_us
            found.append(
                {
                    "rung": rung.name,
                    "variable": list(rung.knobs),
                    "change": rung.change,
                    "gained": rung.gained,
                    "config": rung.config.as_dict(),
                    "config_text": str(rung.config),
                    "time_us": rung.time_us,
                    "p10_us": rung.p10_us,
                    "p90_us": rung.p90_us,
                    "tflops": self.rate(rung.time_us),
                    "of_peak": share,
                    "gap_to_peak": share - 1.0,
                    "vendor_ratio": ratio,
                    "gap_to_vendor": None if ratio is None else ratio - 1.0,
                    "gain": None if before is None else before / rung.time_us - 1.0,
                    "error": rung.error,
                    "tried": rung.tried,
                    "failed": rung.failed,
                    "note": rung.note,
                }
            )
            before = rung.time_us
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain values: the problem, what it is measured against, and the rungs."""
        return {
            "problem": str(self.problem),
            "profile": self.profile.name,
            "bound": self.bound,
            "peak_tflops": self.peak_tflops,
            "roofline_tflops": self.roofline_tflops,
            "vendor_us": self.vendor_us,
            "vendor_tflops": self.vendor_tflops,
            "vendor_of_peak": (
                None if self.vendor_tflops is None else self.vendor_tflops / self.peak_tflops
            ),
            "vendor_error": self.vendor_error,
            "vendor_kernels": None if self.vendor is None else self.vendor.as_dict(),
            "measured": len(self.rows),
            "software": {name: self.rows[0][name] for name in _SOFTWARE} if self.rows else {},
            "rungs": self.figures(),
        }
