"""What the ranker looks at: one named function a feature, each a column over all configurations.

Features are ratios of physics or the knobs themselves, so that they mean the same on another
chip. The order of ``FEATURES`` is part of a trained model; models name their features, and
loading checks the names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.physics.estimate import EstimateColumns, estimate_columns
from costmodel.physics.roofline import copy_bandwidth_gb_s
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.footprint import load_bytes
from costmodel.resources.matrix_unit import kernel_blocks

Column = NDArray[np.float64]

_TINY = 1e-6


@dataclass(frozen=True)
class Context:
    """All that a feature may use."""

    problem: Gemm
    table: ConfigTable
    profile: HardwareProfile
    physics: EstimateColumns


Feature = Callable[[Context], Column]
FEATURES: dict[str, Feature] = {}


def _feature(function: Feature) -> Feature:
    FEATURES[function.__name__] = function
    return function


def _log(values: Any) -> Column:
    return np.asarray(np.log2(np.maximum(values, _TINY)), dtype=np.float64)


def feature_matrix(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, physics: EstimateColumns | None
) -> NDArray[np.float32]:
    """All features, [configurations, features], in the order of ``FEATURES``."""
    context = Context(problem, table, profile, physics or estimate_columns(problem, table, profile))
    matrix = np.empty((len(table), len(FEATURES)), dtype=np.float32)
    for index, function in enumerate(FEATURES.values()):
        matrix[:, index] = function(context)
    return matrix


# --- time terms of the estimate over the roofline's ---------------------------------------


@_feature
def estimate_over_roofline(c: Context) -> Column:
    """log2 of the physics estimate over the roofline's time."""
    return _log(c.physics.time_us / c.physics.roofline.time_us)


@_feature
def compute_over_roofline(c: Context) -> Column:
    """log2 of the busiest unit's arithmetic over the roofline's time."""
    return _log(c.physics.compute_us / c.physics.roofline.time_us)


@_feature
def memory_over_roofline(c: Context) -> Column:
    """log2 of the slower memory level's time over the roofline's."""
    return _log(c.physics.memory_us / c.physics.roofline.time_us)


@_feature
def latency_over_roofline(c: Context) -> Column:
    """log2 of the uncovered load latency over the roofline's time."""
    return _log(c.physics.latency_us / c.physics.roofline.time_us)


@_feature
def epilogue_over_roofline(c: Context) -> Column:
    """log2 of the epilogues' time over the roofline's."""
    return _log(c.physics.epilogue_us / c.physics.roofline.time_us)


@_feature
def split_over_roofline(c: Context) -> Column:
    """log2 of the addition of split-K's parts over the roofline's time."""
    return _log(c.physics.split_us / c.physics.roofline.time_us + 2.0**-6)


@_feature
def floor_share(c: Context) -> Column:
    """Launch floor over the roofline's time: 1 where nothing else matters."""
    share = c.physics.roofline.floor_us / c.physics.roofline.time_us
    return np.full(len(c.table), share)


@_feature
def intensity_over_ridge(c: Context) -> Column:
    """log2 of the roofline's compute over its memory time: above 0 is compute-bound."""
    roof = c.physics.roofline
    return np.full(len(c.table), _log(roof.compute_us / max(roof.memory_us, _TINY)))


# --- how the work fills the chip -----------------------------------------------------------


@_feature
def programs_per_unit(c: Context) -> Column:
    """log2 of programs over units."""
    return _log(c.physics.waves.programs / c.profile.units)


@_feature
def rounds(c: Context) -> Column:
    """log2 of the programs that the busiest slot runs in turn."""
    return _log(c.physics.waves.rounds)


@_feature
def fill(c: Context) -> Column:
    """Share of the rounds' capacity that has work."""
    return c.physics.waves.fill


@_feature
def tile_use(c: Context) -> Column:
    """Share of the tiles' area inside C."""
    return c.physics.waves.tile_use


@_feature
def blocks_per_unit(c: Context) -> Column:
    """Blocks a unit could hold, as log2."""
    return _log(np.maximum(c.physics.occupancy.blocks, 0.5))


@_feature
def resident_blocks(c: Context) -> Column:
    """log2 of blocks that a unit holds on average, as far as there are programs."""
    held = np.minimum(c.physics.waves.programs, c.physics.waves.slots) / c.profile.units
    return _log(held)


@_feature
def tiles_along_m(c: Context) -> Column:
    """log2 of the rows of tiles."""
    return _log(c.physics.waves.tiles_m)


@_feature
def tiles_along_n(c: Context) -> Column:
    """log2 of the columns of tiles."""
    return _log(c.physics.waves.tiles_n)


@_feature
def group_share(c: Context) -> Column:
    """Rows of a group over the rows of tiles."""
    return np.minimum(c.table.group_m / c.physics.waves.tiles_m, 1.0)


# --- the pipeline --------------------------------------------------------------------------


@_feature
def steps(c: Context) -> Column:
    """log2 of K iterations a program."""
    return _log(c.physics.waves.steps)


@_feature
def pipeline_fill(c: Context) -> Column:
    """Stages over steps: 1 and more is a pipeline that never runs full."""
    return np.minimum(c.table.num_stages / c.physics.waves.steps, 2.0)


@_feature
def bytes_in_flight(c: Context) -> Column:
    """log2 of bytes that all pipelines hold in flight over what Little's law asks for."""
    block = (c.table.block_m + c.table.block_n) * c.table.block_k * c.problem.element_bytes
    depth = np.maximum(c.table.num_stages - 1, 1)
    held = np.minimum(c.physics.waves.programs, c.physics.waves.slots)
    wanted = copy_bandwidth_gb_s(c.profile) * 1e3 * 0.7
    return _log(held * depth * block / wanted)


@_feature
def step_over_latency(c: Context) -> Column:
    """log2 of a step's arithmetic over a load's latency divided by the depth."""
    return _log(c.physics.compute_us / np.maximum(c.physics.latency_us, _TINY))


@_feature
def stages(c: Context) -> Column:
    """Pipeline depth as log2."""
    return _log(c.table.num_stages)


@_feature
def step_depth(c: Context) -> Column:
    """BLOCK_K in bytes, as log2."""
    return _log(c.table.block_k * c.problem.element_bytes)


# --- traffic -------------------------------------------------------------------------------


@_feature
def dram_over_compulsory(c: Context) -> Column:
    """log2 of DRAM traffic over the compulsory."""
    moved = c.physics.traffic.dram_bytes + c.physics.traffic.store_bytes
    return _log(moved / c.problem.compulsory_bytes)


@_feature
def l2_over_compulsory(c: Context) -> Column:
    """log2 of the units' loads over the compulsory traffic."""
    return _log(c.physics.traffic.l2_bytes / c.problem.compulsory_bytes)


@_feature
def parts_over_compulsory(c: Context) -> Column:
    """log2 of split-K's partial sums over the compulsory traffic."""
    return _log(c.physics.traffic.part_bytes / c.problem.compulsory_bytes + 2.0**-8)


@_feature
def operands_over_l2(c: Context) -> Column:
    """log2 of both operands over L2's capacity."""
    size = (c.problem.m + c.problem.n) * c.problem.k * c.problem.batch * c.problem.element_bytes
    return np.full(len(c.table), _log(size / (c.profile.l2_bytes or 4 * 2**20)))


@_feature
def narrowest_load(c: Context) -> Column:
    """Bytes of the narrower operand's loads, as log2."""
    a, b = (load_bytes(c.problem, c.table, operand) for operand in "ab")
    return _log(np.minimum(a, b))


@_feature
def store_width(c: Context) -> Column:
    """Bytes of a store that C's rows allow, as log2."""
    width = min(c.problem.row_align("c") * c.problem.out_bytes, 16)
    return np.full(len(c.table), _log(float(width)))


# --- the tile and its instruction ----------------------------------------------------------


@_feature
def tall_block(c: Context) -> Column:
    """log2 of the block along the matrix unit's rows."""
    return _log(kernel_blocks(c.table)[0])


@_feature
def wide_block(c: Context) -> Column:
    """log2 of the block along the matrix unit's columns."""
    return _log(kernel_blocks(c.table)[1])


@_feature
def warps(c: Context) -> Column:
    """Warps a block, as log2."""
    return _log(c.table.num_warps)


@_feature
def matrix_share(c: Context) -> Column:
    """Share of the matrix unit's peak that the instruction allows."""
    return c.physics.matrix_share


@_feature
def matrix_instruction(c: Context) -> Column:
    """Kind of matrix instruction, from none to the newest."""
    return c.physics.unit.astype(np.float64)


@_feature
def registers_wanted(c: Context) -> Column:
    """Registers a thread that the tile asks for, over 255."""
    return c.physics.registers.wanted / 255.0


@_feature
def shared_share(c: Context) -> Column:
    """Shared memory of a block over the limit."""
    return c.physics.footprint.shared_bytes / c.profile.shared_per_block_bytes


@_feature
def occupancy(c: Context) -> Column:
    """Warps held over the unit's capacity."""
    return c.physics.occupancy.occupancy


@_feature
def splits(c: Context) -> Column:
    """Parts of K, as log2."""
    return _log(c.table.split_k)


@_feature
def template_kind(c: Context) -> Column:
    """The kernel family's number."""
    return c.table.template.astype(np.float64)


@_feature
def swapped(c: Context) -> Column:
    """1 where operands are swapped."""
    return c.table.swap.astype(np.float64)


@_feature
def parts_of_epilogue(c: Context) -> Column:
    """Stores that a tile is cut into."""
    return c.table.epilogue_parts.astype(np.float64)


@_feature
def a_is_transposed(c: Context) -> Column:
    """1 where A is stored [K, M]."""
    return np.full(len(c.table), float(c.problem.layout[0] == "t"))


@_feature
def b_is_transposed(c: Context) -> Column:
    """1 where B is stored [N, K]."""
    return np.full(len(c.table), float(c.problem.layout[1] == "t"))
