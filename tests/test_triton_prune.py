"""The drop-ins for ``@triton.autotune``, with Triton's own Autotuner over interpreted kernels."""

import json
import math
import os
import subprocess
import sys
import types
import warnings

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from triton.runtime.autotuner import Autotuner  # noqa: E402

import costmodel as cm  # noqa: E402
from costmodel.config import KernelConfig  # noqa: E402
from costmodel.dropin.knob_names import KNOB_NAMES, config_of_parameters  # noqa: E402
from costmodel.dropin.pruner import Pruner  # noqa: E402
from costmodel.dropin.triton_args import problem_of_call  # noqa: E402
from costmodel.errors import (  # noqa: E402
    ConfigError,
    NoCandidateError,
    UnknownNameError,
    UnsupportedError,
)
from costmodel.price import price  # noqa: E402
from costmodel.profile import load_profile  # noqa: E402
from costmodel.records import RunLog  # noqa: E402

CHIP = "h200-sxm"


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@triton.jit
def plain_gemm(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_SIZE_N)
    rows = (tile // tiles_n) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    cols = (tile % tiles_n) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    sums = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_SIZE_K):
        ks = start + tl.arange(0, BLOCK_SIZE_K)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0,
        )  # fmt: skip
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0,
        )  # fmt: skip
        sums += tl.dot(a, b)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        sums.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N),
    )  # fmt: skip


def config(m, n, k, warps=4, stages=3, **more):
    blocks = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8}
    return triton.Config(blocks | more, num_warps=warps, num_stages=stages)


#: 6 that an H200 can hold and 4 that it cannot: (256 + 256) x 64 x 2 bytes x 4 stages is 262144
FITTING = [config(*block, stages=s) for block in ((64, 64, 64), (128, 64, 64), (128, 128, 64))
           for s in (2, 3)]  # fmt: skip
TOO_BIG = [config(256, 256, 64, 8, s) for s in (4, 5, 6, 7)]


class Bench:
    """A benchmark that counts: the time is the place in which a configuration was asked for."""

    def __init__(self):
        self.calls = 0

    def __call__(self, call, quantiles):
        call()
        self.calls += 1
        return [float(self.calls)] * 3


def tuned(configs, bench, **options):
    return Autotuner(
        plain_gemm, plain_gemm.arg_names, configs, ["M", "N", "K"], None, None,
        prune_configs_by=cm.triton_prune(profile=CHIP, **options), do_bench=bench,
    )  # fmt: skip


def multiply(kernel, m=64, n=64, k=64):
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(m, k, generator=generator).half()
    b = torch.randn(k, n, generator=generator).half()
    c = torch.empty(m, n, dtype=torch.float16)

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_SIZE_M"]) * triton.cdiv(n, meta["BLOCK_SIZE_N"]),)

    kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())
    torch.testing.assert_close(c, (a.float() @ b.float()).half(), rtol=1e-2, atol=1e-2)
    return c


# --- triton_prune in Triton's own tuner ----------------------------------------------------


def test_fractional_k_of_10_candidates_4_rejected_and_half_asked_measures_3():
    bench = Bench()
    kernel = tuned([*TOO_BIG[:2], *FITTING, *TOO_BIG[2:]], bench, top_k=0.5)
    multiply(kernel)
    assert bench.calls == 3
    assert set(kernel.configs_timings) <= set(FITTING)


def test_one_left_is_returned_without_benchmarking():
    bench = Bench()
    kernel = tuned([*TOO_BIG, FITTING[0]], bench)
    multiply(kernel)
    assert bench.calls == 0 and kernel.best_config == FITTING[0]
    # the next problem of the same tuner has more to choose from, and is measured
    kernel.configs = [*TOO_BIG, *FITTING[:2]]
    multiply(kernel, m=128)
    assert bench.calls == 2


def test_one_left_needs_no_driver_for_the_benchmark_that_is_left_out():
    kernel = tuned([*TOO_BIG, FITTING[0]], None)  # Triton would ask a GPU's driver for it
    multiply(kernel)
    assert kernel.best_config == FITTING[0]


def test_the_ones_kept_are_the_best_predicted_in_their_order():
    bench = Bench()
    kernel = tuned(FITTING, bench, top_k=4)
    multiply(kernel, 512, 512, 64)
    ours = [Pruner().config_of(c) for c in FITTING]
    times = price(cm.Gemm(512, 512, 64, layout="nn"), ours, load_profile(CHIP)).time_us
    wanted = sorted(FITTING, key=lambda c: times[Pruner().config_of(c)])[:4]
    assert list(kernel.configs_timings) == wanted


def test_all_pruned_is_a_clear_error_with_the_tightest_limit():
    kernel = tuned(TOO_BIG, Bench())
    # 262144 - 232448
    with pytest.raises(NoCandidateError, match=r"232448 bytes.*exceeds it by 29696"):
        multiply(kernel)


def test_256x256x256_in_five_stages_is_dropped_before_anything_is_compiled():
    chosen = Pruner(profile=CHIP).choose(
        [config(256, 256, 256, 8, 5), FITTING[0]], call(4096, 4096, 4096)
    )
    assert chosen == [FITTING[0]]


def test_an_unmapped_kernel_keeps_the_full_list_with_one_warning():
    configs = [triton.Config({"X": 1}), triton.Config({"X": 2})]
    prune = cm.triton_prune(profile=CHIP)["early_config_prune"]
    with pytest.warns(UserWarning, match="all 2 are measured"):
        assert prune(configs, call(64, 64, 64)) == configs
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert prune(configs, call(64, 64, 64)) == configs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({}, "no arguments M, N, K"), ({"M": 4, "N": 4, "K": 4}, "of one type"),
     ({"M": 4, "N": 4, "K": 4, "a": torch.empty(4, 4), "b": torch.empty(4, 4).half()},
      "fp32 and fp16")],
)  # fmt: skip
def test_a_call_whose_problem_is_not_told_keeps_the_full_list(arguments, words):
    prune = cm.triton_prune(profile=CHIP)["early_config_prune"]
    with pytest.warns(UserWarning, match=words):
        assert prune(FITTING, arguments) == FITTING


def test_a_chip_without_a_profile_keeps_the_full_list():
    with pytest.warns(UserWarning, match="GPU"):  # none at hand
        prune = cm.triton_prune()["early_config_prune"]
        assert prune(FITTING, call(64, 64, 64)) == FITTING


@pytest.mark.parametrize("top_k", [0, -1, True, "six"])
def test_a_bad_top_k_is_an_error_when_the_kernel_is_decorated(top_k):
    with pytest.raises(ConfigError, match="top_k"):
        cm.triton_prune(top_k)


# --- names and problems --------------------------------------------------------------------


def call(m, n, k, dtype=torch.float16, b_transposed=False):
    a = torch.empty(m, k, dtype=dtype, device="meta")
    b = torch.empty(n, k, dtype=dtype, device="meta").t() if b_transposed else torch.empty(
        k, n, dtype=dtype, device="meta"
    )  # fmt: skip
    strides = dict(zip(("stride_am", "stride_ak", "stride_bk", "stride_bn"),
                       (*a.stride(), *b.stride()), strict=True))  # fmt: skip
    return {"a_ptr": a, "b_ptr": b, "c_ptr": torch.empty(m, n, dtype=dtype, device="meta"),
            "M": m, "N": n, "K": k} | strides  # fmt: skip


@pytest.mark.parametrize("place", range(3))
def test_the_usual_names_of_blocks_are_known(place):
    names = [KNOB_NAMES[knob][place] for knob in ("block_m", "block_n", "block_k")]
    parameters = dict(zip(names, (128, 64, 32), strict=True))
    found = config_of_parameters(parameters | {"num_warps": 8, "num_stages": 4, "EVEN_K": True})
    assert found == KernelConfig("tile", 128, 64, 32, num_warps=8, num_stages=4)


def test_split_k_takes_the_template_that_splits():
    found = config_of_parameters({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "SPLIT_K": 4})
    assert (found.template, found.split_k) == ("split_k", 4)
    assert config_of_parameters({"BLOCK_M": 64, "BLOCK_N": 64}) is None


def test_names_of_ones_own_are_mapped():
    pruner = Pruner(names={"ROWS": "block_m", "COLS": "block_n", "DEPTH": "block_k",
                           "tokens": "m", "features": "n", "inner": "k"})  # fmt: skip
    own = triton.Config({"ROWS": 64, "COLS": 128, "DEPTH": 32}, num_warps=8)
    assert str(pruner.config_of(own)) == "tile 64x128x32 w8 s3 g8"
    arguments = call(16, 32, 64)
    arguments |= {"tokens": 16, "features": 32, "inner": 64}
    for size in "MNK":
        del arguments[size]
    assert str(pruner.problem_of(arguments)) == "16x32x64 fp16 nn"


def test_layout_and_dtype_come_from_strides_and_tensors():
    assert problem_of_call(call(16, 32, 64, torch.bfloat16)).dtype == "bf16"
    assert problem_of_call(call(16, 32, 64, b_transposed=True)).layout == "nt"
    bare = {k: v for k, v in call(16, 32, 64, b_transposed=True).items() if "stride" not in k}
    assert problem_of_call(bare).layout == "nt"
    square = {k: v for k, v in call(64, 64, 64, b_transposed=True).items() if "stride" not in k}
    assert problem_of_call(square).layout == "nt"


def test_a_tensor_descriptors_type_is_that_of_its_base():
    from triton.tools.tensor_descriptor import TensorDescriptor

    a, b = torch.empty(64, 64).half(), torch.empty(64, 64).half()
    described = {"a_desc": TensorDescriptor.from_tensor(a, [64, 64]),
                 "b_desc": TensorDescriptor.from_tensor(b, [64, 64])}  # fmt: skip
    assert problem_of_call(described | {"M": 64, "N": 64, "K": 64}).dtype == "fp16"


# --- autotune ------------------------------------------------------------------------------


def test_autotune_measures_the_best_few_and_remembers_each_time(home):
    bench = Bench()
    multiply(cm.autotune(FITTING, top_k=3, profile=CHIP, do_bench=bench)(plain_gemm))
    assert bench.calls == 3
    rows = RunLog(home / "autotune.jsonl").read().rows
    assert len(rows) == 3 and {row["template"] for row in rows} == {"tile"}
    assert sorted(row["time_us"] for row in rows) == [1000.0, 2000.0, 3000.0]
    # another process would be another tuner over the same log
    again = Bench()
    kernel = cm.autotune(FITTING, top_k=3, profile=CHIP, do_bench=again)(plain_gemm)
    multiply(kernel)
    assert again.calls == 0 and kernel.configs_timings[kernel.best_config][0] == 1.0


def test_one_more_configuration_is_one_more_measurement():
    bench = Bench()
    multiply(cm.autotune(FITTING[:3], top_k=9, profile=CHIP, do_bench=bench)(plain_gemm))
    assert bench.calls == 3
    multiply(cm.autotune(FITTING[:4], top_k=9, profile=CHIP, do_bench=bench)(plain_gemm))
    assert bench.calls == 4


def test_a_parameter_beyond_our_knobs_makes_another_kernel():
    from costmodel.dropin.autotune import Memory

    memory = Memory(RunLog("unused"), plain_gemm, "custom/1", {})
    plain, more = config(64, 64, 64), config(64, 64, 64, EVEN_K=True)
    assert memory._kernel_of(plain) != memory._kernel_of(more)
    assert memory._kernel_of(plain) == memory._kernel_of(config(128, 64, 64, stages=5))


def test_another_problem_is_measured_anew_and_never_answered_from_the_log():
    bench = Bench()
    kernel = cm.autotune(FITTING, top_k=2, profile=CHIP, do_bench=bench)(plain_gemm)
    multiply(kernel)
    multiply(kernel, m=128)
    assert bench.calls == 4


def test_a_configuration_that_fails_is_remembered_as_failed(home):
    class Failing(Bench):
        def __call__(self, call, quantiles):
            self.calls += 1
            if self.calls == 1:
                from triton.runtime.errors import OutOfResources

                raise OutOfResources(1, 0, "shared memory")
            return [5.0] * 3

    bench = Failing()
    for _ in range(2):
        kernel = cm.autotune(FITTING, top_k=2, profile=CHIP, do_bench=bench)(plain_gemm)
        multiply(kernel)
    assert bench.calls == 2
    rows = RunLog(home / "autotune.jsonl").read().rows
    assert sorted(row["invalidity"] for row in rows) == ["compile", "correct"]


def test_without_configurations_a_grid_in_the_kernels_own_names_is_ranked():
    bench = Bench()
    kernel = cm.autotune(top_k=2, profile=CHIP, do_bench=bench)(plain_gemm)
    assert len(kernel.configs) > 500
    assert set(kernel.configs[0].kwargs) == {
        "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M",
    }  # fmt: skip
    multiply(kernel)
    assert bench.calls == 2


def test_a_kernel_without_usual_names_and_configurations_is_an_error():
    @triton.jit
    def other(x_ptr, SIZE: tl.constexpr):
        pass

    with pytest.raises(ConfigError, match="name no tile"):
        cm.autotune()(other)


def test_a_tuned_output_that_accumulates_is_reset_by_tritons_own_option():
    kernel = cm.autotune(FITTING, top_k=2, profile=CHIP, do_bench=Bench(), reset_to_zero=["c_ptr"])
    multiply(kernel(plain_gemm))


# --- kernels compiled together -------------------------------------------------------------

COMPILED_TOGETHER = """
import json, sys, threading
import torch, triton
import costmodel as cm
from costmodel.compiler.witness import compiling_for
from costmodel.dropin.together import compile_together
from test_triton_prune import CHIP, FITTING, config, plain_gemm

threads = set()
triton.knobs.compilation.listener = lambda **_: threads.add(threading.get_ident())
a, b, c = (torch.empty(64, 64, dtype=torch.float16) for _ in range(3))
arguments = (a, b, c, 64, 64, 64, *a.stride(), *b.stride(), *c.stride())
no_power_of_two = config(48, 64, 64)
with compiling_for(cm.load_profile(CHIP)):
    compile_together(plain_gemm, [no_power_of_two, *FITTING], arguments, {"grid": (1,)})
    at_once, held = threads.copy(), len(plain_gemm.device_caches[0][0])
    tuner = triton.autotune(
        FITTING, ["M"], prune_configs_by=cm.triton_prune(2, profile=CHIP)
    )(plain_gemm)
    plain_gemm.device_caches.clear()
    tuner.nargs = dict(zip(plain_gemm.arg_names, arguments))
    tuner.prune_configs({"grid": (1,), "warmup": False})
    pruned = len(plain_gemm.device_caches[0][0])
others = len(at_once - {threading.get_ident()})


def interrupted(**_):
    raise KeyboardInterrupt


plain_gemm.device_caches.clear()
triton.knobs.runtime.jit_post_compile_hook = interrupted
with compiling_for(cm.load_profile(CHIP)):
    try:
        compile_together(plain_gemm, FITTING, arguments, {"grid": (1,)})
    except KeyboardInterrupt:
        pass
mode = triton.runtime._async_compile.active_mode.get()
print(json.dumps({"held": held, "threads": others, "pruned": pruned, "mode": mode and str(mode)}))
"""


def test_kernels_to_measure_are_compiled_on_other_threads_and_one_that_fails_is_left(tmp_path):
    """By Triton's own cache and listener, for an H200 with no GPU."""
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED_TOGETHER], cwd=os.path.dirname(__file__),
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["mode"] is None  # a hook that raised leaves nothing behind
    assert found["held"] == len(FITTING) and found["threads"] >= 1 and found["pruned"] == 2


@pytest.fixture
def compiled(monkeypatch):
    """The configurations of each call that would compile some together."""
    import costmodel.dropin.together as together

    calls = []
    monkeypatch.setattr(together, "compile_together", lambda kernel, some, *_: calls.append(some))
    return calls


def test_what_is_measured_is_compiled_together_and_nothing_else(compiled):
    kernel = tuned([*TOO_BIG, *FITTING], Bench(), top_k=3)
    multiply(kernel)
    assert compiled == [list(kernel.configs_timings)] and len(compiled[0]) == 3
    kernel.warmup(*call(64, 64, 64).values(), grid=(1,))
    assert len(compiled) == 1


def test_a_tuner_that_keeps_its_results_on_disk_compiles_nothing_ahead(compiled):
    kernel = tuned(FITTING, Bench(), top_k=3)
    kernel.cache_results = True
    kernel.nargs = call(64, 64, 64)
    assert len(kernel.prune_configs({"warmup": False})) == 3 and compiled == []


def test_what_the_log_knows_is_not_compiled(compiled):
    options = {"top_k": 6, "profile": CHIP}
    multiply(cm.autotune(FITTING[:4], **options, do_bench=Bench())(plain_gemm))
    multiply(cm.autotune(FITTING, **options, do_bench=Bench())(plain_gemm))
    assert [len(some) for some in compiled] == [4, 2]
    assert set(compiled[1]) == set(FITTING[4:])


# --- FlagGems ------------------------------------------------------------------------------


@pytest.fixture
def lib_tuner(monkeypatch):
    """FlagGems' interface: LibTuner.register(name), policy(fn, configs, args, kwargs)."""

    class LibTuner(Autotuner):
        table = {}

        @classmethod
        def register(cls, name):
            return lambda subclass: cls.table.setdefault(name, subclass)

    module = types.ModuleType("flag_gems.utils.libentry")
    module.LibTuner = LibTuner
    for name in ("flag_gems", "flag_gems.utils"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "flag_gems.utils.libentry", module)
    return LibTuner


def test_flag_gems_takes_our_ranking_as_a_policy(lib_tuner, compiled):
    from costmodel.dropin.flag_gems import register_policy

    register_policy(profile=CHIP, top_k=2)
    tuner = lib_tuner.table["costmodel"](
        plain_gemm, plain_gemm.arg_names, FITTING, ["M"], None, None
    )
    timed = []

    def bench(one):
        timed.append(one)
        return [float(len(timed))] * 3

    arguments = tuple(
        call(512, 512, 512)[name] for name in ("a_ptr", "b_ptr", "c_ptr", "M", "N", "K")
    )
    best, timings = tuner.policy(bench, iter(FITTING), arguments, {"warmup": False})
    assert compiled == [list(timings)]
    assert list(timings) == timed == Pruner(2, CHIP).choose(FITTING, call(512, 512, 512))
    assert best == timed[0]
    best, timings = tuner.policy(bench, [*TOO_BIG, FITTING[0]], arguments, {})
    assert best == FITTING[0] and math.isnan(timings[best][0]) and len(timed) == 2


def test_without_flag_gems_registering_says_so():
    from costmodel.dropin.flag_gems import register_policy

    with pytest.raises(UnsupportedError, match="FlagGems is not here"):
        register_policy()


def test_the_comparison_with_a_full_search_writes_a_row_a_shape_and_resumes(tmp_path):
    import csv
    import os
    import subprocess
    from pathlib import Path

    script = Path(__file__).parent.parent / "data" / "results" / "triton_prune.py"
    command = [sys.executable, str(script), "--dry-run", "--profile", CHIP, "--out", str(tmp_path)]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.csv")
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["m"] for row in rows] == ["64", "33"]
    assert all(row["pruned_measured"] == "6" and float(row["error"]) < 1e-3 for row in rows)
    assert "2 shapes: geometric mean" in done.stdout


def test_a_list_for_every_chip_is_ranked_on_one_without_warps_and_stages():
    pruner = Pruner(2, profile="ascend-910b2")
    chosen = pruner.choose(FITTING, call(512, 512, 512))
    assert 1 <= len(chosen) <= 2 and all(config in FITTING for config in chosen)


@pytest.mark.parametrize("wrong", [{"names": {"ROWS": "blok_m"}}, {"template": "tiles"}])
def test_what_is_named_wrongly_is_an_error_before_any_launch(wrong):
    with pytest.raises(UnknownNameError):
        cm.triton_prune(profile=CHIP, **wrong)
