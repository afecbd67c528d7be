"""Template "warp_specialized": one warp loads, one to three warp groups multiply (wgmma, sm_90).

The loading warp keeps the copy engine busy, so that nothing but barriers stands between a load
and its use. Each group takes 64 or 128 rows of the tile; the columns are up to three runs that
share the groups' rows: widths in steps of 8, where one run would have to be a power of two.
Where K is split, parts go to a workspace as they are, and ``reduce_parts`` adds them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# names that Triton 3.9 has changed
RENAMED = gl.constexpr(hasattr(tma, "async_load"))
async_load = tma.async_load if RENAMED.value else tma.async_copy_global_to_shared
async_store = tma.async_store if RENAMED.value else tma.async_copy_shared_to_global
barrier = gl.barrier if RENAMED.value else gl.thread_barrier


@gluon.jit
def _tile_origin(tile, tiles_rows, tiles_cols, group_rows):
    """Tile (row, column) of a linear number, in groups of ``group_rows`` rows of tiles."""
    group_size = group_rows * tiles_cols
    first = (tile // group_size) * group_rows
    rows = gl.minimum(tiles_rows - first, group_rows)
    within = tile % group_size
    return first + within % rows, within // rows


@gluon.jit
def _item(item, split, tiles_rows, tiles_cols, group_rows, steps, SPLIT: gl.constexpr):
    """What work item ``item`` is: (tile row, tile column, part, first step, last step)."""
    if SPLIT:
        part = item % split
        tile_row, tile_col = _tile_origin(item // split, tiles_rows, tiles_cols, group_rows)
        return tile_row, tile_col, part, steps * part // split, steps * (part + 1) // split
    else:
        tile_row, tile_col = _tile_origin(item, tiles_rows, tiles_cols, group_rows)
        return tile_row, tile_col, 0, 0, steps


@gluon.jit
def _inside(start, size, BLOCK: gl.constexpr, SHIFT: gl.constexpr):
    """``start``, or less, so that a block from there ends at ``size`` (rounded up to 8).

    A row that the copy engine must fill with zeros costs more than one that it reads. The rows
    that two blocks share then are computed twice, alike.
    """
    if SHIFT:
        return gl.minimum(start, gl.cdiv(gl.maximum(size - BLOCK, 0), 8) * 8)
    else:
        return start


@gluon.jit
def _fetch(descriptor, row, k, bar, buffer, wanted, K_MAJOR: gl.constexpr):
    if K_MAJOR:
        async_load(descriptor, [row, k], bar, buffer, pred=wanted)
    else:
        async_load(descriptor, [k, row], bar, buffer, pred=wanted)


@gluon.jit
def _fetch_step(operands, rings, sizes, slot, row, col, k_start, wanted, TILE: gl.constexpr):
    """Ask the copy engine for one step's operands; ``full`` counts their bytes."""
    a_desc, b0_desc, b1_desc, b2_desc = operands
    a_ring, b0_ring, b1_ring, b2_ring, full, empty = rings
    GROUPS: gl.constexpr = TILE[0]
    GROUP_ROWS: gl.constexpr = TILE[1]
    RUN0: gl.constexpr = TILE[2]
    RUN1: gl.constexpr = TILE[3]
    RUN2: gl.constexpr = TILE[4]
    BLOCK_K: gl.constexpr = TILE[5]
    A_K: gl.constexpr = TILE[7]
    B_K: gl.constexpr = TILE[8]
    SHIFT: gl.constexpr = TILE[9]
    m, n, k, ldc, alpha, beta, group_rows, split = sizes
    SIZE: gl.constexpr = a_desc.dtype.primitive_bitwidth // 8
    BYTES: gl.constexpr = (GROUPS * GROUP_ROWS + RUN0 + RUN1 + RUN2) * BLOCK_K * SIZE
    bar = full.index(slot)
    mbarrier.expect(bar, BYTES, pred=wanted)
    for group in gl.static_range(GROUPS):
        start = _inside(row + group * GROUP_ROWS, m, GROUP_ROWS, SHIFT)
        _fetch(a_desc, start, k_start, bar, a_ring.index(slot * GROUPS + group), wanted, A_K)
    _fetch(b0_desc, _inside(col, n, RUN0, SHIFT), k_start, bar, b0_ring.index(slot), wanted, B_K)
    if RUN1:
        start = _inside(col + RUN0, n, RUN1, SHIFT)
        _fetch(b1_desc, start, k_start, bar, b1_ring.index(slot), wanted, B_K)
    if RUN2:
        start = _inside(col + RUN0 + RUN1, n, RUN2, SHIFT)
        _fetch(b2_desc, start, k_start, bar, b2_ring.index(slot), wanted, B_K)


@gluon.jit
def _load(operands, rings, sizes, begun, TILE: gl.constexpr, SPLIT: gl.constexpr):
    """The loading warp: every step of every item of this program, as buffers become free."""
    a_ring, b0_ring, b1_ring, b2_ring, full, empty = rings
    m, n, k, ldc, alpha, beta, group_rows, split = sizes
    BLOCK_K: gl.constexpr = TILE[5]
    STAGES: gl.constexpr = TILE[6]
    ROWS: gl.constexpr = TILE[0] * TILE[1]
    COLS: gl.constexpr = TILE[2] + TILE[3] + TILE[4]
    steps = gl.cdiv(k, BLOCK_K)
    tiles_rows, tiles_cols = gl.cdiv(m, ROWS), gl.cdiv(n, COLS)
    filled = 0
    for item in range(gl.program_id(0), tiles_rows * tiles_cols * split, gl.num_programs(0)):
        tile_row, tile_col, part, first, last = _item(
            item, split, tiles_rows, tiles_cols, group_rows, steps, SPLIT
        )
        for step in range(first, last):
            # what the kernel's start has asked for already is only counted
            if filled >= begun:
                slot = filled % STAGES
                mbarrier.wait(empty.index(slot), (filled // STAGES + 1) & 1)
                _fetch_step(operands, rings, sizes, slot, tile_row * ROWS, tile_col * COLS,
                            step * BLOCK_K, True, TILE)  # fmt: skip
            filled += 1


@gluon.jit
def _store_part(sums, base, ld, ROWS: gl.constexpr, RUN: gl.constexpr, LAYOUT: gl.constexpr):
    """Sums of a part of K, as they are, to the workspace; it is padded to whole tiles."""
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT)).to(gl.int64)
    cols = gl.arange(0, RUN, gl.SliceLayout(0, LAYOUT))
    gl.store(base + rows[:, None] * gl.multiple_of(ld, 8) + cols[None, :], sums)


@gluon.jit
def _finished(sums, memory, sizes, row, col,
              STORE: gl.constexpr, LAYOUT: gl.constexpr):  # fmt: skip
    """activation(alpha * sums + bias) + beta * added, as ``common.store_tile`` has it."""
    parts_ptr, added_ptr, bias_ptr = memory
    m, n, k, ldc, alpha, beta, group_rows, split = sizes
    C_TRANSPOSED: gl.constexpr = STORE[0]
    SCALED: gl.constexpr = STORE[1]
    HAS_BETA: gl.constexpr = STORE[5]
    HAS_BIAS: gl.constexpr = STORE[6]
    ACTIVATION: gl.constexpr = STORE[7]
    rows = row + gl.arange(0, sums.shape[0], gl.SliceLayout(1, LAYOUT))
    cols = col + gl.arange(0, sums.shape[1], gl.SliceLayout(0, LAYOUT))
    if SCALED:
        sums = sums * alpha
    if HAS_BIAS:
        if C_TRANSPOSED:
            bias = gl.load(bias_ptr + rows, mask=rows < m, other=0.0).to(gl.float32)
            sums = sums + bias[:, None]
        else:
            bias = gl.load(bias_ptr + cols, mask=cols < n, other=0.0).to(gl.float32)
            sums = sums + bias[None, :]
    if ACTIVATION == "relu":
        sums = gl.where(sums < 0.0, 0.0, sums)  # maximum would make 0 of NaN
    elif ACTIVATION == "gelu":
        sums = 0.5 * sums * (1.0 + gl.erf(sums * 0.7071067811865476))
    elif ACTIVATION == "silu":
        sums = sums / (1.0 + gl.exp(-sums))
    if HAS_BETA:
        inside = (rows < m)[:, None] & (cols < n)[None, :]
        if C_TRANSPOSED:
            offsets = rows.to(gl.int64)[:, None] + (cols.to(gl.int64) * ldc)[None, :]
        else:
            offsets = (rows.to(gl.int64) * ldc)[:, None] + cols.to(gl.int64)[None, :]
        added = gl.load(added_ptr + offsets, mask=inside, other=0.0).to(gl.float32)
        sums = sums + beta * added
    return sums


@gluon.jit
def _store(sums, c_desc, stage, memory, sizes, row, col,
           STORE: gl.constexpr, LAYOUT: gl.constexpr, WAIT: gl.constexpr):  # fmt: skip
    """Finish and convert a run's sums and hand them to the copy engine."""
    C_TRANSPOSED: gl.constexpr = STORE[0]
    sums = _finished(sums, memory, sizes, row, col, STORE, LAYOUT)
    tile = sums.to(c_desc.dtype)
    if RENAMED:
        stage = stage.reinterpret(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    else:
        stage = stage._reinterpret(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    if WAIT:
        # the copy engine must have read what the buffer held
        tma.store_wait(0)
        barrier()
    if C_TRANSPOSED:
        stage.permute((1, 0)).store(tile)
        fence_async_shared()
        barrier()
        async_store(c_desc, [col, row], stage)
    else:
        stage.store(tile)
        fence_async_shared()
        barrier()
        async_store(c_desc, [row, col], stage)


@gluon.jit
def _multiply(
    rings, stores, memory, sizes, GROUP: gl.constexpr, TILE: gl.constexpr, STORE: gl.constexpr
):
    """One warp group: its rows of every tile of this program."""
    a_ring, b0_ring, b1_ring, b2_ring, full, empty = rings
    c0_desc, c1_desc, c2_desc, stage0, stage1, stage2 = stores
    parts_ptr, added_ptr, bias_ptr = memory
    m, n, k, ldc, alpha, beta, group_rows, split = sizes
    GROUPS: gl.constexpr = TILE[0]
    GROUP_ROWS: gl.constexpr = TILE[1]
    RUN0: gl.constexpr = TILE[2]
    RUN1: gl.constexpr = TILE[3]
    RUN2: gl.constexpr = TILE[4]
    BLOCK_K: gl.constexpr = TILE[5]
    STAGES: gl.constexpr = TILE[6]
    A_K: gl.constexpr = TILE[7]
    B_K: gl.constexpr = TILE[8]
    SHIFT: gl.constexpr = TILE[9]
    SPLIT: gl.constexpr = STORE[2]
    APART: gl.constexpr = STORE[3]
    DEPTH: gl.constexpr = 256 // STORE[4]
    ROWS: gl.constexpr = GROUPS * GROUP_ROWS
    COLS: gl.constexpr = RUN0 + RUN1 + RUN2
    RUNS: gl.constexpr = 1 + (1 if RUN1 else 0) + (1 if RUN2 else 0)
    # a run that is not there still needs a type for its unused sums
    WIDTH1: gl.constexpr = RUN1 or 8
    WIDTH2: gl.constexpr = RUN2 or 8
    LAYOUT0: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, RUN0, DEPTH])
    LAYOUT1: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH1, DEPTH])
    LAYOUT2: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH2, DEPTH])
    steps = gl.cdiv(k, BLOCK_K)
    tiles_rows, tiles_cols = gl.cdiv(m, ROWS), gl.cdiv(n, COLS)
    used = 0
    for item in range(gl.program_id(0), tiles_rows * tiles_cols * split, gl.num_programs(0)):
        tile_row, tile_col, part, first, last = _item(
            item, split, tiles_rows, tiles_cols, group_rows, steps, SPLIT
        )
        sum0 = gl.zeros((GROUP_ROWS, RUN0), gl.float32, LAYOUT0)
        sum1 = gl.zeros((GROUP_ROWS, WIDTH1), gl.float32, LAYOUT1)
        sum2 = gl.zeros((GROUP_ROWS, WIDTH2), gl.float32, LAYOUT2)
        for step in range(first, last):
            slot = used % STAGES
            mbarrier.wait(full.index(slot), (used // STAGES) & 1)
            a = a_ring.index(slot * GROUPS + GROUP)
            if not A_K:
                a = a.permute((1, 0))
            b0 = b0_ring.index(slot).permute((1, 0)) if B_K else b0_ring.index(slot)
            sum0 = warpgroup_mma(a, b0, sum0, is_async=True)
            if RUN1:
                b1 = b1_ring.index(slot).permute((1, 0)) if B_K else b1_ring.index(slot)
                sum1 = warpgroup_mma(a, b1, sum1, is_async=True)
            if RUN2:
                b2 = b2_ring.index(slot).permute((1, 0)) if B_K else b2_ring.index(slot)
                sum2 = warpgroup_mma(a, b2, sum2, is_async=True)
            # all but this step's products are done: the buffer of the step before is free
            if RUN2:
                sum0, sum1, sum2 = warpgroup_mma_wait(RUNS, (sum0, sum1, sum2))
            elif RUN1:
                sum0, sum1 = warpgroup_mma_wait(RUNS, (sum0, sum1))
            else:
                sum0 = warpgroup_mma_wait(RUNS, (sum0,))
            mbarrier.arrive(empty.index((used + STAGES - 1) % STAGES), pred=step > first)
            used += 1
        if RUN2:
            sum0, sum1, sum2 = warpgroup_mma_wait(0, (sum0, sum1, sum2))
        elif RUN1:
            sum0, sum1 = warpgroup_mma_wait(0, (sum0, sum1))
        else:
            sum0 = warpgroup_mma_wait(0, (sum0,))
        mbarrier.arrive(empty.index((used + STAGES - 1) % STAGES))

        row = _inside(tile_row * ROWS + GROUP * GROUP_ROWS, m, GROUP_ROWS, SHIFT)
        col0 = _inside(tile_col * COLS, n, RUN0, SHIFT)
        col1 = _inside(tile_col * COLS + RUN0, n, WIDTH1, SHIFT)
        col2 = _inside(tile_col * COLS + RUN0 + RUN1, n, WIDTH2, SHIFT)
        if SPLIT:
            ld = tiles_cols * COLS
            parts = parts_ptr + (part.to(gl.int64) * (tiles_rows * ROWS) + row) * ld
            _store_part(sum0, parts + col0, ld, GROUP_ROWS, RUN0, LAYOUT0)
            if RUN1:
                _store_part(sum1, parts + col1, ld, GROUP_ROWS, RUN1, LAYOUT1)
            if RUN2:
                _store_part(sum2, parts + col2, ld, GROUP_ROWS, RUN2, LAYOUT2)
        else:
            _store(sum0, c0_desc, stage0.index(GROUP), memory, sizes, row, col0,
                   STORE, LAYOUT0, True)  # fmt: skip
            if RUN1:
                _store(sum1, c1_desc, stage1.index(GROUP), memory, sizes, row, col1,
                       STORE, LAYOUT1, not APART)  # fmt: skip
            if RUN2:
                _store(sum2, c2_desc, stage2.index(GROUP), memory, sizes, row, col2,
                       STORE, LAYOUT2, not APART)  # fmt: skip
    if not SPLIT:
        tma.store_wait(0)


@gluon.jit(do_not_specialize=("m", "n", "k", "ldc", "alpha", "beta", "group_rows", "split"))
def warp_specialized_kernel(
    a_desc, b0_desc, b1_desc, b2_desc, c0_desc, c1_desc, c2_desc,
    parts_ptr, added_ptr, bias_ptr, m, n, k, ldc, alpha, beta, group_rows, split,
    GROUPS: gl.constexpr, GROUP_ROWS: gl.constexpr,
    RUN0: gl.constexpr, RUN1: gl.constexpr, RUN2: gl.constexpr,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, A_K: gl.constexpr, B_K: gl.constexpr,
    C_TRANSPOSED: gl.constexpr, SCALED: gl.constexpr, SPLIT: gl.constexpr,
    APART: gl.constexpr, HAS_BETA: gl.constexpr, HAS_BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr, SHIFT: gl.constexpr, WORKER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Grid (programs,): program p takes work items p, p + programs, ...: tiles, or their parts.

    A_K, B_K: the operand is contiguous along K. APART: each run has its own staging buffer;
    otherwise one, of the widest run's size, serves them in turn. SHIFT: the last blocks of rows
    and columns move inward, so that they reach past C by less than 8; what they share with their
    neighbours is stored twice, so it must not be read in between as what is added.
    """
    TILE: gl.constexpr = (GROUPS, GROUP_ROWS, RUN0, RUN1, RUN2, BLOCK_K, STAGES, A_K, B_K, SHIFT)
    BITS: gl.constexpr = a_desc.dtype.primitive_bitwidth
    STORE: gl.constexpr = (
        C_TRANSPOSED, SCALED, SPLIT, APART, BITS, HAS_BETA, HAS_BIAS, ACTIVATION,
    )  # fmt: skip
    a_ring = gl.allocate_shared_memory(
        a_desc.dtype, [STAGES * GROUPS] + a_desc.block_type.shape, a_desc.layout
    )
    b0_ring = gl.allocate_shared_memory(
        b0_desc.dtype, [STAGES] + b0_desc.block_type.shape, b0_desc.layout
    )
    b1_ring, b2_ring = b0_ring, b0_ring
    if RUN1:
        b1_ring = gl.allocate_shared_memory(
            b1_desc.dtype, [STAGES] + b1_desc.block_type.shape, b1_desc.layout
        )
    if RUN2:
        b2_ring = gl.allocate_shared_memory(
            b2_desc.dtype, [STAGES] + b2_desc.block_type.shape, b2_desc.layout
        )
    stage0, stage1, stage2 = a_ring, a_ring, a_ring
    if not SPLIT:
        # the first run is the widest
        stage0 = gl.allocate_shared_memory(
            c0_desc.dtype, [GROUPS] + c0_desc.block_type.shape, c0_desc.layout
        )
        stage1, stage2 = stage0, stage0
        if APART and RUN1:
            stage1 = gl.allocate_shared_memory(
                c1_desc.dtype, [GROUPS] + c1_desc.block_type.shape, c1_desc.layout
            )
        if APART and RUN2:
            stage2 = gl.allocate_shared_memory(
                c2_desc.dtype, [GROUPS] + c2_desc.block_type.shape, c2_desc.layout
            )
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=GROUPS)
    operands = (a_desc, b0_desc, b1_desc, b2_desc)
    rings = (a_ring, b0_ring, b1_ring, b2_ring, full, empty)
    stores = (c0_desc, c1_desc, c2_desc, stage0, stage1, stage2)
    memory = (parts_ptr, added_ptr, bias_ptr)
    sizes = (m, n, k, ldc, alpha, beta, group_rows, split)
    # the first steps are asked for before the warps part, which takes a third of a microsecond
    ROWS: gl.constexpr = GROUPS * GROUP_ROWS
    COLS: gl.constexpr = RUN0 + RUN1 + RUN2
    tile_row, tile_col, part, first, last = _item(
        gl.program_id(0), split, gl.cdiv(m, ROWS), gl.cdiv(n, COLS), group_rows,
        gl.cdiv(k, BLOCK_K), SPLIT,
    )  # fmt: skip
    for slot in gl.static_range(STAGES):
        _fetch_step(operands, rings, sizes, slot, tile_row * ROWS, tile_col * COLS,
                    (first + slot) * BLOCK_K, first + slot < last, TILE)  # fmt: skip
    begun = gl.minimum(last - first, STAGES)
    if GROUPS == 1:
        gl.warp_specialize(
            [
                (_multiply, (rings, stores, memory, sizes, 0, TILE, STORE)),
                (_load, (operands, rings, sizes, begun, TILE, SPLIT)),
            ],
            [1],
            [24],
        )
    elif GROUPS == 2:
        gl.warp_specialize(
            [
                (_multiply, (rings, stores, memory, sizes, 0, TILE, STORE)),
                (_multiply, (rings, stores, memory, sizes, 1, TILE, STORE)),
                (_load, (operands, rings, sizes, begun, TILE, SPLIT)),
            ],
            [4, 1],
            [WORKER_REGISTERS, 24],
        )
    else:
        gl.warp_specialize(
            [
                (_multiply, (rings, stores, memory, sizes, 0, TILE, STORE)),
                (_multiply, (rings, stores, memory, sizes, 1, TILE, STORE)),
                (_multiply, (rings, stores, memory, sizes, 2, TILE, STORE)),
                (_load, (operands, rings, sizes, begun, TILE, SPLIT)),
            ],
            [4, 4, 1],
            [WORKER_REGISTERS, WORKER_REGISTERS, 24],
        )
