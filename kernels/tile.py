"""Template "tile": pointer loads, one output tile a program."""

import triton
import triton.language as tl

from costmodel.kernels.common import (
    VARYING,
    accumulate_tile,
    operand_rows,
    store_tile,
    tile_coordinates,
)


@triton.jit(do_not_specialize=VARYING)
def tile_kernel(
    a_ptr, b_ptr, c_ptr, added_ptr, bias_ptr, alpha, beta, group_m,
    m_units, n_units, k_units, lda_units, ldb_units, ldc_units,
    a_batch_units, b_batch_units, c_batch_units,
    ALIGN_M: tl.constexpr, ALIGN_N: tl.constexpr, ALIGN_K: tl.constexpr,
    ALIGN_A: tl.constexpr, ALIGN_B: tl.constexpr, ALIGN_C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, C_TRANSPOSED: tl.constexpr,
    EVEN_K: tl.constexpr, SCALED: tl.constexpr, HAS_BETA: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr, ACCUMULATOR: tl.constexpr,
):  # fmt: skip
    """One [BLOCK_M, BLOCK_N] tile of C a program; grid (tiles, batch).

    Sizes and leading dimensions arrive in units of ALIGN_*: the product tells the compiler their
    divisibility, which decides the width of loads and stores, with no recompilation when M moves.
    """
    m = m_units * ALIGN_M
    n = n_units * ALIGN_N
    k = k_units * ALIGN_K
    lda = lda_units.to(tl.int64) * ALIGN_A
    ldb = ldb_units.to(tl.int64) * ALIGN_B
    ldc = ldc_units.to(tl.int64) * ALIGN_C
    entry = tl.program_id(1).to(tl.int64)
    a_ptr += entry * a_batch_units * ALIGN_A
    b_ptr += entry * b_batch_units * ALIGN_B
    c_ptr += entry * c_batch_units * ALIGN_C
    added_ptr += entry * c_batch_units * ALIGN_C

    pid_m, pid_n = tile_coordinates(
        tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), group_m
    )
    rows = operand_rows(pid_m * BLOCK_M, m, BLOCK_M, ALIGN_M if A_TRANSPOSED else 1)
    cols = operand_rows(pid_n * BLOCK_N, n, BLOCK_N, 1 if B_TRANSPOSED else ALIGN_N)
    accumulator = accumulate_tile(
        a_ptr, b_ptr, rows, cols, 0, k, lda, ldb, BLOCK_M, BLOCK_N, BLOCK_K,
        A_TRANSPOSED, B_TRANSPOSED, EVEN_K, PRECISION, ACCUMULATOR,
    )  # fmt: skip
    store_tile(
        c_ptr, added_ptr, bias_ptr, accumulator, pid_m * BLOCK_M, pid_n * BLOCK_N, m, n, ldc,
        alpha, beta, BLOCK_M, BLOCK_N, C_TRANSPOSED, SCALED, HAS_BETA, HAS_BIAS, ACTIVATION,
    )  # fmt: skip
