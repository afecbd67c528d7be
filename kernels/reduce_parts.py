"""The second kernel of a product whose K was split: adds the parts and stores C."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from costmodel.kernels.common import activated, with_bias


@triton.jit(
    do_not_specialize=(
        "split", "part_units", "ld_units", "m", "n", "ldc_units", "alpha", "beta",
    )
)  # fmt: skip
def reduce_parts_kernel(
    parts_ptr, c_ptr, added_ptr, bias_ptr, split, part_units, ld_units, m, n, ldc_units,
    alpha, beta,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, ALIGN_C: tl.constexpr,
    C_TRANSPOSED: tl.constexpr, SCALED: tl.constexpr, HAS_BETA: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Grid (blocks of rows, blocks of columns). Parts are [split, rows, ld], padded to tiles.

    PARTS parts are loaded at once: one after another, their latencies would add up.
    """
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    parts = tl.arange(0, PARTS)
    ld = ld_units.to(tl.int64) * 8
    part_size = part_units.to(tl.int64) * 64
    ldc = ldc_units.to(tl.int64) * ALIGN_C
    within = (rows.to(tl.int64) * ld)[:, None] + cols[None, :]
    pointers = parts_ptr + (parts.to(tl.int64) * part_size)[:, None, None] + within[None, :, :]
    if C_TRANSPOSED:
        offsets = rows.to(tl.int64)[:, None] + (cols.to(tl.int64) * ldc)[None, :]
    else:
        offsets = (rows.to(tl.int64) * ldc)[:, None] + cols.to(tl.int64)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # launched while the product still runs: its parts are complete from here on
    gdc_wait()
    for first in range(0, split, PARTS):
        # rows are padded to whole blocks, columns may not be
        held = (parts < split - first)[:, None, None] & (cols < ld)[None, None, :]
        total += tl.sum(tl.load(pointers, mask=held, other=0.0, cache_modifier=".cg"), axis=0)
        pointers += PARTS * part_size
    inside = (rows < m)[:, None] & (cols < n)[None, :]
    if SCALED:
        total = total * alpha
    if HAS_BIAS:
        total = with_bias(total, bias_ptr, rows, cols, m, n, C_TRANSPOSED)
    total = activated(total, ACTIVATION)
    if HAS_BETA:
        total += beta * tl.load(added_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    tl.store(c_ptr + offsets, total.to(c_ptr.dtype.element_ty), mask=inside)
