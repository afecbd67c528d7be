"""Bytes moved at each level: from L2 into the units, and from DRAM into L2."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.physics.fixed import Knobs
from costmodel.physics.roofline import copy_bandwidth_gb_s
from costmodel.physics.sizes import Sizes
from costmodel.physics.waves import WaveColumns
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.footprint import load_bytes

Column = NDArray[np.float64]

#: L2 assumed where a profile does not know it: the smallest of the chips described, 4 MiB
_SMALLEST_L2_BYTES = 4 * 2**20
_LINE_BYTES = 128  # assumed where a profile does not know it
_MOST_LINES = 2.0  # shorter runs than half a line were not measured apart
_PART_BYTES = 4  # split-K's partial sums are fp32
#: words a clock and unit that pointers load, each as wide as its row's alignment allows: by hand.
#: Of the training rows of an H200 that fill it twice, one in a hundred moves 48 bytes a clock with
#: words of 16 bytes, 24 with words of 8, 13 of 4 (data/results/narrow_loads.py): 3.0 to 3.4 words,
#: starts and ends of runs and all. Words of 2, which no asynchronous copy takes, move 14, as fast
#: as those of 4
_WORDS_PER_CLOCK = 4.0
_NARROWEST_BYTES_PER_CLOCK = 16.0
_ROW_BYTES = 16  # the copy engine's rows are multiples of it (CUDA driver API)


@dataclass(frozen=True)
class TrafficColumns:
    """Bytes, one entry a configuration: all loads of operands, what of it DRAM serves, C, the
    parts of a split K, operands that are copied into aligned rows first, and what the L2 caches
    of several dies draw from the memory's side, where they share no contents (0 with one L2).
    """

    l2_bytes: Column
    dram_bytes: Column
    store_bytes: Column
    part_bytes: Column
    copied_bytes: Column
    dies_bytes: Column


def line_shares(problem: Gemm, table: Knobs, profile: HardwareProfile) -> tuple[Column, Column]:
    """How much more than its bytes a load of A and of B moves, where it takes part of each line.

    A block's rows are contiguous along K or across it. By pointers, a run of half a line comes
    twice, for this step and the next: weights by blocks of 32 columns of K take 1.75 to 1.95 times
    what blocks of 64 take on an H200 (24x10240x8192 and 2x152064x3584 in bf16 and fp16). The copy
    engine's boxes are whole lines.
    """
    line = profile.line_bytes or _LINE_BYTES
    shares = []
    for letter, along_k, across in (
        (problem.layout[0], "n", table.block_m),
        (problem.layout[1], "t", table.block_n),
    ):
        run = (table.block_k if letter == along_k else across) * problem.element_bytes
        share = np.clip(line / np.maximum(run, 1), 1.0, _MOST_LINES)
        by_pointer = table.is_template("tile") | table.is_template("split_k")
        shares.append(np.where(by_pointer, share, 1.0))
    return shares[0], shares[1]


def load_shares(
    problem: Gemm, table: Knobs, profile: HardwareProfile, l2_bytes_per_clock: float
) -> tuple[Column, Column]:
    """How much longer loads of A and of B by pointers take than L2 does, by their words' width.

    A unit loads so many words a clock, those of 4 to 16 bytes alike: of 16 bytes, 64 bytes where
    L2 has 80. A chip whose engines move whole blocks between named memories has no such words.
    """
    by_pointer = table.is_template("tile") | table.is_template("split_k")
    by_pointer &= profile.block_memory is None
    shares = []
    for operand in "ab":
        width = load_bytes(problem, table, operand)
        rate = np.maximum(_WORDS_PER_CLOCK * width, _NARROWEST_BYTES_PER_CLOCK)
        shares.append(np.where(by_pointer, np.maximum(l2_bytes_per_clock / rate, 1.0), 1.0))
    return shares[0], shares[1]


def traffic_columns(
    problem: Gemm | Sizes,
    table: Knobs,
    profile: HardwareProfile,
    waves: WaveColumns,
    lines: tuple[Column, Column],
) -> TrafficColumns:
    """Traffic under the grouped tile order; ``lines`` are the ``line_shares``.

    The programs in flight form a patch of about ``group_m`` rows of tiles; within it each row of
    A and column of B is fetched once from DRAM and met in L2 by the rest. From patch to patch an
    operand is met again only as far as it stays in L2 (reuse by unique rows and columns in
    flight as in AMD's Origami, residency 1 where the operand fits).

    Programs are dealt to dies in turn (AMD, MI300X workload optimisation), so each die with an L2
    of its own fetches nearly every row and column of the patch for itself: its copies add nothing
    to the capacity, and without a cache on the memory's side they all come from DRAM.
    """
    size = problem.element_bytes
    a_once = 1.0 * (problem.m * problem.k * problem.batch * size)
    b_once = 1.0 * (problem.n * problem.k * problem.batch * size)
    # masked rows and columns move no bytes; each operand is loaded once a tile row or column
    l2 = a_once * waves.tiles_n + b_once * waves.tiles_m

    in_flight = np.minimum(waves.slots, waves.programs) / table.split_k
    group = np.minimum(np.maximum(table.group_m, 1), waves.tiles_m)
    patch_m = np.clip(np.minimum(group, in_flight), 1, waves.tiles_m)
    patch_n = np.clip(in_flight / patch_m, 1, waves.tiles_n)
    a_misses = np.ceil(waves.tiles_n / patch_n)
    b_misses = np.ceil(waves.tiles_m / patch_m)
    capacity = (profile.l2_bytes or _SMALLEST_L2_BYTES) + (profile.mall_bytes or 0)
    # between two passes over A, a band of B and of A itself goes by
    resident_a = np.clip(capacity / (a_once + b_once), 0.0, 1.0)
    a_loads = a_once * (1 + (a_misses - 1) * (1 - resident_a))
    b_loads = b_once * (1 + (b_misses - 1) * (1 - resident_a))
    a_loads, b_loads = a_loads * lines[0], b_loads * lines[1]
    dram = a_loads + b_loads
    dies = np.zeros(len(table))
    partitions = profile.l2_partitions or 1
    if partitions > 1:
        # a row of A is met by the programs of its columns in flight, on so many dies at most
        dies = a_loads * np.minimum(partitions, patch_n) + b_loads * np.minimum(partitions, patch_m)
        if not profile.mall_bytes:
            dram = dies
    c_passes = 2.0 if problem.beta else 1.0
    store = np.full(
        len(table), problem.m * problem.n * problem.batch * problem.out_bytes * c_passes
    )
    area = table.block_m * table.block_n * waves.tiles
    packed = table.is_template("packed")
    odd = [problem.odd_row_bytes(operand, _ROW_BYTES) > 0 for operand in "ab"]
    copied = np.where(packed, a_once * odd[0] + b_once * odd[1], 0.0)
    parts = np.where((table.split_k > 1) | packed, area * table.split_k * _PART_BYTES, 0)
    return TrafficColumns(l2, dram, store, parts.astype(np.float64), copied, dies)


def beyond_l2_us(traffic: TrafficColumns, profile: HardwareProfile) -> Column:
    """Least time for what passes L2, in microseconds: DRAM's, or that of a cache in front of it."""
    moved = traffic.dram_bytes + traffic.store_bytes
    taken = moved / (copy_bandwidth_gb_s(profile) * 1e3)
    if profile.mall_bandwidth_gb_s:
        taken = np.maximum(taken, traffic.dies_bytes / (profile.mall_bandwidth_gb_s * 1e3))
    return taken
