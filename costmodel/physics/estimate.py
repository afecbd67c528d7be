"""Time of every configuration from physics alone: no fitted model, and each part can be read.

A launch takes: the launch floor, the first loads' latency, then for each round of programs on the
busiest unit its K steps and its epilogue, and for split-K the addition of parts. A step takes the
longest of its arithmetic, its traffic from L2, and its share of a load's latency that the
pipeline's depth leaves uncovered. All that runs beside DRAM's traffic: the longer counts, and a
part of the shorter that cannot hide behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable, KernelConfig
from costmodel.physics.fixed import FixedColumns
from costmodel.physics.roofline import Roofline, copy_bandwidth_gb_s, peak_of, rate_of, roofline
from costmodel.physics.sizes import Sizes
from costmodel.physics.traffic import (
    TrafficColumns,
    beyond_l2_us,
    line_shares,
    load_shares,
    traffic_columns,
)
from costmodel.physics.waves import WaveColumns, slots_of, waves_in
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.profile.keys import REACHED
from costmodel.resources.footprint import (
    LEAST_ASYNC_BYTES,
    FootprintColumns,
    footprint_columns,
    load_bytes,
)
from costmodel.resources.matrix_unit import MatrixUnit, kernel_blocks, matrix_unit
from costmodel.resources.occupancy import OccupancyColumns, occupancy
from costmodel.resources.registers import RegisterColumns, register_columns, warps_per_block
from costmodel.resources.warp_groups import MOST_RUNS, is_specialized, warp_group_tile

Column = NDArray[np.float64]
BOUNDS = ("compute", "memory", "latency")

# Those set by hand say so: no micro-benchmark isolates them yet. The epilogue's and the second
# kernel's were set on runs of "warp_specialized" over 24 shapes, two of which (576x4096x14336 and
# 1536x1536x1536) are held out from the ranker; the others before it was fitted, on none of them.

#: from a tile's load to its last byte under load: by hand, some twice what an idle chip takes for
#: one line (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU", arXiv 2402.13499)
DRAM_LATENCY_US = 0.7
#: the same for a load that L2 serves: by hand, twice what the paper reads on an idle chip
L2_LATENCY_US = 0.3
#: bytes a clock that L2 hands to one unit where neighbours ask for the same tiles: 132 blocks of
#: 64x128 take 170 ns a step of 64 on an H200, 145 GB/s a unit (data/results/steps_h200-sxm.csv)
_L2_BYTES_PER_CLOCK = 80.0
#: shared memory reads a clock and unit, which the matrix unit's operands share (CUDA guide)
_SHARED_BYTES_PER_CLOCK = 128.0
#: what mma.sync reaches of wgmma's rate on Hopper, as the same paper reports
_MMA_SYNC_SHARE = 0.62
#: barrier, address and issue work of one K step that no overlap hides: by hand
_STEP_US = 0.03
#: clocks that a step takes however small its tile: products that add to one sum wait for each
#: other, and a descriptor's step waits on barriers besides. Of small tiles on an H200
#: (data/results/small_steps.py, the fastest tenth) a step of 32, 64, 128 columns of K takes 103,
#: 168, 279 ns with pointers and mma.sync; of 64, 128 by descriptor 270, 379 with it, 224, 251 with
#: wgmma
_CHAIN_CLOCKS = {MatrixUnit.MMA_SYNC: 50.0, MatrixUnit.WGMMA: 22.0, MatrixUnit.TCGEN05: 22.0}
_CHAIN_BYTES = 32  # of K, that one instruction multiplies
_POINTER_CLOCKS, _DESCRIPTOR_CLOCKS = 20.0, 200.0
#: what one spilled register adds to a step, as a share: by hand. 128x256 by 4 warps, which lacks
#: 44 registers, takes several times as long as by 8 warps on an H200
_SPILL_SLOWDOWN = 0.08
#: a row that the copy engine fills with zeros, in rows that it reads: 112 such rows a step of 64
#: columns cost 169 ns on an H200 (272x2048x4096 against 384x2048x4096 in tiles of 128x64)
_FILLED_ROW = 2.6
#: a program's first use of its descriptors: 128^3 in one step takes 6.4 us by descriptor and 4.5
#: by pointers on an H200
_DESCRIPTOR_US = 1.5
#: store, layout conversion and the write's way out for one tile, beyond its bytes: by hand
_EPILOGUE_US = 1.0
#: counting arrivals and waiting for the last part: by hand
_SPLIT_US = 1.5
#: the kernel that adds a split K's parts, beyond its bytes: by hand
_SECOND_KERNEL_US = 3.0
#: share of a copy's bandwidth that copying rows of odd length reaches: by hand
_PACK_SHARE = 0.5
#: share of the lesser of a program's steps and DRAM's traffic that does not hide behind the other:
#: the first tiles are awaited and the last products are alone. By hand; on training rows of the
#: H200 0.1 to 0.3 choose alike, and 0 worse by 0.011 (data/results/hidden_share.py)
_UNHIDDEN = 0.2
#: a launch is bound by arithmetic or by memory if that alone takes at least half of its time
_BOUND_SHARE = 0.5
#: clock assumed where a profile knows none
_CLOCK_MHZ = 1500.0


@dataclass(frozen=True)
class PricedColumns:
    """What physics says of configurations at their sizes, one entry each; times in us."""

    time_us: Column
    compute_us: Column
    memory_us: Column
    latency_us: Column
    epilogue_us: Column
    split_us: Column
    step_us: Column
    start_us: Column
    bound: NDArray[np.int64]
    waves: WaveColumns
    traffic: TrafficColumns
    roofline: Roofline


@dataclass(frozen=True)
class EstimateColumns(PricedColumns):
    """Everything that physics says about configurations: the price, and what sizes don't change."""

    fixed: FixedColumns
    matrix_share: Column
    unit: NDArray[np.int64]
    footprint: FootprintColumns
    registers: RegisterColumns
    occupancy: OccupancyColumns


def taken(columns: Any, rows: NDArray[np.int64]) -> Any:
    """Some rows of a dataclass of columns, of columns within it, and of what has a ``take``."""
    if isinstance(columns, np.ndarray):
        return columns[rows] if columns.ndim else columns
    if isinstance(columns, FixedColumns):
        return columns.take(rows)
    if is_dataclass(columns):
        parts = {name: taken(part, rows) for name, part in vars(columns).items()}
        return columns.__class__(**parts)
    return columns


def estimate_columns(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile
) -> EstimateColumns:
    """Price every configuration of a table. Never raises for one that is illegal or too big."""
    unit = matrix_unit(problem, table, profile)
    registers = register_columns(problem, table, profile)
    footprint = footprint_columns(problem, table, profile)
    held = occupancy(warps_per_block(table), registers.allocated, footprint.shared_bytes, profile)
    share = matrix_share(problem, table, profile, unit)
    flop = 2.0 * table.block_m * table.block_n * table.block_k
    unit_flop_per_us = peak_of(problem, profile) * sustained(profile, problem) * 1e6 / profile.units
    spill = 1.0 + _SPILL_SLOWDOWN * registers.spilled
    # A buffer is free for its next load once its products have read it, and comes round after
    # ``depth`` steps: latency, transfer and products are shared by so many steps. wgmma holds a
    # buffer more while it runs, and mma.sync has one less. Loads too narrow for the asynchronous
    # copy are waited for.
    widest = np.minimum(load_bytes(problem, table, "a"), load_bytes(problem, table, "b"))
    by_descriptor = table.is_template("persistent_tma") | is_specialized(table)
    waited = (widest < LEAST_ASYNC_BYTES) & ~by_descriptor
    if profile.backend == "cuda" and not profile.async_copy:
        waited = np.ones(len(table), dtype=bool)
    depth = np.where(waited, 1, np.maximum(table.num_stages - 1, 1))
    if profile.block_memory is not None:  # fixed buffers, each free once its products have read it
        depth = np.where(table.num_stages > 0, depth, profile.block_memory.buffers)
    a_lines, b_lines = line_shares(problem, table, profile)
    a_loads, b_loads = load_shares(problem, table, profile, _L2_BYTES_PER_CLOCK)
    fixed = FixedColumns.of(
        table,
        slots=slots_of(table, profile, held.blocks),
        alone_us=(flop / (unit_flop_per_us * share) + _written_us(problem, table, profile)) * spill,
        depth=depth,
        issue_us=_issue_us(problem, table, profile, unit, by_descriptor),
        a_lines=a_lines,
        b_lines=b_lines,
        a_slower=np.maximum(a_lines, a_loads),
        b_slower=np.maximum(b_lines, b_loads),
        filled_row=by_descriptor * _FILLED_ROW,
        descriptors_us=np.where(table.is_template("persistent_tma"), _DESCRIPTOR_US, 0.0),
    )
    priced = price(problem, fixed, profile)
    return EstimateColumns(
        **vars(priced),
        fixed=fixed,
        matrix_share=share,
        unit=unit,
        footprint=footprint,
        registers=registers,
        occupancy=held,
    )


def price(problem: Gemm | Sizes, fixed: FixedColumns, profile: HardwareProfile) -> PricedColumns:
    """Time of each configuration at its sizes, from what the sizes don't change."""
    waves = waves_in(problem, fixed, fixed.slots, profile.units)
    traffic = traffic_columns(problem, fixed, profile, waves, (fixed.a_lines, fixed.b_lines))
    floor = roofline(problem, profile)
    clock_mhz = profile.peak_clock_mhz or profile.boost_clock_mhz or _CLOCK_MHZ
    area = fixed.block_m * fixed.block_n

    # blocks that share a unit share its rates
    sharing = np.ceil(waves.programs / profile.units)
    sharing = np.maximum(np.minimum(sharing, fixed.slots / profile.units), 1)
    compute_step = sharing * fixed.alone_us
    step_bytes = _moved_rows(fixed, fixed.block_m, problem.m) * fixed.a_slower
    step_bytes += _moved_rows(fixed, fixed.block_n, problem.n) * fixed.b_slower
    step_bytes = step_bytes * fixed.block_k * problem.element_bytes
    l2_step = sharing * step_bytes / (_L2_BYTES_PER_CLOCK * clock_mhz)
    missed = np.minimum(traffic.dram_bytes / np.maximum(traffic.l2_bytes, 1.0), 1.0)
    load_us = L2_LATENCY_US + (DRAM_LATENCY_US - L2_LATENCY_US) * missed
    latency_step = (load_us + l2_step + compute_step) / fixed.depth
    step = np.maximum(np.maximum(compute_step, l2_step), latency_step)
    step = np.maximum(step, fixed.issue_us) + _STEP_US
    whole = waves.rounds * waves.steps

    bandwidth = copy_bandwidth_gb_s(profile) * 1e3  # bytes a microsecond
    dram_us = beyond_l2_us(traffic, profile)
    unit_bandwidth = bandwidth / profile.units
    stored_us = sharing * (area * problem.out_bytes) / (2 * unit_bandwidth)
    # while one block of a unit finishes its tile, those beside it multiply
    beside = np.maximum(fixed.slots / profile.units, 1)
    alone = 1 + (waves.rounds - 1) / beside
    epilogue_us = alone * _EPILOGUE_US + waves.rounds * stored_us
    split_us = _split_us(fixed, traffic, _L2_BYTES_PER_CLOCK * clock_mhz, bandwidth, profile.units)
    start_us = floor.floor_us + DRAM_LATENCY_US + fixed.descriptors_us
    steps_us = whole * step + epilogue_us
    busy_us = np.maximum(steps_us, dram_us) + _UNHIDDEN * np.minimum(steps_us, dram_us)
    compute_us = whole * compute_step
    memory_us = np.maximum(dram_us, whole * l2_step)
    latency_us = whole * latency_step + start_us + split_us
    time_us = start_us + busy_us + split_us
    # what the whole chip would need for its arithmetic and for DRAM, against what it takes
    chip_us = floor.compute_us / sustained(profile, problem)
    explained = np.maximum(chip_us, dram_us) >= _BOUND_SHARE * time_us
    largest = np.where(dram_us > chip_us, BOUNDS.index("memory"), BOUNDS.index("compute"))
    bound = np.where(explained, largest, BOUNDS.index("latency"))
    return PricedColumns(
        time_us, compute_us, memory_us, latency_us, epilogue_us, split_us, step, start_us, bound,
        waves, traffic, floor,
    )  # fmt: skip


def _moved_rows(fixed: FixedColumns, block: Column, size: Column | int) -> Column:
    """Rows of an operand that a step moves, those past a narrow operand's end by what they cost."""
    outside = np.maximum(block - size, 0)
    return np.asarray(np.minimum(block, size) + fixed.filled_row * outside)


def _written_us(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Column:
    """Time of a step in which loads by pointers write shared memory, which products then cannot
    read: at the same tile, "tile" takes 0.1 to 0.25 us a step more than "persistent_tma" on an
    H200 (128x128x64 and 128x256x64), some 130 bytes a clock.
    """
    by_pointer = table.is_template("tile") | table.is_template("split_k")
    written = (table.block_m + table.block_n) * table.block_k * problem.element_bytes
    clock_mhz = profile.peak_clock_mhz or profile.boost_clock_mhz or _CLOCK_MHZ
    return np.asarray(np.where(by_pointer, written, 0.0) / (_SHARED_BYTES_PER_CLOCK * clock_mhz))


def _issue_us(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, unit: NDArray[np.int64],
    by_descriptor: NDArray[np.bool_],
) -> Column:  # fmt: skip
    """Least time of a step: see ``_CHAIN_CLOCKS``; 0 without a matrix unit."""
    chain = np.zeros(len(table))
    for kind, clocks in _CHAIN_CLOCKS.items():
        chain = np.where(unit == kind, clocks, chain)
    links = table.block_k * problem.element_bytes / _CHAIN_BYTES
    own = np.where(by_descriptor, _DESCRIPTOR_CLOCKS, _POINTER_CLOCKS)
    clock_mhz = profile.peak_clock_mhz or profile.boost_clock_mhz or _CLOCK_MHZ
    return np.asarray(np.where(chain > 0, own + chain * links, 0.0) / clock_mhz)


def _split_us(
    fixed: FixedColumns, traffic: TrafficColumns, unit_l2: float, bandwidth: float, units: int
) -> Column:
    """Adding the parts of a split K, and copying operands into aligned rows; else 0.

    ``unit_l2`` and ``bandwidth`` are what one unit's L2 port and DRAM move, in bytes a
    microsecond.
    """
    packed = fixed.is_template("packed")
    specialized = packed | fixed.is_template("warp_specialized")
    # the last block reads every part of its tile alone
    last_block = fixed.block_m * fixed.block_n * 4.0 * fixed.split_k / unit_l2
    written = traffic.part_bytes / (unit_l2 * units)
    # a second kernel finds parts behind L2's dirty lines: both ways take a copy's time at least,
    # 0.5 us a megabyte on an H200, where rows say 1.0 in all (data/results/hidden_share.py)
    again = traffic.part_bytes * 2 / bandwidth
    adding = np.where(specialized, _SECOND_KERNEL_US + again, _SPLIT_US + last_block)
    # read and written once before the product starts, by loads of single elements
    copied = traffic.copied_bytes * 2 / (bandwidth * _PACK_SHARE) + _SECOND_KERNEL_US
    split_us = np.where((fixed.split_k > 1) | packed, adding + written, 0.0)
    return np.asarray(split_us + np.where(packed, copied, 0.0))


def sustained(profile: HardwareProfile, problem: Gemm | Sizes) -> float:
    """Share of the peak that the chip's power lets it hold for the problem's types.

    That of fp16 where none of these types was measured, and 1 where no product was.
    """
    rate = rate_of(problem, profile)
    for name, types in REACHED.items():
        reached, peak = getattr(profile, name), profile.peak_tflops.get(rate)
        if rate in types and reached and peak:
            return float(min(reached / peak, 1.0))
    reached, peak = profile.achievable_tflops_fp16, profile.peak_tflops.get("fp16")
    return min(reached / peak, 1.0) if reached and peak else 1.0


def matrix_share(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, unit: NDArray[np.int64]
) -> Column:
    """Share of the matrix unit's peak that the instruction's shape allows.

    wgmma reads 64 rows of A and N columns of B from shared memory a step: below 64 columns that
    reading takes longer than the products. On chips with wgmma, mma.sync runs at a lower rate.
    """
    block_m, block_n = kernel_blocks(table)
    # the columns of one instruction; a composite tile issues one for each of its runs
    runs = np.zeros((MOST_RUNS, len(table)), dtype=np.int64)
    runs[0] = np.minimum(block_n, 256)
    composite = warp_group_tile(table).runs
    runs = np.where(is_specialized(table) & (composite[0] > 0), composite, runs)
    per_clock = peak_of(problem, profile) * 1e12 / profile.units / 2
    per_clock /= (profile.peak_clock_mhz or profile.boost_clock_mhz or _CLOCK_MHZ) * 1e6
    k_step = 32 // problem.element_bytes
    # tcgen05 multiplies 128 rows at a time
    rows = np.where(unit == MatrixUnit.TCGEN05, np.minimum(block_m, 128), 64)
    products = rows * runs * k_step / per_clock
    reading = (rows + runs) * k_step * problem.element_bytes / _SHARED_BYTES_PER_CLOCK
    taken = np.where(runs > 0, np.maximum(products, reading), 0.0)
    wgmma = products.sum(axis=0) / np.maximum(taken.sum(axis=0), 1e-9)
    modern = "wgmma" in profile.mma or "tcgen05" in profile.mma
    plain = _MMA_SYNC_SHARE if modern else 1.0
    warp_group = (unit == MatrixUnit.WGMMA) | (unit == MatrixUnit.TCGEN05)
    share = np.where(warp_group, wgmma, np.where(unit == MatrixUnit.MMA_SYNC, plain, 1.0))
    vector = (profile.peak_tflops.get("fp32") or peak_of(problem, profile)) / peak_of(
        problem, profile
    )
    return np.where(unit == MatrixUnit.NONE, min(vector, 1.0), share)


@dataclass(frozen=True)
class Estimate:
    """What physics says of one configuration; times in microseconds."""

    time_us: float
    bound: str
    compute_us: float
    memory_us: float
    latency_us: float
    epilogue_us: float
    split_us: float
    roofline_us: float
    arithmetic_intensity: float
    shared_bytes: int
    registers: int
    blocks_per_unit: int
    tiles: int
    rounds: int
    fill: float
    dram_bytes: float
    l2_bytes: float


def estimate(problem: Gemm, config: KernelConfig, profile: HardwareProfile) -> Estimate:
    """``estimate_columns`` of one configuration, as scalars."""
    columns = estimate_columns(problem, ConfigTable.of(config), profile)
    return estimate_row(problem, columns, 0)


def estimate_row(problem: Gemm, columns: EstimateColumns, row: int) -> Estimate:
    """One row of ``EstimateColumns`` as scalars."""
    return Estimate(
        time_us=float(columns.time_us[row]),
        bound=BOUNDS[int(columns.bound[row])],
        compute_us=float(columns.compute_us[row]),
        memory_us=float(columns.memory_us[row]),
        latency_us=float(columns.latency_us[row]),
        epilogue_us=float(columns.epilogue_us[row]),
        split_us=float(columns.split_us[row]),
        roofline_us=float(columns.roofline.time_us),
        arithmetic_intensity=problem.arithmetic_intensity,
        shared_bytes=int(columns.footprint.shared_bytes[row]),
        registers=int(columns.registers.allocated[row]),
        blocks_per_unit=int(columns.occupancy.blocks[row]),
        tiles=int(columns.waves.tiles[row]),
        rounds=int(columns.waves.rounds[row]),
        fill=float(columns.waves.fill[row]),
        dram_bytes=float(columns.traffic.dram_bytes[row]),
        l2_bytes=float(columns.traffic.l2_bytes[row]),
    )
