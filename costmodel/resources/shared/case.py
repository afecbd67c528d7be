"""What the rules of shared memory ask about: configurations with their operands, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.matrix_unit import (
    MatrixUnit,
    compute_dtype,
    kernel_blocks,
    matrix_unit,
    off_k,
)
from costmodel.resources.rules import Rules

Column = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: what the launcher and the compiler take where a knob is None
_DEFAULT_LOAD_BITS = 128
_DEFAULT_STAGES = 3
_DEFAULT_WARPS = 4
#: PTX ISA, cp.async: cp-size is 4, 8 or 16 bytes
LEAST_ASYNC_BYTES = 4


class HasLoads(Protocol):
    """Configurations that say how wide they load."""

    @property
    def load_bits(self) -> NDArray[Any]: ...


def load_bytes(problem: Gemm, table: HasLoads, operand: str) -> Column:
    """Widest load of an operand, from its rows' alignment and the hints' promise, in bytes."""
    size = problem.element_bytes
    promised = np.where(table.load_bits > 0, table.load_bits, _DEFAULT_LOAD_BITS) / 8
    promised = np.maximum(promised, size)  # the launcher promises an element at least
    return np.asarray(np.minimum(problem.row_align(operand) * size, promised), dtype=np.int64)


def pipeline_depth(unit: Column, stages: Column) -> Column:
    """Buffers of a pipelined operand.

    wgmma (sm_90) and tcgen05 (sm_100) read operands from shared memory until they complete, so
    the ring keeps every stage. mma.sync and mfma copy a stage to registers first and free it
    (sm_80, 86, 89, 120; gfx90a, 942, 950; also sm_90 and 100 where a tile falls back to it).
    """
    in_place = (unit == MatrixUnit.WGMMA) | (unit == MatrixUnit.TCGEN05)
    return np.asarray(np.where(in_place, stages, np.maximum(stages - 1, 1)), dtype=np.int64)


@dataclass(frozen=True)
class Operand:
    """The kernel's first or second operand (B' and A' where swapped).

    ``outer`` is its block beside K, ``off`` whether its rows do not run along K, ``loads`` the
    widest load in bytes, ``tile`` its tile in bytes, ``share`` a thread's bytes of the tile.
    """

    outer: Column
    off: Mask
    loads: Column
    tile: Column
    share: NDArray[np.float64]

    @property
    def narrow(self) -> Mask:
        """Loads below what a copy to shared memory moves: by alignment or a thread's share."""
        return (self.loads < LEAST_ASYNC_BYTES) | (self.share < LEAST_ASYNC_BYTES)

    def row_a_thread(self, size: int) -> Mask:
        """Whether one load is a thread's whole share and a whole row across K."""
        row = (self.outer * size == self.loads) & (self.share == self.loads)
        return np.asarray(self.off & row, dtype=bool)


@dataclass(frozen=True)
class Case:
    """Configurations of a problem on a chip, under a Triton version's rules.

    ``tma`` is whether operands come by descriptor; ``rows`` and ``columns`` are the kernel's own
    blocks; ``warps`` and ``stages`` have the compiler's defaults put in.
    """

    problem: Gemm
    table: ConfigTable
    profile: HardwareProfile
    rules: Rules
    unit: Column
    stages: Column
    warps: Column
    tma: Mask
    rows: Column
    columns: Column
    operands: tuple[Operand, Operand]

    @classmethod
    def of(cls, problem: Gemm, table: ConfigTable, profile: HardwareProfile, rules: Rules) -> Case:
        stages = np.where(table.num_stages > 0, table.num_stages, _DEFAULT_STAGES)
        warps = np.where(table.num_warps > 0, table.num_warps, _DEFAULT_WARPS)
        tma = table.is_template("persistent_tma") & ("tma" in profile.async_copy)
        rows, columns = kernel_blocks(table)
        swapped = table.swap != 0
        a, b = (load_bytes(problem, table, one) for one in "ab")
        loads = np.where(swapped, b, a), np.where(swapped, a, b)
        operands = []
        size, threads = problem.element_bytes, warps * profile.warp_size
        for outer, off, width in zip((rows, columns), off_k(problem, table), loads, strict=True):
            tile = outer * table.block_k * size
            share = np.maximum(tile / threads, size)
            operands.append(Operand(outer, off, width, tile, share))
        unit = matrix_unit(problem, table, profile, rules)
        first, second = operands
        return cls(
            problem, table, profile, rules, unit, stages, warps, tma, rows, columns,
            (first, second),
        )  # fmt: skip

    @property
    def size(self) -> int:
        """Bytes of an element of A or B."""
        return self.problem.element_bytes

    @property
    def parts(self) -> Column:
        """Stores that a tile leaves in."""
        return self.table.epilogue_parts

    @property
    def piped(self) -> Mask:
        """Whether anything is in flight."""
        return self.stages > 1

    def on(self, unit: MatrixUnit) -> Mask:
        return np.asarray(self.unit == unit, dtype=bool)

    @property
    def in_place(self) -> Mask:
        """Whether the matrix unit reads operands in shared memory: wgmma and tcgen05."""
        return self.on(MatrixUnit.WGMMA) | self.on(MatrixUnit.TCGEN05)

    @property
    def thirds(self) -> bool:
        """Whether fp32 is multiplied as three tf32 products, of parts made in registers."""
        return self.size == 4 and self.problem.precision == "tf32x3"

    @property
    def depth(self) -> Column:
        """Buffers of a pipelined operand."""
        if self.thirds:
            return np.maximum(self.stages - 1, 1)
        return pipeline_depth(self.unit, self.stages)

    @property
    def converted(self) -> Mask:
        """Whether mma.sync's 8-bit floats pass through registers to become fp16.

        So they do on sm_90 and sm_100, and where the chip cannot multiply them.
        """
        newer = bool({"wgmma", "tcgen05"} & set(self.profile.mma))
        fp8 = self.problem.dtype.startswith("fp8")
        fp8 = fp8 and (newer or compute_dtype(self.problem, self.profile) != self.problem.dtype)
        return np.asarray(self.on(MatrixUnit.MMA_SYNC) & fp8, dtype=bool)
