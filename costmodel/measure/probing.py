"""Probes of a chip's memories: bandwidth of copies and of L2, latency of one load.

All by the stopwatch's protocol, so every probe starts with an L2 that holds nothing of it. What
its launch and a cold start take is left out by the difference of two lengths.
"""

from __future__ import annotations

from typing import Any

from costmodel.errors import DeviceError

_WORD = 4
_BYTES_PER_US = 1e3  # in a GB/s
#: a copied buffer in sizes of L2, of which up to one stays dirty there when the copy ends, and the
#: share of the free memory that one of the two may take
_COPY_FACTOR, _COPY_SHARE = 32, 8
#: a buffer that L2 holds on either side of a chip whose halves each keep a copy
_L2_SHARE = 4
_L2_ASSUMED = 4 << 20
#: programs a unit that read from L2: 256 threads each, with eight loads of 16 bytes in flight
_READERS = 4
_LAPS = 64
#: links of the chain, and words from one to the next: a line of its own, and no power of two
LINKS, _STRIDE = 4096, 1056


def copy_bandwidth(
    stopwatch: Any, l2_bytes: int | None, *, part: bool = False, block: int | None = None
) -> tuple[float, float]:
    """GB/s of bytes read plus written: a kernel's, and torch's own copy.

    Within ``part`` of a chip torch's side negates as it copies: a plain copy may leave the
    multiprocessors to a copy engine, which no slice limits.
    """
    import torch

    from costmodel.kernels.probes import COPY_BLOCK, copy_kernel

    block = block or COPY_BLOCK
    place = stopwatch.device
    wanted = _COPY_FACTOR * (l2_bytes or _L2_ASSUMED) // _WORD
    if place.type == "cuda":
        wanted = min(wanted, torch.cuda.mem_get_info(place)[0] // _COPY_SHARE // _WORD)
    words = max(wanted // block, 1) * block
    source = torch.arange(words, dtype=torch.int32, device=place)
    target = torch.full_like(source, -1)

    def ours() -> None:
        copy_kernel[(words // block,)](source, target, words, BLOCK=block, num_warps=8)

    ours()
    if not torch.equal(source, target):
        raise DeviceError("the copy kernel left a wrong copy: its time would mean nothing")
    if part:

        def theirs() -> None:
            torch.neg(source, out=target)
    else:

        def theirs() -> None:
            target.copy_(source)

    theirs()
    moved = 2 * words * _WORD
    times = [stopwatch.time(launch).median_us for launch in (ours, theirs)]
    return moved / times[0] / _BYTES_PER_US, moved / times[1] / _BYTES_PER_US


def l2_bandwidth(
    stopwatch: Any, l2_bytes: int | None, units: int, *, block: int | None = None
) -> float:
    """GB/s that all units together read from L2, of a buffer that it holds."""
    import torch

    from costmodel.kernels.probes import COPY_BLOCK, read_again_kernel

    block = block or COPY_BLOCK
    blocks = max((l2_bytes or _L2_ASSUMED) // _L2_SHARE // _WORD // block, 1)
    buffer = torch.zeros(blocks * block, dtype=torch.int32, device=stopwatch.device)
    sink = torch.zeros(1, dtype=torch.int32, device=stopwatch.device)
    programs = units * _READERS

    def reading(laps: int) -> float:
        def launch() -> None:
            read_again_kernel[(programs,)](buffer, sink, blocks, laps, BLOCK=block, num_warps=8)

        launch()
        return float(stopwatch.time(launch).median_us)

    short, long = reading(_LAPS), reading(2 * _LAPS)
    return programs * block * _WORD * _LAPS / (long - short) / _BYTES_PER_US


def load_latencies(stopwatch: Any, links: int = LINKS) -> tuple[float, float]:
    """Microseconds that a load waits for DRAM and for L2, where each needs the one before.

    A chain of ``links`` lines in random order is followed for half of it, once and twice round:
    the second half of the first round waits for DRAM, the second round for L2.
    """
    import torch

    from costmodel.kernels.probes import chase_kernel

    order = torch.randperm(links, generator=torch.Generator().manual_seed(0))
    following = torch.zeros(links * _STRIDE, dtype=torch.int32)
    following[order * _STRIDE] = (order.roll(-1) * _STRIDE).to(torch.int32)
    chain = following.to(stopwatch.device)
    end = torch.full((1,), -1, dtype=torch.int32, device=stopwatch.device)
    start = int(torch.nonzero(order == 0))

    def following_for(steps: int) -> float:
        def launch() -> None:
            chase_kernel[(1,)](chain, end, steps, num_warps=1)

        launch()
        if int(end[0]) != int(order[(start + steps) % links]) * _STRIDE:
            raise DeviceError("the chain of loads was not followed: its time would mean nothing")
        return float(stopwatch.time(launch).median_us)

    half, once, twice = (following_for(steps) for steps in (links // 2, links, 2 * links))
    return (once - half) / (links - links // 2), (twice - once) / links
