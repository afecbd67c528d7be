"""What every template shares: the order of tiles, aligned addresses and the scaled store."""

import triton
import triton.language as tl

#: scalars that change from call to call must not compile the kernel again
VARYING = (
    "alpha", "beta", "group_m", "split_k", "m_units", "n_units", "k_units",
    "lda_units", "ldb_units", "ldc_units", "a_batch_units", "b_batch_units", "c_batch_units",
)  # fmt: skip


@triton.jit
def tile_coordinates(pid, tiles_m, tiles_n, group_m):
    """Tile (row, column) of a linear tile number, in groups of ``group_m`` rows.

    Programs with neighbouring numbers then share columns of B and a few rows of A, so that their
    operands meet in L2.
    """
    group_size = group_m * tiles_n
    first_m = (pid // group_size) * group_m
    rows = tl.minimum(tiles_m - first_m, group_m)
    within = pid % group_size
    return first_m + within % rows, within // rows


@triton.jit
def operand_rows(start, size, BLOCK: tl.constexpr, UNIT: tl.constexpr):
    """BLOCK indices from ``start``, wrapped at ``size`` so that no load needs a mask there.

    Wrapping hides from the compiler that runs of UNIT stay together; the hint gives that back.
    ``size`` and ``start`` are multiples of UNIT, so no run straddles the wrap.
    """
    rows = (start + tl.arange(0, BLOCK)) % size
    return tl.max_contiguous(tl.multiple_of(rows, UNIT), UNIT)


@triton.jit
def block_inside(start, size, BLOCK: tl.constexpr, SHIFT: tl.constexpr):
    """``start``, or less, so that a block from there ends at ``size`` (rounded up to 8).

    A row that the copy engine must fill with zeros costs more than one that it reads. The rows
    that two blocks share then are computed twice, alike.
    """
    if SHIFT:
        return tl.minimum(start, tl.cdiv(tl.maximum(size - BLOCK, 0), 8) * 8)
    else:
        return start


@triton.jit
def operand_pointers(base, rows, ks, ld, TRANSPOSED: tl.constexpr, ROWS_FIRST: tl.constexpr):
    """Pointers to a tile of an operand, [rows, k] or [k, rows] as ROWS_FIRST says.

    TRANSPOSED: stored [K, rows], so that rows are contiguous. Offsets are 64 bits wide.
    """
    if TRANSPOSED:
        row_offsets = rows.to(tl.int64)
        k_offsets = ks.to(tl.int64) * ld
    else:
        row_offsets = rows.to(tl.int64) * ld
        k_offsets = ks.to(tl.int64)
    if ROWS_FIRST:
        return base + row_offsets[:, None] + k_offsets[None, :]
    else:
        return base + k_offsets[:, None] + row_offsets[None, :]


@triton.jit
def accumulate_tile(
    a_base, b_base, rows, cols, k_begin, k_end, lda, ldb,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr, ACCUMULATOR: tl.constexpr,
):  # fmt: skip
    """Sum A[rows, k_begin:k_end] B[k_begin:k_end, cols] through pointer loads."""
    ks = k_begin + tl.arange(0, BLOCK_K)
    a_pointers = operand_pointers(a_base, rows, ks, lda, A_TRANSPOSED, True)
    b_pointers = operand_pointers(b_base, cols, ks, ldb, not B_TRANSPOSED, False)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACCUMULATOR)
    for k in range(k_begin, k_end, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_pointers)
            b = tl.load(b_pointers)
        else:
            inside = tl.arange(0, BLOCK_K) < k_end - k
            a = tl.load(a_pointers, mask=inside[None, :], other=0.0)
            b = tl.load(b_pointers, mask=inside[:, None], other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision=PRECISION, out_dtype=ACCUMULATOR)
        if A_TRANSPOSED:
            a_pointers += BLOCK_K * lda
        else:
            a_pointers += BLOCK_K
        if B_TRANSPOSED:
            b_pointers += BLOCK_K
        else:
            b_pointers += BLOCK_K * ldb
    return accumulator


@triton.jit
def activated(values, ACTIVATION: tl.constexpr):
    """The named function of fp32 values; "" is none. gelu is the exact one, by erf."""
    if ACTIVATION == "relu":
        return tl.where(values < 0.0, 0.0, values)  # maximum would make 0 of NaN
    elif ACTIVATION == "gelu":
        return 0.5 * values * (1.0 + tl.erf(values * 0.7071067811865476))
    elif ACTIVATION == "silu":
        return values / (1.0 + tl.exp(-values))
    else:
        return values


@triton.jit
def with_bias(values, bias_ptr, rows, cols, m, n, C_TRANSPOSED: tl.constexpr):
    """A bias a column of C: along the kernel's rows where it computes C transposed."""
    if C_TRANSPOSED:
        return values + tl.load(bias_ptr + rows, mask=rows < m, other=0.0).to(tl.float32)[:, None]
    else:
        return values + tl.load(bias_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)[None, :]


@triton.jit
def store_tile(
    c_base, added_base, bias_ptr, accumulator, row_start, col_start, m, n, ldc, alpha, beta,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    C_TRANSPOSED: tl.constexpr, SCALED: tl.constexpr, HAS_BETA: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """C = activation(alpha * accumulator + bias) + beta * added, where the tile is inside C.

    ``added`` is C itself or a matrix that lies as C does.
    """
    rows = row_start + tl.arange(0, BLOCK_M)
    cols = col_start + tl.arange(0, BLOCK_N)
    if C_TRANSPOSED:
        offsets = rows.to(tl.int64)[:, None] + (cols.to(tl.int64) * ldc)[None, :]
    else:
        offsets = (rows.to(tl.int64) * ldc)[:, None] + cols.to(tl.int64)[None, :]
    inside = (rows < m)[:, None] & (cols < n)[None, :]
    result = accumulator
    if SCALED:
        result = result.to(tl.float32) * alpha
    if HAS_BIAS:
        result = with_bias(result.to(tl.float32), bias_ptr, rows, cols, m, n, C_TRANSPOSED)
    if ACTIVATION != "":
        result = activated(result.to(tl.float32), ACTIVATION)
    if HAS_BETA:
        added = tl.load(added_base + offsets, mask=inside, other=0.0).to(tl.float32)
        result = result + beta * added
    tl.store(c_base + offsets, result.to(c_base.dtype.element_ty), mask=inside)
