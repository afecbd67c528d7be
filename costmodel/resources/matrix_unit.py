"""Which matrix instruction a configuration compiles to."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.rules import Rules, rules_for
from costmodel.resources.warp_groups import is_specialized


class MatrixUnit(IntEnum):
    """Instruction kinds, from no matrix unit at all to the newest; OTHER is another vendor's."""

    NONE = 0
    MMA_SYNC = 1
    WGMMA = 2
    TCGEN05 = 3
    MFMA = 4
    OTHER = 5


def kernel_blocks(table: ConfigTable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Blocks along the kernel's own M and N: exchanged where operands are swapped."""
    swapped = table.swap != 0
    return (
        np.where(swapped, table.block_n, table.block_m),
        np.where(swapped, table.block_m, table.block_n),
    )


def contiguous_along_k(problem: Gemm, operand: str) -> bool:
    """Whether the stored rows of "a" or "b" run along K; a single row of A always does."""
    if operand == "b":
        return problem.layout[1] == "t"
    return problem.layout[0] == "n" or problem.m == 1


def off_k(problem: Gemm, table: ConfigTable) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether the kernel's first and second operand are not contiguous along K."""
    swapped = table.swap != 0
    a, b = (not contiguous_along_k(problem, operand) for operand in "ab")
    return np.where(swapped, b, a), np.where(swapped, a, b)


def precision_of(problem: Gemm, profile: HardwareProfile) -> str:
    """fp32's multiplication: what was asked, else tf32 where the chip has it, else ieee."""
    if problem.precision is not None:
        return problem.precision
    return "tf32" if "tf32" in profile.peak_tflops else "ieee"


#: 8-bit floats that Triton 3.6.0 converts to fp16 where the chip cannot multiply them: found by
#: compiling each for sm_80 to sm_120 and gfx90a to gfx950; all others fail to compile
_UPCAST: dict[str, tuple[str, ...]] = {
    "cuda": ("fp8_e5m2",),
    "hip": ("fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz"),
}


#: mfma of 8-bit types is at least 16x16x32 or 32x32x16 there (CDNA 3 and 4 ISA): a side of 16
#: needs K of 32, one of 32 K of 16
_WIDE_MFMA = ("gfx942", "gfx950")
_LEAST_MFMA_BYTES = 512


def compute_dtype(problem: Gemm, profile: HardwareProfile) -> str | None:
    """Type whose products the chip computes: the problem's own, or fp16 where it is converted.

    None where the chip has no way to multiply the type.
    """
    if profile.peak(problem.dtype, problem.precision if problem.dtype == "fp32" else None):
        return problem.dtype
    converted = problem.dtype in _UPCAST.get(profile.backend, ())
    return "fp16" if converted and "fp16" in profile.peak_tflops else None


def matrix_unit(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, rules: Rules | None = None
) -> NDArray[np.int64]:
    """``MatrixUnit`` of each configuration, under ``rules`` (None: the installed Triton's).

    Triton's NVIDIA and AMD matmul acceleration passes (3.6.0 to 3.9.0): wgmma takes 64 rows a
    warp group of 4 warps, and columns in steps of 16; fp32 in "ieee" has no matrix unit on NVIDIA.
    """
    block_m, block_n = kernel_blocks(table)
    ones = np.ones(len(table), dtype=np.int64)
    vector = table.is_template("matvec")
    if profile.backend == "hip":
        short = np.minimum(block_m, block_n) * table.block_k < _LEAST_MFMA_BYTES
        none = vector
        if problem.element_bytes == 1 and profile.target in _WIDE_MFMA:
            none = none | short
        return np.where(none, ones * MatrixUnit.NONE, MatrixUnit.MFMA)
    if profile.backend != "cuda":
        return ones * (MatrixUnit.OTHER if profile.mma else MatrixUnit.NONE)
    if problem.dtype == "fp32" and precision_of(problem, profile) == "ieee":
        return ones * MatrixUnit.NONE
    if not profile.mma:  # Triton's own fma path, as on sm_70 and sm_75 under 3.6.0
        return ones * MatrixUnit.NONE
    unit = ones * MatrixUnit.MMA_SYNC
    specialized = is_specialized(table)
    tall = (block_m % 64 == 0) & (block_n % 16 == 0) & (table.num_warps % 4 == 0)
    deep = table.block_k * problem.element_bytes * 8 >= 256
    if "wgmma" in profile.mma:
        unit = np.where((tall & deep) | specialized, int(MatrixUnit.WGMMA), unit)
    elif "tcgen05" in profile.mma:
        warps = np.isin(table.num_warps, (4, 8))
        rules = rules or rules_for(profile.backend).rules
        taken = problem.dtype != "int8" or rules.tcgen05_integers
        unit = np.where(tall & deep & warps & taken, int(MatrixUnit.TCGEN05), unit)
    return np.where(vector, int(MatrixUnit.NONE), unit)
