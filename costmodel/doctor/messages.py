"""Faults by the words in which Triton, its compilers and drivers report them.

Each pattern was read from the source that prints it or from its output; the tests hold that
output. What a pattern catches goes into the evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from costmodel.explain.case import Cause


@dataclass(frozen=True)
class Fault:
    """``evidence`` is a format string over the pattern's named groups, as are remedies."""

    name: str
    pattern: str
    evidence: str
    remedy: str

    def find(self, text: str) -> Cause | None:
        """The fault where the text reports it."""
        found = re.search(self.pattern, text, re.IGNORECASE)
        if found is None:
            return None
        groups = {name: value or "" for name, value in found.groupdict().items()}
        groups |= _excess(groups)
        return Cause(self.name, self.evidence.format_map(groups), self.remedy.format_map(groups))


def _excess(groups: dict[str, str]) -> dict[str, str]:
    """How far ``needed`` is over ``limit``, and the share of it that fits."""
    if not {"needed", "limit"} <= set(groups):
        return {}
    needed, limit = (int(groups[name], 0) for name in ("needed", "limit"))
    return {
        "needed": str(needed), "limit": str(limit), "over": str(needed - limit),
        "times": f"{needed / max(limit, 1):.2f}", "fits": f"{limit / max(needed, 1):.0%}",
    }  # fmt: skip


_SMALLER = (
    "fewer stages: the operands' ring shrinks by a stage at a time, and {fits} of it fits; else a "
    "smaller BLOCK_K, BLOCK_N or BLOCK_M. `costmodel explain M N K --config ...` lists the repairs"
)
_NUMBER = r"(?:0x[0-9a-f]+|\d+)"

#: in the order in which they are looked for; every one that a text shows is told
FAULTS: tuple[Fault, ...] = (
    # triton/runtime/errors.py, OutOfResources
    Fault(
        "out_of_shared_memory",
        r"out of resources?: shared memory,? Required: (?P<needed>\d+), Hardware limit: "
        r"(?P<limit>\d+)",
        "a block asks for {needed} bytes of shared memory, the chip gives {limit}: {over} too many "
        "({times} times the limit)",
        _SMALLER,
    ),
    Fault(
        "out_of_tensor_memory",
        r"out of resources?: tensor memory,? Required: (?P<needed>\d+), Hardware limit: "
        r"(?P<limit>\d+)",
        "a block asks for {needed} columns of tensor memory, the chip gives {limit}",
        "a smaller BLOCK_M or BLOCK_N: the accumulator lives there",
    ),
    Fault(
        "too_many_threads",
        r"out of resources?: threads,? Required: (?P<needed>\d+), Hardware limit: (?P<limit>\d+)",
        "a block asks for {needed} threads, the kernel may have {limit}",
        "fewer num_warps",
    ),
    # ptxas, and LLVM's AMDGPU backend
    Fault(
        "out_of_shared_memory",
        rf"uses too much shared data \((?P<needed>{_NUMBER}) bytes, (?P<limit>{_NUMBER}) max\)",
        "a block asks for {needed} bytes of shared memory, the chip gives {limit}: {over} too many",
        _SMALLER,
    ),
    Fault(
        "out_of_shared_memory",
        r"local memory \((?P<needed>\d+)\) exceeds limit \((?P<limit>\d+)\)",
        "a work group asks for {needed} bytes of LDS, the chip gives {limit}: {over} too many",
        _SMALLER,
    ),
    Fault(
        "out_of_registers",
        r"Register allocation failed with register count of '(?P<count>\d+)'",
        "the code cannot be made with {count} registers a thread",
        "twice the warps halve the accumulator a thread holds; else smaller blocks; drop maxnreg",
    ),
    Fault(
        "out_of_registers",
        r"ran out of registers during register allocation",
        "the code needs more registers than a thread has",
        "twice the warps halve the accumulator a thread holds; else smaller blocks",
    ),
    Fault(
        "out_of_registers",
        r"too many resources requested for launch",
        "registers times threads exceed what a unit has",
        "fewer num_warps or smaller blocks; maxnreg lowers registers at the price of spills",
    ),
    Fault(
        "wgmma_serialized",
        r"wgmma\.mma_async instructions are serialized due to (?P<why>[^\n]*?)"
        r"(?: in the function|\n|$)",
        "the compiler waits for each wgmma before the next: {why}",
        "more warps or a smaller tile, so that sums and operands fit the registers; keep function "
        "calls and divergent branches out of the K loop",
    ),
    # triton/language, triton/compiler/code_generator
    Fault(
        "dtype_unsupported",
        r"type (?P<type>\w+) not supported in this architecture(?:\. The supported fp8 dtypes are "
        r"\((?P<known>[^)]*)\))?",
        "the chip's compiler has no {type}; it has {known}",
        "cast to a type that the chip multiplies (fp16, bf16) before tl.dot, or choose another chip"
        ": `costmodel profiles show NAME` lists its rates",
    ),
    Fault(
        "small_dot",
        r"Input shapes should have M >= (?P<m>\d+), N >= (?P<n>\d+) and K >= (?P<k>\d+)",
        "a block is below the least that tl.dot takes: M {m}, N {n}, K {k}",
        "blocks of at least that size: pad with a mask instead of shrinking the block to the data",
    ),
    Fault(
        "not_power_of_two",
        r"(?:arange's range must be a power of 2|Shape element \d+ must be a power of 2)",
        "a block is no power of two",
        "the next power of two with a mask on the tail; other widths need several dots a program "
        "(template warp_specialized has them in steps of 8)",
    ),
    Fault(
        "tile_too_large",
        r"numel \((?P<have>\d+)\) exceeds triton maximum tensor numel \((?P<most>\d+)\)",
        "one tensor of a block has {have} elements, Triton takes {most}",
        "smaller blocks: far below this limit a tile already spills",
    ),
    Fault(
        "dot_types",
        r"(?:Both operands must be same dtype|First input \(.*?\) and second input \(.*?\) must "
        r"have the same dtype)[^\n]*",
        "the operands of tl.dot have different types",
        "cast one of them before the dot",
    ),
    Fault(
        "conflicting_parameters",
        r"Conflicting meta-parameters: (?P<names>[^.]*)\.",
        "{names} is given by the caller and by the autotuner's configuration",
        "leave it out of the call",
    ),
    Fault(
        "nothing_left",
        r"(?:No valid autotuner configs after pruning|all \d+ configurations were rejected)",
        "pruning left no configuration",
        "add smaller tiles or fewer stages to the list: `costmodel predict` shows what fits",
    ),
    Fault(
        "descriptor_alignment",
        r"(?:strides must be 16-byte aligned|base must be 16-byte aligned|"
        r"must be a multiple of 16 bytes)",
        "a tensor descriptor needs a base and rows of a multiple of 16 bytes",
        "pad the leading dimension, or use pointer loads for this operand",
    ),
    # CUDA and HIP errors by their texts
    Fault(
        "illegal_memory_access",
        r"(?:an illegal memory access was encountered|illegal address|Memory access fault by GPU)",
        "a thread read or wrote outside its tensor; the report may name a later launch",
        "check the masks of the last blocks of M, N and K, and offsets past 2^31 elements (cast "
        "them to int64); find the line with compute-sanitizer, or CUDA_LAUNCH_BLOCKING=1",
    ),
    Fault(
        "misaligned_address",
        r"misaligned address",
        "a wide load met an address that is not a multiple of its width",
        "a hint promised too much: tl.multiple_of or max_contiguous must hold for every row, and "
        "views that start inside a row break it",
    ),
    Fault(
        "invalid_launch",
        r"(?:Triton Error \[(?:CUDA|HIP)\]:[^\n]*invalid argument|"
        r"invalid configuration argument)",
        "the driver refuses the launch: a grid dimension or the block's size is out of range",
        "grid y and z end at 65,535: put tiles into x; threads a block end at 1,024",
    ),
    Fault(
        "launch_timeout",
        r"the launch timed out and was terminated",
        "a kernel ran longer than the display driver's watchdog allows",
        "a smaller problem a launch, or a GPU without a display; a kernel that waits for another "
        "block may be deadlocked",
    ),
    Fault(
        "device_out_of_memory",
        r"(?:(?:CUDA|HIP) out of memory\.?|(?:Triton Error \[(?:CUDA|HIP)\]|(?:CUDA|HIP) error)"
        r":[^\n]*out of memory) *(?P<told>Tried to allocate [\d.]+ \w+)?",
        "device memory is full. {told}",
        "this is not shared memory: no block size helps; free tensors, or split the problem",
    ),
    Fault(
        "wrong_target",
        r"(?:no kernel image is available for execution|Value '(?P<arch>sm_\w+)' is not defined "
        r"for option 'gpu-name'|device kernel image is invalid)",
        "the code was made for another chip, or the assembler does not know this one {arch}",
        "clear Triton's cache, and take a Triton whose ptxas knows the chip",
    ),
    Fault(
        "no_gpu",
        r"(?:0 active drivers \(\[\]\)|Found no NVIDIA driver|no CUDA-capable device is detected)",
        "no driver with a GPU is visible to this process",
        "predict and explain need none; to measure, check nvidia-smi, CUDA_VISIBLE_DEVICES and the "
        "container's devices",
    ),
    Fault(
        "wrong_result",
        r"relative error (?P<error>[\d.e+-]+|nan|inf) exceeds (?P<most>[\d.e+-]+)",
        "the result is off by {error}, and {most} is what the types' rounding explains",
        "one precision on both sides (fp32 as tf32 or ieee), sums in fp32, the mask's other=0.0 in "
        "the last K block, and no output that accumulates from run to run",
    ),
    Fault(
        "wrong_result",
        r"(?:Tensor-likes are not close|Not equal to tolerance)[\s\S]*?"
        r"Mismatched elements: (?P<count>[^\n]*)",
        "results differ: {count}",
        "compare under one precision policy (tf32 or ieee, fp32 sums) and print the relative error "
        "of the whole; a few elements at the edges are a wrong mask",
    ),
    Fault(
        "compiler_failed",
        r"PassManager::run failed",
        "a pass of the compiler ended in an error",
        "another num_stages or num_warps often passes by it; `costmodel explain --compile` shows "
        "what this Triton makes of a configuration",
    ),
    Fault(
        "database_locked",
        r"database is locked",
        "several processes write one tuning cache",
        "a cache folder a process, or tune once and ship the log: ours is append-only",
    ),
)  # fmt: skip


def message_faults(text: str) -> Iterator[Cause]:
    """Every fault that the text reports, each name once."""
    told: set[str] = set()
    for fault in FAULTS:
        cause = fault.find(text)
        if cause is not None and cause.name not in told:
            told.add(cause.name)
            yield cause
