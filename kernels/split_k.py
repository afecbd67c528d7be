"""Template "split_k": several programs share a tile's K; the last to finish adds the parts up."""

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
def split_k_kernel(
    a_ptr, b_ptr, c_ptr, added_ptr, bias_ptr, parts_ptr, arrivals_ptr,
    alpha, beta, group_m, split_k,
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
    """Grid (tiles * split_k, batch). Each program writes its part [BLOCK_M, BLOCK_N] in 32 bits.

    The last program to arrive at a tile reads all parts in order, so the sum does not depend on
    who came last, and sets the tile's arrival count back to 0: the workspace serves the next
    launch with no memset between.
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

    tile = tl.program_id(0) // split_k
    part = tl.program_id(0) % split_k
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    pid_m, pid_n = tile_coordinates(tile, tiles_m, tiles_n, group_m)
    rows = operand_rows(pid_m * BLOCK_M, m, BLOCK_M, ALIGN_M if A_TRANSPOSED else 1)
    cols = operand_rows(pid_n * BLOCK_N, n, BLOCK_N, 1 if B_TRANSPOSED else ALIGN_N)
    share = tl.cdiv(tl.cdiv(k, BLOCK_K), split_k) * BLOCK_K
    k_begin = part * share
    accumulator = accumulate_tile(
        a_ptr, b_ptr, rows, cols, k_begin, tl.minimum(k_begin + share, k), lda, ldb,
        BLOCK_M, BLOCK_N, BLOCK_K,
        A_TRANSPOSED, B_TRANSPOSED, EVEN_K, PRECISION, ACCUMULATOR,
    )  # fmt: skip

    slot = entry * tiles_m * tiles_n + tile
    within = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    tile_parts = parts_ptr + slot * split_k * BLOCK_M * BLOCK_N + within
    tl.store(tile_parts + part * BLOCK_M * BLOCK_N, accumulator)
    # every thread's part must be written before this program is counted as arrived
    tl.debug_barrier()
    arrived = tl.atomic_add(arrivals_ptr + slot, 1, sem="acq_rel", scope="gpu")
    if arrived == split_k - 1:
        # parts are summed in 32 bits whatever each was summed in
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=parts_ptr.dtype.element_ty)
        for other in range(split_k):
            # .cg: parts come from other multiprocessors, never from this one's L1
            total += tl.load(tile_parts + other * BLOCK_M * BLOCK_N, cache_modifier=".cg")
        store_tile(
            c_ptr, added_ptr, bias_ptr, total, pid_m * BLOCK_M, pid_n * BLOCK_N, m, n, ldc,
            alpha, beta, BLOCK_M, BLOCK_N, C_TRANSPOSED, SCALED, HAS_BETA, HAS_BIAS, ACTIVATION,
        )  # fmt: skip
        tl.store(arrivals_ptr + slot, 0)
