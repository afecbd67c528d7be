"""The bytes of shared memory that we predict are the bytes that the compiler takes."""

import csv
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.compiler.survey import TARGETS, read_results
from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.resources.footprint import PARTS, footprint, footprint_columns

DATA = Path(__file__).parent / "data"
CHIPS = {name: load_profile(name) for name in ("a100-sxm-80gb", "h100-sxm", "rtx-4090", "mi300x")}


def shared_bytes(chip, problem, config):
    return footprint(problem, config, CHIPS[chip]).shared_bytes


# --- by hand, T = (BM + BN) * BK * bytes an element; public errors are in test_public_table.py ---


@pytest.mark.parametrize(
    ("chip", "dtype", "blocks", "stages", "expected_bytes"),
    [
        # (s - 1) T where mma.sync frees a stage
        ("rtx-4090", "fp16", (128, 256, 64), 4, 147456),  # 3 * 49152
        ("a100-sxm-80gb", "int8", (128, 128, 128), 3, 65536),
        # s T where wgmma reads operands in place
        ("h100-sxm", "fp16", (64, 64, 64), 3, 49152),  # 3 * 16384
        # (s - 1) T on Hopper too, where a block has fewer rows than wgmma takes
        ("h100-sxm", "fp16", (32, 256, 64), 5, 147456),  # 4 * 36864
        # one stage on NVIDIA: A and B once
        ("a100-sxm-80gb", "fp16", (128, 128, 64), 1, 32768),
        ("h100-sxm", "fp16", (128, 128, 64), 2, 65536),
    ],
)
def test_a_pointer_kernel_takes_its_stages_of_a_and_b(chip, dtype, blocks, stages, expected_bytes):
    problem = Gemm(4096, 4096, 4096, dtype=dtype)
    for template in ("tile", "split_k"):
        config = KernelConfig(template, *blocks, num_warps=8, num_stages=stages)
        assert shared_bytes(chip, problem, config) == expected_bytes


def test_a_descriptor_kernel_takes_stages_the_output_tile_and_a_barrier_a_stage():
    found = footprint(
        Gemm(4096, 4096, 4096),
        KernelConfig("persistent_tma", 128, 128, 64, num_stages=3),
        CHIPS["h100-sxm"],
    )
    # 3 * (128 + 128) * 64 * 2, 128 * 128 * 2, 3 * 8
    assert (found.operand_ring_bytes, found.staging_bytes, found.barrier_bytes) == (
        98304, 32768, 24,
    )  # fmt: skip
    assert found.shared_bytes == 131096


# --- against the compiler's figures for 360 configurations ---------------------------------------


def recorded():
    """(problem, config, the row's chip, its bytes) of every row of both files."""
    for target, chip in (("80", "a100-sxm-80gb"), ("90", "h100-sxm")):
        with open(DATA / f"plain_gemm_sm{target}.csv", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                dtype = {"fp8": "fp8_e4m3"}.get(row["dtype"], row["dtype"])
                problem = Gemm(
                    4096, 4096, 4096, dtype=dtype,
                    layout="nt" if row["b_is_kmajor"] == "True" else "nn",
                    precision=row["prec"] if dtype == "fp32" else None,
                )  # fmt: skip
                config = KernelConfig(
                    "tile", int(row["bm"]), int(row["bn"]), int(row["bk"]),
                    num_warps=int(row["warps"]), num_stages=int(row["stages"]),
                )  # fmt: skip
                yield chip, problem, config, int(row["shared_bytes"])


RECORDED = list(recorded())
KIBIBYTES_48 = 48 * 1024
#: fp8 on Hopper with B not contiguous along K: it passes through registers, and has one buffer
THROUGH_REGISTERS = [
    row for row in RECORDED if row[1].dtype == "fp8_e4m3" and row[1].layout == "nn"
]


def misses(rows):
    """Rows where we predict something else, as text."""
    return [
        f"{chip} {problem} {problem.precision or ''} {config}: {predicted}, compiler {actual}"
        for chip, problem, config, actual in rows
        if (predicted := shared_bytes(chip, problem, config)) != actual
    ]


def over_48_kib(rows):
    return [row for row in rows if max(row[3], shared_bytes(*row[:3])) > KIBIBYTES_48]


def test_each_file_holds_180_configurations():
    assert [sum(row[0] == chip for row in RECORDED) for chip in CHIPS] == [180, 180, 0, 0]


@pytest.mark.parametrize(
    ("chip", "dtype"),
    [
        ("a100-sxm-80gb", "fp16"),
        ("a100-sxm-80gb", "fp32"),
        ("a100-sxm-80gb", "int8"),
        ("h100-sxm", "fp16"),
        ("h100-sxm", "fp32"),
        ("h100-sxm", "fp8_e4m3"),
    ],
)
def test_past_48_kib_the_prediction_is_the_compilers_figure(chip, dtype):
    rows = [row for row in RECORDED if row[0] == chip and row[1].dtype == dtype]
    large = over_48_kib([row for row in rows if row not in THROUGH_REGISTERS])
    assert large
    assert misses(large) == []


def test_past_48_kib_fp8_with_b_not_contiguous_along_k_has_one_buffer_of_b_on_sm_90():
    large = over_48_kib(THROUGH_REGISTERS)
    assert large
    assert misses(large) == []


SMALL = [row for row in RECORDED if row[3] <= KIBIBYTES_48 and row not in THROUGH_REGISTERS]


def test_up_to_48_kib_of_16_and_32_bit_types_the_compiler_takes_more_only_for_the_output_tile():
    wide = [row for row in SMALL if row[1].element_bytes >= 2]
    for chip, problem, config, actual in wide:
        output_tile = config.block_m * config.block_n * problem.out_bytes
        assert actual in (shared_bytes(chip, problem, config), output_tile)
    assert len(misses(wide)) <= len(wide) // 50


def test_up_to_48_kib_an_8_bit_prediction_is_off_by_12_kib_at_most_and_never_over_48_kib():
    # operands of 4 bytes a thread or fewer, and the output tile's staging, decide here
    for chip, problem, config, actual in SMALL:
        predicted = shared_bytes(chip, problem, config)
        assert predicted <= KIBIBYTES_48
        assert abs(predicted - actual) <= 12 * 1024 or problem.element_bytes > 1


# --- against the compiler itself -----------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    chip: str
    problem: Gemm
    config: KernelConfig

    def __str__(self):
        return f"{self.chip} {self.problem} {self.config}".replace(" ", "-")


def case(chip, template, blocks, *, sizes=(4096, 4096, 4096), knobs=None, **problem):
    made = Case(chip, Gemm(*sizes, **problem), KernelConfig(template, *blocks, **(knobs or {})))
    return pytest.param(made, id=str(made))


A100, H100, MI300X = "a100-sxm-80gb", "h100-sxm", "mi300x"
CASES = [
    case(A100, "tile", (128, 128, 64), knobs={"num_stages": 3}),
    case(A100, "tile", (64, 256, 32), knobs={"num_stages": 4}, layout="nn", dtype="bf16"),
    case(A100, "tile", (128, 64, 32), knobs={"num_stages": 4}, layout="tn", dtype="fp32"),
    case(A100, "tile", (16, 256, 64), knobs={"num_stages": 4, "swap": True}, sizes=(16, 4096, 64)),
    case(A100, "split_k", (64, 128, 64), knobs={"num_stages": 4, "split_k": 4}),
    case(A100, "split_k", (16, 128, 128), knobs={"num_stages": 3, "split_k": 8}, dtype="int8"),
    case(A100, "tile", (128, 128, 64), knobs={"num_stages": 4}, sizes=(4096, 4096, 4097)),
    case(
        A100, "tile", (128, 128, 64), knobs={"num_stages": 4}, sizes=(4096, 4096, 4097),
        layout="nn",
    ),
    case(
        A100, "tile", (16, 128, 64), knobs={"num_stages": 4}, sizes=(1, 4096, 4096), layout="tn",
    ),
    case(A100, "tile", (128, 128, 64), knobs={"num_stages": 4, "load_bits": None}),
    case(H100, "tile", (128, 256, 64), knobs={"num_stages": 3, "num_warps": 8}),
    case(H100, "tile", (64, 128, 64), knobs={"num_stages": 4}, layout="tt", batch=2, beta=1.0),
    case(H100, "tile", (32, 256, 64), knobs={"num_stages": 4}),
    case(H100, "tile", (32, 256, 64), knobs={"num_stages": 4, "swap": True}),
    case(H100, "tile", (64, 128, 64), knobs={"num_stages": 3}, dtype="fp32", precision="ieee"),
    case(H100, "tile", (64, 128, 64), knobs={"num_stages": 3}, dtype="fp32", precision="tf32"),
    case(H100, "tile", (128, 128, 128), knobs={"num_stages": 4}, dtype="fp8_e4m3"),
    case(
        H100, "tile", (128, 128, 128), knobs={"num_stages": 4}, dtype="fp8_e4m3", layout="nn",
    ),
    case(H100, "split_k", (64, 128, 64), knobs={"num_stages": 4, "split_k": 4}),
    case(H100, "persistent_tma", (128, 128, 64), knobs={"num_stages": 3}),
    case(
        H100, "persistent_tma", (128, 256, 64),
        knobs={"num_stages": 3, "num_warps": 8, "epilogue_parts": 2},
    ),
    case(H100, "persistent_tma", (16, 128, 64), knobs={"num_stages": 4}, sizes=(16, 4096, 4096)),
    case(
        H100, "persistent_tma", (16, 128, 64), knobs={"num_stages": 4, "swap": True},
        sizes=(16, 4096, 4096),
    ),
    case(
        H100, "persistent_tma", (64, 128, 128), knobs={"num_stages": 3}, layout="tt", dtype="bf16",
    ),
    case(
        H100, "persistent_tma", (128, 64, 128), knobs={"num_stages": 2}, beta=1.0
    ),
    case(MI300X, "tile", (128, 128, 64), knobs={"num_stages": 2}),
    case(MI300X, "tile", (128, 128, 64), knobs={"num_stages": 3, "num_warps": 8}, layout="nn"),
    case(MI300X, "tile", (64, 256, 64), knobs={"num_stages": 1}, dtype="bf16"),
    case(MI300X, "tile", (128, 128, 32), knobs={"num_stages": 2}, dtype="fp32"),
    case(MI300X, "split_k", (64, 128, 64), knobs={"num_stages": 3, "split_k": 4}, layout="tn"),
]  # fmt: skip

# Triton interprets or compiles, never both in one process, and conftest may have chosen the
# interpreter for this one. -P: the folder of the checkout must not shadow the package.
COMPILE = """
import json, sys
from costmodel.config import KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.compiler.witness import compile_offline
found = []
for chip, problem, config in json.load(sys.stdin):
    try:
        kernel = compile_offline(Gemm(**problem), KernelConfig(**config), load_profile(chip))
        found.append(kernel.metadata.shared)
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Case -> the bytes that Triton allocates, all compiled in one process, without a GPU."""
    pytest.importorskip("triton")
    cases = [parameter.values[0] for parameter in CASES]
    environment = os.environ | {
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", COMPILE],
        input=json.dumps([(c.chip, asdict(c.problem), asdict(c.config)) for c in cases]),
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_our_kernels_take_what_we_predict(case, compiled):
    actual = compiled[case]
    assert isinstance(actual, int), actual  # else it is the compiler's error
    assert shared_bytes(case.chip, case.problem, case.config) == actual


# --- against every survey of the compiler that is kept: the version is in the file's name --------

SURVEYS = sorted(
    Path(str(resources.files("costmodel.data"))).glob("compiler/survey_triton-*.jsonl")
)
SMALL_BYTES = 32 * 1024


def surveyed(path):
    """(target, bytes predicted under the file's version, the compiler's bytes, the limit)."""
    version = path.stem.removeprefix("survey_triton-")
    for entry in read_results(path):
        if "shared" in entry:
            target, problem, knobs = json.loads(entry["key"])
            profile = load_profile(TARGETS[target])
            found = footprint(Gemm(**problem), KernelConfig(**knobs), profile, version)
            assert (found.rules_version, found.assumed) == (version, False)
            yield target, found.shared_bytes, entry["shared"], profile.shared_per_block_bytes


@pytest.mark.parametrize("path", SURVEYS, ids=lambda path: path.stem)
def test_of_a_surveys_large_totals_99_percent_are_exact_and_every_verdict_is_right(path):
    rows = list(surveyed(path))
    assert {target for target, *_ in rows} == set(TARGETS)
    for target in TARGETS:
        own = [row[1:] for row in rows if row[0] == target]
        large = [(said, took) for said, took, _ in own if max(said, took) > SMALL_BYTES]
        assert len(large) >= 100
        assert sum(said == took for said, took in large) >= 0.99 * len(large), target
        assert all((said <= limit) == (took <= limit) for said, took, limit in own), target


# --- whatever the configuration ------------------------------------------------------------------

CONFIGS = st.builds(
    KernelConfig,
    template=st.sampled_from(["tile", "split_k", "persistent_tma"]),
    block_m=st.integers(1, 4096),
    block_n=st.integers(1, 4096),
    block_k=st.integers(1, 4096),
    num_warps=st.none() | st.integers(1, 128),
    num_stages=st.none() | st.integers(1, 64),
    load_bits=st.sampled_from([None, 16, 32, 64, 128]),
    swap=st.booleans(),
    epilogue_parts=st.integers(1, 4),
)
PROBLEMS = st.builds(
    Gemm,
    m=st.integers(1, 10**6),
    n=st.integers(1, 10**6),
    k=st.integers(1, 10**6),
    dtype=st.sampled_from(["fp16", "bf16", "fp32", "fp8_e4m3", "fp8_e5m2fnuz", "int8"]),
    layout=st.sampled_from(["nn", "nt", "tn", "tt"]),
)


@settings(max_examples=50, deadline=None)
@given(PROBLEMS, st.lists(CONFIGS, min_size=1, max_size=8), st.sampled_from(sorted(CHIPS)))
def test_one_row_is_the_column_calls_row_and_nothing_raises(problem, configs, chip):
    columns = footprint_columns(problem, ConfigTable.of(configs), CHIPS[chip])
    for row, config in enumerate(configs):
        found = footprint(problem, config, CHIPS[chip])
        one = {name: getattr(found, name) for name in PARTS}
        assert one == {name: getattr(columns, name)[row] for name in PARTS}
        assert all(type(value) is int for value in one.values())
        assert one["shared_bytes"] >= one["operand_ring_bytes"] > 0
    assert columns.shared_bytes.shape == (len(configs),)
    assert np.issubdtype(columns.shared_bytes.dtype, np.integer)


#: blocks that a kernel can have: what the rules say of others means nothing
SOUND = st.builds(
    KernelConfig,
    template=st.sampled_from(["tile", "split_k", "persistent_tma"]),
    block_m=st.sampled_from([16, 32, 64, 128, 256]),
    block_n=st.sampled_from([16, 32, 64, 128, 256]),
    block_k=st.sampled_from([16, 32, 64, 128, 256]),
    num_warps=st.sampled_from([1, 2, 4, 8, 16]),
    num_stages=st.none() | st.integers(1, 64),
    swap=st.booleans(),
)


@settings(max_examples=50, deadline=None)
@given(PROBLEMS, SOUND, st.sampled_from(sorted(CHIPS)))
def test_another_stage_never_takes_less(problem, config, chip):
    stages = (config.num_stages or 3) + 1  # None: the compiler's own default, 3
    deeper = KernelConfig(**(config.as_dict() | {"num_stages": stages}))
    assert shared_bytes(chip, problem, deeper) >= shared_bytes(chip, problem, config)


# tf32x3, which no survey draws: the compiler's own figures (3.6.0)
@pytest.mark.parametrize(
    ("chip", "layout", "config", "expected"),
    [
        # sm_90, wgmma: (s - 1) (A + B), and 2 B for the second operand's parts
        ("h100-sxm", "nn", ("tile", 64, 128, 64, 4, 2, True), 49152 + 2 * 16384),
        ("h100-sxm", "tn", ("split_k", 256, 128, 64, 4, 3, False), 2 * 98304 + 2 * 32768),
        # one stage: A, or the two parts of B
        ("h100-sxm", "tn", ("tile", 64, 256, 128, 16, 1, False), 2 * 131072),
        # sm_80: all 4 warps along 128 rows, so the parts are turned in 2 goes, not 4
        ("a100-sxm-80gb", "tt", ("split_k", 128, 64, 16, 4, 1, False), 16384),
    ],
)
def test_three_tf32_products_keep_the_second_operands_parts(chip, layout, config, expected):
    template, m, n, k, warps, stages, swap = config
    problem = Gemm(4096, 4096, 4096, dtype="fp32", precision="tf32x3", layout=layout)
    split = 4 if template == "split_k" else 1
    knobs = KernelConfig(
        template, m, n, k, num_warps=warps, num_stages=stages, swap=swap, split_k=split
    )
    assert shared_bytes(chip, problem, knobs) == expected
