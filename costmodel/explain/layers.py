"""The four layers of a kernel's performance, from the bottom, each with its figures.

Hardware mapping (how the tile sits on the unit), data scheduling (what is moved, and in which
order), compute pipeline (what overlaps), adaptation (what one knob more or less would change).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from costmodel.config import ConfigTable, KernelConfig
from costmodel.physics.banks import bank_ways
from costmodel.physics.estimate import DRAM_LATENCY_US, EstimateColumns
from costmodel.physics.roofline import copy_bandwidth_gb_s, peak_of
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.footprint import LEAST_ASYNC_BYTES, load_bytes
from costmodel.resources.matrix_unit import MatrixUnit
from costmodel.resources.memories import MemoryUse, memory_uses
from costmodel.resources.occupancy import LIMITERS
from costmodel.resources.warp_groups import is_specialized

_WIDEST_BYTES = 16


@dataclass(frozen=True)
class Layer:
    """One layer: ``figures`` by name with their unit, ``lines`` (label, sentence) for reading."""

    name: str
    figures: Mapping[str, Any]
    lines: tuple[tuple[str, str], ...]

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")

    def as_dict(self) -> dict[str, Any]:
        """Name and figures."""
        return {"name": self.name, "figures": dict(self.figures)}


@dataclass(frozen=True)
class Row:
    """One configuration with its estimate: what the layers are read from."""

    problem: Gemm
    config: KernelConfig
    profile: HardwareProfile
    physics: EstimateColumns

    def figure(self, group: str, name: str) -> float:
        """Entry 0 of a column of the estimate: ``figure("waves", "tiles")``."""
        return float(getattr(getattr(self.physics, group), name)[0])


def layers(row: Row) -> tuple[Layer, Layer, Layer]:
    """The three layers that one configuration has by itself; adaptation compares it with others."""
    return hardware_mapping(row), data_scheduling(row), compute_pipeline(row)


def hardware_mapping(row: Row) -> Layer:
    """Shared memory by part, registers, occupancy, instruction, load width, banks."""
    problem, config, profile, physics = row.problem, row.config, row.profile, row.physics
    parts = {
        name: int(row.figure("footprint", name))
        for name in (
            "shared_bytes", "operand_ring_bytes", "staging_bytes", "epilogue_bytes",
            "barrier_bytes",
        )
    }  # fmt: skip
    table = ConfigTable.of(config)
    loads = {operand: int(load_bytes(problem, table, operand)[0]) for operand in "ab"}
    store = min(problem.row_align("c") * problem.out_bytes, _WIDEST_BYTES)
    pitch = config.block_k * problem.element_bytes
    way = copy_way(row)
    figures: dict[str, Any] = parts | {
        "shared_limit_bytes": profile.shared_per_block_bytes,
        "registers": int(row.figure("registers", "allocated")),
        "registers_limit": profile.max_registers_per_thread or 255,
        "spilled_registers": row.figure("registers", "spilled"),
        "instruction": instruction(profile, physics),
        "instruction_share": float(physics.matrix_share[0]),
        "blocks_per_unit": int(row.figure("occupancy", "blocks")),
        "occupancy": row.figure("occupancy", "occupancy"),
        "limiter": LIMITERS[int(physics.occupancy.limiter[0])],
        "load_bytes_a": loads["a"],
        "load_bytes_b": loads["b"],
        "store_bytes_c": store,
        "odd_row_bytes": {name: problem.odd_row_bytes(name, _WIDEST_BYTES) for name in "abc"},
        "copy": way,
        "row_bytes_in_shared": pitch,
        "bank_ways_unswizzled": bank_ways(pitch),
    }
    f = figures
    spilled = f" ({f['spilled_registers']:.0f} spilled)" if f["spilled_registers"] else ""
    odd = [
        f"{name.upper()}'s rows end {past} bytes past a multiple of 16"
        for name, past in f["odd_row_bytes"].items()
        if past
    ]
    uses = memory_uses(problem, config, profile)
    figures["memories"] = [asdict(use) for use in uses]
    lines: tuple[tuple[str, str], ...]
    if uses:  # a chip that names its own memories has neither registers nor blocks that share it
        lines = (
            ("memories", memories_told(uses)),
            ("instruction", f["instruction"]),
            ("loads", f"{loads['a']} bytes wide for A, {loads['b']} for B, stores {store}"),
        )
        return Layer("hardware_mapping", figures, lines)
    lines = (
        (
            "shared memory",
            f"{f['shared_bytes']} of {f['shared_limit_bytes']} bytes a block: operands "
            f"{f['operand_ring_bytes']}, staging {f['staging_bytes']}, epilogue "
            f"{f['epilogue_bytes']} (in the operands' bytes), barriers {f['barrier_bytes']}",
        ),
        (
            "registers",
            f"{f['registers']} of {f['registers_limit']} a thread{spilled}",
        ),
        (
            "occupancy",
            f"{_count(f['blocks_per_unit'], 'block')} a {profile.unit_name}, "
            f"{f['occupancy']:.0%} of its warps, limited by {f['limiter'].replace('_', ' ')}",
        ),
        (
            "instruction",
            "no matrix unit"
            if f["instruction"] == "none"
            else f"{f['instruction']}, at most {f['instruction_share']:.0%} of the unit's peak "
            "with this tile",
        ),
        (
            "loads",
            f"{loads['a']} bytes wide for A, {loads['b']} for B, stores {store}; {_COPIES[way]}"
            + ("; " + "; ".join(odd) if odd else ""),
        ),
        (
            "banks",
            "no operand passes through shared memory"
            if way == "direct"
            else f"rows of {pitch} bytes in shared memory: "
            + (
                f"{bank_ways(pitch)} of 8 would start at one bank, and the compiler's swizzle "
                "spreads them"
                if bank_ways(pitch) > 1
                else "8 of them start at 8 places"
            ),
        ),
    )
    return Layer("hardware_mapping", figures, lines)


_COPIES = {
    "tma": "copied by descriptors",
    "cp.async": "copied asynchronously",
    "registers": "through registers, so that nothing loads ahead",
    "direct": "straight into registers",
}


def copy_way(row: Row) -> str:
    """How operands reach shared memory: "tma", "cp.async", "registers"; "direct": they do not."""
    table = ConfigTable.of(row.config)
    if row.config.template == "matvec":
        return "direct"
    if row.config.template == "persistent_tma" or bool(is_specialized(table)[0]):
        return "tma"
    narrow = min(int(load_bytes(row.problem, table, operand)[0]) for operand in "ab")
    ahead = "cp.async" in row.profile.async_copy or row.profile.block_memory is not None
    if narrow < LEAST_ASYNC_BYTES or (row.config.num_stages or 1) < 2 or not ahead:
        return "registers"
    return "cp.async"


def data_scheduling(row: Row) -> Layer:
    """Tiles and waves, traffic at each level, reuse against the ridge."""
    problem, profile, physics = row.problem, row.profile, row.physics
    waves = {
        name: int(row.figure("waves", name)) for name in ("tiles", "programs", "slots", "rounds")
    }
    slots = waves["slots"]
    fill = (waves["programs"] - (waves["rounds"] - 1) * slots) / slots
    dram = row.figure("traffic", "dram_bytes") + row.figure("traffic", "store_bytes")
    l2 = row.figure("traffic", "l2_bytes")
    peak = peak_of(problem, profile)
    bandwidth = copy_bandwidth_gb_s(profile)
    figures: dict[str, Any] = waves | {
        "waves": waves["programs"] / slots,
        "last_round_fill": fill,
        "tile_use": row.figure("waves", "tile_use"),
        "group_m": row.config.group_m,
        "compulsory_bytes": problem.compulsory_bytes,
        "dram_bytes": dram,
        "l2_bytes": l2,
        "part_bytes": row.figure("traffic", "part_bytes"),
        "copied_bytes": row.figure("traffic", "copied_bytes"),
        "arithmetic_intensity": problem.arithmetic_intensity,
        "ridge": peak * 1e3 / bandwidth,
        "intensity_in_dram": problem.flops / dram,
        "intensity_in_l2": problem.flops / max(l2, 1.0),
        "roofline_compute_us": physics.roofline.compute_us,
        "roofline_memory_us": physics.roofline.memory_us,
        "roofline_us": physics.roofline.time_us,
    }
    f = figures
    split = f", {f['programs']} programs" if f["programs"] != f["tiles"] else ""
    side = "past" if f["arithmetic_intensity"] >= f["ridge"] else "below"
    more = ""
    if f["part_bytes"]:
        more += f", {f['part_bytes'] / 1e6:.1f} MB of partial sums"
    if f["copied_bytes"]:
        more += f", {f['copied_bytes'] / 1e6:.1f} MB copied into aligned rows first"
    lines = (
        (
            "work",
            f"{_count(f['tiles'], 'tile')}{split} on {f['slots']} slots: "
            f"{_count(f['rounds'], 'round')}, the last {fill:.0%} full ({f['waves']:.2f} waves); "
            f"{f['tile_use']:.0%} of the tiles lies in C",
        ),
        (
            "traffic",
            f"{dram / 1e6:.1f} MB from and to DRAM ({f['compulsory_bytes'] / 1e6:.1f} compulsory), "
            f"{l2 / 1e6:.1f} MB from L2{more}",
        ),
        (
            "intensity",
            f"{f['arithmetic_intensity']:.1f} FLOP a byte, {side} the ridge at {f['ridge']:.0f}; "
            f"{f['intensity_in_dram']:.1f} as scheduled, {f['intensity_in_l2']:.1f} a byte of L2",
        ),
    )
    return Layer("data_scheduling", figures, lines)


def memories_told(uses: tuple[MemoryUse, ...]) -> str:
    """Each named memory with what it holds, and the one that binds the block."""
    parts = []
    for use in uses:
        holds = ", ".join(kind.replace("_", " ") for kind in use.holds)
        what = holds + (f" in steps of {use.inner_step}" if use.inner_step else "")
        what += f", {use.buffers} buffers" if use.buffers > 1 else ""
        full = ", exactly full" if use.needed_bytes == use.capacity_bytes else ""
        parts.append(
            f"{use.name} {use.needed_bytes} of {use.capacity_bytes} bytes a {use.per} "
            f"({what}){full}"
        )
    inner = [use for use in uses if use.inner_step]
    if inner:
        least = min(inner, key=lambda use: use.inner_step)
        parts.append(f"{least.name} binds the step inside, {least.inner_step} of K")
    binding = ", ".join(use.name for use in uses if use.binds)
    return "; ".join([*parts, f"{binding} binds the block"])


def compute_pipeline(row: Row) -> Layer:
    """K steps against stages, bytes in flight against latency, what a step waits for."""
    problem, config, physics = row.problem, row.config, row.physics
    steps = int(row.figure("waves", "steps"))
    stages = config.num_stages or 1
    ahead = max(stages - 1, 1) if copy_way(row) not in ("registers", "direct") else 1
    held = min(row.figure("waves", "programs"), row.figure("waves", "slots"))
    block = (config.block_m + config.block_n) * config.block_k * problem.element_bytes
    asked = copy_bandwidth_gb_s(row.profile) * 1e3 * DRAM_LATENCY_US
    whole = row.figure("waves", "rounds") * steps
    start = float(physics.start_us[0])
    step = float(physics.step_us[0])
    parts = {
        "arithmetic": float(physics.compute_us[0]) / whole,
        "latency": (float(physics.latency_us[0]) - start - float(physics.split_us[0])) / whole,
        "memory": float(physics.memory_us[0]) / whole,
    }
    longest = max(parts, key=lambda name: parts[name])
    total = float(physics.time_us[0])
    figures: dict[str, Any] = {
        "k_steps": steps,
        "num_stages": config.num_stages,
        "pipeline_fill": min(stages / steps, 1.0),
        "steps_ahead": ahead,
        "bytes_in_flight": held * ahead * block,
        "bytes_to_cover_latency": asked,
        "step_us": step,
        **{f"step_{name}_us": value for name, value in parts.items()},
        "step_waits_for": longest,
        "loop_us": whole * step,
        "epilogue_us": float(physics.epilogue_us[0]),
        "split_us": float(physics.split_us[0]),
        "start_us": start,
        "launch_share": physics.roofline.floor_us / total,
        "estimate_us": total,
    }
    f = figures
    depth = f" through {config.num_stages} stages" if config.num_stages else ""
    lines = (
        (
            "pipeline",
            f"{_count(steps, 'K step')}{depth}: filling it takes {f['pipeline_fill']:.0%} of the "
            f"steps; {f['bytes_in_flight'] / 1e6:.2f} MB in flight, and DRAM's latency asks for "
            f"{asked / 1e6:.2f}",
        ),
        (
            "a step",
            f"{step * 1e3:.0f} ns, held longest by {longest}: arithmetic "
            f"{parts['arithmetic'] * 1e3:.0f}, memory {parts['memory'] * 1e3:.0f}, loads not "
            f"covered {parts['latency'] * 1e3:.0f}",
        ),
        ("launch", f"{f['launch_share']:.0%} of the estimate's {us(total)}"),
    )
    return Layer("compute_pipeline", figures, lines)


def instruction(profile: HardwareProfile, physics: EstimateColumns) -> str:
    """The matrix unit of one configuration by name, "none" without one.

    Another vendor's, or RDNA's, is the one that its profile names.
    """
    unit = MatrixUnit(int(physics.unit[0]))
    if unit is MatrixUnit.OTHER or (unit is MatrixUnit.MFMA and "wmma" in profile.mma):
        return profile.mma[0]
    return unit.name.lower().replace("_", ".")


def us(value: float) -> str:
    """A time for reading: microseconds to two decimals below 10, one below 1000, else none."""
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    return f"{value:.{digits}f} us"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)
