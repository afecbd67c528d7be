"""Other tools' results: what each format holds becomes rows or claims, and the rest is named.

The T4 file of Kernel Tuner was written by Kernel Tuner, and the cache file of Triton's autotuner is
written here by Triton itself; the other formats are laid out as their writers' sources say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.config import KernelConfig
from costmodel.errors import CostModelError, RecordError, UnknownNameError
from costmodel.problem import Gemm
from costmodel.records import RunLog, config_of, make_row, problem_of
from costmodel.records.claims import ClaimBook
from costmodel.records.exchange import (
    FORMATS,
    Given,
    ImportReport,
    import_files,
    listener,
    read_file,
    t4,
)
from costmodel.records.schema import INVALIDITIES

DATA = Path(__file__).parent / "data"
H200 = Given(device_name="NVIDIA H200", triton="3.6.0")
SQUARE = Gemm(4096, 4096, 4096)
TILE = KernelConfig("tile", 128, 256, 64, num_warps=8)
PLACE = {
    "protocol": "cold-l2-clean/1", "device": "h200-sxm", "device_name": "NVIDIA H200",
    "units": 132, "triton": "3.6.0", "run": "a", "timestamp": "2026-11-29T22:44:00Z",
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def put(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# --- T4


def own_rows() -> list[dict[str, Any]]:
    ascend = KernelConfig("tile", 64, 64, 64, group_m=None, num_warps=None, num_stages=None)
    return [
        make_row(SQUARE, TILE, backend="triton", time_us=181.504, p10_us=180.9, p90_us=183.1,
                 count=11, error=3e-4, sequence=0, kernel_hash="39794ad417db", **PLACE),
        make_row(SQUARE, TILE, backend="triton", invalidity="timeout", reason="no answer in 90 s",
                 sequence=1, **PLACE),
        make_row(SQUARE, None, backend="origin", time_us=179.25, sequence=2, **PLACE),
        make_row(SQUARE, ascend, backend="triton", time_us=0.001, sequence=0,
                 **(PLACE | {"device": None, "device_name": "../../Ascend 910B2"})),
        make_row(Gemm(16, 32, 64, dtype="fp32", precision="tf32"), TILE, backend="triton",
                 time_us=1e9 / 3, sequence=4, **PLACE),
    ]  # fmt: skip


def test_rows_come_back_from_t4_as_they_were_and_the_files_hold_to_its_schema(
    tmp_path: Path,
) -> None:
    rows, back, names = own_rows(), [], []
    for name, document in t4.export(rows):
        assert list(t4.violations(document)) == []
        assert "/" not in name and ".." not in name
        names.append(name)
        report = read_file("t4", put(tmp_path, name, t4.dumps(document)))
        assert (report.refused, dict(report.lost), report.claims) == ([], {}, [])
        back += report.rows
    assert len(set(names)) == 3  # two chips, and on one of them two problems
    key = str
    assert sorted(back, key=key) == sorted(rows, key=key)


@given(
    sizes=st.tuples(*[st.integers(1, 10**6)] * 3),
    config=st.none() | st.sampled_from([TILE, KernelConfig("split_k", 16, 32, 64, split_k=4)]),
    word=st.sampled_from(INVALIDITIES),
    time_us=st.floats(0.001, 1e12),
    error=st.none() | st.floats(0, 1),
    text=st.text(min_size=1, max_size=20),
)
@settings(deadline=None)
def test_any_row_comes_back_from_t4(
    sizes: Any, config: Any, word: str, time_us: float, error: Any, text: str
) -> None:
    row = make_row(
        Gemm(*sizes), config, backend="triton" if config else "origin", sequence=1,
        time_us=time_us, error=error, invalidity=word, source=text,
        reason=None if word == "correct" else text, **PLACE,
    )  # fmt: skip
    ((_, document),) = t4.export([row])
    assert list(t4.violations(json.loads(t4.dumps(document)))) == []
    found = ImportReport("x", "t4", "r")
    t4.read(t4.dumps(document).encode(), found, Given())
    assert (found.rows, found.refused) == ([row], [])


def test_what_kernel_tuner_itself_wrote_is_imported_with_its_times_in_microseconds() -> None:
    path = DATA / "kernel_tuner_t4.json"
    document = json.loads(path.read_text())
    assert list(t4.violations(document)) == []
    facts = Given(device_name="a CPU", shape=(128, 128, 128), dtype="fp32", layout="nn")
    report = read_file("t4", path, facts)
    assert (len(report.rows), report.refused) == (8, [])
    first, theirs = report.rows[0], document["results"][0]
    assert first["time_us"] == round(theirs["measurements"][0]["value"] * 1000, 3)
    assert first["p10_us"] < first["time_us"] < first["p90_us"] and first["count"] == 7
    assert first["source"] == "kernel_tuner"
    config = config_of(first)
    assert config is not None
    assert (config.block_m, config.block_n, config.block_k) == (16, 16, 16)
    assert (config.num_warps, config.group_m) == (None, None)
    # the time a tuner spends on its own work has no column
    assert set(report.lost) == {
        "compilation", "benchmark", "framework", "search_algorithm", "validation",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (Given(device_name="x"), "say it with --shape"),
        (Given(device_name="x", shape=(128, 128, 128)), "say them with --dtype and --layout"),
        (Given(shape=(128, 128, 128), dtype="fp32", layout="nn"), "say it with --device-name"),
    ],
)
def test_what_t4_does_not_say_must_be_given(facts: Given, reason: str) -> None:
    report = read_file("t4", DATA / "kernel_tuner_t4.json", facts)
    assert report.rows == [] and len(report.refused) == 8
    assert reason in report.refused[0].reason


def result(**changes: Any) -> dict[str, Any]:
    whole = {
        "configuration": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "BLOCK_SIZE_K": 16},
        "times": {"compilation_time": 1.0, "runtimes": [2.0, 2.0]},
        "invalidity": "correct",
        "correctness": 1,
    } | changes
    return {name: value for name, value in whole.items() if value is not ...}


FACTS = Given(device_name="x", shape=(64, 64, 64), dtype="fp16", layout="nt")


@pytest.mark.parametrize("unit", ["milliseconds", "miliseconds", "ms"])
def test_runtimes_alone_give_the_median_in_the_files_unit_however_it_is_spelt(
    unit: str, tmp_path: Path
) -> None:
    document = {"results": [result()], "metadata": {"timeunit": unit}}
    (row,) = read_file("t4", put(tmp_path, "a.json", document), FACTS).rows
    assert row["time_us"] == 2000.0


def test_failed_results_keep_their_word_and_their_reason(tmp_path: Path) -> None:
    spent = [{"name": "time", "value": "CompilationFailedConfig", "unit": "ms"}]
    results = [result(invalidity=word, measurements=spent) for word in INVALIDITIES[1:]]
    report = read_file("t4", put(tmp_path, "a.json", {"results": results}), FACTS)
    assert [row["invalidity"] for row in report.rows] == list(INVALIDITIES[1:])
    assert {row["reason"] for row in report.rows} == {"CompilationFailedConfig"}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (result(invalidity="wrong"), "invalidity must be one of correct, compile"),
        (result(correctness="yes"), "correctness must be a number"),
        (result(times=...), "lacks times"),
        (result(measurements=[{"name": "a", "value": None}]), "a measurement must have a value"),
        (result(configuration={"BLOCK_SIZE_M": 16}), "no block_n and block_k among its knobs"),
        (result(configuration={"BLOCK_SIZE_M": 16.5, "BLOCK_N": 1, "BLOCK_K": 1}), "whole number"),
        (result(times={"runtimes": [float("nan")]}), "time_us must be a finite number"),
        (result(times={}), "no 'time' among its measurements"),
        (result(timestamp="yesterday"), "timestamp must be ISO 8601"),
        ([], "must be an object, got list"),
    ],
)
def test_a_bad_result_is_refused_by_place_and_reason_and_the_others_are_taken(
    bad: Any, reason: str, tmp_path: Path
) -> None:
    document = {"schema_version": "1.0.0", "results": [result(), bad, result()]}
    report = read_file("t4", put(tmp_path, "a.json", document), FACTS)
    assert len(report.rows) == 2
    (refusal,) = report.refused
    assert refusal.where == "results[1]" and reason in refusal.reason


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"results": {}}, "results must be a list"),
        ({"results": [], "schema_version": "one"}, "schema_version must be like"),
        ({"results": [], "schema_version": "2.0.0"}, "T4 version 2.0.0"),
        ([], "document must be an object"),
        ("{", "cut off, or not JSON"),
    ],
)
def test_what_is_no_t4_document_is_an_error_that_names_the_file(
    document: Any, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(RecordError, match=reason) as error:
        read_file("t4", put(tmp_path, "a.json", document), FACTS)
    assert "a.json" in str(error.value)


# --- Triton

CACHE = {
    "key": [512, 1024, 2048, "torch.float16", "torch.float16", "torch.bfloat16"],
    "configs_timings": [
        [{"kwargs": {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 32,
                     "GROUP_SIZE_M": 8}, "num_warps": 4, "num_ctas": 1, "num_stages": 3,
          "maxnreg": None, "pre_hook": None, "ir_override": None}, [0.0321, 0.0318, 0.033]],
        [{"kwargs": {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128,
                     "GROUP_SIZE_M": 8, "EVEN_K": True}, "num_warps": 8, "num_ctas": 2,
          "num_stages": 5}, [float("inf")] * 3],
    ],
}  # fmt: skip


def test_tritons_cache_gives_times_failures_and_the_problem_of_its_key(tmp_path: Path) -> None:
    path = put(tmp_path, "matmul_kernel.autotune.json", CACHE)
    timed, failed = read_file("triton", path, H200).rows
    assert problem_of(timed) == Gemm(512, 1024, 2048, layout="nn", out_dtype="bf16")
    assert (timed["time_us"], timed["device"]) == (32.1, "h200-sxm")
    assert timed["source"] == "triton/matmul_kernel"
    assert config_of(timed) == KernelConfig("tile", 64, 128, 32, 8, num_warps=4, num_stages=3)
    assert (failed["invalidity"], failed["time_us"]) == ("compile", None)
    # knobs that have no column make another kernel of it
    assert failed["source"] == "triton/matmul_kernel;EVEN_K=True;num_ctas=2"


def test_what_a_cache_does_not_hold_is_said_or_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path, "k.autotune.json", CACHE)
    report = read_file("triton", path, H200)
    assert report.assumed == ['layout "nn": the key does not say how A and B are stored']
    assert report.lost == {"20 % and 80 % quantiles": 1}
    refused = read_file("triton", path).refused
    assert len(refused) == 2 and "--device-name" in refused[0].reason
    with pytest.raises(RecordError, match="3 numbers, and M,N names 2; say which they are"):
        read_file("triton", path, Given(device_name="x", key=("M", "N")))
    swapped = read_file("triton", path, Given(device_name="x", key=("K", "M", "N"))).rows[0]
    assert (swapped["k"], swapped["m"], swapped["n"]) == (512, 1024, 2048)
    with pytest.raises(RecordError, match="it has no configs_timings"):
        read_file("triton", put(tmp_path, "a.json", {"key": []}), H200)


AUTOTUNER = """
import sys, pathlib
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction
from costmodel.compiler.witness import compiling_for
from costmodel.profile import load_profile
from costmodel.records.exchange import Given, listen
from costmodel.records.log import RunLog
from costmodel.errors import UnsupportedError

JITFunction.run = lambda *_, **__: None  # there is no GPU to launch on

def clock(call, quantiles):
    call()
    config = tuned.asked.pop(0)
    return [config.kwargs["BLOCK_SIZE_M"] * f / 1000 for f in (1.0, 0.9, 1.1)]

@triton.jit
def product(a, b, c, M, N, K, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr,
            BLOCK_SIZE_K: tl.constexpr):
    pass

configs = [triton.Config({"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}, num_warps=4)
           for m in (64, 32, 128)]
tuned = triton.autotune(configs, key=["M", "N", "K"], do_bench=clock, cache_results=True)(product)
tuned.asked = list(configs)
class Tensor:
    dtype = "torch.float16"
try:
    listen(RunLog(sys.argv[1]), Given(device_name="NVIDIA H200"))
except UnsupportedError as error:
    print(error)
with compiling_for(load_profile("h200-sxm")):
    tuned[(1,)](Tensor(), Tensor(), Tensor(), 512, 256, 128)
"""


@pytest.fixture(scope="module")
def autotuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Path]:
    """What Triton's own autotuner wrote into its cache, its output, and the listener's log."""
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("autotuned")
    script = put(folder, "script.py", AUTOTUNER)  # Triton reads a kernel's source from its file
    place = {"TRITON_CACHE_DIR": str(folder / "cache"), "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, str(script), str(folder / "log.jsonl")], cwd=folder, text=True,
        capture_output=True, env=os.environ | place,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (written,) = (folder / "cache").rglob("*.autotune.json")
    return written, done.stdout, folder / "log.jsonl"


def test_what_tritons_own_autotuner_writes_is_imported(
    autotuned: tuple[Path, str, Path],
) -> None:
    report = read_file("triton", autotuned[0], H200)
    assert report.refused == []
    assert [(row["block_m"], row["time_us"]) for row in report.rows] == [
        (64, 64.0), (32, 32.0), (128, 128.0),
    ]  # fmt: skip
    assert {problem_of(row) for row in report.rows} == {Gemm(512, 256, 128, layout="nn")}
    assert report.rows[0]["source"] == "triton/product"


def test_a_live_listener_logs_what_the_autotuner_measures_or_says_that_it_cannot(
    autotuned: tuple[Path, str, Path],
) -> None:
    _, output, log = autotuned
    from triton import knobs

    if not hasattr(knobs.autotuning, "listener"):
        assert output.startswith("this Triton calls no autotuning listener (3.8 and later do)")
        return
    assert [row["time_us"] for row in RunLog(log).read().rows] == [64.0, 32.0, 128.0]


class Config:
    """As ``triton.Config``: its knobs in ``kwargs``, the rest as attributes."""

    def __init__(self, block: int) -> None:
        self.kwargs = {"BLOCK_SIZE_M": block, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}
        self.num_warps, self.num_ctas, self.num_stages, self.pre_hook = 4, 1, 3, print


def heard(log: RunLog, *, key: Any = (512, 256, 128, "torch.float16"), **more: Any) -> None:
    timings = {Config(block): [block / 1000] * 3 for block in (64, 32)}
    facts = {"best_config": None, "configs_timings": timings, "duration": 0.1, "cache_hit": False}
    listener(log, H200)(fn=heard, key=key, **(facts | more))


def test_a_listener_logs_each_tuning_as_rows_of_the_kernel(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log.jsonl")
    heard(log)
    heard(log)
    rows = log.read().rows
    assert [row["time_us"] for row in rows] == [64.0, 32.0] * 2
    assert {row["source"] for row in rows} == {"triton/heard"}
    assert len({row["run"] for row in rows}) == 2


def test_what_came_from_the_cache_is_not_measured_and_not_logged_again(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log.jsonl")
    heard(log, cache_hit=True, duration=None)
    assert not log.path.exists()


def test_a_listener_warns_and_never_stops_a_launch(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log.jsonl")
    with pytest.warns(UserWarning, match="autotuning of heard is not logged: the key holds 1"):
        heard(log, key=(512, "torch.float16"))
    with pytest.warns(UserWarning, match="not logged: cannot append"):
        heard(RunLog(tmp_path))


def test_a_listener_calls_the_one_that_was_there_before(tmp_path: Path) -> None:
    calls: list[Any] = []
    both = listener(RunLog(tmp_path / "log.jsonl"), H200, lambda **told: calls.append(told["key"]))
    both(fn=heard, key=(1,), best_config=None, configs_timings={}, duration=None, cache_hit=True)
    assert calls == [(1,)]


# --- FlagTune


def flagtune_row(**changes: Any) -> dict[str, Any]:
    return {
        "schema_version": 3, "input_row_index": 3, "operator": {"id": "flaggems/mm",
        "variant": "general_tma"}, "workload": {"dimensions": {"B": 1, "M": 64, "N": 32, "K": 128},
        "Count": 9}, "ranking_group": {"latency_scope": "public_kernel"}, "Count": 9,
        "dtypes": {"inputs": ["bfloat16", "bfloat16"], "outputs": ["bfloat16"]},
        "model_identity": {"platform_key": "nvidia-h20", "dtype_key": "bf16-bf16-bf16"},
        "device": {"gpu_token": "1", "name": "NVIDIA H200", "metadata": {}},
        "benchmark_protocol": None, "config_order": 0, "status": "ok",
        "inputs": {"M": 64, "N": 32, "K": 128, "stride_am": 128, "stride_bk": 32},
        "config": {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3},
        "latency_ms": 0.012345, "latency_p20_ms": 0.012, "latency_p80_ms": 0.013,
    } | changes  # fmt: skip


def lines(*rows: Any) -> str:
    return "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)


def test_flagtunes_rows_are_taken_with_layouts_from_their_strides(tmp_path: Path) -> None:
    strides = {"nn": (128, 32), "nt": (128, 1), "tn": (1, 32), "tt": (1, 1)}
    rows = [
        flagtune_row(inputs={"stride_am": a, "stride_bk": b}, input_row_index=i)
        for i, (a, b) in enumerate(strides.values())
    ]
    report = read_file("flagtune", put(tmp_path, "data.jsonl", lines(*rows)))
    assert report.refused == []
    assert [row["layout"] for row in report.rows] == list(strides)
    first = report.rows[0]
    assert (first["time_us"], first["device"]) == (12.345, "h200-sxm")
    assert first["source"] == "flaggems/mm:general_tma"
    assert problem_of(first) == Gemm(64, 32, 128, dtype="bf16", layout="nn")
    assert report.lost["latency_p20_ms"] == 4


def test_flagtunes_bad_lines_are_refused_by_number_and_the_rest_is_taken(tmp_path: Path) -> None:
    text = lines(
        flagtune_row(),
        "{not json\n",
        flagtune_row(schema_version=2),
        flagtune_row(operator={"id": "flaggems/mul", "variant": "scalar"}),
        flagtune_row(ranking_group={"latency_scope": "partial_kernel"}),
        flagtune_row(inputs={"stride_am": 256, "stride_bk": 32}),
        flagtune_row(latency_ms=float("nan")),
        flagtune_row(dtypes={"inputs": ["float61"], "outputs": ["bfloat16"]}),
        flagtune_row(
            latency_ms=0.1, workload={"dimensions": dict.fromkeys("MNK", 4096)},
            inputs={"stride_am": 4096, "stride_bk": 1},
        ),
        flagtune_row(config=None),
        flagtune_row(latency_ms=None, status="nonfinite"),
    )  # fmt: skip
    report = read_file("flagtune", put(tmp_path, "data.jsonl", text))
    assert [row["invalidity"] for row in report.rows] == ["correct", "compile"]
    assert [refusal.where for refusal in report.refused] == [
        "line 2", "line 3", "line 4", "line 5", "line 6", "line 7", "line 8", "line 10", "row 9",
    ]  # fmt: skip
    assert report.refused[-1].reason.startswith("above the roofline")


# --- FlagGems' benchmark


def test_flaggems_log_gives_the_vendors_rows_and_its_own_times_as_claims(tmp_path: Path) -> None:
    results = [
        {"shape_detail": [[384, 512], [512, 256]], "latency_base": 0.0123, "latency": 0.0154,
         "speedup": 0.8, "tflops": 7.6, "gbps": None},
        {"shape_detail": [[384, 512], [511, 256]], "latency_base": 0.01, "latency": 0.01},
        {"shape_detail": [[8, 8], [8, 8]], "error_msg": "out of memory"},
    ]  # fmt: skip
    entry = {"op_name": "mm", "dtype": "torch.float16", "mode": "kernel", "level": "core"}
    other = entry | {"op_name": "relu", "result": [{"shape_detail": [[4, 4]], "latency": 1.0}]}
    text = lines(
        "collected 12 items\n",
        "2026-11-29 [INFO] " + json.dumps(entry | {"result": results}) + "\n",
        "[INFO] " + json.dumps(other) + "\n",
    )
    report = read_file("flaggems", put(tmp_path, "result.log", text), H200)
    (row,), (claim,) = report.rows, report.claims
    assert (row["backend"], row["time_us"], row["m"], row["n"], row["k"]) == (
        "origin", 12.3, 384, 256, 512,
    )  # fmt: skip
    assert (claim.time_us, claim.vendor_us, claim.config) == (15.4, 12.3, None)
    assert [r.where for r in report.refused] == [
        "line 2, result[1]", "line 2, result[2]", "line 3, result[0]",
    ]  # fmt: skip
    assert report.lost == {"configuration of latency (the log has none)": 1}
    assert report.assumed == ["layout 'nn' of mm: the log does not say the strides"]


@pytest.mark.parametrize(
    ("operator", "shapes", "problem"),
    [
        ("addmm", [[256], [384, 512], [512, 256]], Gemm(384, 256, 512, layout="nn", beta=1.0)),
        ("bmm", [[4, 384, 512], [4, 512, 256]], Gemm(384, 256, 512, layout="nn", batch=4)),
        ("linear", [[384, 512], [256, 512]], Gemm(384, 256, 512)),
    ],
)
def test_an_operators_tensors_are_read_in_torchs_order(
    operator: str, shapes: Any, problem: Gemm, tmp_path: Path
) -> None:
    entry = {"op_name": operator, "dtype": "torch.float16", "result": [
        {"shape_detail": shapes, "latency_base": 0.05}]}  # fmt: skip
    report = read_file("flaggems", put(tmp_path, "r.log", lines(entry)), H200)
    assert [problem_of(row) for row in report.rows] == [problem]


# --- tuned tables

WINNER = {
    "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 16,
    "num_warps": 4, "num_stages": 4,
}  # fmt: skip


def test_a_block_scaled_table_gives_a_claim_for_each_m(tmp_path: Path) -> None:
    name = "N=1024,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8,block_shape=[128, 128].json"
    table = {"1": WINNER, "64": WINNER | {"waves_per_eu": 2}, "x": WINNER, "8": {"BLOCK_SIZE_M": 1}}
    report = read_file("sglang", put(tmp_path, name, table))
    one, sixty_four = report.claims
    assert (one.operator, one.m, one.n, one.k, one.dtype) == (
        "scaled_gemm", 1, 1024, 4096, "fp8_e4m3",
    )  # fmt: skip
    assert (one.device_name, one.device, one.detail) == (
        "NVIDIA L40S", "l40s", "block_shape=[128, 128]",
    )  # fmt: skip
    assert one.config == KernelConfig("tile", 16, 64, 128, 16, num_warps=4, num_stages=4)
    assert sixty_four.detail == "block_shape=[128, 128];waves_per_eu=2"
    assert [refusal.where for refusal in report.refused] == ["M=x", "M=8"]
    assert report.rows == []


def test_a_table_of_experts_says_that_it_does_not_know_k(tmp_path: Path) -> None:
    name = "E=128,N=352,device_name=NVIDIA_H200.json"
    table = {"triton_version": "3.6.0", "1": WINNER, "2": WINNER}
    report = read_file("vllm", put(tmp_path, name, table))
    assert [(c.operator, c.m, c.k, c.triton, c.detail) for c in report.claims] == [
        ("fused_moe", 1, None, "3.6.0", "E=128"), ("fused_moe", 2, None, "3.6.0", "E=128"),
    ]  # fmt: skip
    assert report.lost == {"K of the experts' products (the file names none)": 1}
    assert report.assumed == ["dtype fp16: a table without one is of 16-bit weights, fp16 or bf16"]
    with pytest.raises(RecordError, match="a tuned table is named"):
        read_file("vllm", put(tmp_path, "table.json", table))


# --- all of them


def test_an_import_that_is_repeated_adds_nothing(tmp_path: Path) -> None:
    log, book = RunLog(tmp_path / "log.jsonl"), ClaimBook(tmp_path / "claims.jsonl")
    cache = put(tmp_path, "k.autotune.json", CACHE)
    table = put(tmp_path, "E=8,N=352,device_name=NVIDIA_H200.json", {"1": WINNER})
    for known in (0, 2):
        (report,) = import_files("triton", [cache], log, given=H200)
        assert (len(report.rows), report.known) == (2, known)
    for known in (0, 1):
        (report,) = import_files("vllm", [table], log, book)
        assert (len(report.claims), report.known) == (1, known)
    assert len(log.read().rows) == 2
    assert book.read() == (report.claims, [])


def test_a_file_of_many_that_is_none_adds_nothing_of_any(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log.jsonl")
    cache = put(tmp_path, "k.autotune.json", CACHE)
    with pytest.raises(RecordError, match=r"b\.json: not a cache file"):
        import_files("triton", [cache, put(tmp_path, "b.json", {})], log, given=H200)
    assert not log.path.exists()


def test_an_unknown_format_and_a_missing_or_endless_file_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'triton'"):
        read_file("tritn", tmp_path / "a")
    with pytest.raises(RecordError, match="there is no file at"):
        read_file("t4", tmp_path / "a")
    with pytest.raises(RecordError, match="there is no file at /dev/zero"):
        read_file("t4", "/dev/zero")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as stream:
        stream.truncate(2**30)  # a gigabyte of nothing, which takes no room
    for name in FORMATS:
        with pytest.raises(RecordError, match=r"takes 1073741824 bytes; at most \d+ are read"):
            read_file(name, huge)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["results", "configuration", "times", "invalidity", "correctness", "measurements",
             "key", "configs_timings", "kwargs", "operator", "config", "result", "op_name", "1",
             "BLOCK_SIZE_M", "metadata", "costmodel", "name", "value", "shape_detail"]
        ) | st.text(max_size=4), inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip
#: sound documents with one place replaced by anything
SOUND: list[Any] = [
    {"schema_version": "1.0.0", "results": [result()], "metadata": {}}, CACHE, flagtune_row(),
    {"1": WINNER}, {"op_name": "mm", "dtype": "fp16", "result": [
        {"shape_detail": [[8, 8], [8, 8]], "latency_base": 1.0, "latency": 1.0}]},
    *(json.loads(t4.dumps(document)) for _, document in t4.export(own_rows())),
]  # fmt: skip


def places(value: Any) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in items:
        found.append((key,))
        if isinstance(inner, (dict, list)):
            found += [(key, *rest) for rest in places(inner)]
    return found


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    document = json.loads(json.dumps(draw(st.sampled_from(SOUND))))
    place = draw(st.sampled_from(places(document)))
    target = document
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = draw(JSON)
    return json.dumps(document).encode()


@given(
    name=st.sampled_from(sorted(FORMATS)),
    content=damaged() | JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=99),
    facts=st.sampled_from([Given(), H200, FACTS]),
)
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_a_file_holds_an_importer_gives_sound_rows_or_raises_a_documented_error(
    tmp_path: Path, name: str, content: bytes, facts: Given
) -> None:
    path = tmp_path / "N=8,K=8,device_name=NVIDIA_H200.json"
    path.write_bytes(content)
    try:
        report = read_file(name, path, facts)
    except CostModelError:
        return
    log = RunLog(tmp_path / "log.jsonl")
    log.append_many(report.rows)  # checks each
    json.dumps(report.as_dict(), allow_nan=False)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_deep_nesting_and_endless_numbers_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "N=8,K=8,device_name=NVIDIA_H200.json"
    for content in (b"[" * 100_000, b'{"a":' * 100_000, b'{"1":' + b"9" * 10_000 + b"}"):
        path.write_bytes(content)
        try:
            report = read_file(name, path, H200)
        except RecordError:
            continue
        assert report.rows == [] and report.claims == []


def test_claims_that_are_none_are_reported_and_the_others_read(tmp_path: Path) -> None:
    book = ClaimBook(tmp_path / "claims.jsonl")
    table = put(tmp_path, "E=8,N=352,device_name=NVIDIA_H200.json", {"1": WINNER})
    (claim,) = read_file("vllm", table).claims
    book.append([claim])
    with book.path.open("ab") as stream:
        stream.write(b'{"claim":1,"operator":"exec"}\n[]\n{"claim":2}\n{"claim":1,')
    claims, problems = book.read()
    assert claims == [claim]
    assert [problem.line_number for problem in problems] == [2, 3, 4, 5]
