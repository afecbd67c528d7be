"""What the vendor's library launched: its kernels' names are read, and its tile is tried on ours.

The names are cuBLAS', CUTLASS' and Tensile's own, as public traces show them.
"""

import json
import subprocess
from types import SimpleNamespace

import pytest

from costmodel.errors import DeviceError
from costmodel.measure import vendor as module
from costmodel.measure.tune import vendor_seeds
from costmodel.measure.vendor import vendor_kernel, vendor_kernel_if_seen
from costmodel.measure.vendor_kernels import VendorGemm, launches_of, parse_kernel_name
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.resources.warp_groups import warp_group_tile
from costmodel.space.prune import prune
from costmodel.space.seeded import seeded_candidates
from costmodel.space.specialized import makeable_widths

H200 = load_profile("h200-sxm")
XMMA = (
    "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1_"
    "execute_segment_k_off_kernel__5x_cublas"
)
XMMA_SPLIT = (
    "sm80_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize96x128x32_stage4_warpsize2x2x1_"
    "tensor16x8x16_execute_split_k_kernel__5x_cublas"
)
CUTLASS = "cutlass_80_tensorop_h16816gemm_256x128_32x3_nn_align8"
CUTLASS_WRAPPED = (
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_tn_align8>"
    "(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_tn_align8::Params)"
)
CUTLASS3 = (
    "cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_void_f16_128x128x64_2x1x1_0_tnn_align8_"
    "warpspecialized_cooperative_epi_tma"
)
TENSILE = "Cijk_Ailk_Bljk_HHS_BH_Bias_AS_SAV_UserArgs_MT16x32x64_MI16x16x1_SN_LDSB0_AFC1"

# name, family, tile, K step, stages, cluster, split K, layout
NAMES = [
    ("nvjet_tst_192x192_64x3_2x1_v_bz_TNN", "nvjet", (192, 192), 64, 3, (2, 1), False, "tnn"),
    ("nvjet_hsh_64x8_64x16_4x1_v_bz_splitK_TNT", "nvjet", (64, 8), 64, 16, (4, 1), True, "tnt"),
    ("nvjet_tst_64x24_64x16_4x1_v_bz_splitK_bias_TNT", "nvjet", (64, 24), 64, 16, (4, 1), True,
     "tnt"),
    ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT", "nvjet", (128, 256), 64, 4, (2, 1), False,
     "nnt"),
    ("nvjet_tst_192x16_64x8_2x2_2cta_h_bz_TNT", "nvjet", (192, 16), 64, 8, (2, 2), False, "tnt"),
    ("nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_TNT", "nvjet", (64, 16), 64, 16, (2, 4),
     True, "tnt"),
    ("nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN", "nvjet", (64, 64), 128, 3,
     None, False, "tnnn"),
    (XMMA, "xmma", (128, 128), 64, None, None, False, "tn"),
    (XMMA_SPLIT, "xmma", (96, 128), 32, 4, None, True, "nn"),
    (CUTLASS, "cutlass", (256, 128), 32, 3, None, False, "nn"),
    (CUTLASS_WRAPPED, "cutlass", (64, 64), 32, 6, None, False, "tn"),
    ("cutlass_75_wmma_tensorop_f16_s161616gemm_f16_32x16_64x2_tn_align1", "cutlass", (32, 16), 64,
     2, None, False, "tn"),
    (CUTLASS3, "cutlass3x", (128, 128), 64, None, (2, 1), False, "tnn"),
    ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn", "sass", (128, 64), 64, 4, None,
     False, "tn"),
    ("ampere_fp16_s16816gemm_fp16_64x96_sliced1x2_ldg8_f2f_stages_64x6_tn", "sass", (64, 96), 64,
     6, None, False, "tn"),
    ("ampere_sgemm_128x64_tn", "sass", (128, 64), None, None, None, False, "tn"),
    ("volta_h884gemm_64x128_ldg8_nt", "sass", (64, 128), None, None, None, False, "nt"),
    (TENSILE, "tensile", (16, 32), 64, None, None, False, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "family", "tile", "k_step", "stages", "cluster", "split", "layout"), NAMES
)
def test_a_products_name_is_read(name, family, tile, k_step, stages, cluster, split, layout):
    found = parse_kernel_name(name)
    assert (found.family, found.role, found.name) == (family, "product", name)
    assert (found.tile, found.k_step, found.stages) == (tile, k_step, stages)
    assert (found.cluster, found.split_k, found.layout) == (cluster, split, layout)


@pytest.mark.parametrize(
    ("name", "family", "role", "split"),
    [
        ("gemv2T_kernel_val", "gemv", "product", False),
        ("void gemv2T_kernel_val<int, int, __half, 128, 16, 4, 4>(cublasGemvParamsEx)", "gemv",
         "product", False),
        ("void gemvx::kernel<int, int, __half, 7, false>()", "gemv", "product", False),
        ("splitKreduce_kernel", "reduction", "reduction", True),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>()", "reduction", "reduction",
         True),
        ("void at::native::vectorized_elementwise_kernel<4>()", "other", "other", False),
        ("", "other", "other", False),
    ],
)  # fmt: skip
def test_a_name_without_a_tile_still_tells_what_the_kernel_does(name, family, role, split):
    found = parse_kernel_name(name)
    assert (found.family, found.role, found.split_k, found.tile) == (family, role, split, None)


def test_a_kernel_in_words():
    text = str(parse_kernel_name("nvjet_hsh_64x8_64x16_4x1_v_bz_splitK_TNT"))
    assert text == "nvjet 64x8, K step 64 x 16 stages, cluster 4x1, split K"
    assert str(parse_kernel_name("void gemv2T_kernel_val<int, int>(P)")) == "gemv2T_kernel_val"


# --- the trace ------------------------------------------------------------------------------------

#: events as Kineto writes them
TRACE = [
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "ts": 1.0, "dur": 9.0},
    {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "ts": 2.0, "dur": 1.0},
    {"ph": "X", "cat": "kernel", "name": "splitKreduce_kernel", "ts": 30.0, "dur": 2.5,
     "args": {"grid": [16, 1, 1], "block": [256, 1, 1]}},
    {"ph": "X", "cat": "kernel", "name": "nvjet_hsh_64x8_64x16_4x1_v_bz_splitK_TNT", "ts": 10.0,
     "dur": 14.25, "args": {"grid": [64, 1, 4], "block": [384, 1, 1]}},
]  # fmt: skip


def test_a_trace_gives_its_kernels_in_order_with_grid_and_time():
    seen = VendorGemm(launches_of(TRACE))
    assert [launch.kernel.role for launch in seen.launches] == ["product", "reduction"]
    first = seen.launches[0]
    assert (first.grid, first.block, first.time_us) == ((64, 1, 4), (384, 1, 1), 14.25)
    assert (seen.tile, seen.split_k) == ((64, 8), True)
    assert str(seen).splitlines() == [
        "vendor: nvjet 64x8, K step 64 x 16 stages, cluster 4x1, split K; grid 64x1x4, "
        "14.25 us warm",
        "vendor: splitKreduce_kernel; grid 16x1x1, 2.50 us warm",
    ]
    plain = json.loads(json.dumps(seen.as_dict()))
    assert [kernel["tile"] for kernel in plain["kernels"]] == [[64, 8], None]


@pytest.fixture
def child(monkeypatch):
    """Stands in for the tracing process; gives the jobs that it was handed."""

    def install(stdout="[]", returncode=0, stderr=""):
        jobs = []

        def run(command, *, input, **options):
            assert command[1:] == ["-m", "costmodel.measure.vendor_trace"]
            jobs.append(json.loads(input))
            if returncode == "hang":
                raise subprocess.TimeoutExpired(command, options["timeout"])
            return SimpleNamespace(stdout=stdout, returncode=returncode, stderr=stderr)

        monkeypatch.setattr(module.subprocess, "run", run)
        monkeypatch.setattr(module, "require_gpu", lambda: None)
        return jobs

    return install


def test_the_vendors_kernels_are_those_of_the_childs_trace(child):
    jobs = child(json.dumps(TRACE))
    seen = vendor_kernel(Gemm(16, 4096, 4096), device=3)
    assert seen.tile == (64, 8)
    assert jobs[0]["device"] == 3
    assert Gemm(**jobs[0]["problem"]) == Gemm(16, 4096, 4096)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"returncode": 1, "stderr": "Traceback\nRuntimeError: CUPTI is refused"}, "CUPTI is"),
        ({"returncode": 1}, "no message"),
        ({"returncode": "hang"}, "no answer in 120 s"),
        ({"stdout": json.dumps(TRACE[:2])}, "shows no kernel"),
    ],
)
def test_a_profiler_that_shows_nothing_is_an_error_or_none(child, answer, message):
    child(**answer)
    with pytest.raises(DeviceError, match=message):
        vendor_kernel(Gemm(64, 64, 64))
    assert vendor_kernel_if_seen(Gemm(64, 64, 64)) is None


# --- its tile on ours -----------------------------------------------------------------------------


def tiles(table):
    return {(c.template, c.block_m, c.block_n) for c in table}


def test_a_tile_that_only_runs_of_columns_make_seeds_warp_groups_alone():
    table, _ = prune(
        Gemm(4096, 4096, 4096), seeded_candidates(Gemm(4096, 4096, 4096), H200, (192, 192)), H200
    )
    assert tiles(table) == {("warp_specialized", 192, 192)}
    # 3 groups of 64 rows; 192 columns are runs of 128 and 64
    assert warp_group_tile(table).groups.tolist() == [3] * len(table)
    assert warp_group_tile(table).runs[:, 0].tolist() == [128, 64, 0]


def test_a_tile_seeds_both_orientations_and_every_template_that_can_make_it():
    problem = Gemm(4096, 4096, 4096)
    table, _ = prune(problem, seeded_candidates(problem, H200, (128, 256)), H200)
    templates = ("tile", "persistent_tma", "warp_specialized")
    assert tiles(table) == {(t, *side) for t in templates for side in ((128, 256), (256, 128))}


def test_a_narrow_tile_lies_along_the_side_that_its_rows_fit():
    problem = Gemm(16, 4096, 4096)
    table, _ = prune(problem, seeded_candidates(problem, H200, (64, 8)), H200)
    made = {(c.block_m, c.block_n, c.swap) for c in table}
    assert made == {(8, 64, True), (64, 8, False)}


def test_a_width_that_three_runs_cannot_make_becomes_its_neighbours():
    # 232 = 128 + 64 + 32 + 8 is four runs; 224 = 128 + 64 + 32 and 256 = 128 + 128 are not
    assert makeable_widths(232) == [224, 256]
    assert makeable_widths(136) == [136]
    assert makeable_widths(4) == [8]
    assert makeable_widths(1000) == [384]


def test_a_tile_of_no_template_or_no_tile_seeds_nothing():
    problem = Gemm(4096, 4096, 4096)
    odd = VendorGemm(launches_of([TRACE[3] | {"name": "nvjet_tst_96x48_64x8_1x1_v_bz_TNN"}]))
    gemv = VendorGemm(launches_of([TRACE[3] | {"name": "gemv2T_kernel_val"}]))
    assert vendor_seeds(problem, H200, odd, 4) == []
    assert vendor_seeds(problem, H200, gemv, 4) == []
    assert vendor_seeds(problem, H200, None, 4) == []


def test_seeds_are_the_best_predicted_of_the_tile_and_as_many_as_asked():
    problem = Gemm(4096, 4096, 4096)
    seen = VendorGemm(launches_of([TRACE[3] | {"name": "nvjet_hsh_128x256_64x4_2x1_v_bz_TNN"}]))
    four = vendor_seeds(problem, H200, seen, 4)
    assert len(set(four)) == 4 and vendor_seeds(problem, H200, seen, 2) == four[:2]
    assert {tuple(sorted((c.block_m, c.block_n))) for c in four} == {(128, 256)}
    assert vendor_seeds(problem, H200, seen, 0) == []


@pytest.mark.gpu
def test_on_a_gpu_the_profiler_shows_a_product_with_its_grid_and_time():
    seen = vendor_kernel(Gemm(512, 512, 512))
    assert seen.product is not None
    assert all(launch.grid and launch.time_us > 0 for launch in seen.launches)
