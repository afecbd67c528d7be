"""Template "persistent_tma": one program a multiprocessor, tiles fetched by the copy engine."""

import triton
import triton.language as tl

from costmodel.kernels.common import activated, block_inside, tile_coordinates, with_bias


@triton.jit
def _load(descriptor, entry, row, k, TRANSPOSED: tl.constexpr, BATCHED: tl.constexpr,
          ROWS: tl.constexpr, COLS: tl.constexpr):  # fmt: skip
    """A [ROWS, COLS] tile of what is stored; TRANSPOSED: k runs along the stored rows."""
    if TRANSPOSED:
        first = k
        second = row
    else:
        first = row
        second = k
    if BATCHED:
        return descriptor.load([entry, first, second]).reshape(ROWS, COLS)
    else:
        return descriptor.load([first, second])


@triton.jit
def _store(descriptor, entry, row, col, tile, C_TRANSPOSED: tl.constexpr, BATCHED: tl.constexpr,
           ROWS: tl.constexpr, COLS: tl.constexpr):  # fmt: skip
    if C_TRANSPOSED:
        tile = tile.T
        first = col
        second = row
    else:
        first = row
        second = col
    if BATCHED:
        if C_TRANSPOSED:
            descriptor.store([entry, first, second], tile.reshape(1, COLS, ROWS))
        else:
            descriptor.store([entry, first, second], tile.reshape(1, ROWS, COLS))
    else:
        descriptor.store([first, second], tile)


@triton.jit
def _finish(accumulator, c_desc, added_desc, bias_ptr, entry, row, col, m, n, alpha, beta,
            C_TRANSPOSED: tl.constexpr, BATCHED: tl.constexpr, SCALED: tl.constexpr,
            HAS_BETA: tl.constexpr, HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
            ROWS: tl.constexpr, COLS: tl.constexpr):  # fmt: skip
    """One part of the tile: scale, bias, activation, what is added, and the descriptor store."""
    result = accumulator
    if SCALED:
        result = result.to(tl.float32) * alpha
    if HAS_BIAS:
        rows = row + tl.arange(0, ROWS)
        cols = col + tl.arange(0, COLS)
        result = with_bias(result.to(tl.float32), bias_ptr, rows, cols, m, n, C_TRANSPOSED)
    if ACTIVATION != "":
        result = activated(result.to(tl.float32), ACTIVATION)
    if HAS_BETA:
        if C_TRANSPOSED:
            old = _load(added_desc, entry, row, col, True, BATCHED, COLS, ROWS).T
        else:
            old = _load(added_desc, entry, row, col, False, BATCHED, ROWS, COLS)
        result = result + beta * old.to(tl.float32)
    _store(c_desc, entry, row, col, result.to(c_desc.dtype), C_TRANSPOSED, BATCHED, ROWS, COLS)


@triton.jit(do_not_specialize=("alpha", "beta", "group_m", "m", "n", "k", "batch"))
def persistent_tma_kernel(
    a_desc, b_desc, c_desc, added_desc, bias_ptr, alpha, beta, group_m, m, n, k, batch,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, C_TRANSPOSED: tl.constexpr,
    BATCHED: tl.constexpr, EPILOGUE_PARTS: tl.constexpr, SCALED: tl.constexpr,
    HAS_BETA: tl.constexpr, HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    SHIFT: tl.constexpr, PRECISION: tl.constexpr, ACCUMULATOR: tl.constexpr,
):  # fmt: skip
    """Grid (programs,): program p takes tiles p, p + programs, ... of all batch entries.

    The copy engine fills what lies outside an operand with zeros and drops what lies outside C,
    so no size needs a mask; it needs rows of a multiple of 16 bytes. SHIFT: see ``block_inside``;
    what blocks share is stored twice, so it must not be read in between as what is added.
    """
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    tiles = tiles_m * tiles_n
    # flattening the two loops lets the next tile's loads start under this tile's epilogue
    for index in tl.range(tl.program_id(0), tiles * batch, tl.num_programs(0), flatten=True):
        entry = index // tiles
        pid_m, pid_n = tile_coordinates(index % tiles, tiles_m, tiles_n, group_m)
        row = block_inside(pid_m * BLOCK_M, m, BLOCK_M, SHIFT)
        col = block_inside(pid_n * BLOCK_N, n, BLOCK_N, SHIFT)
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACCUMULATOR)
        for step in range(tl.cdiv(k, BLOCK_K)):
            if A_TRANSPOSED:
                a = _load(a_desc, entry, row, step * BLOCK_K, True, BATCHED, BLOCK_K, BLOCK_M).T
            else:
                a = _load(a_desc, entry, row, step * BLOCK_K, False, BATCHED, BLOCK_M, BLOCK_K)
            if B_TRANSPOSED:
                b = _load(b_desc, entry, col, step * BLOCK_K, False, BATCHED, BLOCK_N, BLOCK_K).T
            else:
                b = _load(b_desc, entry, col, step * BLOCK_K, True, BATCHED, BLOCK_K, BLOCK_N)
            accumulator = tl.dot(
                a, b, accumulator, input_precision=PRECISION, out_dtype=ACCUMULATOR
            )
        if EPILOGUE_PARTS == 2:
            # half the staging buffer, and the first half leaves while the second is converted
            halves = tl.reshape(accumulator, (BLOCK_M, 2, BLOCK_N // 2))
            left, right = tl.split(tl.permute(halves, (0, 2, 1)))
            _finish(left, c_desc, added_desc, bias_ptr, entry, row, col, m, n, alpha, beta,
                    C_TRANSPOSED, BATCHED, SCALED, HAS_BETA, HAS_BIAS, ACTIVATION,
                    BLOCK_M, BLOCK_N // 2)  # fmt: skip
            _finish(right, c_desc, added_desc, bias_ptr, entry, row, col + BLOCK_N // 2, m, n,
                    alpha, beta, C_TRANSPOSED, BATCHED, SCALED, HAS_BETA, HAS_BIAS, ACTIVATION,
                    BLOCK_M, BLOCK_N // 2)  # fmt: skip
        else:
            _finish(accumulator, c_desc, added_desc, bias_ptr, entry, row, col, m, n, alpha, beta,
                    C_TRANSPOSED, BATCHED, SCALED, HAS_BETA, HAS_BIAS, ACTIVATION,
                    BLOCK_M, BLOCK_N)  # fmt: skip
