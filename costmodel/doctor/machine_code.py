"""What compiled code says of itself: PTX, Triton's GPU dialect, AMD assembly, ptxas' report."""

from __future__ import annotations

import re
from collections.abc import Iterator

from costmodel.doctor.messages import message_faults
from costmodel.explain.case import Cause

#: matrix instructions by chip generation: what an NVIDIA target of this number should show
_FAST = {90: ("wgmma", "wgmma."), 100: ("tcgen05", "tcgen05.mma")}
#: consumer Blackwell has neither
_PLAIN_TARGETS = range(120, 130)
_MORE_WARPS = "twice the warps halve the accumulator a thread holds; else a smaller block"
_HINTS = (
    "tell the compiler what is aligned: tl.multiple_of and tl.max_contiguous on the offsets, and "
    "strides that divide by 16; Triton then sees it and copies ahead"
)
#: loads of a K loop that are this narrow cannot be copied asynchronously (PTX ISA, cp.async)
_NARROW = re.compile(r"ld\.global(?:\.\w+(?:::\w+)?)*\.[busf](?:8|16)\b")
_WIDE = re.compile(r"ld\.global(?:\.\w+(?:::\w+)?)*\.v[248]\.[busf](?:16|32|64)\b")


def is_ptx(text: str) -> bool:
    """Whether this is PTX."""
    return bool(re.search(r"^\.target\s+sm_", text, re.MULTILINE)) and ".entry" in text


def is_ttgir(text: str) -> bool:
    """Whether this is Triton's GPU dialect."""
    return "ttg.target" in text or "#ttg." in text or "ttg.num-warps" in text


def is_amdgcn(text: str) -> bool:
    """Whether this is AMD's assembly."""
    return ".amdgcn_target" in text or ".amdhsa_kernel" in text


def is_ptxas_report(text: str) -> bool:
    """Whether this is what ``ptxas -v`` prints."""
    return "ptxas info" in text and "registers" in text


def ptxas_faults(text: str) -> Iterator[Cause]:
    """Spills and serialized products of a report of ``ptxas -v``."""
    used = re.search(r"Used (\d+) registers", text)
    for found in re.finditer(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text):
        stores, loads = (int(number) for number in found.groups())
        if stores or loads:
            registers = f"all {used.group(1)} registers are taken and " if used else ""
            yield Cause(
                "spill",
                f"{registers}a thread stores {stores} bytes to memory and loads {loads} back",
                _MORE_WARPS,
            )
            break
    yield from message_faults(text)


def ptx_faults(text: str) -> Iterator[Cause]:
    """The instruction, the loads, local memory; and spills, where ptxas is at hand."""
    target = re.search(r"^\.target\s+(sm_(\d+)\w*)", text, re.MULTILINE)
    name, number = (target.group(1), int(target.group(2))) if target else ("", 0)
    fast = _fast(number)
    sync = text.count("mma.sync")
    if fast and sync and fast[1] not in text:
        yield _fell_back(name, "mma.sync", fast[0])
    elif not sync and "wgmma." not in text and "tcgen05.mma" not in text:
        products = len(re.findall(r"\bfma\.rn\.f32", text))
        # operands of a product come from shared memory; a sum over rows needs it only at its end
        if products >= 64 and text.count("ld.shared") >= 32:
            yield Cause(
                "no_matrix_unit",
                f"{products} fma instructions and no matrix instruction",
                "precision 'tf32' (or 'tf32x3') for fp32, or a 16-bit type",
            )
    narrow, wide = len(_NARROW.findall(text)), len(_WIDE.findall(text))
    if narrow > wide and "cp.async" not in text:
        yield Cause(
            "narrow_loads",
            f"{narrow} loads of one or two bytes and {wide} wide ones, none of them asynchronous: "
            "num_stages is ignored",
            _HINTS,
        )
    if "__local_depot" in text:
        yield Cause(
            "local_memory",
            "the code keeps an array in local memory, which is device memory",
            "indices into it must be known when compiling: unroll, or use tl.static_range",
        )


def ttgir_faults(text: str) -> Iterator[Cause]:
    """The instruction's version, and whether the K loop loads ahead."""
    target = re.search(r'ttg\.target"?\s*=\s*"cuda:(\d+)"', text)
    fast = _fast(int(target.group(1))) if target else None
    versions = {int(v) for v in re.findall(r"nvidia_mma<\{versionMajor = (\d+)", text)}
    if target and fast and versions and max(versions) < 3:
        yield _fell_back(f"sm_{target.group(1)}", f"mma version {max(versions)}", fast[0])
    loops = text[text.find("scf.for") :] if "scf.for" in text else ""
    ahead = "async_copy_global_to_local" in text or "async_tma_copy" in text
    if loops and "tt.load" in loops and not ahead and ("dot" in loops):
        yield Cause(
            "narrow_loads",
            f"{loops.count('tt.load ')} loads of the K loop go through registers, and nothing is "
            "copied ahead: num_stages is ignored",
            _HINTS,
        )


def amdgcn_faults(text: str) -> Iterator[Cause]:
    """Spilled vector registers, scratch memory, missing matrix instructions."""

    def number(key: str) -> int:
        found = re.search(rf"\.{key}:\s*(\d+)", text)
        return int(found.group(1)) if found else 0

    spilled, scratch = number("vgpr_spill_count"), number("private_segment_fixed_size")
    if spilled:
        yield Cause(
            "spill",
            f"{spilled} vector registers are spilled, {scratch} bytes of scratch a lane",
            _MORE_WARPS,
        )
    products = len(re.findall(r"\bv_(?:pk_)?(?:fma|fmac)_f32", text))
    if "v_mfma" not in text and "v_wmma" not in text and products >= 64:
        yield Cause(
            "no_matrix_unit",
            f"{products} fma instructions and no matrix instruction",
            "a type and blocks that mfma takes: 16 bits, and at least 16x16x16",
        )


def _fast(number: int) -> tuple[str, str] | None:
    if number in _PLAIN_TARGETS:
        return None
    found = [kind for first, kind in sorted(_FAST.items()) if first <= number]
    return found[-1] if found else None


def _fell_back(chip: str, used: str, fast: str) -> Cause:
    return Cause(
        "slow_instruction",
        f"the code for {chip} multiplies by {used} and never by {fast}, which is faster there",
        "wgmma takes 64 rows a group of 4 warps: BLOCK_M of 64 or more with 4 or 8 warps; where M "
        "is smaller, swap the operands so that N meets that side",
    )
