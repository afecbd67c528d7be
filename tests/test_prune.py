"""What a chip cannot run is rejected by arithmetic, with figures and with repairs that work."""

import subprocess
import sys
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import NoCandidateError, UnsupportedError
from costmodel.problem import Gemm
from costmodel.profile import list_profiles, load_profile
from costmodel.resources.footprint import footprint, footprint_columns
from costmodel.space.candidates import candidates
from costmodel.space.prune import broken_rule, prune, repairs

A100 = load_profile("a100-sxm-80gb")
H100 = load_profile("h100-sxm")
ADA = load_profile("rtx-4090")
MI300X = load_profile("mi300x")
L40S = load_profile("l40s")
SHIPPED = [load_profile(name) for name in list_profiles()]
NVIDIA = [profile for profile in SHIPPED if profile.backend == "cuda"]
AMD = [profile for profile in SHIPPED if profile.warp_size == 64]
SQUARE = Gemm(4096, 4096, 4096)
SMALL = KernelConfig("tile", 64, 64, 32, num_stages=2)  # legal on every chip here
KNOBS = [field.name for field in fields(KernelConfig)]


def rows(table):
    """A table's rows as tuples, to compare and to count."""
    return list(zip(*(getattr(table, knob).tolist() for knob in KNOBS), strict=True))


def rejection(problem, config, profile):
    """The rejection of one configuration beside a legal one."""
    kept, rejections = prune(problem, [SMALL, config], profile)
    assert list(kept) == [SMALL] and len(rejections) == 1
    return rejections[0]


def is_legal(problem, config, profile):
    try:
        kept, _ = prune(problem, [config], profile)
    except NoCandidateError:
        return False
    return list(kept) == [config]


# --- shared memory: figures that people met, by hand ---------------------------------------------


def test_a_tile_of_256_cubed_with_5_stages_needs_1310720_of_232448_bytes_on_sm_90():
    found = rejection(SQUARE, KernelConfig("tile", 256, 256, 256, num_stages=5, num_warps=8), H100)
    # 5 stages of 2 * 256 * 256 elements of 2 bytes
    assert (found.reason, found.needed, found.limit, found.unit) == (
        "shared_memory", 1310720, 232448, "bytes",
    )  # fmt: skip
    assert "1310720" in str(found) and "232448" in str(found)


def test_pruning_needs_neither_torch_nor_triton_so_nothing_is_compiled():
    script = """
import sys
for name in ("torch", "triton", "pandas", "scipy", "sklearn"):
    sys.modules[name] = None  # an import of it fails
from costmodel.space.candidates import candidates
from costmodel.problem import Gemm
from costmodel.profile import list_profiles, load_profile
from costmodel.space.prune import broken_rule, prune, repairs
problem, profile = Gemm(4096, 4096, 4096), load_profile("h100-sxm")
kept, rejections = prune(problem, candidates(problem, profile), profile)
print(len(kept), len(rejections))
"""
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept, rejected = map(int, done.stdout.split())
    assert kept > 0 and rejected > 0


def test_an_l40s_tile_is_rejected_with_3_stages_and_block_n_128_among_its_repairs():
    config = KernelConfig("tile", 128, 256, 64, num_warps=8, num_stages=4)
    found = rejection(SQUARE, config, L40S)
    # mma.sync keeps 3 of the 4 stages: 3 * (128 + 256) * 64 * 2
    assert (found.reason, found.needed, found.limit) == ("shared_memory", 147456, 101376)
    for repair in (replace(config, num_stages=3), replace(config, block_n=128)):
        assert repair in found.repairs
        assert footprint(SQUARE, repair, L40S).shared_bytes == 98304
        assert is_legal(SQUARE, repair, L40S)


def test_a_tile_whose_accumulator_spills_is_legal():
    # 128 * 256 sums over 4 warps of 32 threads are 256 registers a thread, of 255
    assert is_legal(SQUARE, KernelConfig("tile", 128, 256, 64, num_warps=4, num_stages=3), H100)
    assert is_legal(SQUARE, KernelConfig("tile", 128, 256, 64, num_warps=8, num_stages=3), H100)


def test_the_limit_itself_is_legal_and_one_byte_less_is_not():
    config = KernelConfig("tile", 128, 128, 64, num_stages=3)  # 2 * (128 + 128) * 64 * 2
    assert MI300X.shared_per_block_bytes == 65536
    assert is_legal(SQUARE, config, MI300X)
    found = rejection(SQUARE, config, replace(MI300X, shared_per_block_bytes=65535))
    assert (found.needed, found.limit) == (65536, 65535)


# --- the other limits ----------------------------------------------------------------------------


@pytest.mark.parametrize("profile", NVIDIA, ids=lambda p: p.name)
def test_64_warps_are_too_many_threads_on_an_nvidia_chip(profile):
    found = rejection(SQUARE, KernelConfig("tile", 128, 128, 32, num_warps=64), profile)
    assert (found.reason, found.needed, found.limit) == ("threads", 2048, 1024)
    assert is_legal(SQUARE, KernelConfig("tile", 128, 128, 32, num_warps=32), profile)


@pytest.mark.parametrize("profile", AMD, ids=lambda p: p.name)
def test_32_warps_are_too_many_threads_where_a_wavefront_has_64(profile):
    found = rejection(SQUARE, KernelConfig("tile", 128, 128, 32, num_warps=32), profile)
    assert (found.reason, found.needed, found.limit) == ("threads", 2048, 1024)
    assert is_legal(SQUARE, KernelConfig("tile", 128, 128, 32, num_warps=16), profile)


@pytest.mark.parametrize(
    "knobs", [{"block_m": 48}, {"block_n": 96}, {"block_k": 24}, {"num_warps": 3}]
)
def test_a_block_or_a_warp_count_that_is_no_power_of_two_is_rejected(knobs):
    assert rejection(SQUARE, replace(SMALL, **knobs), A100).reason == "power_of_two"


def test_8_bit_dots_take_32_of_k_on_nvidia():
    problem = Gemm(4096, 4096, 4096, dtype="int8")
    assert rejection(problem, replace(SMALL, block_k=16), A100).reason == "smallest_dot"
    assert is_legal(problem, replace(SMALL, block_k=32), A100)
    assert is_legal(SQUARE, replace(SMALL, block_k=16), A100)


@pytest.mark.parametrize("profile", [A100, ADA, MI300X], ids=lambda p: p.name)
def test_tensor_descriptors_need_a_copy_engine(profile):
    config = KernelConfig("persistent_tma", 64, 64, 64, num_stages=2)
    assert is_legal(SQUARE, config, H100)
    assert rejection(SQUARE, config, profile).reason == "copy_engine"


@pytest.mark.parametrize(
    ("sizes", "layout", "legal"),
    [
        ((64, 64, 104), "nt", True),  # rows of 208 bytes, 13 times 16
        ((64, 64, 100), "nt", False),  # 200 bytes: A's and B's rows
        ((64, 64, 100), "tn", True),  # no row is K long
        ((64, 100, 64), "nt", False),  # C's rows
        ((100, 64, 64), "nt", True),  # no row is M long
        ((100, 64, 64), "tt", False),  # A's rows
        ((1, 100, 64), "nt", True),  # C has one row: there is no step to the next
        ((2, 100, 64), "nt", False),
    ],
)
def test_tensor_descriptors_need_rows_of_16_bytes(sizes, layout, legal):
    config = KernelConfig("persistent_tma", 64, 64, 64, num_stages=2)
    problem = Gemm(*sizes, layout=layout)
    if legal:
        assert is_legal(problem, config, H100)
    else:
        assert rejection(problem, config, H100).reason == "aligned_rows"


def test_k_is_split_into_no_more_parts_than_it_has_steps():
    problem = Gemm(16, 64, 512)
    config = KernelConfig("split_k", 16, 64, 128, num_stages=2)
    assert is_legal(problem, replace(config, split_k=4), A100)
    found = rejection(problem, replace(config, split_k=8), A100)
    assert (found.reason, found.needed, found.limit) == ("split_k", 8, 4)
    assert replace(config, split_k=4) in found.repairs


def test_only_split_k_splits():
    assert rejection(SQUARE, replace(SMALL, split_k=2), A100).reason == "split_k"


# --- types that a chip lacks ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "dtype"), [(A100, "fp8_e4m3"), (H100, "fp8_e4m3fnuz"), (A100, "fp8_e5m2fnuz")]
)
def test_a_type_that_does_not_compile_on_the_chip_is_an_error_with_those_that_do(profile, dtype):
    with pytest.raises(UnsupportedError) as caught:
        prune(Gemm(4096, 4096, 4096, dtype=dtype), [SMALL], profile)
    message = str(caught.value)
    assert profile.name in message and dtype in message
    assert "fp16" in message and "bf16" in message


@pytest.mark.parametrize(
    ("profile", "dtype"), [(A100, "fp8_e5m2"), (MI300X, "fp8_e4m3"), (MI300X, "fp8_e5m2")]
)
def test_a_type_that_compiles_without_a_matrix_unit_of_its_own_is_legal(profile, dtype):
    assert is_legal(Gemm(4096, 4096, 4096, dtype=dtype), SMALL, profile)


# --- nothing left --------------------------------------------------------------------------------


def test_where_every_configuration_is_over_the_limit_the_error_names_it_and_the_least_excess():
    configs = [
        KernelConfig("tile", 128, 128, 64, num_stages=4),  # 3 * 32768 = 98304
        KernelConfig("tile", 64, 128, 64, num_stages=4),  # 3 * 24576 = 73728, over by 8192
        KernelConfig("tile", 128, 256, 64, num_stages=4),  # 3 * 49152 = 147456
    ]
    with pytest.raises(NoCandidateError) as caught:
        prune(SQUARE, configs, MI300X)
    message = str(caught.value)
    assert "shared memory" in message and "65536" in message and " 8192" in message
    assert str(configs[1]) in message


def test_a_chip_with_a_kibibyte_of_shared_memory_runs_no_candidate():
    tiny = replace(A100, shared_per_block_bytes=1024)
    with pytest.raises(NoCandidateError, match="1024 bytes"):
        prune(SQUARE, candidates(SQUARE, tiny), tiny)


def test_nothing_to_prune_leaves_nothing():
    kept, rejections = prune(SQUARE, [], A100)
    assert len(kept) == 0 and len(rejections) == 0


# --- candidates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_block_m_64_stays_among_the_candidates_of_16_rows_on_sm_90(layout):
    problem = Gemm(16, 4096, 4096, layout=layout)
    kept, _ = prune(problem, candidates(problem, H100), H100)
    assert (kept.block_m == 64).any() and (kept.block_m == 16).any()


def test_the_candidates_come_in_the_same_order_each_time_and_none_twice():
    first = rows(candidates(SQUARE, H100))
    assert rows(candidates(SQUARE, H100)) == first
    assert max(Counter(first).values()) == 1


def test_only_a_chip_with_a_copy_engine_has_descriptor_candidates():
    assert candidates(SQUARE, H100).is_template("persistent_tma").any()
    for profile in (A100, MI300X):
        assert not candidates(SQUARE, profile).is_template("persistent_tma").any()


# --- whatever the problem ------------------------------------------------------------------------

SUPPORTED = st.sampled_from([A100, H100, ADA, MI300X]).flatmap(
    lambda profile: st.tuples(
        st.just(profile),
        st.builds(
            Gemm,
            m=st.integers(1, 20000),
            n=st.integers(1, 20000),
            k=st.integers(1, 20000),
            dtype=st.sampled_from(sorted({"fp16", "bf16", "fp32", "int8"})),
            layout=st.sampled_from(["nn", "nt", "tn", "tt"]),
            batch=st.integers(1, 4),
        ),
    )
)
POWERS = st.sampled_from([16, 32, 64, 128, 256, 512])
ANY_CONFIG = st.builds(
    KernelConfig,
    template=st.sampled_from(["tile", "split_k", "persistent_tma"]),
    block_m=POWERS | st.integers(1, 600),
    block_n=POWERS,
    block_k=POWERS,
    group_m=st.none() | st.integers(1, 16),
    split_k=st.integers(1, 64),
    num_warps=st.sampled_from([None, 1, 2, 3, 4, 8, 16, 32, 64]),
    num_stages=st.none() | st.integers(1, 20),
    load_bits=st.sampled_from([None, 16, 32, 64, 128]),
    swap=st.booleans(),
    epilogue_parts=st.integers(1, 3),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SUPPORTED)
def test_what_is_kept_and_what_is_rejected_make_the_whole_and_nothing_kept_is_too_big(case):
    profile, problem = case
    table = candidates(problem, profile)
    kept, rejections = prune(problem, table, profile)
    assert Counter(rows(kept)) + Counter(rows(rejections.configs)) == Counter(rows(table))
    assert len(kept) > 0
    taken = footprint_columns(problem, kept, profile).shared_bytes
    assert (taken <= profile.shared_per_block_bytes).all()
    assert (rejections.needed > rejections.limit).all()
    assert sum(rejections.counts().values()) == len(rejections)


@settings(max_examples=40, deadline=None)
@given(SUPPORTED, st.lists(ANY_CONFIG, max_size=12))
def test_a_column_call_says_of_each_row_what_a_call_with_that_row_alone_says(case, configs):
    profile, problem = case
    configs = [SMALL, *configs]
    kept, rejections = prune(problem, configs, profile)
    reasons = {found.config: found.reason for found in rejections}
    assert list(kept) == [config for config in configs if config not in reasons]
    for config in configs[1:]:
        alone, found = prune(problem, [SMALL, config], profile)
        rule = broken_rule(problem, config, profile)
        if config in reasons:
            assert [one.reason for one in found] == [reasons[config]] == [rule.name]
        else:
            assert list(alone) == [SMALL, config] and rule is None


@settings(max_examples=60, deadline=None)
@given(SUPPORTED, ANY_CONFIG)
def test_every_repair_is_legal_and_lowers_knobs_of_the_configuration(case, config):
    profile, problem = case
    _, rejections = prune(problem, [SMALL, config], profile)
    for found in rejections:
        for repair in found.repairs:
            assert is_legal(problem, repair, profile), (str(found), str(repair))
            changed = [k for k in KNOBS if getattr(repair, k) != getattr(config, k)]
            assert changed and (len(changed) == 1 or repair.template == "tile")


@pytest.mark.parametrize("profile", [A100, H100, ADA, MI300X], ids=lambda p: p.name)
def test_every_rejected_candidate_of_a_square_problem_has_a_repair(profile):
    _, rejections = prune(SQUARE, candidates(SQUARE, profile), profile)
    few = rejections.configs[np.linspace(0, len(rejections) - 1, 40).astype(int)]
    for config in few:
        found = rejection(SQUARE, config, profile)
        assert found.repairs
        kept, rest = prune(SQUARE, found.repairs, profile)
        assert list(kept) == found.repairs and len(rest) == 0


def test_a_legal_configuration_has_no_rejection():
    kept, rejections = prune(SQUARE, ConfigTable.of(SMALL), A100)
    assert list(kept) == [SMALL] and list(rejections) == []


@pytest.mark.parametrize(
    ("knobs", "repaired"),
    [
        ({"block_m": 100}, {"block_m": 64}),
        ({"block_m": 8}, {"block_m": 16}),
        ({"block_k": 8}, {"block_k": 32}),
        ({"num_warps": 3}, {"num_warps": 2}),
        ({"load_bits": 7}, {"load_bits": 128}),
    ],
)
def test_a_value_that_is_no_power_of_two_or_too_small_is_repaired(knobs, repaired):
    problem, chip = Gemm(4096, 4096, 4096), load_profile("h200-sxm")
    config = KernelConfig("tile", 64, 64, 64, num_warps=4, num_stages=3)
    with pytest.raises(NoCandidateError):
        prune(problem, ConfigTable.of(replace(config, **knobs)), chip)
    assert replace(config, **repaired) in repairs(problem, replace(config, **knobs), chip)
