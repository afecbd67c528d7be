"""The second kernel of a product whose K was split: adds the parts and stores C."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait


@triton.jit(do_not_specialize=("split", "part_size", "ld_units", "m", "n", "ldc_units", "alpha"))
def reduce_parts_kernel(
    parts_ptr, c_ptr, split, part_size, ld_units, m, n, ldc_units, alpha,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ALIGN_C: tl.constexpr,
    C_TRANSPOSED: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Grid (blocks of rows, blocks of columns). Parts are [split, rows, ld], padded to tiles."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    ld = ld_units.to(tl.int64) * 8
    ldc = ldc_units.to(tl.int64) * ALIGN_C
    pointers = parts_ptr + (rows.to(tl.int64) * ld)[:, None] + cols[None, :]
    step = part_size.to(tl.int64) * 64
    # the padding is there to be read; whole blocks beyond it are not
    held = (rows < m)[:, None] & (cols < n)[None, :]
    if C_TRANSPOSED:
        offsets = rows.to(tl.int64)[:, None] + (cols.to(tl.int64) * ldc)[None, :]
    else:
        offsets = (rows.to(tl.int64) * ldc)[:, None] + cols.to(tl.int64)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # launched while the product still runs: its parts are complete from here on
    gdc_wait()
    for _ in tl.range(split, loop_unroll_factor=4):
        total += tl.load(pointers, mask=(cols < ld)[None, :], other=0.0, cache_modifier=".cg")
        pointers += step
    if SCALED:
        total = total * alpha
    tl.store(c_ptr + offsets, total.to(c_ptr.dtype.element_ty), mask=held)
