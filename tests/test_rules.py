"""Which Triton's habits decide a footprint, and what changed between versions."""

import subprocess
import sys

import numpy as np
import pytest

from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.resources import rules
from costmodel.resources.footprint import footprint
from costmodel.resources.matrix_unit import MatrixUnit, matrix_unit
from costmodel.resources.shared.async_padding import padded_bytes, padding


def test_a_surveyed_version_is_known_by_its_first_two_numbers():
    for version in ("3.6.0", "3.6.1", "3.6.0+git1234"):
        choice = rules.rules_for("cuda", version)
        assert (choice.rules.version, choice.assumed) == ("3.6.0", False)
    assert rules.rules_for("hip", "3.9.0").rules.version == "3.9.0"


@pytest.mark.parametrize("version", ["3.7.0", "3.10.0", "4.0", "2.1.0", "nonsense"])
def test_an_unknown_version_gets_the_newest_rules_and_says_so(version):
    choice = rules.rules_for("cuda", version)
    assert (choice.rules.version, choice.assumed) == ("3.9.0", True)


@pytest.mark.parametrize(
    ("installed", "expected"),
    [("3.6.0", ("3.6.0", False)), ("3.8.0", ("3.9.0", True)), (None, ("3.9.0", False))],
)
def test_by_default_the_installed_triton_decides_or_else_the_newest_rules(
    monkeypatch, installed, expected
):
    monkeypatch.setattr(rules, "installed_version", lambda: installed)
    rules.rules_for.cache_clear()
    try:
        found = footprint(Gemm(64, 64, 64), KernelConfig("tile", 64, 64, 64), load_profile("b200"))
    finally:
        rules.rules_for.cache_clear()
    assert (found.rules_version, found.assumed) == expected


def test_asking_for_the_version_imports_no_triton():
    code = (
        "import sys; from costmodel.resources.rules import installed_version;"
        "installed_version(); assert 'triton' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


# the compiler's figures, from its survey under either version
CHANGED = [
    # int8 goes to tcgen05: 8 stages stay, and two barriers are 16 bytes
    ("b200", "tn", "int8", (64, 128, 128), {"num_stages": 8, "swap": True}, 172032, 196624),
    # a padded ring of all stages: 3 * 32768 + 2 * 47 * 16
    ("mi355x", "nt", "fp16", (128, 128, 64), {"num_stages": 3}, 65536, 99808),
    # Hopper and older did not change
    ("h200-sxm", "nt", "fp16", (128, 256, 64), {"num_stages": 4, "num_warps": 8}, 196608, 196608),
    ("a100-sxm-80gb", "nt", "fp16", (128, 256, 64), {"num_stages": 4}, 147456, 147456),
]


@pytest.mark.parametrize(("chip", "layout", "dtype", "blocks", "knobs", "old", "new"), CHANGED)
def test_what_changed_from_3_6_to_3_9(chip, layout, dtype, blocks, knobs, old, new):
    problem = Gemm(4096, 2048, 4096, dtype=dtype, layout=layout)
    config, profile = KernelConfig("tile", *blocks, **knobs), load_profile(chip)
    found = [footprint(problem, config, profile, v).shared_bytes for v in ("3.6.0", "3.9.0")]
    assert found == [old, new]


def test_a_tile_too_large_for_amd_takes_a_detour_until_3_9():
    problem = Gemm(1000, 1000, 1000, layout="nn", beta=1.0)
    config = KernelConfig("split_k", 256, 128, 32, split_k=4, num_warps=8, num_stages=1, swap=True)
    mi250 = load_profile("mi250x")
    assert footprint(problem, config, mi250, "3.6.0").shared_bytes == 16640
    assert footprint(problem, config, mi250, "3.9.0").shared_bytes == 131072


def test_integers_met_tcgen05_after_3_6():
    table, b200 = ConfigTable.of(KernelConfig("tile", 128, 128, 64)), load_profile("b200")
    problem = Gemm(4096, 4096, 4096, dtype="int8")
    unit = {
        version: int(matrix_unit(problem, table, b200, rules.rules_for("cuda", version).rules)[0])
        for version in ("3.6.0", "3.9.0")
    }
    assert unit == {"3.6.0": MatrixUnit.MMA_SYNC, "3.9.0": MatrixUnit.TCGEN05}


# ttgir of 3.9.0 for gfx950: padded_shared<[512:+8]>, [512:+32], [1024:+32] or a swizzle
@pytest.mark.parametrize(
    ("size", "k", "outer", "along_k", "side", "width", "expected"),
    [
        (2, 32, 64, True, 32, 8, 8),
        (2, 32, 256, False, 32, 8, 32),
        (2, 16, 256, False, 16, 4, 16),
        (1, 128, 128, True, 16, 16, 32),
        (1, 64, 64, True, 32, 16, 16),
        (1, 16, 128, True, 32, 8, 8),
        (2, 64, 32, True, 32, 8, 0),  # 32 rows of 64: too few to spread
        (2, 16, 16, False, 16, 4, 0),
        (4, 64, 64, True, 32, 4, 0),
    ],
)
def test_padding_spreads_rows_over_the_banks(size, k, outer, along_k, side, width, expected):
    def column(number):
        return np.array([number])

    found = padding(
        size, column(k), column(outer), np.array([along_k]), column(side), column(width)
    )
    assert int(found[0]) == expected


def test_there_is_padding_after_each_kibibyte_but_the_last():
    # 3 buffers of 128 x 64 in fp16: 48 times 1024 bytes, 47 gaps of 8 elements
    assert int(padded_bytes(2, np.array([24576]), np.array([8]))[0]) == 49152 + 47 * 16
