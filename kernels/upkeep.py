"""Kernels that measuring needs: one that evicts L2 and one that does nothing."""

import triton
import triton.language as tl

READ_BLOCK = 8192


@triton.jit
def read_through_kernel(buffer_ptr, sink_ptr, words, BLOCK: tl.constexpr):
    """Read ``words`` int32 words, so that L2 holds them, clean, and nothing older.

    The sum is stored only if it has an impossible value: the loads cannot be dropped, and no
    line becomes dirty. Dirty lines would be written back during the kernel measured next.
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(buffer_ptr + offsets, mask=offsets < words, other=0)
    total = tl.sum(values, axis=0)
    if total == 0x7FFFFFFF:
        tl.store(sink_ptr, total)


@triton.jit
def empty_kernel():
    """Nothing: what an event pair reads around it is the floor of the timing protocol."""
