"""Scratch that a layout conversion takes, in bytes: Triton's swizzled conversion, bit by bit.

Threads pass a tile through shared memory in as many turns as they can: a position bit that
registers hold on both sides may wait for the next turn, unless one access carries it along
(``vector``) or the banks need it. What an access carries depends on the instruction: ld.shared
and st.shared move 16 bytes of a thread; ldmatrix (from sm_75) and stmatrix (from sm_90) move a
4-byte element of four lanes each, or, transposed, of 8 lanes for 16-bit types. Of the pairs that
suit both layouts the one with the fewest bank conflicts is taken, then the most turns.

The rules are those of lib/Tools/GenericSwizzling.cpp, found again by compiling conversions
between random layouts: equal on 4,500 of 4,500 for sm_80, 90 and 100 (Triton 3.6.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from costmodel.resources.shared.layouts import Bits, Layout, log2

_VECTOR_BITS = 128
_BANK_BITS = 32
#: 32 banks of 4 bytes: what all lanes reach at once
_SEGMENT_BITS = 1024
#: lanes that address a row of 8 matrices, or of 16-byte accesses, at once: 2^3
_PHASE_BITS = 3


@dataclass(frozen=True)
class Access:
    """Lane bits of one instruction: those that lie within 16 bytes, and those that address them."""

    within: tuple[int, ...]
    addressing: tuple[int, ...]

    @property
    def spare(self) -> int:
        """Register bits that the instruction's widest form takes besides."""
        return len(self.within) + len(self.addressing) - _PHASE_BITS


PLAIN = Access((), (0, 1, 2))
MATRIX = Access((0, 1), (2, 3, 4))
TRANSPOSED = Access((2, 3, 4), (0, 1))


def accesses(capability: int, bits: int) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
    """Instructions that write and that read elements of ``bits`` on an NVIDIA chip."""
    matrix = (MATRIX, TRANSPOSED) if bits == 16 else (MATRIX,)
    return (
        (PLAIN, *matrix) if capability >= 90 else (PLAIN,),
        (PLAIN, *matrix) if capability >= 75 else (PLAIN,),
    )


def needs_scratch(source: Layout, target: Layout) -> bool:
    """Whether lanes alone cannot do it: data crosses warps, or two bits change to registers."""
    crossing = set(source.registers) & set(target.lanes) - {0}
    return source.warps != target.warps or len(crossing) >= 2


def conversion_scratch(
    source: Layout, target: Layout, bits: int,
    writes: Sequence[Access] = (PLAIN,), reads: Sequence[Access] = (PLAIN,),
) -> int:  # fmt: skip
    """Bytes to turn a tile of elements of ``bits`` from one layout to the other."""
    if not needs_scratch(source, target):
        return 0
    options = []
    for write, read in product(writes, reads):
        vector = _common_vector(source, target, write, read, bits)
        tiles = [_addressed(write, source, vector), _addressed(read, target, vector)]
        if vector is None or None in tiles:
            continue
        segment = _segment(vector, tiles[0] or [], tiles[1] or [], bits, source.size)
        turns = _turns(segment, source, target) - min(write.spare, read.spare)
        conflicts = sum(2 ** _shared_rank(segment, tile or []) for tile in tiles)
        options.append((conflicts, -max(turns, 0)))
    turns = -min(options)[1] if options else _turns_of_narrow(source, target, bits)
    return ((1 << source.size) * bits // 8) >> turns


def _common_vector(
    source: Layout, target: Layout, write: Access, read: Access, bits: int
) -> list[int] | None:
    """Position bits within 16 bytes that both instructions move together; None if there are none.

    The side that takes more of them from registers is the wide one: the other's lanes must hold
    the wide one's next register bits, and the lanes of both must agree on the rest.
    """
    if len(write.within) <= len(read.within):
        wide, wide_lanes, narrow, narrow_lanes = source, write.within, target, read.within
    else:
        wide, wide_lanes, narrow, narrow_lanes = target, read.within, source, write.within
    all_bits = log2(_VECTOR_BITS // bits)
    least = all_bits - len(narrow_lanes)
    shared = [bit for bit in wide.registers if bit in narrow.registers][:least]
    from_lanes = [narrow.lanes[lane] for lane in narrow_lanes]
    of_wide = [wide.lanes[lane] for lane in wide_lanes]
    more = len(narrow_lanes) - len(wide_lanes)
    suits = (
        len(shared) == least
        and 0 not in from_lanes + of_wide
        and all(bit in wide.registers for bit in from_lanes[:more])
        and from_lanes[more:] == of_wide
    )
    return shared + from_lanes if suits else None


def _addressed(access: Access, layout: Layout, vector: list[int] | None) -> list[int] | None:
    """Position bits that one phase addresses; None where a transposed access lacks a register."""
    others = [bit for bit in layout.registers if bit not in (vector or ())]
    wanted = _PHASE_BITS - len(access.addressing)
    if len(others) < wanted:
        return None
    return others[:wanted] + [layout.lanes[lane] for lane in access.addressing]


def _segment(
    vector: Sequence[int], written: Sequence[int], read: Sequence[int], bits: int, size: int
) -> list[int]:
    """Position bits (or sums of two) that number the rows of banks, fewest conflicts first."""
    bank = min(log2(_SEGMENT_BITS // ((1 << len(vector)) * bits)), size - len(vector))
    wanted = size - bank - len(vector)
    sides = [(set(vector) | set(side)) - {0} for side in (written, read)]
    free = [1 << bit for bit in range(size) if not (sides[0] | sides[1]) & {1 << bit}]
    if len(free) >= wanted:
        return free[:wanted]
    few, many = sorted((sorted(sides[0] - sides[1]), sorted(sides[1] - sides[0])), key=len)
    conflicts = min(max(wanted - len(few) - len(free), 0), len(few))
    mixed = [a ^ b for a, b in zip(few[conflicts:], many[conflicts:], strict=False)]
    return (free + mixed + few[:conflicts] + many[:conflicts])[:wanted]


def _turns(segment: Sequence[int], source: Layout, target: Layout) -> int:
    """Halvings: rows of banks that wait for a later turn, in registers on both sides."""
    return sum(bit in source.registers and bit in target.registers for bit in segment)


def _rank(vectors: Sequence[int]) -> int:
    """Dimension of the span over GF(2)."""
    basis: list[int] = []
    for vector in vectors:
        for other in basis:
            vector = min(vector, vector ^ other)
        if vector:
            basis.append(vector)
    return len(basis)


def _shared_rank(one: Sequence[int], other: Sequence[int]) -> int:
    return _rank(one) + _rank(other) - _rank([*one, *other])


def _turns_of_narrow(source: Layout, target: Layout, bits: int) -> int:
    """Halvings where no pair of instructions moves 16 bytes on both sides."""
    vector = _widest_vector(source, target, bits)
    written, read = (_narrow_tile(layout, vector, bits) for layout in (source, target))
    return _turns(_segment(vector, written, read, bits, source.size), source, target)


def _widest_vector(source: Layout, target: Layout, bits: int) -> list[int]:
    """Shared register bits, filled to 4 bytes from one side, then what vectorises that side."""
    vector = [bit for bit in source.registers if bit in target.registers]
    vector = vector[: log2(_VECTOR_BITS // bits)]
    held, other = source, target
    if (1 << len(vector)) * bits < _BANK_BITS:
        a, b = (_filled(layout.registers, vector, bits) for layout in (source, target))
        starts = [layout.registers[: len(vector)] == tuple(vector) for layout in (source, target)]
        if starts[0] == starts[1]:
            gain_a = _vectorising(source.registers, a, target.lanes, bits)
            gain_b = _vectorising(target.registers, b, source.lanes, bits)
            starts = [gain_a >= gain_b, gain_a < gain_b]
        vector, held, other = (a, source, target) if starts[0] else (b, target, source)
    return vector + _vectorising(held.registers, vector, other.lanes, bits)


def _filled(registers: Bits, vector: list[int], bits: int) -> list[int]:
    others = [bit for bit in registers if bit not in vector]
    return vector + others[: log2(_BANK_BITS // bits) - len(vector)]


def _vectorising(registers: Bits, vector: list[int], lanes: Bits, bits: int) -> list[int]:
    """Further registers of one side that are lanes of the other: they cost no conflicts there."""
    most = log2(_VECTOR_BITS // max(bits, _BANK_BITS))
    return [bit for bit in registers if bit not in vector and bit in lanes][:most]


def _narrow_tile(layout: Layout, vector: list[int], bits: int) -> list[int]:
    """Lane bits of one phase: wider accesses take fewer lanes at once."""
    together = 0
    while (
        together < min(len(vector), len(layout.registers))
        and layout.registers[together] == vector[together]
    ):
        together += 1
    fewer = max(log2((1 << together) * bits // _BANK_BITS), 0)
    lanes = layout.lanes[: len(layout.lanes) - fewer]
    return [bit for bit in lanes if bit not in vector]
