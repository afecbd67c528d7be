"""The doctor on prepared examples: what Triton and ptxas print, what an H200 measured, and texts.

``tests/data/doctor/make.py`` makes the files. A healthy example must get a clean bill.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.doctor import diagnose
from costmodel.doctor.messages import FAULTS, message_faults
from costmodel.errors import ConfigError, RecordError
from costmodel.records import packaged_runs

EXAMPLES = Path(__file__).parent / "data" / "doctor"


@pytest.fixture(autouse=True)
def _no_answers_or_models_of_a_user(monkeypatch, tmp_path):
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))


#: verbatim output of Triton 3.6.0 and its ptxas: file -> first fault, words of its evidence
COMPILER_OUTPUT = {
    "spill_sm90.ptxas.txt": ("spill", "stores 1836 bytes"),
    "serialized_sm90.ptxas.txt": ("wgmma_serialized", "non wgmma instructions"),
    "mma_sync_sm90.ttgir": ("slow_instruction", "never by wgmma"),
    "mma_sync_sm90.ptx": ("slow_instruction", "mma.sync"),
    "hard_case_no_hints.ttgir": ("narrow_loads", "nothing is copied ahead"),
    "hard_case_no_hints_sm80.ptx": ("narrow_loads", "loads of one or two bytes"),
    "fp32_ieee_sm90.ptx": ("no_matrix_unit", "128 fma"),
    "spill_gfx942.amdgcn": ("spill", "48 vector registers"),
    "fp8_sm80.txt": ("dtype_unsupported", "fp8e4nv"),
    "small_dot.txt": ("small_dot", "K 16"),
    "not_power_of_two.txt": ("not_power_of_two", "no power of two"),
    "tile_too_large.txt": ("tile_too_large", "2097152"),
    # (256 + 128) x 128 x 2 bytes x 3 stages = 294912
    "out_of_shared_memory.txt": ("out_of_shared_memory", "294912 bytes of shared memory"),
    "too_much_static_shared.txt": ("out_of_shared_memory", "gives 49152"),
    "no_gpu.txt": ("no_gpu", "no driver"),
    "conflicting_parameters.txt": ("conflicting_parameters", "BLOCK_M"),
    "descriptor_alignment.txt": ("descriptor_alignment", "multiple of 16"),
    "wrong_result.txt": ("wrong_result", "/ 4096"),
}
#: rows that an H200 measured
MEASURED = {
    "more_stages_slower.jsonl": ("pipeline_unfilled", "more stages, slower"),
    "fell_to_mma_sync.jsonl": ("slow_instruction", "+71% by swap"),
    "spill_measured.jsonl": ("spill", "by num_warps"),
    "cold_machine.jsonl": ("cold_machine", "132.5 us, 109.4 us"),
    "noisy_machine.jsonl": ("noisy_machine", "more than 10% between runs"),
    "size_collapse.jsonl": ("size_collapse", "253 TFLOPS at M = 136, and 353 at 128"),
    "behind_vendor.jsonl": ("behind_vendor", "38% slower"),
}
HEALTHY = (
    "healthy_sm90.ptxas.txt", "healthy_sm90.ttgir", "healthy_hard_case_hints.ttgir",
    "healthy_gfx942.amdgcn", "healthy_4096.jsonl", "healthy_1x4096x4096.jsonl",
)  # fmt: skip


@pytest.mark.parametrize("name", [*COMPILER_OUTPUT, *MEASURED])
def test_the_fault_of_each_example_is_named_with_its_evidence(name):
    fault, words = (COMPILER_OUTPUT | MEASURED)[name]
    found = {cause.name: cause for cause in diagnose(EXAMPLES / name).findings}
    assert fault in found, found
    assert words in found[fault].evidence and found[fault].remedy


@pytest.mark.parametrize("name", COMPILER_OUTPUT)
def test_nothing_else_is_read_into_a_compilers_output(name):
    beside = {"spill_sm90.ptxas.txt": {"wgmma_serialized"}}
    names = {cause.name for cause in diagnose(EXAMPLES / name).findings}
    assert names - {COMPILER_OUTPUT[name][0]} == beside.get(name, set())


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_example_gets_a_clean_bill(name):
    found = diagnose(EXAMPLES / name)
    assert found.healthy and found.kind != "unknown", found.findings
    assert "no fault found" in found.text()


COMPILE_THE_BEST = """
from costmodel.compiler.witness import compile_offline
from costmodel.doctor import diagnose
from costmodel.predict import predict_best

for shape, chip in (((4096, 4096, 4096), "h200-sxm"), ((512, 512, 8192), "h200-sxm"),
                    ((1, 4096, 4096), "h200-sxm"), ((4096, 4096, 4096), "a100-sxm-80gb"),
                    ((4096, 4096, 4096), "mi300x")):
    best = predict_best(shape, chip, use_measured=False)
    kernel = compile_offline(best.problem, best.config, best.profile)
    for stage in ("ttgir", "ptx", "amdgcn"):
        if stage in kernel.asm:
            found = diagnose(kernel.asm[stage])
            assert found.healthy, (chip, str(best.config), stage, found.findings)
print("clean")
"""


def test_what_the_compiler_makes_of_the_best_configurations_gets_a_clean_bill():
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE_THE_BEST], capture_output=True, text=True, env=environment
    )
    assert done.stdout.strip() == "clean", done.stderr[-2000:]


def test_every_example_file_is_judged():
    files = {p.name for p in EXAMPLES.iterdir() if p.is_file() and p.suffix != ".py"}
    assert files == {*COMPILER_OUTPUT, *MEASURED, *HEALTHY}


def test_the_measured_examples_are_rows_of_the_shipped_runs():
    shipped = packaged_runs(["m", "n", "k", "run", "sequence", "time_us"])
    known = set(shipped.itertuples(index=False, name=None))
    for name in [*MEASURED, *(n for n in HEALTHY if n.endswith(".jsonl"))]:
        for line in (EXAMPLES / name).read_text().splitlines():
            row = json.loads(line)
            fact = tuple(row[k] for k in ("m", "n", "k", "run", "sequence", "time_us"))
            assert fact in known, name


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        # the words of method tables and of drivers; a GPU is needed to see them appear
        ("CUDA error: an illegal memory access was encountered", "illegal_memory_access"),
        ("Memory access fault by GPU node-1 on address 0x7f", "illegal_memory_access"),
        ("RuntimeError: Triton Error [CUDA]: misaligned address", "misaligned_address"),
        ("RuntimeError: Triton Error [CUDA]: invalid argument", "invalid_launch"),
        ("CUDA error: the launch timed out and was terminated", "launch_timeout"),
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", "device_out_of_memory"),
        ("CUDA error: no kernel image is available for execution on the device", "wrong_target"),
        ("ptxas fatal   : Value 'sm_103a' is not defined for option 'gpu-name'", "wrong_target"),
        ("ptxas error: Register allocation failed with register count of '24'", "out_of_registers"),
        ("error: local memory (98304) exceeds limit (65536)", "out_of_shared_memory"),
        ("out of resource: threads, Required: 2048, Hardware limit: 1024.", "too_many_threads"),
        ("correctness: relative error 0.5 exceeds 0.01", "wrong_result"),
        ("RuntimeError: PassManager::run failed", "compiler_failed"),
        ("sqlite3.OperationalError: database is locked", "database_locked"),
        ("AutotunerError: No valid autotuner configs after pruning.", "nothing_left"),
    ],
)  # fmt: skip
def test_a_drivers_message_is_known(text, fault):
    found = diagnose(text)
    assert [cause.name for cause in found.findings] == [fault] and found.kind == "error text"


def test_an_error_in_the_middle_of_a_long_log_is_found_once():
    line = (EXAMPLES / "out_of_shared_memory.txt").read_text()
    found = diagnose("epoch 1\n" * 500 + line * 3 + "Traceback\n" * 50)
    assert [cause.name for cause in found.findings] == ["out_of_shared_memory"]
    assert "62464 too many" in found.findings[0].evidence  # 294912 - 232448


def test_a_text_without_a_known_fault_is_no_clean_bill():
    found = diagnose("everything is fine, loss 0.31")
    assert found.kind == "unknown" and not found.healthy and not found.findings


def test_every_known_fault_formats_its_evidence_with_what_it_caught():
    for fault in FAULTS:
        assert "{" not in fault.name and fault.remedy


@given(st.text(max_size=400))
def test_no_text_breaks_the_doctor(text):
    for cause in message_faults(text):
        assert cause.name


# --- configurations ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "config", "chip", "fault", "words"),
    [
        ((4096, 4096, 4096), "tile 256x256x64 w8 s5", "h200-sxm", "shared_memory", "95232 too"),
        ((4096, 4096, 4096), "tile 128x256x64 w4 s3", "h200-sxm", "spill", "may have 255"),
        ((4096, 4096, 4096), "tile 32x128x64 w4 s4", "h200-sxm", "slow_instruction", "mma.sync"),
        # the hard case without alignment hints: strides of 16 KiB, rows of 128 bytes
        ((512, 512, 8192), "tile 64x64x64 w4 s4 load16", "h200-sxm", "narrow_loads",
         "A's 16384 bytes and B's 16384 bytes apart"),
        ((512, 512, 8192), "tile 64x64x64 w4 s4 load16", "h200-sxm", "narrow_loads",
         "start 8 of 8 at one bank"),
        ((512, 512, 8192), "tile 64x64x32 w4 s4 load16", "h200-sxm", "narrow_loads",
         "start 4 of 8 at one bank"),
        ((512, 512, 8192), "tile 128x128x64 w8 s4", "h200-sxm", "low_block_count", "16 tiles"),
        ((4096, 4096, 64), "tile 64x64x64 w4 s8", "h200-sxm", "pipeline_unfilled", "8 stages"),
        ((4096, 4096, 4096), "tile 128x128x32 w4 s2", "h200-sxm", "slower_than_best", "against"),
    ],
)  # fmt: skip
def test_a_configuration_is_judged_for_its_problem(problem, config, chip, fault, words):
    found = {c.name: c for c in diagnose(config, problem=problem, profile=chip).findings}
    assert fault in found and words in found[fault].evidence, found


@pytest.mark.parametrize(
    ("problem", "chip"),
    [((4096, 4096, 4096), "h200-sxm"), ((512, 512, 8192), "h200-sxm"), ((1, 4096, 4096), "mi300x"),
     ((4096, 4096, 4096), "rtx-4090"), ((1000, 1000, 1000), "a100-sxm-80gb")],
)  # fmt: skip
def test_the_best_configuration_is_healthy(problem, chip):
    from costmodel.predict import predict_best

    best = predict_best(problem, chip)
    found = diagnose(problem=best.problem, profile=chip, config=best.config)
    assert found.healthy and found.kind == "configuration", found.findings


def test_the_remedy_for_a_slow_configuration_names_a_knob_and_the_best():
    found = diagnose("tile 128x128x32 w4 s2", problem=(4096, 4096, 4096), profile="h200-sxm")
    last = found.findings[-1]
    assert last.name == "slower_than_best" and "num_stages=" in last.remedy
    assert "; all: " in last.remedy


@pytest.mark.parametrize(
    "text",
    [
        "BLOCK_SIZE_M: 128, BLOCK_SIZE_N: 256, BLOCK_SIZE_K: 64, GROUP_SIZE_M: 8, num_warps: 4, "
        "num_ctas: 1, num_stages: 3, maxnreg: None",
        '{"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3}',
        "BM=128 BN=256 BK=64 num_warps=4 num_stages=3",
    ],
)
def test_a_configuration_in_tritons_words_is_read(text):
    found = diagnose(text, problem=(4096, 4096, 4096), profile="h200-sxm")
    assert "spill" in {cause.name for cause in found.findings}
    assert "tile 128x256x64 w4 s3" in found.looked_at


def test_an_error_and_its_configuration_are_judged_together():
    line = (EXAMPLES / "out_of_shared_memory.txt").read_text()
    found = diagnose(
        line, problem=(4096, 4096, 4096), profile="h200-sxm", config="tile 256x128x128 w8 s3"
    )
    assert [cause.name for cause in found.findings] == ["out_of_shared_memory", "shared_memory"]
    assert "w8 s2" in found.findings[1].remedy


# --- logs ----------------------------------------------------------------------------------


def rows_of(name):
    return [json.loads(line) for line in (EXAMPLES / name).read_text().splitlines()]


def log_of(tmp_path, rows):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_of_1200_tflops_on_an_h200_is_above_the_roofline(tmp_path):
    row = rows_of("healthy_4096.jsonl")[0]
    fast = 2 * 4096**3 / 1200e6  # us at 1200 TFLOPS, where 989.4 is the peak
    row |= {"time_us": fast, "p10_us": fast, "p90_us": fast}
    found = {c.name: c for c in diagnose(log_of(tmp_path, [row])).findings}
    assert "is 1200 TFLOPS" in found["above_roofline"].evidence


def test_broken_lines_are_counted_and_the_rest_is_judged(tmp_path):
    path = log_of(tmp_path, rows_of("healthy_4096.jsonl"))
    path.write_text(path.read_text() + '{"schema": 1, "back\n')
    before = path.read_bytes()
    found = diagnose(path)
    assert [c.name for c in found.findings] == ["broken_lines"]
    assert path.read_bytes() == before


def test_the_reasons_of_failed_rows_are_read_as_messages(tmp_path):
    row = rows_of("healthy_4096.jsonl")[-1]
    line = (EXAMPLES / "out_of_shared_memory.txt").read_text().strip()
    row |= {"time_us": None, "p10_us": None, "p90_us": None, "invalidity": "compile"}
    rows = [row | {"reason": line, "sequence": n} for n in range(3)]
    found = {c.name: c for c in diagnose(log_of(tmp_path, rows)).findings}
    assert found["out_of_shared_memory"].evidence.startswith("3 rows, the first: ")


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(RecordError, match="there is no file"):
        diagnose(tmp_path / "none.txt")


def test_a_configuration_needs_its_problem():
    with pytest.raises(ConfigError, match="give problem and profile"):
        diagnose("tile 128x128x64 w8 s4")


def test_every_diagnosis_is_text_of_100_columns_and_json():
    for name in [*COMPILER_OUTPUT, *MEASURED, *HEALTHY]:
        found = diagnose(EXAMPLES / name)
        assert max(map(len, found.text().splitlines())) <= 100, name
        again = json.loads(json.dumps(found.as_dict(), allow_nan=False))
        assert set(again) == {"kind", "looked_at", "findings", "healthy"}
        assert all(set(c) == {"name", "evidence", "remedy"} for c in again["findings"])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("RuntimeError: Triton Error [CUDA]: out of memory", "device_out_of_memory"),
        ("RuntimeError: CUDA error: out of memory", "device_out_of_memory"),
        ("Triton Error [HIP]:  Code: 1, Messsage: invalid argument", "invalid_launch"),
        ("error: ran out of registers during register allocation", "out_of_registers"),
    ],
)
def test_other_words_for_the_same_fault(text, name):
    assert [cause.name for cause in diagnose(text).findings] == [name]


def test_a_log_of_a_chip_without_a_profile_gets_no_clean_bill(tmp_path):
    rows = [row | {"device": None, "device_name": "Foo"} for row in rows_of("healthy_4096.jsonl")]
    found = diagnose(log_of(tmp_path, rows)).findings
    assert [cause.name for cause in found] == ["unknown_chip"] and "Foo" in found[0].evidence
    strange = [row | {"device": "foo-64-units"} for row in rows]
    assert [c.name for c in diagnose(log_of(tmp_path, strange)).findings] == ["unknown_chip"]
    sliced = [row | {"device": "h200-sxm-64-units"} for row in rows]
    assert "unknown_chip" not in {c.name for c in diagnose(log_of(tmp_path, sliced)).findings}
