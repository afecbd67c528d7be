"""Shared memory that the compiler will allocate for a configuration, in bytes.

The rules are Triton's, read off its own ``metadata.shared`` on thousands of random configurations
compiled for chips that are not there (``survey``), under 3.6.0 and 3.9.0; each says what it was
seen on. The figure is a maximum over lifetimes: the operands' ring while K runs, then what the
epilogue needs to turn the sums around, which reuses the ring's bytes. Only a descriptor store
stages its tile beside the ring, since the next tile's loads are in flight by then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.profile.memory import Memory
from costmodel.resources.memories import memory_bytes
from costmodel.resources.rules import rules_for
from costmodel.resources.shared.case import LEAST_ASYNC_BYTES as LEAST_ASYNC_BYTES
from costmodel.resources.shared.case import Case, Column
from costmodel.resources.shared.case import load_bytes as load_bytes
from costmodel.resources.shared.case import pipeline_depth as pipeline_depth
from costmodel.resources.shared.descriptors import (
    barriers,
    beside_ring,
    descriptor_total,
    stored_part,
)
from costmodel.resources.shared.epilogue import epilogue_scratch
from costmodel.resources.shared.own_buffers import with_own_buffers
from costmodel.resources.shared.ring import operand_ring

#: attributes of a footprint that are bytes
PARTS = (
    "shared_bytes", "operand_ring_bytes", "staging_bytes", "epilogue_bytes", "barrier_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class FootprintColumns:
    """Bytes of shared memory by part, one entry a configuration.

    ``shared_bytes`` is what the compiler allocates; ``operand_ring_bytes``, ``barrier_bytes`` and
    ``staging_bytes`` (a descriptor store's tile, and what lives in turns beside the ring) lie side
    by side, ``epilogue_bytes`` (a layout conversion's scratch) reuses them. ``rules_version`` is
    the Triton whose rules these are, and ``assumed`` says that the wanted one was not surveyed.
    """

    shared_bytes: Column
    operand_ring_bytes: Column
    staging_bytes: Column
    epilogue_bytes: Column
    barrier_bytes: Column
    rules_version: str
    assumed: bool


@dataclass(frozen=True)
class Footprint:
    """Bytes of shared memory by part, of one configuration. See ``FootprintColumns``."""

    shared_bytes: int
    operand_ring_bytes: int
    staging_bytes: int
    epilogue_bytes: int
    barrier_bytes: int
    rules_version: str
    assumed: bool


def footprint_columns(
    problem: Gemm, table: ConfigTable, profile: HardwareProfile, triton_version: str | None = None
) -> FootprintColumns:
    """What the compiler takes, whether or not the chip has it. Never raises.

    On a chip that names its own memories it is what the block's operands take of theirs.

    ``triton_version`` ("3.6.0") decides the rules; None is the installed Triton, or the newest
    surveyed where none is. An unknown version gets the newest rules, and ``assumed`` says so.
    """
    choice = rules_for(profile.backend, triton_version)
    if profile.block_memory is not None:
        return _of_own_memory(problem, table, profile.block_memory)
    case = Case.of(problem, table, profile, choice.rules)
    ring, signals = operand_ring(case), barriers(case)
    scratch = epilogue_scratch(case)
    total = np.maximum(ring + signals, scratch)
    staging = np.zeros(len(table), dtype=np.int64)
    if np.any(case.tma):
        store, beside = stored_part(case), beside_ring(case, scratch)
        total = np.where(case.tma, descriptor_total(case, ring, signals, store, beside), total)
        staging = np.where(case.tma, store + beside, staging)
    columns = (total, ring, staging, scratch, signals)
    columns = with_own_buffers(columns, problem, table, profile, case.stages)
    return FootprintColumns(*columns, choice.rules.version, choice.assumed)


def _of_own_memory(problem: Gemm, table: ConfigTable, memory: Memory) -> FootprintColumns:
    """A chip's own memory for operands: arithmetic, not surveyed from any compiler."""
    needed, zero = memory_bytes(problem, table, memory), np.zeros(len(table), dtype=np.int64)
    return FootprintColumns(needed, needed, zero, zero, zero, "none", assumed=True)


def footprint(
    problem: Gemm, config: KernelConfig, profile: HardwareProfile, triton_version: str | None = None
) -> Footprint:
    """``footprint_columns`` of one configuration."""
    columns = footprint_columns(problem, ConfigTable.of(config), profile, triton_version)
    parts = {name: int(getattr(columns, name)[0]) for name in PARTS}
    return Footprint(**parts, rules_version=columns.rules_version, assumed=columns.assumed)
