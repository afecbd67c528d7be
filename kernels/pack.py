"""Copies operands whose rows the copy engine cannot step along into rows that it can.

Elements are 16 bits wide and go in pairs, as 32-bit words: where a row starts in the middle of a
word, a pair is put together from two words that lie side by side.
"""

import triton
import triton.language as tl


@triton.jit
def _copy_block(source_ptr, packed_ptr, block, rows, cols, ld, packed_units,
                ROWS: tl.constexpr, WORDS: tl.constexpr):  # fmt: skip
    across = tl.cdiv(cols, 2 * WORDS)
    row = (block // across) * ROWS + tl.arange(0, ROWS)
    word = (block % across) * WORDS + tl.arange(0, WORDS)
    start = row.to(tl.int64) * ld
    source = source_ptr.to(tl.pointer_type(tl.uint32)) + (start // 2)[:, None] + word[None, :]
    inside = (row < rows)[:, None] & (2 * word < cols)[None, :]
    low = tl.load(source, mask=inside, other=0)
    odd = (start % 2 == 1)[:, None]
    high = tl.load(source + 1, mask=inside & odd & (2 * word + 1 < cols)[None, :], other=0)
    pair = tl.where(odd, (low >> 16) | (high << 16), low)
    to = packed_ptr.to(tl.pointer_type(tl.uint32))
    to += row.to(tl.int64)[:, None] * (packed_units * 32) + word[None, :]
    tl.store(to, pair, mask=inside)


@triton.jit(
    do_not_specialize=(
        "a_blocks", "a_rows", "a_cols", "lda", "a_units", "b_rows", "b_cols", "ldb", "b_units",
    )
)  # fmt: skip
def pack_kernel(
    a_ptr, b_ptr, packed_a_ptr, packed_b_ptr,
    a_blocks, a_rows, a_cols, lda, a_units, b_rows, b_cols, ldb, b_units,
    ROWS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Grid (blocks of A and of B): both operands in one launch; no blocks where one is aligned.

    Sources start at a multiple of 4 bytes; rows of copies are multiples of 64 elements, and what
    lies past a row's last pair is left as it was: no descriptor reaches it.
    """
    block = tl.program_id(0)
    if block < a_blocks:
        _copy_block(a_ptr, packed_a_ptr, block, a_rows, a_cols, lda.to(tl.int64), a_units,
                    ROWS, WORDS)  # fmt: skip
    else:
        _copy_block(b_ptr, packed_b_ptr, block - a_blocks, b_rows, b_cols, ldb.to(tl.int64),
                    b_units, ROWS, WORDS)  # fmt: skip
