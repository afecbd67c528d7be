"""Rules a configuration must keep to run at all, each a named check over columns.

A check gives, for every configuration, what it needs and what there is; it is broken where the
need is larger. What merely runs slowly is legal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import TEMPLATES, ConfigTable, encode_knob
from costmodel.errors import UnsupportedError
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.profile.memory import Memory
from costmodel.resources.footprint import FootprintColumns, footprint_columns
from costmodel.resources.matrix_unit import compute_dtype, kernel_blocks, precision_of
from costmodel.resources.memories import memory_bytes
from costmodel.resources.registers import threads_per_block
from costmodel.resources.warp_groups import is_specialized, warp_group_tile

Need = tuple[Any, Any]
#: one descriptor dimension of the copy engine (CUDA driver API, cuTensorMapEncodeTiled: boxDim)
_TMA_BOX_LIMIT = 256
#: knobs that a chip may lack or hold fixed; a profile's blocks are what is tried, not a limit
_CHIP_KNOBS = ("template", "num_warps", "num_stages", "load_bits", "group_m", "swap")
_GRID_X_LIMIT = 2**31 - 1  # same table: grid of blocks, x
_FEW_PROGRAMS_PER_UNIT = 4  # of a candidate that splits K (space.worth)
_GRID_Y_LIMIT = 65535  # CUDA programming guide, compute capabilities: grid of blocks, y
_TMA_ROW_BYTES = 16  # same call: globalStrides must be multiples of 16
#: templates that can keep running sums in fp16
SUMS_IN_FP16 = ("tile", "split_k", "persistent_tma")
#: columns of C that template "matvec" takes; elements a thread, and sums of them, that leave room
#: among 255 registers for addresses and the other operand
MATVEC_COLUMNS = 8
MATVEC_ELEMENTS, MATVEC_SUMS = 64, 128
#: columns of the copy engine's widest swizzle, 128 bytes of 16-bit elements
WHOLE_RUN = 64


@dataclass(frozen=True)
class Rule:
    """One limit: a name, the unit of its numbers, what it protects, and the check.

    ``by_size``: whether two problems that differ in nothing but their sizes, with the same
    alignment, may fare differently.
    """

    name: str
    unit: str
    meaning: str
    needs: Callable[[Gemm, ConfigTable, HardwareProfile], Need]
    by_size: bool = False


def _shared_memory(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    return shared_need(footprint_columns(problem, table, profile), profile)


def shared_need(footprint: FootprintColumns, profile: HardwareProfile) -> Need:
    """Rule "shared_memory" where the footprint is known."""
    return footprint.shared_bytes, profile.shared_per_block_bytes


def _threads(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    return threads_per_block(table, profile), profile.max_threads_per_block or 1024


def _power_of_two(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    knobs = (table.block_m, table.block_n, table.num_warps)
    odd = np.maximum.reduce([np.where(k & (k - 1), k, 0) for k in knobs])
    odd = np.where(is_specialized(table), 0, odd)
    also = (table.block_k, np.maximum(table.load_bits, 0))
    return np.maximum.reduce([odd, *(np.where(k & (k - 1), k, 0) for k in also)]), 0


def _smallest_dot(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    """``tl.dot`` takes K of 32 bytes and more for 8-bit types on NVIDIA, 16 elements otherwise."""
    least = 32 if problem.element_bytes == 1 and profile.backend == "cuda" else 16
    smallest = np.minimum.reduce([table.block_m, table.block_n])
    short = np.maximum(np.where(_uses_dot(table), 16 - smallest, 0), least - table.block_k)
    return np.where(table.is_template("matvec"), 0, np.maximum(short, 0)), 0


def _uses_dot(table: ConfigTable) -> Any:
    return ~(is_specialized(table) | table.is_template("matvec"))


def _warp_groups(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    """What "warp_specialized" takes: see ``warp_groups``; wgmma of 8- and 32-bit types takes
    operands contiguous along K alone (PTX ISA), and integers have no template yet. With one stage
    the loading warp would wait for the products, and they for it.
    """
    specialized = is_specialized(table)
    able = "wgmma" in profile.mma and problem.batch == 1
    able &= problem.dtype != "int8"
    able &= problem.dtype != "fp32" or precision_of(problem, profile) == "tf32"
    # one step of K lies along both axes of B, and the launcher takes it as contiguous along N
    b_across = problem.layout[1] == "n" or problem.k == 1
    able &= problem.element_bytes == 2 or (problem.layout[0] == "n" and not b_across)
    tile = warp_group_tile(table)
    sound = tile.is_sound & able & (table.num_stages != 1)
    # narrow runs of an operand that is not contiguous along K gave wrong sums on an H200
    across = np.where(table.swap != 0, problem.layout[0] == "t", b_across)
    sound &= ~across | (tile.columns % WHOLE_RUN == 0)
    return (specialized & ~sound).astype(np.int64), 0


def matvec_columns(columns: Any) -> Any:
    """The block that "matvec" holds so many columns in: the next power of two."""
    return 1 << np.ceil(np.log2(np.maximum(columns, 1))).astype(np.int64)


def _matvec(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    """Columns of C past what "matvec" holds, or elements a thread past its registers."""
    matvec = table.is_template("matvec")
    columns = matvec_columns(np.where(table.swap != 0, problem.m, problem.n))
    rows, held = kernel_blocks(table)
    elements = rows * table.block_k // np.maximum(table.num_warps * profile.warp_size, 1)
    wrong = (columns > MATVEC_COLUMNS) | (held != columns)
    wrong |= (elements > MATVEC_ELEMENTS) | (elements * held > MATVEC_SUMS)
    if problem.element_bytes == 1 or problem.precision == "tf32x3":
        wrong = np.ones(len(table), dtype=bool)
    return (matvec & wrong).astype(np.int64), 0


def _accumulate(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    """Sums in fp16 are the choice of few templates."""
    able = np.isin(table.template, [TEMPLATES.index(name) for name in SUMS_IN_FP16])
    return ((problem.accumulate == "fp16") & ~able).astype(np.int64), 0


def _batch(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    """The batch is a grid dimension, except where a persistent grid walks it."""
    return np.where(table.is_template("persistent_tma"), 0, problem.batch), _GRID_Y_LIMIT


def _programs(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    """Tiles, times split-K parts, are the grid's first dimension; a persistent grid is small."""
    tiles = -(-problem.m // table.block_m) * -(-problem.n // table.block_n)
    programs = np.where(_by_descriptor(table), 0, tiles * table.split_k)
    if profile.persistent_grid:
        programs = np.minimum(programs, profile.units)
    return programs, profile.max_programs or _GRID_X_LIMIT


def _has_copy_engine(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    return _by_descriptor(table).astype(np.int64), int("tma" in profile.async_copy)


def _by_descriptor(table: ConfigTable) -> Any:
    return table.is_template("persistent_tma") | is_specialized(table)


def _packed(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    """Operands are copied as 16-bit elements."""
    return (table.is_template("packed") & (problem.element_bytes != 2)).astype(np.int64), 0


def _aligned_rows(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    """Bytes past the last multiple of 16 in a stored row of A, B or C, the largest of them."""
    odd = max(problem.odd_row_bytes(operand, _TMA_ROW_BYTES) for operand in "abc")
    return np.where(_by_descriptor(table) & ~table.is_template("packed"), odd, 0), 0


def _copy_box(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    largest = np.maximum.reduce([table.block_m, table.block_n, table.block_k])
    return np.where(table.is_template("persistent_tma"), largest, 0), _TMA_BOX_LIMIT


def _epilogue_parts(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    """Parts are stored through descriptors of at least 16 columns; other templates store whole."""
    _, block_n = kernel_blocks(table)
    most = np.where(table.is_template("persistent_tma"), np.minimum(block_n // 16, 2), 1)
    most = np.where(is_specialized(table), 2, most)
    return table.epilogue_parts, most


def _split(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
    """Each part of K holds at least one step; two templates split."""
    steps = -(-problem.k // table.block_k)
    splits = table.is_template("split_k") | is_specialized(table)
    return table.split_k, np.where(splits, steps, 1)


SHARED_MEMORY = Rule("shared_memory", "bytes", "shared memory a block", _shared_memory)
RULES: tuple[Rule, ...] = (
    Rule("power_of_two", "", "blocks, warps and load widths are powers of two", _power_of_two),
    Rule("smallest_dot", "elements short", "the least block that tl.dot takes", _smallest_dot),
    Rule("warp_groups", "", "no warp groups or runs of columns make this tile", _warp_groups),
    Rule("packed", "", "only 16-bit operands are copied into aligned rows", _packed),
    Rule("matvec", "", "matvec holds up to 8 columns and 128 sums a thread", _matvec),
    Rule("accumulate", "", "the template sums in fp32 alone", _accumulate),
    Rule("copy_engine", "", "the chip has no tensor-descriptor copy engine", _has_copy_engine),
    Rule("programs", "programs", "the grid has a largest size", _programs, True),
    Rule("batch", "entries", "the batch is a grid dimension", _batch, True),
    Rule("aligned_rows", "bytes past 16", "descriptors need rows of 16 bytes", _aligned_rows),
    Rule("copy_box", "elements", "a descriptor's block has 256 elements a side", _copy_box),
    Rule("epilogue_parts", "parts", "the tile cannot be stored in so many parts", _epilogue_parts),
    Rule("split_k", "parts", "K has too few steps for so many parts", _split, True),
    Rule("threads", "threads", "threads a block", _threads),
    SHARED_MEMORY,
)


Knobs = tuple[tuple[str, tuple[Any, ...]], ...]


def knobs_set_otherwise(table: ConfigTable, profile: HardwareProfile) -> NDArray[np.int64]:
    """How many knobs a row sets that the chip lacks, or away from what it holds fixed."""
    wrong = np.zeros(len(table), dtype=np.int64)
    for name, values in profile.knobs.items():
        if name in _CHIP_KNOBS:
            codes = [encode_knob(name, value) for value in values] or [0]
            wrong = wrong + ~np.isin(getattr(table, name), codes)
    return wrong


def _of_knobs(knobs: Knobs) -> Rule:
    """The rule that a configuration has the chip's own knobs."""

    def needs(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
        return knobs_set_otherwise(table, profile), 0

    told = (
        f"{name} {' or '.join(map(str, values)) or 'None'}"
        for name, values in knobs
        if name in _CHIP_KNOBS
    )
    return Rule("knobs", "set otherwise", f"this chip takes {', '.join(told)}", needs)


def _of_memory(memory: Memory) -> Rule:
    """The rule that a block fits one named memory."""

    def needs(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Need:
        return memory_bytes(problem, table, memory), memory.capacity_bytes

    what = " and ".join(kind.replace("_", " ") for kind in memory.holds)
    return Rule(memory.name, "bytes", f"{what} of a {memory.per} in {memory.name}", needs)


@lru_cache
def _own_rules(memories: tuple[Memory, ...], knobs: Knobs) -> tuple[Rule, ...]:
    plain = [rule for rule in RULES if not (memories and rule.name == "shared_memory")]
    first = [_of_knobs(knobs)] if knobs else []
    return (*first, *plain, *(_of_memory(memory) for memory in memories))


def rules_of(profile: HardwareProfile) -> tuple[Rule, ...]:
    """The rules of a chip: those of every GPU, and one for its knobs and each memory it names."""
    if not profile.memories and not profile.knobs:
        return RULES
    return _own_rules(profile.memories, tuple(profile.knobs.items()))


def follows(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, rules: Iterable[Rule]
) -> NDArray[np.bool_]:
    """Mask of the rows that break none of some rules."""
    legal = np.ones(len(table), dtype=bool)
    for rule in rules:
        need, have = rule.needs(problem, table, profile)
        legal &= np.asarray(need) <= have
    return legal


def may_outgrow_grid(problem: Gemm, profile: HardwareProfile) -> bool:
    """Whether a grid of tiles of one element, or one of the batch, would be too large.

    Of the rules that follow the sizes no other can be broken by a candidate: K is only split
    where each part has two steps, into few programs a unit.
    """
    most = profile.max_programs or _GRID_X_LIMIT
    few = _FEW_PROGRAMS_PER_UNIT * profile.units
    return max(problem.m * problem.n, few) > most or problem.batch > _GRID_Y_LIMIT


def check_problem(problem: Gemm, profile: HardwareProfile) -> None:
    """Raise ``UnsupportedError`` if the chip cannot run this problem whatever the configuration."""
    wanted = problem.dtype
    if wanted == "fp32":
        wanted = f"fp32 as {precision_of(problem, profile)}"
        if profile.backend == "hip" and problem.precision == "tf32x3":
            raise UnsupportedError(f"{profile.name} cannot multiply {wanted}; use 'ieee'")
    if problem.accumulate == "fp16" and problem.dtype != "fp16":
        raise UnsupportedError(
            f"only fp16 is summed in fp16, not {problem.dtype}; leave accumulate out for fp32"
        )
    if profile.memory_bytes and problem.compulsory_bytes > profile.memory_bytes:
        raise UnsupportedError(
            f"{problem} takes {problem.compulsory_bytes / 1e9:.0f} GB, and {profile.name} has "
            f"{profile.memory_bytes / 1e9:.0f} GB"
        )
    if compute_dtype(problem, profile) is None:
        have = ", ".join(profile.peak_tflops)
        raise UnsupportedError(f"{profile.name} cannot run {wanted}; it has {have}")
