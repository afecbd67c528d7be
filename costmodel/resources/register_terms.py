"""What a thread keeps in registers, by cause: the terms of the register formula.

Every term is a count of 32-bit registers that follows from the tile by arithmetic; how much of
each is live at the same time is the compiler's choice, and fitted (``fit_registers``). The loop
over K and the store of the tile come one after the other: the one that needs more decides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.matrix_unit import (
    MatrixUnit,
    compute_dtype,
    contiguous_along_k,
    kernel_blocks,
    matrix_unit,
)
from costmodel.resources.shared.case import load_bytes

Column = NDArray[np.float64]
Whole = NDArray[np.int64]

_REGISTER_BYTES = 4
#: an address is 64 bits wide
_POINTER_REGISTERS = 2
#: K bytes of one matrix instruction: m16n8k16 of 16 bits and m16n8k32 of 8 bits (PTX ISA) are 32
_STEP_BYTES = 32

#: past so many registers a lane, AMD's are accumulation registers (gfx90a and later)
_ARCHITECTURAL = 256

#: the terms of each phase, in the order of ``register_terms``
PHASES: dict[str, tuple[str, ...]] = {
    "loop": (
        "fixed", "held_sums", "fragments", "deep_fragments", "deeper_fragments", "along_k",
        "widened", "converted", "converted_fnuz", "turned", "pointers", "masks", "loads",
        "sums_apart", "moved_sums", "descriptors",
    ),
    "store": (
        "fixed", "sums", "stored", "staged", "split", "split_sums", "old_c", "old_integers",
        "sums_apart", "descriptors",
    ),
}  # fmt: skip


def register_terms(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile
) -> dict[str, Column]:
    """Registers a thread by cause, one entry a configuration.

    - ``fixed``: 1; ``split`` and ``descriptors``: 1 for the template that has them
    - ``sums``: the accumulator; ``held_sums``: 0 while tcgen05 keeps it in tensor memory
    - ``fragments``: both operands of the first two instruction steps, where the matrix unit does
      not read them from shared memory itself; ``deep_fragments``: of the next two steps,
      ``deeper_fragments``: of the next four
    - ``along_k``: fragments of operands contiguous along K, where no matrix unit takes them:
      vectors from shared memory then hold several steps
    - ``widened``: a whole step as fp32 of operands that are 16 bits wide, or become so, where no
      matrix unit takes them: ptxas loads and converts all of it before the first product
    - ``converted``: fragments of types that are widened to fp16 first; ``converted_fnuz``: a whole
      step's, where a chip without 8-bit floats tells their zero and NaN apart one by one
    - ``turned``: a step of the operands that the matrix unit takes along K alone and that lie the
      other way: they pass through registers
    - ``pointers``: one address a load of a step, none through descriptors; ``masks``: a predicate
      a load where K is not whole steps
    - ``loads``: a step's bytes on their way through registers to shared memory
    - ``sums_apart``: sums in AMD's accumulation registers; ``moved_sums``: those that a pipelined
      loop hands to its last step
    - ``stored``: the tile in C's type, where threads store it themselves; ``staged``: where they
      lay it out for a descriptor store
    - ``split_sums``: the parts' total, beside the accumulator
    - ``old_c``: what beta scales, in C's type; ``old_integers``: sums that become fp32 for it
    """
    block_m, block_n = kernel_blocks(table)
    warps = np.maximum(table.num_warps, 1)
    threads = warps * profile.warp_size
    unit = matrix_unit(problem, table, profile)
    descriptors = table.is_template("persistent_tma") & ("tma" in profile.async_copy)
    split = table.is_template("split_k")
    sums = block_m * block_n / threads
    rows, columns = _warp_sides(block_m, block_n, warps)
    steps = table.block_k * problem.element_bytes / _STEP_BYTES
    a = table.block_m * table.block_k * problem.element_bytes / threads
    b = table.block_n * table.block_k * problem.element_bytes / threads
    count = np.maximum(a / load_bytes(problem, table, "a"), 1.0)
    count = count + np.maximum(b / load_bytes(problem, table, "b"), 1.0)
    count = np.where(descriptors, 0.0, count)
    turns = _turns(unit, problem.element_bytes)
    turns_a, turns_b = (turns & (not contiguous_along_k(problem, operand)) for operand in "ab")
    side = _STEP_BYTES / profile.warp_size / _REGISTER_BYTES
    in_place = (unit == MatrixUnit.WGMMA) | (unit == MatrixUnit.TCGEN05)
    fragments = np.where(in_place, 0.0, (rows + columns) * side)
    a_side, b_side = np.where(table.swap != 0, (columns, rows), (rows, columns))
    along_k = a_side * contiguous_along_k(problem, "a") + b_side * contiguous_along_k(problem, "b")
    # NVIDIA's pipeline copies past the registers; AMD's loads a stage ahead of its products
    amd, pipelined = profile.backend == "hip", table.num_stages > 1
    through = pipelined if amd else ~pipelined & ~descriptors
    apart = amd & (register_limit(table, profile) > _ARCHITECTURAL)
    converted = float(compute_dtype(problem, profile) not in (problem.dtype, None))
    results = sums * (problem.out_bytes / _REGISTER_BYTES)
    old = float(problem.beta != 0)
    return {
        "fixed": np.ones(len(table)),
        "sums": sums,
        "held_sums": np.where(unit == MatrixUnit.TCGEN05, 0.0, sums),
        "fragments": fragments * np.minimum(steps, 2),
        "deep_fragments": fragments * np.clip(steps - 2, 0, 2),
        "deeper_fragments": fragments * np.clip(steps - 4, 0, 4),
        "along_k": np.where(unit == MatrixUnit.NONE, along_k * side, 0.0),
        "widened": _widened(problem, table, profile) * (unit == MatrixUnit.NONE),
        "converted": fragments * converted,
        "converted_fnuz": fragments * (converted * _without_help(problem, profile)) * steps,
        "turned": (a * turns_a + b * turns_b) / _REGISTER_BYTES,
        "pointers": _POINTER_REGISTERS * count,
        "masks": count * (problem.k % np.maximum(table.block_k, 1) != 0),
        "loads": np.where(through, (a + b) / _REGISTER_BYTES, 0.0),
        "sums_apart": np.where(apart, np.minimum(sums, _ARCHITECTURAL), 0.0),
        "moved_sums": np.where(apart & pipelined, np.minimum(sums, _ARCHITECTURAL), 0.0),
        "descriptors": descriptors.astype(float),
        "stored": np.where(descriptors, 0.0, results),
        "staged": np.where(descriptors, results, 0.0),
        "split": split.astype(float),
        "split_sums": np.where(split, sums, 0.0),
        "old_c": results * old,
        "old_integers": sums * (old * (problem.dtype == "int8")),
    }


def register_limit(table: ConfigTable, profile: HardwareProfile) -> Column:
    """Registers that the compiler lets a thread have: its own most, or its share of the file.

    The compiler knows how many threads a block has (NVIDIA's .reqntid, AMD's flat work group
    size) and leaves room for one block.
    """
    threads = np.maximum(table.num_warps, 1) * profile.warp_size
    most = profile.max_registers_per_thread or 255
    file = profile.registers_per_unit or 65536
    return np.asarray(np.minimum(most, file // threads), dtype=float)


def _without_help(problem: Gemm, profile: HardwareProfile) -> bool:
    """Whether 8-bit floats with one zero are widened by a chip that knows no 8-bit floats."""
    known = any(name.startswith("fp8") for name in profile.peak_tflops)
    return problem.dtype.endswith("fnuz") and not known


def _turns(unit: Whole, element_bytes: int) -> NDArray[np.bool_]:
    """Whether operands that are not contiguous along K are turned around in registers.

    wgmma takes such operands of 16 bits alone (PTX ISA), and so does ldmatrix.trans, which feeds
    mma.sync; tcgen05 all but 32 bits; mfma's lanes want neighbours along K packed to 32 bits.
    """
    wide = element_bytes == 4
    return np.asarray(
        ((unit == MatrixUnit.WGMMA) | (unit == MatrixUnit.MMA_SYNC)) & (element_bytes != 2)
        | (unit == MatrixUnit.TCGEN05) & wide
        | (unit == MatrixUnit.MFMA) & (not wide)
    )


def _widened(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Column:
    """Elements of both operands that a thread's own multiply-adds take in one step, where these
    are widened to fp32: 0 for operands that are fp32 or integers already.

    Triton's layout of a dot without a matrix unit (convert-triton-to-tritongpu): 4x4 of a tile a
    thread, 2x2 or 1 of a small one; lanes, then warps, are dealt along N before M.
    """
    if compute_dtype(problem, profile) not in ("fp16", "bf16"):
        return np.zeros(len(table))
    block_m, block_n = kernel_blocks(table)
    warps = np.maximum(table.num_warps, 1)
    of_a_thread = block_m * block_n / (warps * profile.warp_size)
    size = np.select([of_a_thread >= 16, of_a_thread >= 4], [4, 2], 1)
    lanes = np.clip(block_n // size, 1, profile.warp_size)
    along = np.clip(block_n // (size * lanes), 1, warps)
    down = (profile.warp_size // lanes) * (warps // along)
    rows = np.maximum(block_m / (size * down), 1.0) * size
    columns = np.maximum(block_n / (size * lanes * along), 1.0) * size
    return np.asarray((rows + columns) * table.block_k)


def _warp_sides(block_m: Whole, block_n: Whole, warps: Whole) -> tuple[Column, Column]:
    """Rows and columns of one warp's part of a tile.

    Warps that share rows hold copies of them. They are dealt by halving the side that has more
    instructions left, of 16 rows by 8 columns, and rows where both have as many (as Triton deals
    them for mma.sync): the longer side until they are even, then in turns.
    """
    halvings = np.log2(warps)
    longer = np.log2(block_m / 16.0) - np.log2(block_n / 8.0)
    rows_first = longer >= 0
    alone = np.minimum(halvings, np.where(rows_first, longer + 1, -longer))
    turns = (halvings - alone) / 2
    of_rows = np.where(rows_first, alone + np.floor(turns), np.ceil(turns))
    rows = np.maximum(block_m / 2.0**of_rows, 16.0)
    return rows, np.maximum(block_n / 2.0 ** (halvings - of_rows), 8.0)
