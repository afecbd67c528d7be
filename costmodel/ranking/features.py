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
from costmodel.physics.estimate import EstimateColumns, PricedColumns, estimate_columns
from costmodel.physics.fixed import FixedColumns, Knobs
from costmodel.physics.roofline import copy_bandwidth_gb_s
from costmodel.physics.sizes import Sizes, one_of
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.footprint import load_bytes
from costmodel.resources.matrix_unit import kernel_blocks

Column = NDArray[np.float64]

_TINY = 1e-6


@dataclass(frozen=True)
class Context:
    """All that a feature may use: configurations at their sizes."""

    problem: Gemm | Sizes
    table: Knobs
    profile: HardwareProfile
    physics: PricedColumns


@dataclass(frozen=True)
class FixedContext(Context):
    """What a feature may use that sizes don't change."""

    problem: Gemm
    table: ConfigTable
    physics: EstimateColumns


Feature = Callable[[Any], Column]
FEATURES: dict[str, Feature] = {}
#: those that are the same for every problem of a kind
FIXED: set[str] = set()


def _feature(function: Feature) -> Feature:
    FEATURES[function.__name__] = function
    return function


def _fixed_feature(function: Feature) -> Feature:
    FIXED.add(function.__name__)
    return _feature(function)


def _log(values: Any) -> Column:
    return np.asarray(np.log2(np.maximum(values, _TINY)), dtype=np.float64)


def feature_matrix(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, physics: EstimateColumns | None
) -> NDArray[np.float32]:
    """All features, [configurations, features], in the order of ``FEATURES``."""
    physics = physics or estimate_columns(problem, table, profile)
    fixed = fixed_features(problem, table, profile, physics)
    return features_at(problem, physics.fixed, profile, physics, fixed)


def fixed_features(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, physics: EstimateColumns
) -> NDArray[np.float32]:
    """Features that are the same for every problem of a kind, [fixed features, configurations]."""
    context = FixedContext(problem, table, profile, physics)
    matrix = np.empty((len(_FIXED_PLACES), len(table)), dtype=np.float32)
    for row, place in enumerate(_FIXED_PLACES):
        matrix[row] = _IN_ORDER[place](context)
    return matrix


def features_at(
    problem: Gemm | Sizes,
    knobs: FixedColumns,
    profile: HardwareProfile,
    physics: PricedColumns,
    fixed: NDArray[np.float32],
) -> NDArray[np.float32]:
    """All features at their sizes, [configurations, features], from the fixed ones."""
    context = Context(problem, knobs, profile, physics)
    matrix = np.empty((len(FEATURES), len(knobs)), dtype=np.float32)
    matrix[_FIXED_PLACES] = fixed
    for place in _PLACES_BY_SIZE:
        matrix[place] = _IN_ORDER[place](context)
    return matrix.T


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
    return np.full(len(c.table), _log(roof.compute_us / np.maximum(roof.memory_us, _TINY)))


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


@_fixed_feature
def blocks_per_unit(c: FixedContext) -> Column:
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


@_fixed_feature
def stages(c: FixedContext) -> Column:
    """Pipeline depth as log2."""
    return _log(c.table.num_stages)


@_fixed_feature
def step_depth(c: FixedContext) -> Column:
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
    a, b = (load_bytes(one_of(c.problem), c.table, operand) for operand in "ab")
    return _log(np.minimum(a, b))


@_feature
def store_width(c: Context) -> Column:
    """Bytes of a store that C's rows allow, as log2."""
    width = min(c.problem.row_align("c") * c.problem.out_bytes, 16)
    return np.full(len(c.table), _log(float(width)))


# --- the tile and its instruction ----------------------------------------------------------


@_fixed_feature
def tall_block(c: FixedContext) -> Column:
    """log2 of the block along the matrix unit's rows."""
    return _log(kernel_blocks(c.table)[0])


@_fixed_feature
def wide_block(c: FixedContext) -> Column:
    """log2 of the block along the matrix unit's columns."""
    return _log(kernel_blocks(c.table)[1])


@_fixed_feature
def warps(c: FixedContext) -> Column:
    """Warps a block, as log2."""
    return _log(c.table.num_warps)


@_fixed_feature
def matrix_share(c: FixedContext) -> Column:
    """Share of the matrix unit's peak that the instruction allows."""
    return c.physics.matrix_share


@_fixed_feature
def matrix_instruction(c: FixedContext) -> Column:
    """Kind of matrix instruction, from none to the newest."""
    return c.physics.unit.astype(np.float64)


@_fixed_feature
def registers_wanted(c: FixedContext) -> Column:
    """Registers a thread that the tile asks for, over 255."""
    return c.physics.registers.wanted / 255.0


@_fixed_feature
def shared_share(c: FixedContext) -> Column:
    """Shared memory of a block over the limit."""
    return c.physics.footprint.shared_bytes / c.profile.shared_per_block_bytes


@_fixed_feature
def occupancy(c: FixedContext) -> Column:
    """Warps held over the unit's capacity."""
    return c.physics.occupancy.occupancy


@_feature
def splits(c: Context) -> Column:
    """Parts of K, as log2."""
    return _log(c.table.split_k)


@_fixed_feature
def template_kind(c: FixedContext) -> Column:
    """The kernel family's number."""
    return c.table.template.astype(np.float64)


@_fixed_feature
def swapped(c: FixedContext) -> Column:
    """1 where operands are swapped."""
    return c.table.swap.astype(np.float64)


@_fixed_feature
def parts_of_epilogue(c: FixedContext) -> Column:
    """Stores that a tile is cut into."""
    return c.table.epilogue_parts.astype(np.float64)


@_fixed_feature
def a_is_transposed(c: FixedContext) -> Column:
    """1 where A is stored [K, M]."""
    return np.full(len(c.table), float(c.problem.layout[0] == "t"))


@_fixed_feature
def b_is_transposed(c: FixedContext) -> Column:
    """1 where B is stored [N, K]."""
    return np.full(len(c.table), float(c.problem.layout[1] == "t"))


_IN_ORDER = tuple(FEATURES.values())
_FIXED_PLACES = [place for place, name in enumerate(FEATURES) if name in FIXED]
_PLACES_BY_SIZE = [place for place, name in enumerate(FEATURES) if name not in FIXED]
