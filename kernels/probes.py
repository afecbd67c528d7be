"""Kernels that read a chip's own figures: copy and L2 bandwidth, load latency, units at work."""

import triton
import triton.language as tl
from triton.language.extra import cuda

#: 32-bit words of one program's load: 16 bytes a thread and load, eight loads in flight
COPY_BLOCK = 8192
#: more than any chip has; a unit's number is below it
MOST_UNITS = 4096


@triton.jit
def copy_kernel(from_ptr, to_ptr, words, BLOCK: tl.constexpr):
    """Copy ``words`` int32 words, [words] to [words]."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < words
    tl.store(to_ptr + offsets, tl.load(from_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def read_again_kernel(buffer_ptr, sink_ptr, blocks, laps, BLOCK: tl.constexpr):
    """Read ``laps`` blocks of ``BLOCK`` int32 words a program, from a buffer of so many blocks.

    The programs of one lap read neighbouring blocks, and each comes back to a block only after
    the whole buffer: past L1, which ``.cg`` leaves out, every load is served by L2 where the
    buffer fits into it. The sum is stored only if it has an impossible value.
    """
    place = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.int32)
    for _ in range(laps):
        offsets = (place % blocks) * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(buffer_ptr + offsets, cache_modifier=".cg")
        place += tl.num_programs(0)
    found = tl.sum(total, axis=0)
    if found == 0x7FFFFFFF:
        tl.store(sink_ptr, found)


@triton.jit
def chase_kernel(next_ptr, end_ptr, steps):
    """Follow ``steps`` links from word 0, each of which holds the next one's place; one program.

    A load waits for the one before it, so a step takes a load's latency. ``.cg`` leaves L1 out.
    """
    place = 0
    for _ in range(steps):
        place = tl.load(next_ptr + place, cache_modifier=".cg")
    tl.store(end_ptr, place)


@triton.jit
def units_at_work_kernel(seen_ptr, nanoseconds):
    """Put 1 at the number of the multiprocessor that each program runs on, in [MOST_UNITS] int32.

    Each program stays so long, so that the first ones are still there when the last start.
    """
    now = cuda.globaltimer()
    until = now + nanoseconds
    while now < until:
        now = cuda.globaltimer()
    tl.store(seen_ptr + cuda.smid(), 1)
