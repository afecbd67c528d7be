"""Copies operands whose rows the copy engine cannot step along into rows that it can."""

import triton
import triton.language as tl


@triton.jit
def _copy_block(source_ptr, packed_ptr, block, rows, cols, ld, packed_ld,
                ROWS: tl.constexpr, COLS: tl.constexpr):  # fmt: skip
    across = tl.cdiv(cols, COLS)
    row = (block // across) * ROWS + tl.arange(0, ROWS)
    col = (block % across) * COLS + tl.arange(0, COLS)
    inside = (row < rows)[:, None] & (col < cols)[None, :]
    values = tl.load(source_ptr + row.to(tl.int64)[:, None] * ld + col[None, :], mask=inside)
    to = packed_ptr + row.to(tl.int64)[:, None] * (packed_ld * 64) + col[None, :]
    tl.store(to, values, mask=inside)


@triton.jit(
    do_not_specialize=(
        "a_blocks", "a_rows", "a_cols", "lda", "a_units", "b_rows", "b_cols", "ldb", "b_units",
    )
)  # fmt: skip
def pack_kernel(
    a_ptr, b_ptr, packed_a_ptr, packed_b_ptr,
    a_blocks, a_rows, a_cols, lda, a_units, b_rows, b_cols, ldb, b_units,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Grid (blocks of A and of B): both operands in one launch; no blocks where one is aligned."""
    block = tl.program_id(0)
    if block < a_blocks:
        _copy_block(a_ptr, packed_a_ptr, block, a_rows, a_cols, lda.to(tl.int64), a_units,
                    ROWS, COLS)  # fmt: skip
    else:
        _copy_block(b_ptr, packed_b_ptr, block - a_blocks, b_rows, b_cols, ldb.to(tl.int64),
                    b_units, ROWS, COLS)  # fmt: skip
