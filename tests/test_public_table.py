"""Shared memory that people were refused in public, and winners of public tuned tables.

Each figure is from somebody's error message or table, so none of them comes from this package. A
tile's operands take T = (BM + BN) * BK * bytes an element a stage.
"""

from dataclasses import replace

import pytest

from costmodel.config import KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.resources.footprint import footprint
from costmodel.space.prune import prune

A100 = load_profile("a100-sxm-80gb")
H100 = load_profile("h100-sxm")
L40S = load_profile("l40s")
RTX_4090 = load_profile("rtx-4090")
MI300X = load_profile("mi300x")
# chips without a profile here: shared memory follows the compute capability, not the chip
H20 = replace(H100, name="h20", units=78)
RTX_4090D = replace(RTX_4090, name="rtx-4090d", units=114)
GB10 = replace(load_profile("rtx-5090"), name="gb10", target="121", units=48)
#: a chip of another backend, with neither a matrix unit for fp32 nor asynchronous copies
A770 = replace(
    load_profile("rtx-3090"), name="a770", vendor="intel", backend="xpu", target="dg2", mma=(),
    async_copy=(), peak_tflops={"fp32": 19.66}, shared_per_block_bytes=65536,
)  # fmt: skip
LEGAL = KernelConfig("tile", 16, 16, 32, num_stages=1)  # beside it prune can reject the other


def square(dtype="fp16", precision=None):
    return Gemm(4096, 4096, 4096, dtype=dtype, precision=precision)


def tile(blocks, stages, warps=4, template="tile"):
    return KernelConfig(template, *blocks, num_stages=stages, num_warps=warps)


def taken(problem, config, profile):
    return footprint(problem, config, profile).shared_bytes


def refusal(problem, config, profile):
    """(needed, limit, repairs) where prune rejects for shared memory, else None."""
    kept, rejections = prune(problem, [LEGAL, config], profile)
    if list(kept) == [LEGAL, config]:
        return None
    assert list(kept) == [LEGAL] and rejections[0].reason == "shared_memory"
    return rejections[0].needed, rejections[0].limit, rejections[0].repairs


@pytest.mark.parametrize(
    ("profile", "problem", "config", "required", "limit"),
    [
        # mma.sync frees one of the stages, wgmma none; fp32 in "ieee" uses neither
        (L40S, square(), tile((128, 128, 64), 5, 8), 131072, 101376),  # 4 * 32768
        (GB10, square("fp8_e4m3"), tile((128, 256, 128), 4, 8), 147456, 101376),  # 3 * 49152
        (H20, square(), tile((256, 128, 128), 4), 393216, 232448),  # 4 * 98304
        (H20, square(), tile((256, 128, 128), 4, 8), 393216, 232448),
        (H100, square("fp32", "ieee"), tile((64, 128, 128), 4), 294912, 232448),  # 3 * 98304
        (H100, square("fp32", "tf32"), tile((64, 128, 128), 4), 393216, 232448),
        (H100, square("fp32"), tile((64, 128, 128), 4), 393216, 232448),  # tf32 unless asked
        # the report is another backend's, of one T and no stage count; here two stages are one T
        (A770, square("fp32"), tile((64, 128, 128), 2), 98304, 65536),
    ],
)
def test_what_was_refused_in_public_is_refused_with_the_reported_figures(
    profile, problem, config, required, limit
):
    assert refusal(problem, config, profile)[:2] == (required, limit)
    assert taken(problem, replace(config, template="split_k"), profile) == required


@pytest.mark.parametrize(
    ("dtype", "blocks", "stages", "required"),
    [  # mfma: a stage less, and with one stage a buffer for the larger operand
        ("bf16", (64, 64, 32), 2, 8192),
        ("bf16", (128, 128, 64), 2, 32768),
        ("bf16", (128, 128, 64), 3, 65536),
        ("bf16", (128, 256, 64), 2, 49152),
        ("bf16", (256, 256, 64), 2, 65536),
        ("bf16", (256, 64, 64), 1, 32768),
        ("fp32", (128, 128, 32), 2, 32768),
    ],
)
@pytest.mark.parametrize("template", ["tile", "split_k"])
def test_an_mi300x_takes_the_reported_figures_of_its_65536_bytes(
    dtype, blocks, stages, required, template
):
    config = tile(blocks, stages, warps=8, template=template)
    assert taken(square(dtype), config, MI300X) == required
    assert refusal(square(dtype), config, MI300X) is None
    assert MI300X.shared_per_block_bytes == 65536


def test_what_triton_of_2023_refused_on_an_a100_fits_by_the_stage_that_is_freed_since():
    # reported: 196608 of 166912 bytes, 4 * (128 + 256) * 64 * 2; since then the ring of mma.sync
    # has a stage less. Its 256 sums a thread of 255 registers make it slow, not illegal.
    config = tile((128, 256, 64), 4)
    assert taken(square(), config, A100) == 196608 - (128 + 256) * 64 * 2 == 147456
    assert refusal(square(), config, A100) is None
    assert A100.shared_per_block_bytes == 166912


def test_the_tile_that_gb10_refuses_takes_one_stage_more_on_sm_90_and_fits_there():
    config = tile((128, 256, 128), 4, 8)
    assert taken(square("fp8_e4m3"), config, H100) == 196608  # wgmma: 4 * 49152
    assert refusal(square("fp8_e4m3"), config, H100) is None


def test_fp8_that_is_upcast_in_flight_is_budgeted_by_the_type_that_is_multiplied():
    # reported for bf16 x fp8, 64x256x128 in 4 stages: 263356 of 232448 bytes. Operands of two
    # types are not this package's; the type of the product decides the verdict: bf16's ring is
    # 4 * (64 + 256) * 128 * 2 bytes, over the limit as the report is, and fp8's would fit.
    config = tile((64, 256, 128), 4)
    assert refusal(square("bf16"), config, H100)[:2] == (327680, 232448)
    assert refusal(square("fp8_e4m3"), config, H100) is None


@pytest.mark.parametrize("profile", [L40S, RTX_4090D], ids=lambda profile: profile.name)
def test_scratch_beside_the_ring_comes_off_the_limit_and_both_public_cures_are_repairs(profile):
    # reported for a persistent pointer kernel, 128x256x64, 8 warps, 3 stages: 106496 of 101376
    # bytes. It is not one of this package's: the ring is the one of "tile", 2 * 49152, but the
    # store's scratch of 8192 lies beside it, since the next tile's loads are in flight by then.
    # So the ring has 8192 bytes less; "tile" itself reuses the ring for its store, and fits.
    config = tile((128, 256, 64), 3, 8)
    assert taken(square(), config, profile) + 8192 == 106496
    assert refusal(square(), config, profile) is None
    beside = replace(profile, shared_per_block_bytes=101376 - 8192)
    needed, _, repairs = refusal(square(), config, beside)
    assert needed == 98304
    assert replace(config, num_stages=2) in repairs and replace(config, block_n=128) in repairs


@pytest.mark.parametrize(
    ("profile", "dtype", "blocks", "needed"),
    [  # five stages of A and B would exclude each; four of them fit
        (RTX_4090, "fp8_e4m3", (64, 128, 128), 98304),  # 4 * (64 + 128) * 128
        (RTX_4090, "fp8_e4m3", (128, 64, 128), 98304),
        (A100, "bf16", (32, 256, 64), 147456),  # 4 * (32 + 256) * 64 * 2
    ],
)
def test_five_stages_that_won_in_public_tables_are_accepted(profile, dtype, blocks, needed):
    config = tile(blocks, 5)
    assert taken(square(dtype), config, profile) == needed
    assert refusal(square(dtype), config, profile) is None


@pytest.mark.parametrize(
    ("chips", "limit"),
    [
        (("a100-sxm-80gb",), 166912),
        (("rtx-3090", "rtx-4090", "l40s", "rtx-5090"), 101376),
        (("h100-sxm", "h200-sxm", "b200"), 232448),
        (("mi250x", "mi300x"), 65536),
        (("mi355x",), 163840),
    ],
)
def test_a_block_may_take_the_opt_in_limit_from_which_nothing_is_subtracted_again(chips, limit):
    for chip in chips:
        assert load_profile(chip).shared_per_block_bytes == limit
