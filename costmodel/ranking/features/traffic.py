"""Bytes that move, and how wide each access is."""

from __future__ import annotations

from typing import Any

import numpy as np

from costmodel.physics.sizes import one_of
from costmodel.ranking.features.registry import (
    Column,
    Context,
    feature,
    log2,
)
from costmodel.resources.footprint import load_bytes


@feature
def dram_over_compulsory(c: Context) -> Column:
    """log2 of DRAM traffic over the compulsory."""
    moved = c.physics.traffic.dram_bytes + c.physics.traffic.store_bytes
    return log2(moved / c.problem.compulsory_bytes)


@feature
def l2_over_compulsory(c: Context) -> Column:
    """log2 of the units' loads over the compulsory traffic."""
    return log2(c.physics.traffic.l2_bytes / c.problem.compulsory_bytes)


@feature
def parts_over_compulsory(c: Context) -> Column:
    """log2 of split-K's partial sums over the compulsory traffic."""
    return log2(c.physics.traffic.part_bytes / c.problem.compulsory_bytes + 2.0**-8)


@feature
def operands_over_l2(c: Context) -> Column:
    """log2 of both operands over L2's capacity."""
    size = (c.problem.m + c.problem.n) * c.problem.k * c.problem.batch * c.problem.element_bytes
    return np.full(len(c.table), log2(size / (c.profile.l2_bytes or 4 * 2**20)))


# warp groups are kept for every alignment, so what follows it is not fixed


@feature
def narrowest_load(c: Context) -> Column:
    """Bytes of the narrower operand's loads, as log2."""
    a, b = (load_bytes(one_of(c.problem), c.table, operand) for operand in "ab")
    return log2(np.minimum(a, b))


@feature
def store_width(c: Context) -> Column:
    """Bytes of a store that C's rows allow, as log2."""
    width = min(c.problem.row_align("c") * c.problem.out_bytes, 16)
    return np.full(len(c.table), log2(float(width)))


@feature
def load_of_a(c: Context) -> Column:
    """Bytes of A's loads, as log2."""
    return np.broadcast_to(log2(load_bytes(one_of(c.problem), c.table, "a")), len(c.table))


@feature
def load_of_b(c: Context) -> Column:
    """Bytes of B's loads, as log2."""
    return np.broadcast_to(log2(load_bytes(one_of(c.problem), c.table, "b")), len(c.table))


@feature
def whole_lines(c: Context) -> Column:
    """1 where K's bytes are whole lines of 128."""
    whole = np.equal(c.problem.k * c.problem.element_bytes % 128, 0)
    return np.broadcast_to(whole.astype(np.float64), len(c.table))


def _divisor(c: Context, size: Any) -> Column:
    """log2 of the largest power of two, up to 128, that divides a size."""
    whole = np.asarray(size).astype(np.int64)
    return np.broadcast_to(log2(np.minimum(whole & -whole, 128)), len(c.table))


@feature
def divisor_of_m(c: Context) -> Column:
    """log2 of the largest power of two, up to 128, that divides M."""
    return _divisor(c, c.problem.m)


@feature
def divisor_of_n(c: Context) -> Column:
    """log2 of the largest power of two, up to 128, that divides N."""
    return _divisor(c, c.problem.n)


@feature
def divisor_of_k(c: Context) -> Column:
    """log2 of the largest power of two, up to 128, that divides K."""
    return _divisor(c, c.problem.k)
