"""Blocks a unit against cases worked by hand with the rules of cuda_occupancy.h and of LLVM.

Registers and shared memory are given here, so that the tests prove the division of a unit's
resources alone. A warp's registers come in whole from one of four sub-partitions.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.resources import occupancy
from costmodel.resources.occupancy import LIMITERS, occupancy_columns

PROBLEM = Gemm(4096, 4096, 4096)
H200 = load_profile("h200-sxm")  # 64 warps, 32 blocks, 65,536 registers, 228 KiB, 1 KiB a block
ADA = load_profile("rtx-4090")  # 48 warps, 24 blocks, 65,536 registers, 100 KiB, 1 KiB a block
A100 = load_profile("a100-sxm-80gb")  # 64 warps, 32 blocks, 65,536 registers, 164 KiB
H100 = load_profile("h100-sxm")  # as the H200
B200 = load_profile("b200")  # as the H200
RTX_3090 = load_profile("rtx-3090")  # as the RTX 4090, but 16 blocks
RTX_5090 = load_profile("rtx-5090")  # as the RTX 4090
MI250X = load_profile("mi250x")  # 32 waves of 64, 131,072 registers, 64 KiB by 512 bytes
MI300X = load_profile("mi300x")  # as the MI250X
MI355X = load_profile("mi355x")  # as the MI300X, but 160 KiB by 1,280 bytes


def blocks_and_limiter(chip, warps, registers, shared_bytes):
    found = occupancy.occupancy(warps, registers, shared_bytes, chip)
    return int(found.blocks[0]), LIMITERS[int(found.limiter[0])]


@pytest.fixture
def held(monkeypatch):
    """Blocks, the limiter's name and the share of warps for given warps, registers and bytes."""

    def call(chip, warps, registers, shared_bytes):
        monkeypatch.setattr(
            occupancy,
            "footprint_columns",
            lambda *_: SimpleNamespace(shared_bytes=np.array([shared_bytes])),
        )
        monkeypatch.setattr(
            occupancy,
            "register_columns",
            lambda *_: SimpleNamespace(allocated=np.array([registers])),
        )
        config = KernelConfig("tile", 64, 64, 64, num_warps=warps)
        found = occupancy_columns(PROBLEM, ConfigTable.of(config), chip)
        return int(found.blocks[0]), LIMITERS[int(found.limiter[0])], float(found.occupancy[0])

    return call


@pytest.mark.parametrize(
    ("chip", "warps", "registers", "shared_bytes", "expected"),
    [
        # 64 / 4 = 16; registers: 16,384 / (32 * 32) = 16 warps a quarter, 64 in all, 16 blocks
        (H200, 4, 32, 0, (16, "warps", 1.0)),
        # 16,384 / (128 * 32) = 4 warps a quarter, 16 in all
        (H200, 4, 128, 0, (4, "registers", 16 / 64)),
        # 16,384 / (168 * 32) = 3.05: 3 warps a quarter, 12 in all
        (H200, 4, 168, 0, (3, "registers", 12 / 64)),
        # 16,384 / (104 * 32) = 4.9: 16 warps; the file as one would hold 19
        (H200, 1, 104, 0, (16, "registers", 16 / 64)),
        # 16,384 / (255 * 32) = 2.01: 8 warps
        (H200, 8, 255, 0, (1, "registers", 8 / 64)),
        # 233,472 / (98,304 + 1,024) = 2.4
        (H200, 4, 48, 98_304, (2, "shared_memory", 8 / 64)),
        # the largest block there is: 232,448 + 1,024 is the whole unit
        (H200, 4, 48, 232_448, (1, "shared_memory", 4 / 64)),
        # one byte more fits nowhere
        (H200, 4, 48, 232_449, (0, "shared_memory", 0.0)),
        # 45,057 + 1,024 = 46,081 is rounded up to 46,208 = 361 * 128; 233,472 / 46,208 = 5.05
        (H200, 1, 32, 45_057, (5, "shared_memory", 5 / 64)),
        # 64 warps, 64 by registers, 228 by shared memory: 32 blocks
        (H200, 1, 32, 0, (32, "blocks", 0.5)),
        # 48 / 4 = 12
        (ADA, 4, 32, 0, (12, "warps", 1.0)),
        # 102,400 / (50,176 + 1,024) = 2
        (ADA, 8, 64, 50_176, (2, "shared_memory", 16 / 48)),
        # 24 blocks of one warp
        (ADA, 1, 32, 0, (24, "blocks", 0.5)),
        # 167,936 / (49,152 + 1,024) = 3.3
        (A100, 4, 64, 49_152, (3, "shared_memory", 12 / 64)),
    ],
)
def test_blocks_a_unit_are_what_its_scarcest_resource_allows(
    held, chip, warps, registers, shared_bytes, expected
):
    assert held(chip, warps, registers, shared_bytes) == expected


def test_what_a_profile_does_not_know_does_not_limit(held):
    chip = replace(H200, max_warps_per_unit=None, max_blocks_per_unit=None)
    # 16 warps a quarter by registers: 64 blocks of one warp
    assert held(chip, 1, 32, 0)[:2] == (64, "registers")
    # an unknown capacity of the unit is one block's limit and what is reserved beside it
    assert held(replace(H200, shared_per_unit_bytes=None), 4, 48, 232_448)[:2] == (
        1, "shared_memory",
    )  # fmt: skip


def test_a_tile_of_128x128x64_in_4_stages_leaves_room_for_one_block():
    config = KernelConfig("tile", 128, 128, 64, num_warps=8, num_stages=4)
    found = occupancy_columns(PROBLEM, ConfigTable.of(config), H200)
    # 4 * (128 + 128) * 64 * 2 = 131,072 bytes: 233,472 holds them once
    assert (found.blocks[0], LIMITERS[found.limiter[0]]) == (1, "shared_memory")
    assert found.occupancy[0] == 8 / 64


def test_two_stages_of_that_tile_leave_room_for_three_blocks_by_shared_memory_two_by_registers():
    config = KernelConfig("tile", 128, 128, 64, num_warps=8, num_stages=2)
    found = occupancy_columns(PROBLEM, ConfigTable.of(config), H200)
    # 65,536 + 1,024 bytes: 3 times; 64 sums a thread and some 44 registers beside them are 112:
    # 16,384 / 3,584 = 4.6: 16 warps are 2 blocks
    assert (found.blocks[0], LIMITERS[found.limiter[0]]) == (2, "registers")


# NVIDIA, cuda_occupancy.h: a warp takes 32 registers for each of a thread's, rounded up to 8, from
# its quarter's 16,384; a block's shared memory, 1,024 bytes of the driver's with it, is rounded up
# to 128. Where two limits tie, LIMITERS' order decides; only cases without a tie stand here.
@pytest.mark.parametrize(
    ("chip", "warps", "registers", "shared_bytes", "blocks", "limiter"),
    [
        # sm_80: 82,944 + 1,024 = 83,968 = 656 * 128; 167,936 / 83,968 = 2 exactly
        (A100, 4, 64, 82_944, 2, "shared_memory"),
        # 82,945 + 1,024 = 83,969, up to 657 * 128 = 84,096; 167,936 / 84,096 = 1.997
        (A100, 4, 64, 82_945, 1, "shared_memory"),
        # the opt-in limit: 166,912 + 1,024 = 167,936, the whole unit
        (A100, 8, 64, 166_912, 1, "shared_memory"),
        # 166,913 > 166,912: refused
        (A100, 8, 64, 166_913, 0, "shared_memory"),
        # 255 up to 256: 256 * 32 = 8,192; 16,384 / 8,192 = 2 warps a quarter; 8 / 4 = 2
        (A100, 4, 255, 0, 2, "registers"),
        # as above 8 warps; 8 / 8 = 1
        (A100, 8, 255, 0, 1, "registers"),
        # 104 * 32 = 3,328; 16,384 / 3,328 = 4.92: 16 warps; 16 / 2 = 8; the file as one: 9.8
        (A100, 2, 104, 0, 8, "registers"),
        # 72 * 32 = 2,304; 16,384 / 2,304 = 7.1: 28 warps, below the 32 blocks
        (A100, 1, 72, 0, 28, "registers"),
        # 40 * 32 = 1,280; 16,384 / 1,280 = 12.8: 48 warps; 64 warps of the unit; 32 blocks
        (A100, 1, 40, 0, 32, "blocks"),
        # 64 / 16 = 4; registers 24 * 32 = 768: 21 a quarter, 84 / 16 = 5
        (A100, 16, 24, 0, 4, "warps"),
        # 64 * 32 = 2,048; 8 a quarter: 32 warps, one block; 32 * 2,048 = 65,536 is the file
        (A100, 32, 64, 0, 1, "registers"),
        # 65 up to 72: 2,304 * 32 = 73,728 > 65,536: a block of 1,024 threads does not launch
        (A100, 32, 65, 0, 0, "registers"),
        # 168 * 32 = 5,376; 16,384 / 5,376 = 3.05: 12 warps; 12 / 9 = 1.3
        (A100, 9, 168, 0, 1, "registers"),
        # 169 up to 176: 5,632; 2.9: 8 warps < 9, though 9 * 5,632 = 50,688 are in the file
        (A100, 9, 169, 0, 0, "registers"),
        # sm_86: 48 / 1 = 48 warps; 32 * 32 = 1,024: 64; 102,400 / 1,024 = 100; 16 blocks
        (RTX_3090, 1, 32, 0, 16, "blocks"),
        # 48 / 2 = 24 by warps, 64 / 2 = 32 by registers, 100 by shared memory; 16 blocks
        (RTX_3090, 2, 32, 0, 16, "blocks"),
        # 48 / 16 = 3; 64 / 16 = 4 by registers
        (RTX_3090, 16, 32, 0, 3, "warps"),
        # 50,176 + 1,024 = 51,200 = 400 * 128; 102,400 / 51,200 = 2 exactly
        (RTX_3090, 4, 64, 50_176, 2, "shared_memory"),
        # 50,177 + 1,024 = 51,201, up to 401 * 128 = 51,328; 102,400 / 51,328 = 1.995
        (RTX_3090, 4, 64, 50_177, 1, "shared_memory"),
        # sm_89: 48 by warps; 40 * 32 = 1,280: 48 by registers; 100 by shared memory; 24 blocks
        (ADA, 1, 40, 0, 24, "blocks"),
        # 32 warps: 48 / 32 = 1.5; 64 / 32 = 2 by registers
        (ADA, 32, 32, 0, 1, "warps"),
        # 50,177 + 1,024 = 51,201, up to 51,328; 1.995
        (ADA, 4, 64, 50_177, 1, "shared_memory"),
        # 33,024 + 1,024 = 34,048 = 266 * 128; 102,400 / 34,048 = 3.008
        (ADA, 4, 64, 33_024, 3, "shared_memory"),
        # 33,025 + 1,024 = 34,049, up to 267 * 128 = 34,176; 2.996
        (ADA, 4, 64, 33_025, 2, "shared_memory"),
        # 3,328 + 1,024 = 4,352 = 34 * 128; 23.5; without the driver's 1,024 it would be 30
        (ADA, 1, 32, 3_328, 23, "shared_memory"),
        # the opt-in limit: 101,376 + 1,024 = 102,400
        (ADA, 8, 64, 101_376, 1, "shared_memory"),
        # 101,377 > 101,376: refused
        (ADA, 8, 64, 101_377, 0, "shared_memory"),
        # 255 up to 256: 2 warps a quarter, 8 warps: two blocks of 4
        (ADA, 4, 255, 0, 2, "registers"),
        # sm_90: 115,712 + 1,024 = 116,736 = 912 * 128; 233,472 / 116,736 = 2 exactly
        (H100, 4, 64, 115_712, 2, "shared_memory"),
        # 115,713 + 1,024 = 116,737, up to 913 * 128 = 116,864; 1.998
        (H100, 4, 64, 115_713, 1, "shared_memory"),
        # 76,800 + 1,024 = 77,824 = 608 * 128; 233,472 / 77,824 = 3 exactly
        (H100, 4, 64, 76_800, 3, "shared_memory"),
        # 76,801 + 1,024 = 77,825, up to 609 * 128 = 77,952; 2.995
        (H100, 4, 64, 76_801, 2, "shared_memory"),
        # 96 * 32 = 3,072; 16,384 / 3,072 = 5.3: 20 warps; 20 / 4 = 5
        (H100, 4, 96, 0, 5, "registers"),
        # 97 up to 104: 3,328; 4.9: 16 warps; 16 / 4 = 4
        (H100, 4, 97, 0, 4, "registers"),
        # 49,152 + 1,024 = 50,176 = 392 * 128; 233,472 / 50,176 = 4.65, below the 5 by registers
        (H100, 4, 96, 49_152, 4, "shared_memory"),
        # 256 > 255: refused, though 4 * 256 * 32 = 32,768 is half the file
        (H100, 4, 256, 0, 0, "registers"),
        # 128 * 32 = 4,096; 4 a quarter: 16 warps, one block
        (H100, 16, 128, 0, 1, "registers"),
        # 129 up to 136: 4,352; 3.8: 12 warps < 16
        (H100, 16, 129, 0, 0, "registers"),
        # 255 up to 256: 2 warps a quarter, 8 warps: two blocks of 4
        (H200, 4, 255, 0, 2, "registers"),
        # sm_100: 64 * 32 = 2,048; 8 a quarter: 32 warps; 32 / 8 = 4
        (B200, 8, 64, 0, 4, "registers"),
        # 40 * 32 = 1,280; 12.8: 48 warps; 48 / 4 = 12, below 64 / 4 = 16
        (B200, 4, 40, 0, 12, "registers"),
        # 5,120 + 1,024 = 6,144 = 48 * 128; 233,472 / 6,144 = 38; 64 by warps; 32 blocks
        (B200, 1, 32, 5_120, 32, "blocks"),
        # 7,168 + 1,024 = 8,192; 233,472 / 8,192 = 28.5
        (B200, 1, 32, 7_168, 28, "shared_memory"),
        # 232,449 > 232,448: refused
        (B200, 4, 32, 232_449, 0, "shared_memory"),
        # sm_120: 50,176 + 1,024 = 51,200; 102,400 / 51,200 = 2 exactly
        (RTX_5090, 8, 64, 50_176, 2, "shared_memory"),
        # 50,177 + 1,024 = 51,201, up to 51,328; 1.995
        (RTX_5090, 8, 64, 50_177, 1, "shared_memory"),
        # 168 * 32 = 5,376; 3.05: 12 warps; 12 / 8 = 1.5
        (RTX_5090, 8, 168, 0, 1, "registers"),
        # 3,201 + 1,024 = 4,225, up to 34 * 128 = 4,352; 23.5; not rounded, 24.2
        (RTX_5090, 1, 32, 3_201, 23, "shared_memory"),
        # 48 by warps, 64 by registers, 100 by shared memory; 24 blocks
        (RTX_5090, 1, 32, 0, 24, "blocks"),
    ],
)
def test_blocks_a_multiprocessor_and_their_limiter_follow_cuda_occupancy_h(
    chip, warps, registers, shared_bytes, blocks, limiter
):
    assert blocks_and_limiter(chip, warps, registers, shared_bytes) == (blocks, limiter)


# AMD, LLVM's AMDGPUBaseInfo for gfx90a, gfx942 and gfx950: 4 SIMDs a compute unit, each with 8
# waves and 512 registers a lane (architectural and accumulation together) dealt by 8; LDS comes by
# 512 bytes (gfx950: by 1,280) with nothing reserved.
@pytest.mark.parametrize(
    ("chip", "waves", "registers", "lds_bytes", "groups", "limiter"),
    [
        # gfx90a: 4 * 8 = 32 waves, 32 / 4 = 8; registers 512 / 56 = 9.1 a SIMD would hold 9
        (MI250X, 4, 56, 0, 8, "warps"),
        # 65 up to 72; 512 / 72 = 7.1 waves a SIMD: 28 waves; 28 / 4 = 7
        (MI250X, 4, 65, 0, 7, "registers"),
        # 84 up to 88; 512 / 88 = 5.8: 20 waves; 20 / 4 = 5; not rounded, 6
        (MI250X, 4, 84, 0, 5, "registers"),
        # 512 / 128 = 4 waves a SIMD: 16 waves; 16 / 8 = 2
        (MI250X, 8, 128, 0, 2, "registers"),
        # 65,536 / 32,768 = 2 exactly: nothing is reserved
        (MI250X, 4, 64, 32_768, 2, "shared_memory"),
        # 32,769 up to 65 * 512 = 33,280; 65,536 / 33,280 = 1.97
        (MI250X, 4, 64, 32_769, 1, "shared_memory"),
        # 65,537 > 65,536: refused
        (MI250X, 4, 64, 65_537, 0, "shared_memory"),
        # gfx942: 129 up to 136; 512 / 136 = 3.8: 12 waves; 12 / 4 = 3
        (MI300X, 4, 129, 0, 3, "registers"),
        # 512 / 168 = 3.05: 12 waves; 12 / 4 = 3
        (MI300X, 4, 168, 0, 3, "registers"),
        # 169 up to 176; 512 / 176 = 2.9: 8 waves; 8 / 4 = 2
        (MI300X, 4, 169, 0, 2, "registers"),
        # 512 / 256 = 2: 8 waves; 8 / 8 = 1
        (MI300X, 8, 256, 0, 1, "registers"),
        # 257 up to 264; 512 / 264 = 1.9: 4 waves < 8
        (MI300X, 8, 257, 0, 0, "registers"),
        # 256 architectural and 256 accumulation: one wave a SIMD, 4 waves, one group
        (MI300X, 4, 512, 0, 1, "registers"),
        # 513 > 512: refused
        (MI300X, 4, 513, 0, 0, "registers"),
        # 32 / 8 = 4; 512 / 48 = 10.7: 40 / 8 = 5 by registers; 12,800 = 25 * 512: 5.1 by LDS
        (MI300X, 8, 48, 12_800, 4, "warps"),
        # 4,608 = 9 * 512; 65,536 / 4,608 = 14.2, below 32 / 2 = 16 by waves
        (MI300X, 2, 32, 4_608, 14, "shared_memory"),
        # 4,609 up to 10 * 512 = 5,120; 65,536 / 5,120 = 12.8; not rounded, 14
        (MI300X, 2, 32, 4_609, 12, "shared_memory"),
        # the largest group: 16 waves * 64 = 1,024 threads; 512 / 128 = 4: 16 waves, one group
        (MI300X, 16, 128, 0, 1, "registers"),
        # gfx950: 81,920 = 64 * 1,280; 163,840 / 81,920 = 2 exactly
        (MI355X, 4, 64, 81_920, 2, "shared_memory"),
        # 81,921 up to 65 * 1,280 = 83,200; 1.97
        (MI355X, 4, 64, 81_921, 1, "shared_memory"),
        # 32,768 up to 26 * 1,280 = 33,280; 163,840 / 33,280 = 4.92; not rounded, 5 exactly
        (MI355X, 4, 64, 32_768, 4, "shared_memory"),
        # 65,536 up to 52 * 1,280 = 66,560; 2.46
        (MI355X, 8, 64, 65_536, 2, "shared_memory"),
        # 163,840 is the whole unit
        (MI355X, 8, 64, 163_840, 1, "shared_memory"),
        # 163,841 > 163,840: refused
        (MI355X, 8, 64, 163_841, 0, "shared_memory"),
        # 512 / 96 = 5.3 waves a SIMD: 20 waves; 20 / 4 = 5
        (MI355X, 4, 96, 0, 5, "registers"),
    ],
)
def test_work_groups_a_compute_unit_and_their_limiter_follow_llvm(
    chip, waves, registers, lds_bytes, groups, limiter
):
    assert blocks_and_limiter(chip, waves, registers, lds_bytes) == (groups, limiter)


@pytest.mark.parametrize("chip", [MI250X, MI300X, MI355X])
def test_a_work_group_of_one_wave_takes_no_barrier_and_is_limited_by_waves(chip):
    # LLVM's getMaxWorkGroupsPerCU: 16 barriers are for groups of several waves; alone, 4 * 8 = 32
    assert blocks_and_limiter(chip, 1, 32, 0) == (32, "warps")
