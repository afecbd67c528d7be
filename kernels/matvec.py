"""Template "matvec": up to eight columns, no matrix unit; a program's loads are all in flight."""

import triton
import triton.language as tl

from costmodel.kernels.common import activated, operand_pointers, operand_rows


@triton.jit
def _column(x_ptr, col, ks, ldx, k, X_TRANSPOSED: tl.constexpr, EVEN_K: tl.constexpr):
    """K values of one column, in fp32."""
    if X_TRANSPOSED:
        pointers = x_ptr + ks.to(tl.int64) * ldx + col
    else:
        pointers = x_ptr + ks + col * ldx
    if EVEN_K:
        return tl.load(pointers).to(tl.float32)
    else:
        return tl.load(pointers, mask=ks < k, other=0.0).to(tl.float32)


@triton.jit
def _zeros(COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    sums = ()
    for _ in tl.static_range(COLUMNS):
        sums = sums + (tl.zeros((BLOCK_M, BLOCK_K), dtype=tl.float32),)  # type: ignore[assignment]
    return sums


@triton.jit
def _added(sums, a, x_ptr, n, ks, ldx, k, COLUMNS: tl.constexpr,
           X_TRANSPOSED: tl.constexpr, EVEN_K: tl.constexpr):  # fmt: skip
    """``sums`` with the products of ``a`` [BLOCK_M, BLOCK_K] and each column's K values."""
    new = ()
    for col in tl.static_range(COLUMNS):
        # a column that is not there repeats the last, and is not stored
        x = _column(x_ptr, tl.minimum(n - 1, col), ks, ldx, k, X_TRANSPOSED, EVEN_K)
        new = new + (sums[col] + a * x[None, :],)  # type: ignore[assignment]
    return new


@triton.jit
def _put(c_ptr, added_ptr, bias_ptr, sums, rows, col, m, n, ldc, alpha, beta,
         C_TRANSPOSED: tl.constexpr, SCALED: tl.constexpr, HAS_BETA: tl.constexpr,
         HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr):  # fmt: skip
    if C_TRANSPOSED:
        offsets = rows + col * ldc
    else:
        offsets = rows.to(tl.int64) * ldc + col
    inside = (rows < m) & (col < n)
    if SCALED:
        sums = sums * alpha
    if HAS_BIAS:
        if C_TRANSPOSED:
            sums += tl.load(bias_ptr + rows, mask=inside, other=0.0).to(tl.float32)
        else:
            sums += tl.load(bias_ptr + tl.minimum(n - 1, col)).to(tl.float32)
    sums = activated(sums, ACTIVATION)
    if HAS_BETA:
        sums += beta * tl.load(added_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    tl.store(c_ptr + offsets, sums.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit(
    do_not_specialize=(
        "alpha", "beta", "m_units", "n_units", "k_units", "lda_units", "ldb_units", "ldc_units",
        "a_batch_units", "b_batch_units", "c_batch_units",
    )
)  # fmt: skip
def matvec_kernel(
    a_ptr, b_ptr, c_ptr, added_ptr, bias_ptr, alpha, beta,
    m_units, n_units, k_units, lda_units, ldb_units, ldc_units,
    a_batch_units, b_batch_units, c_batch_units,
    ALIGN_M: tl.constexpr, ALIGN_N: tl.constexpr, ALIGN_K: tl.constexpr,
    ALIGN_A: tl.constexpr, ALIGN_B: tl.constexpr, ALIGN_C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, COLUMNS: tl.constexpr,
    A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, C_TRANSPOSED: tl.constexpr,
    EVEN_K: tl.constexpr, SCALED: tl.constexpr, HAS_BETA: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """BLOCK_M rows of C, up to COLUMNS columns; grid (blocks of rows, batch).

    Sums stay apart in registers, one a loaded element, until K ends: the only exchange between
    threads is at the end.
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
    rows = operand_rows(tl.program_id(0) * BLOCK_M, m, BLOCK_M, ALIGN_M if A_TRANSPOSED else 1)
    ks = tl.arange(0, BLOCK_K)
    sums = _zeros(COLUMNS, BLOCK_M, BLOCK_K)
    for start in range(0, k, BLOCK_K):
        at = start + ks
        pointers = operand_pointers(a_ptr, rows, at, lda, A_TRANSPOSED, True)
        if EVEN_K:
            a = tl.load(pointers).to(tl.float32)
        else:
            a = tl.load(pointers, mask=(at < k)[None, :], other=0.0).to(tl.float32)
        sums = _added(sums, a, b_ptr, n, at, ldb, k, COLUMNS, not B_TRANSPOSED, EVEN_K)
    out_rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    for col in tl.static_range(COLUMNS):
        _put(c_ptr, added_ptr, bias_ptr, tl.sum(sums[col], axis=1), out_rows, col, m, n, ldc,
             alpha, beta, C_TRANSPOSED, SCALED, HAS_BETA, HAS_BIAS, ACTIVATION)  # fmt: skip
