"""Registers and spills: against full compiles kept in the repository, and against hand arithmetic.

The kept rows (``data/compiler/registers_*.jsonl``) are the compilers' own figures: ptxas's for
NVIDIA's targets, LLVM's for AMD's.
"""

import csv
import json
import os
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from costmodel.compiler.fit_registers import fit, sample
from costmodel.compiler.register_report import VENDORS, figures, held_out_figures
from costmodel.compiler.register_survey import register_draws
from costmodel.compiler.survey import REGISTER_TARGETS, _facts, _within, read_results
from costmodel.compiler.verify import registers_table
from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.resources.register_terms import register_limit, register_terms
from costmodel.resources.registers import coefficients, register_columns

FOLDER = Path(str(resources.files("costmodel.data"))) / "compiler"
ROWS = FOLDER / "registers_triton-3.6.0.jsonl"
CANDIDATES = FOLDER / "candidate_registers_triton-3.6.0.jsonl"
H200, A100, MI300X = (load_profile(name) for name in ("h200-sxm", "a100-sxm-80gb", "mi300x"))
SQUARE = Gemm(4096, 4096, 4096)

LIVE = """
import json, sys
from pathlib import Path
from costmodel.compiler.register_survey import register_draws
from costmodel.compiler.survey import survey
wanted = [d for t in sys.argv[2:] for d in register_draws(t, 2, 1)]
for entry in survey(wanted, Path(sys.argv[1]), full=True):
    print(json.dumps(entry))
"""


@pytest.fixture(scope="module")
def rows():
    return sample(read_results(ROWS))


def of_vendor(rows, mark):
    return rows[np.char.startswith(rows.targets, mark)]


def terms(config, problem=SQUARE, profile=A100):
    found = register_terms(problem, ConfigTable.of(config), profile)
    return {name: float(column[0]) for name, column in found.items()}


def registers(config, problem=SQUARE, profile=H200):
    return register_columns(problem, ConfigTable.of(config), profile)


# --- against the compilers -----------------------------------------------------------------------


def test_every_target_was_compiled_in_full_and_every_vendor_has_spills(rows):
    for target in REGISTER_TARGETS:
        assert np.sum(rows.targets == target) >= 60, target
    for mark in VENDORS.values():
        assert of_vendor(rows, mark).spilling.sum() >= 20


@pytest.mark.parametrize("vendor", VENDORS)
def test_spilling_configurations_are_flagged_and_few_others_are(rows, vendor):
    found = figures(of_vendor(rows, VENDORS[vendor]), coefficients())
    assert found.recall >= 0.95
    assert found.precision >= 0.80
    assert found.register_error <= 10  # about one granule of allocation, which is 8


def test_rows_that_were_not_fitted_are_told_nearly_as_well(rows):
    for vendor, found in held_out_figures(rows).items():
        assert found.recall >= 0.85, vendor
        assert found.precision >= 0.75, vendor


def test_among_the_candidates_of_real_shapes_the_same_ones_spill_as_are_flagged():
    rows = sample(read_results(CANDIDATES))
    found = figures(rows, coefficients())
    assert found.compiled >= 100
    assert found.spilling >= 5
    assert found.rightly >= 0.9 * found.spilling
    assert found.flagged <= found.spilling + 2
    assert found.register_error <= 12


def test_the_shipped_coefficients_are_those_of_the_kept_rows(rows):
    # another solver may find another corner of equal worth: figures are compared, not numbers
    for mark in VENDORS.values():
        part = of_vendor(rows, mark)
        fresh, shipped = figures(part, fit(rows)), figures(part, coefficients())
        assert fresh.recall == pytest.approx(shipped.recall, abs=0.03)
        assert fresh.precision == pytest.approx(shipped.precision, abs=0.03)
        assert fresh.register_error == pytest.approx(shipped.register_error, abs=2)


def test_the_table_in_the_docs_is_that_of_the_rows():
    page = (Path(__file__).parent.parent / "docs" / "registers-table.md").read_text("utf-8")
    fresh = registers_table(ROWS, CANDIDATES, "3.6.0")

    def fixed(text):
        return [line for line in text.splitlines() if "held out |" not in line]

    assert fixed(page) == fixed(fresh)


def test_the_page_tells_the_rows_without_a_matrix_unit(rows):
    page = (Path(__file__).parent.parent / "docs" / "compiler.md").read_text("utf-8")
    compiled = [json.loads(e["key"]) + [e["spill"]] for e in read_results(ROWS) if "spill" in e]
    fp16 = [spill for target, problem, _, spill in compiled
            if target == "sm_75" and problem["dtype"] == "fp16"]  # fmt: skip
    assert f"({sum(s > 64 for s in fp16)} of {len(fp16)} fp16 rows spill" in page
    plain = sample(read_results(CANDIDATES))
    spilling = plain.targets[plain.spilling]
    told = f"{len(spilling)} spill, {np.sum(spilling == 'sm_75')} of them on sm_75"
    assert f"Of {len(plain)} candidates" in page and told in page
    without = figures(
        rows[np.char.startswith(rows.targets, "sm_") & (rows.targets != "sm_75")], coefficients()
    )
    assert f"without sm_75 | {without.compiled:,} | {without.spilling}" in page
    assert f"{without.recall:.3f} | {without.precision:.3f}" in page


@pytest.mark.parametrize(("chip", "number"), [(A100, 80), (H200, 90)])
def test_a_plain_kernel_that_is_not_ours_takes_about_as_many(chip, number):
    path = Path(__file__).parent / "data" / f"plain_gemm_sm{number}.csv"
    errors, spilling, flagged = [], set(), set()
    for index, row in enumerate(csv.DictReader(path.open(encoding="utf-8"))):
        dtype = {"fp8": "fp8_e4m3"}.get(row["dtype"], row["dtype"])
        problem = Gemm(
            4096, 4096, 4096, dtype=dtype, layout="nt" if row["b_is_kmajor"] == "True" else "nn",
            precision=row["prec"] if dtype == "fp32" else None,
        )  # fmt: skip
        config = KernelConfig(
            "tile", *(int(row[name]) for name in ("bm", "bn", "bk")),
            num_warps=int(row["warps"]), num_stages=int(row["stages"]),
        )  # fmt: skip
        found = registers(config, problem, chip)
        spilling |= {index} if int(row["spill_bytes"]) > 64 else set()
        flagged |= {index} if found.spilled[0] > 0 else set()
        if row["spill_bytes"] == "0":
            errors.append(abs(min(float(found.wanted[0]), 255) - int(row["regs"])))
    assert np.median(errors) <= 16
    assert len(spilling) == 1 and spilling <= flagged and len(flagged) <= 3


def test_the_compilers_still_say_what_the_kept_rows_say(tmp_path):
    pytest.importorskip("triton")
    targets = ["sm_80", "gfx942"]
    command = [sys.executable, "-c", LIVE, str(tmp_path / "live.jsonl"), *targets]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    live = {entry.pop("key"): entry for entry in map(json.loads, answer.stdout.splitlines())}
    kept = {entry.pop("key"): entry for entry in read_results(ROWS)}
    assert len(live) == 2 * len(targets)
    assert live == {key: kept[key] for key in live}


# --- cases worked by hand ------------------------------------------------------------------------


@pytest.mark.parametrize("template", ["tile", "persistent_tma"])
def test_128x256_sums_spill_by_four_warps_and_not_by_eight(template):
    # 128 * 256 / 128 threads are 256 sums, of 255 registers; by 8 warps 128. On an H200 the first
    # takes 8 times as long
    four, eight = (KernelConfig(template, 128, 256, 64, num_warps=w) for w in (4, 8))
    assert registers(four).spilled[0] > 16
    assert registers(eight).spilled[0] == 0
    assert registers(four).allocated[0] == 255


def test_what_is_wanted_is_the_limit_and_what_spills():
    configs = [KernelConfig("tile", 128, 256, 64, num_warps=w) for w in (2, 4, 8)]
    found = register_columns(SQUARE, ConfigTable.of(configs), H200)
    over = found.wanted > 255
    assert over.tolist() == [True, True, False]
    assert np.array_equal(found.spilled, np.where(over, found.wanted - 255, 0))


def test_tcgen05_keeps_its_sums_in_tensor_memory_and_a_descriptor_store_takes_them_in_pieces():
    chip = load_profile("b200")
    config = KernelConfig("persistent_tma", 128, 256, 64, num_warps=4)
    assert terms(config, profile=chip)["held_sums"] == 0
    assert registers(config, profile=chip).spilled[0] == 0


def test_the_terms_of_a_tile_by_hand():
    found = terms(KernelConfig("tile", 128, 128, 64, num_warps=4, num_stages=3))
    assert found["sums"] == found["held_sums"] == 128  # 16,384 / 128 threads
    # a warp has 64 x 64: 128 rows of 32 bytes a step over 32 lanes are 32 registers; 4 steps
    assert (found["fragments"], found["deep_fragments"], found["deeper_fragments"]) == (64, 64, 0)
    # 16,384 bytes of A and of B: 128 a thread, 8 loads of 16 bytes, 16 addresses of 2 registers
    assert found["pointers"] == 32
    assert found["loads"] == found["masks"] == found["split_sums"] == found["old_c"] == 0
    assert found["stored"] == 64  # two fp16 a register


def test_one_stage_brings_the_operands_through_registers():
    # 256 bytes a thread, 4 a register
    assert terms(KernelConfig("tile", 128, 128, 64, num_warps=4, num_stages=1))["loads"] == 64


def test_amd_loads_a_stage_ahead_through_registers_and_keeps_sums_apart():
    found = terms(KernelConfig("tile", 128, 128, 64, num_warps=4, num_stages=2), profile=MI300X)
    assert found["loads"] == 32  # 32,768 bytes over 256 lanes
    assert found["sums"] == found["sums_apart"] == found["moved_sums"] == 64
    # 8 waves have 256 registers each: all architectural
    found = terms(KernelConfig("tile", 128, 128, 64, num_warps=8, num_stages=2), profile=MI300X)
    assert found["sums_apart"] == 0


def test_swapped_operands_exchange_the_sides():
    straight = terms(KernelConfig("tile", 32, 256, 64, num_warps=4))
    turned = terms(KernelConfig("tile", 256, 32, 64, num_warps=4, swap=True))
    assert straight["fragments"] == turned["fragments"]


@pytest.mark.parametrize(
    ("chip", "warps", "limit"),
    [
        (H200, 4, 255),  # 65,536 / 128 = 512, of which an instruction can name 255
        (H200, 8, 255),
        (H200, 16, 128),  # 65,536 / 512
        (MI300X, 4, 512),  # 131,072 / 256
        (MI300X, 8, 256),
        (MI300X, 16, 128),
    ],
)
def test_many_warps_share_the_file(chip, warps, limit):
    table = ConfigTable.of(KernelConfig("tile", 128, 128, 64, num_warps=warps))
    assert register_limit(table, chip)[0] == limit


def test_one_configuration_and_many_are_rounded_alike():
    configs = [
        KernelConfig("tile", m, n, k, num_warps=w, num_stages=3)
        for m in (64, 128) for n in (64, 256) for k in (32, 64) for w in (4, 8)
    ]  # fmt: skip
    many = register_columns(SQUARE, ConfigTable.of(configs), H200)
    alone = [registers(config).wanted[0] for config in configs]
    assert many.wanted.tolist() == alone


# --- the survey ----------------------------------------------------------------------------------


def test_draws_depend_on_seed_and_target_alone_and_a_larger_count_only_adds():
    few, many = register_draws("sm_90", 3, 1), register_draws("sm_90", 6, 1)
    assert [d.key() for d in few] == [d.key() for d in many][:3]
    assert {d.key() for d in many}.isdisjoint(d.key() for d in register_draws("sm_90", 6, 2))


def test_converted_types_are_drawn_where_there_are_any():
    assert {d.problem.dtype for d in register_draws("sm_86", 4, 1, converted=True)} == {"fp8_e5m2"}
    assert register_draws("sm_90", 4, 1, converted=True) == []


def test_a_compile_that_takes_too_long_is_given_up_and_said_so():
    before = time.monotonic()
    found = _within(0.2, lambda: time.sleep(60) or {})
    assert found == {"error": "took longer than 0.2 s"}
    assert time.monotonic() - before < 30


def test_a_compiler_that_ends_its_process_is_an_entry_too():
    assert "error" in _within(30, lambda: os._exit(1))
    assert _within(30, lambda: {"shared": 1}) == {"shared": 1}


def test_amds_figures_are_read_off_the_assembly():
    text = """
    v_mfma_f32_32x32x8_f16
    .agpr_count:     64
    .private_segment_fixed_size: 8
    .vgpr_count:     160
    .vgpr_spill_count: 1
    """
    assert _facts(text) == {
        "instructions": ["v_mfma"], "registers": 160, "spill": 1, "agprs": 64, "scratch": 8,
    }  # fmt: skip
