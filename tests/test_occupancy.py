"""Blocks a unit against cases worked by hand with the rules of NVIDIA's cuda_occupancy.h.

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
