"""Which kernel, on what kind of problem, how large."""

from __future__ import annotations

import numpy as np

from costmodel.config import TEMPLATES
from costmodel.ranking.features.registry import (
    Column,
    Context,
    Feature,
    FixedContext,
    feature,
    fixed_feature,
    log2,
)


@fixed_feature
def a_is_transposed(c: FixedContext) -> Column:
    """1 where A is stored [K, M]."""
    return np.full(len(c.table), float(c.problem.layout[0] == "t"))


@fixed_feature
def b_is_transposed(c: FixedContext) -> Column:
    """1 where B is stored [N, K]."""
    return np.full(len(c.table), float(c.problem.layout[1] == "t"))


@fixed_feature
def element_bytes(c: FixedContext) -> Column:
    """Bytes of an operand's element."""
    return np.full(len(c.table), float(c.problem.element_bytes))


def _is_of(template: str) -> Feature:
    """1 where the kernel is of a template."""

    def is_of(c: FixedContext) -> Column:
        return c.table.is_template(template).astype(np.float64)

    is_of.__name__ = f"is_{template}"
    is_of.__doc__ = f"1 for template {template}."
    return fixed_feature(is_of)


for _template in TEMPLATES:
    _is_of(_template)


@feature
def rows_of_c(c: Context) -> Column:
    """log2 of M."""
    return np.broadcast_to(log2(c.problem.m), len(c.table))


@feature
def columns_of_c(c: Context) -> Column:
    """log2 of N."""
    return np.broadcast_to(log2(c.problem.n), len(c.table))


@feature
def depth_of_k(c: Context) -> Column:
    """log2 of K."""
    return np.broadcast_to(log2(c.problem.k), len(c.table))
