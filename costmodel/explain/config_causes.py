"""Causes that lie in the configuration: instruction, spills, loads, pipeline, launch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from costmodel.config import ConfigTable
from costmodel.explain.case import Case, Cause
from costmodel.explain.layers import Row, copy_way
from costmodel.physics.banks import bank_ways, meets_one_channel
from costmodel.physics.roofline import peak_of
from costmodel.resources.matrix_unit import MatrixUnit, kernel_blocks

#: with so much of the time gone before a byte moves, the configuration decides little
LAUNCH_SHARE = 0.3
#: an instruction that reaches this share of the peak does not show beside the other losses
INSTRUCTION_SHARE = 0.9
#: a step whose loads take this many times what its arithmetic or its traffic takes waits for them
UNCOVERED = 1.5
#: widest vector load of NVIDIA and AMD GPUs
WIDE_BYTES = 16


def slow_instruction(case: Case) -> Iterator[Cause]:
    """The tile compiles to a slower matrix instruction than the chip has."""
    roof, share = case.physics.roofline, float(case.physics.matrix_share[0])
    unit = MatrixUnit(int(case.physics.unit[0]))
    if unit is MatrixUnit.NONE:
        # "matvec" has nothing to multiply twice: no matrix unit would help it
        if case.config.template == "matvec":
            return
        if case.profile.mma and case.problem.dtype == "fp32":
            yield Cause(
                "slow_instruction",
                f"fp32 in 'ieee' has no matrix instruction: the peak is "
                f"{peak_of(case.problem, case.profile):.0f} TFLOPS",
                "precision='tf32', or 'tf32x3' for nearly fp32's accuracy",
            )
        elif (
            case.profile.backend == "cuda"
            and share < INSTRUCTION_SHARE
            and roof.compute_us / share > roof.memory_us
        ):
            yield Cause(
                "slow_instruction",
                f"Triton compiles for {case.profile.name} without a matrix instruction: "
                f"multiply-adds of fp32 reach {share:.0%} of the peak of "
                f"{peak_of(case.problem, case.profile):.3g} TFLOPS, {roof.compute_us:.0f} us of "
                f"arithmetic become {roof.compute_us / share:.0f} us",
                "the vendor's library, which uses the matrix unit; of configurations, those with "
                "a short block_k, whose operands fit a thread's registers",
            )
        return
    # where memory takes longer anyway, the instruction's rate is not what holds the shape back
    if share >= INSTRUCTION_SHARE or roof.compute_us / share <= roof.memory_us:
        return
    tall, wide = (int(side[0]) for side in kernel_blocks(ConfigTable.of(case.config)))
    name = unit.name.lower().replace("_", ".")
    yield Cause(
        "slow_instruction",
        f"{name} on {tall}x{wide} blocks of the kernel reaches at most {share:.0%} of the matrix "
        f"unit's peak: {roof.compute_us:.2f} us of arithmetic become "
        f"{roof.compute_us / share:.2f} us",
        "blocks of 64 rows and 128 columns or more with 4 or 8 warps, where C is that large"
        if "wgmma" in case.profile.mma
        else "larger blocks, where C is that large",
    )


def spill(case: Case) -> Iterator[Cause]:
    """A thread wants more registers than it may have."""
    registers = case.physics.registers
    spilled = float(registers.spilled[0])
    if spilled <= 0:
        return
    wanted = float(registers.wanted[0])
    yield Cause(
        "spill",
        f"a thread wants {wanted:.0f} registers and may have {wanted - spilled:.0f}: "
        f"{spilled:.0f} go to memory in every step",
        "twice the warps halve the accumulator a thread holds; else a smaller block",
    )


def _row(case: Case) -> Row:
    return Row(case.problem, case.config, case.profile, case.physics)


def narrow_loads(case: Case) -> Iterator[Cause]:
    """Alignment hints are missing: the compiler may not load wide, so it cannot load ahead."""
    problem, config = case.problem, case.config
    promised = (config.load_bits or 128) // 8
    able = min(min(problem.row_align(o) * problem.element_bytes, WIDE_BYTES) for o in "ab")
    if promised >= able or copy_way(_row(case)) not in ("registers", "cp.async"):
        return
    evidence = f"the hints promise {promised} bytes a load where rows allow {able}"
    if copy_way(_row(case)) == "registers":
        evidence += ": too few for an asynchronous copy, so num_stages is ignored"
    pitches = {o: problem.row_elements(o) * problem.element_bytes for o in "ab"}
    far = [f"{o.upper()}'s {p} bytes" for o, p in pitches.items() if meets_one_channel(p)]
    if far:
        evidence += (
            f"; rows lie {' and '.join(far)} apart, so single loads of a column meet one memory "
            "channel where addresses are not hashed"
        )
    pitch = config.block_k * problem.element_bytes
    if bank_ways(pitch) > 1:
        evidence += (
            f"; in shared memory rows of {pitch} bytes start {bank_ways(pitch)} of 8 at one bank"
        )
    yield Cause(
        "narrow_loads",
        evidence,
        "tell the compiler what is aligned: tl.multiple_of and tl.max_contiguous on the offsets, "
        f"strides that it sees divide by 16 (here load_bits={able * 8})",
    )


def pipeline_unfilled(case: Case) -> Iterator[Cause]:
    """More stages than K steps."""
    steps, stages = int(case.physics.waves.steps[0]), case.config.num_stages or 1
    if stages <= max(steps, 2):
        return
    yield Cause(
        "pipeline_unfilled",
        f"{stages} stages, and a program has {steps} K step{'s' * (steps != 1)}: the pipeline "
        f"never runs full, and {stages - steps} stages hold shared memory for nothing",
        f"num_stages={max(steps, 2)}, and more programs at a time",
    )


def uncovered_loads(case: Case) -> Iterator[Cause]:
    """Too few stages: steps wait for their loads."""
    physics, row = case.physics, _row(case)
    if copy_way(row) in ("registers", "direct"):
        return  # narrow loads and vectors have their own cause
    whole = float(physics.waves.rounds[0] * physics.waves.steps[0])
    before = float(physics.start_us[0] + physics.split_us[0])
    waiting = (float(physics.latency_us[0]) - before) / whole
    busy = max(float(physics.compute_us[0]), float(physics.memory_us[0])) / whole
    if int(physics.waves.steps[0]) < 4 or waiting < UNCOVERED * busy:
        return
    yield Cause(
        "uncovered_loads",
        f"{case.config.num_stages} stages leave {waiting * 1e3:.0f} ns of each step to the loads' "
        f"latency, and arithmetic or traffic take {busy * 1e3:.0f}",
        "more stages, a deeper BLOCK_K, or smaller blocks so that a unit holds two",
    )


def launch_bound(case: Case) -> Iterator[Cause]:
    """Most of the time passes before a byte moves."""
    floor = case.physics.roofline.floor_us
    if not np.isfinite(case.time_us) or floor <= LAUNCH_SHARE * case.time_us:
        return
    yield Cause(
        "launch_bound",
        f"an empty kernel takes {floor:.1f} of the {case.time_us:.1f} us "
        f"({floor / case.time_us:.0%})",
        "run several such products in one launch (batch), or fuse with the neighbours",
    )
