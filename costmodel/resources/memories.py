"""What a block takes of each on-chip memory of a chip that names its own, in bytes.

The memory that holds the operands binds BLOCK_K, the one that holds the sums binds the tile. What
the matrix unit reads at a time need not be the whole step: the compiler cuts it along K until it
fits, so such a memory is broken only where not even the least step does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.profile.memory import Memory

Column = NDArray[np.int64]

_SUM_BYTES = 4  # fp32, or int32 for int8
#: K of one matrix instruction in bytes: 16 elements of 16 bits, 32 of 8 bits (Ascend's cube,
#: Intel's dpas)
_LEAST_STEP_BYTES = 32


def memory_bytes(problem: Gemm, table: ConfigTable, memory: Memory) -> Column:
    """Bytes that a block (or each of its warps) needs at least of a memory."""
    m, n, k = table.block_m, table.block_n, table.block_k
    size = problem.element_bytes
    least = _LEAST_STEP_BYTES
    fused = problem.epilogue is not None or problem.beta != 0
    parts = {
        "operands": (m + n) * k * size * memory.buffers,
        "inner_a": m * least * memory.buffers,
        "inner_b": n * least * memory.buffers,
        "accumulator": m * n * _SUM_BYTES,
        "epilogue": m * n * _SUM_BYTES * memory.buffers * int(fused),
    }
    needed = sum(parts[kind] for kind in memory.holds)
    owners = memory.copies * (np.maximum(table.num_warps, 1) if memory.per == "warp" else 1)
    return np.asarray(-(-needed // owners), dtype=np.int64)


def inner_step(problem: Gemm, table: ConfigTable, memory: Memory) -> Column:
    """Elements of K that one of the matrix unit's own memories holds at a time, BLOCK_K at most.

    A multiple of the least step; 0 for a memory that holds anything else too.
    """
    if not set(memory.holds) <= {"inner_a", "inner_b"}:
        return np.zeros(len(table), dtype=np.int64)
    least = _least_step(problem)
    room = memory.capacity_bytes // memory_bytes(problem, table, memory) * least
    return np.asarray(np.clip(room, least, table.block_k), dtype=np.int64)


def _least_step(problem: Gemm) -> int:
    """K of one matrix instruction, in elements."""
    return _LEAST_STEP_BYTES // problem.element_bytes


@dataclass(frozen=True)
class MemoryUse:
    """What one configuration takes of one memory. ``inner_step`` is in elements of K, else 0.

    An inner memory takes as much of a step as it holds; it never binds the block.
    """

    name: str
    holds: tuple[str, ...]
    per: str
    buffers: int
    needed_bytes: int
    capacity_bytes: int
    inner_step: int
    binds: bool


def memory_uses(
    problem: Gemm, config: KernelConfig, profile: HardwareProfile
) -> tuple[MemoryUse, ...]:
    """Every named memory of a chip under one configuration; none on a GPU of one shared memory."""
    if not profile.memories:
        return ()
    table = ConfigTable.of(config)
    binding = int(binding_memory(problem, table, profile)[0])
    found = []
    for index, memory in enumerate(profile.memories):
        step = int(inner_step(problem, table, memory)[0])
        needed = int(memory_bytes(problem, table, memory)[0])
        if step:
            needed = needed // _least_step(problem) * step
        found.append(
            MemoryUse(
                memory.name, memory.holds, memory.per, memory.buffers, needed,
                memory.capacity_bytes, step, index == binding,
            )
        )  # fmt: skip
    return tuple(found)


def binding_memory(problem: Gemm, table: ConfigTable, profile: HardwareProfile) -> Column:
    """Index of the memory that is fullest, of those that bind the block: not inner ones."""
    shares = [
        memory_bytes(problem, table, memory) / memory.capacity_bytes for memory in profile.memories
    ]
    return np.asarray(np.stack(shares).argmax(axis=0), dtype=np.int64)
