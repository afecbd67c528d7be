"""``matmul``, ``addmm`` and ``linear``: right results, few kernels, and the reasons for a choice.

Without a GPU the kernels run in Triton's interpreter, chosen for an H200; with one, on it.
"""

import csv
import gc
import json
import os
import subprocess
import sys
import threading
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import costmodel as cm  # noqa: E402
from costmodel.config import KernelConfig  # noqa: E402
from costmodel.dropin import choice as choosing  # noqa: E402
from costmodel.dropin import op  # noqa: E402
from costmodel.dropin.case import SMALL_BUCKETS, Case, Operand, bucket_of  # noqa: E402
from costmodel.dropin.choice import MOST_KERNELS, Choice, choose_together, kernels_of  # noqa: E402
from costmodel.dropin.cover import cover  # noqa: E402
from costmodel.dropin.decision import decisions  # noqa: E402
from costmodel.dropin.dispatch import Dispatcher  # noqa: E402
from costmodel.dropin.eligible import fp32_precision  # noqa: E402
from costmodel.dropin.plan import Plan  # noqa: E402
from costmodel.dropin.vendor import VendorTable, vendor_table  # noqa: E402
from costmodel.kernels.launch import kernels, prepare  # noqa: E402
from costmodel.records.answers import Answer, remember  # noqa: E402

# NumPy's warning, caused in Triton 3.6's interpreter
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
H200 = cm.load_profile("h200-sxm")
UNITS = 4
RESULTS = Path(__file__).parent.parent / "data" / "results"
#: fp32 sums in another order
close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)
#: rounding of the result, and of sums of a few hundred products, both relative to its norm
TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-5, torch.int32: 0.0}
BLOCKS = {"block_m": 32, "block_n": 16, "block_k": 32, "group_m": 2, "num_stages": 2}
CONFIGS = [
    KernelConfig(template, **BLOCKS, split_k=split, swap=swap)
    for template, split in (("tile", 1), ("split_k", 3), ("persistent_tma", 1))
    for swap in (False, True)
]


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """No answer that this user tuned."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))


@pytest.fixture
def as_compiled(monkeypatch):
    """Launches are bound as where kernels are compiled; nothing is run."""
    pytest.importorskip("costmodel.kernels.warp_specialized")  # it looks at the knob on import
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)


@pytest.fixture
def chooser(monkeypatch):
    """The dispatcher behind the public functions, taking the tensors of these tests."""
    made = Dispatcher(H200 if INTERPRETED else None, on=(DEVICE,))
    monkeypatch.setattr(op, "_DEFAULT", made)
    return made


def draw(rows, cols, dtype=torch.float16, transposed=False, pad=0, offset=0):
    """[rows, cols] of random values, stored with ``pad`` elements between rows, from ``offset``."""
    height, width = (cols, rows) if transposed else (rows, cols)
    count = height * (width + pad) + offset
    generator = torch.Generator().manual_seed(rows * 1000 + cols)
    if dtype == torch.int8:
        storage = torch.randint(-100, 100, (count,), generator=generator, dtype=dtype)
    else:
        storage = torch.randn(count, generator=generator).to(dtype)
    stored = storage.to(DEVICE).as_strided((height, width), (width + pad, 1), offset)
    return stored.t() if transposed else stored


def check(found, a, b, added=0.0, alpha=1.0):
    expected = alpha * (a.double() @ b.double()) + added
    error = (found.double() - expected).norm()
    assert error <= TOLERANCE[found.dtype] * expected.norm()


def case_for(n, k, dtype=torch.bfloat16, layout="nt", **more):
    """The case of contiguous tensors on an H200."""
    a = Operand(layout[0] == "t", 16, 0)
    b = Operand(layout[1] == "t", min((k if layout[1] == "t" else n) * 2 & -(n * 2), 16), 0)
    return Case(n, k, dtype, dtype, a, b, Operand(False, 16, 0), **more)


def case_of_tensors(n, k, dtype=torch.bfloat16):
    """The case of a linear layer with contiguous tensors."""
    a, b, c = (
        torch.empty(shape, dtype=dtype, device="meta") for shape in ((64, k), (n, k), (64, n))
    )
    return Case(n, k, dtype, dtype, Operand.of(a, "a"), Operand.of(b.t(), "b"), Operand.of(c, "c"))


# Buckets and kernels


def test_m_is_rounded_up_to_a_power_of_two():
    assert [bucket_of(m) for m in (1, 2, 3, 65, 96, 512, 513)] == [1, 2, 4, 128, 128, 512, 1024]


@pytest.mark.parametrize("n, k", [(4096, 4096), (4096, 14336), (2112, 7168), (28672, 4096)])
@pytest.mark.parametrize("model", ["shipped", "physics"])
def test_every_m_to_512_needs_at_most_12_kernels(n, k, model, monkeypatch, as_compiled):
    """Kernels that add the parts of a split K counted; by what decides the compiled code."""
    if model == "physics":
        monkeypatch.setattr(choosing, "rank", lambda p, t, chip: cm.predict.rank(p, t, chip, model))
    case = case_of_tensors(n, k)
    choices = choose_together(case, H200)
    every = set()
    for m in range(1, 513):
        needed = kernels_of(case, m, choices[bucket_of(m)].configs[0], H200.units)
        assert needed, m
        every |= needed
    assert len(every) <= MOST_KERNELS


COMPILE_EVERY_M = """
import dataclasses, json, sys
import numpy as np, torch
import costmodel as cm
from costmodel.dropin import choice, plan
from costmodel.dropin.dispatch import Dispatcher
from costmodel.kernels import launch
from costmodel.compiler.witness import compiling_for
from costmodel.space.specialized import warp_group_candidates

class Compiled:
    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *args, **constants: self.kernel.warmup(*args, grid=grid, **constants)

bound = plan.Plan._step
def step(*given):
    made = bound(*given)
    return dataclasses.replace(made, kernel=Compiled(made.kernel))
plan.Plan._step = step

chip = cm.load_profile("h200-sxm")
n, k, only_split = map(int, sys.argv[1:])
if only_split:
    def split_alone(problem, chip):
        table = warp_group_candidates(problem, chip)
        return table[np.flatnonzero(table.split_k > 1)]
    choice.candidates = split_alone
chooser = Dispatcher(chip, on=("cpu",))
rows, weight = torch.empty(512, k).half(), torch.empty(n, k).half()
with compiling_for(chip):
    for m in range(1, 513):
        chooser.product(rows[:m], weight.t(), choose="triton")
    held = {f.__name__: len(f.device_caches[0][0]) for f in launch.kernels() if f.device_caches}
assert not chooser._failed, chooser._failed
print(json.dumps(held))
"""


@pytest.mark.parametrize("n, k, only_split", [(4096, 4096, 0), (2112, 7168, 0), (4096, 4096, 1)])
def test_triton_itself_compiles_at_most_12_kernels(n, k, only_split):
    """By Triton's own cache, compiled for an H200 with no GPU, through the whole of a call."""
    pytest.importorskip("costmodel.kernels.warp_specialized")
    command = [sys.executable, "-c", COMPILE_EVERY_M, str(n), str(k), str(only_split)]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    held = json.loads(done.stdout)
    assert 0 < sum(held.values()) <= MOST_KERNELS, held
    assert not only_split or held["reduce_parts_kernel"]


def test_products_that_end_in_a_second_kernel_stay_within_the_limit(monkeypatch, as_compiled):
    """Only warp-specialized splits, each with an adding kernel beside the product's own."""
    from costmodel.space.specialized import warp_group_candidates

    def split_alone(problem, chip):
        table = warp_group_candidates(problem, chip)
        return table[np.flatnonzero(table.split_k > 1)]

    monkeypatch.setattr(choosing, "candidates", split_alone)
    case = case_of_tensors(4096, 14336)
    choices = choose_together(case, H200)
    every = set()
    for m in range(1, 513):
        needed = kernels_of(case, m, choices[bucket_of(m)].configs[0], H200.units)
        assert len(needed) == 2
        every |= needed
    assert len(every) <= MOST_KERNELS


def test_a_bucket_takes_its_best_while_there_is_room():
    times = np.array([[1.0, 2.0, 9.0], [9.0, 2.0, 1.0]])
    needs = np.eye(3, dtype=bool)
    assert cover(times, needs, 2).tolist() == [True, False, True]


def test_one_kernel_for_all_is_the_one_that_costs_them_least():
    times = np.array([[1.0, 2.0, 9.0], [9.0, 2.0, 1.0]])  # products: 9, 4, 9
    assert cover(times, np.eye(3, dtype=bool), 1).tolist() == [False, True, False]


def test_a_bundle_counts_all_its_kernels():
    times = np.array([[1.0, 1.5], [1.0, 1.5]])
    needs = np.array([[True, True, False], [False, False, True]])  # two kernels, or one
    assert cover(times, needs, 1).tolist() == [False, False, True]
    assert cover(times, needs, 2).tolist() == [True, True, False]


def test_every_bucket_is_served_before_any_is_served_better():
    times = np.array([[1.0, 5.0, np.inf], [np.inf, 5.0, np.inf], [np.inf, np.inf, 7.0]])
    assert cover(times, np.eye(3, dtype=bool), 2).tolist() == [False, True, True]


def test_few_kernels_come_near_the_best_few():
    """Against every subset of 6 kernels; kernel 0 alone serves every bucket."""
    subsets = (np.arange(64)[:, None] >> np.arange(6) & 1).astype(bool)
    excess = []
    for seed in range(200):
        draws = np.random.default_rng(seed)
        needs = draws.random((9, 6)) < 0.3
        needs[0] = subsets[1]
        needs = needs[needs.any(axis=1)]
        times = np.exp(draws.random((4, len(needs))))
        times[:, 1:][draws.random((4, len(needs) - 1)) < 0.3] = np.inf
        limit = 1 + seed % 4

        def cost(chosen, times=times, needs=needs):
            open_times = np.where((needs & ~chosen).any(axis=1), np.inf, times)
            return np.log(open_times.min(axis=1).clip(max=1e9)).mean()

        chosen = cover(times, needs, limit)
        assert chosen.sum() <= limit
        best = min(cost(subset) for subset in subsets if subset.sum() <= limit)
        excess.append(cost(chosen) - best)
    assert np.mean(excess) < 0.01


# Plans


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_plan_computes_other_tensors_of_its_kind(config, data):
    by_descriptor = config.template == "persistent_tma"
    unit = 8 if by_descriptor else 1
    m, n, k = (unit * data.draw(st.integers(1, 80 // unit)) for _ in range(3))
    transposed = data.draw(st.tuples(st.booleans(), st.booleans()))
    pad = unit * data.draw(st.integers(0, 3))
    offset = unit * data.draw(st.integers(0, 3))
    alpha, beta = data.draw(st.sampled_from([(1.0, 0.0), (0.5, 0.0), (1.0, 2.0)]))
    a = draw(m, k, transposed=transposed[0], pad=pad, offset=offset)
    b = draw(k, n, transposed=transposed[1], pad=pad)
    of_a, of_b = Operand.of(a, "a"), Operand.of(b, "b")
    case = Case(
        n, k, a.dtype, a.dtype, of_a, of_b, Operand(False, min(2 * n & -2 * n, 16), 0),
        scaled=alpha != 1, adds=beta != 0,
    )  # fmt: skip
    stand_ins = (
        of_a.stand_in(m, k, a.dtype, a.stride(int(transposed[0]))),
        of_b.stand_in(k, n, a.dtype, b.stride(int(transposed[1]))),
        case.out.stand_in(m, n, a.dtype, n),
    )
    plan = Plan.of(case, stand_ins, config, alpha, beta, UNITS)
    for c in (draw(m, n), draw(m, n) + 1):
        check(plan.run(a, b, None, c), a, b, beta * c.double(), alpha)
        a.mul_(-2)


def test_a_plan_tells_apart_operands_that_are_one_tensor():
    a = draw(32, 32)
    case = Case(32, 32, a.dtype, a.dtype, *(Operand(False, 16, 0),) * 3)
    for config in CONFIGS:
        plan = Plan.of(case, case.stand_ins(32), config, 1.0, 0.0, UNITS)
        check(plan.run(a, a), a, a)
        check(plan.run(a, b := draw(32, 32) + 1), a, b)


def test_a_split_gets_fresh_zeros_for_its_counts():
    case = Case(32, 96, torch.float16, torch.float16, *(Operand(False, 16, 0),) * 3)
    plan = Plan.of(case, case.stand_ins(32), CONFIGS[2], 1.0, 0.0, UNITS)
    parts, arrivals = plan.workspaces
    assert (parts.zeroed, parts.dtype) == (False, torch.float32)
    assert (arrivals.zeroed, arrivals.dtype, arrivals.count) == (True, torch.int32, 2)


class Recorder:
    """Stands for a kernel and keeps what it is launched with."""

    def __init__(self):
        self.calls = []

    def __getitem__(self, grid):
        return lambda *args, **constants: self.calls.append((grid, args, constants))


SPECIALIZED = [
    KernelConfig("warp_specialized", 128, 128, 64, num_warps=8, num_stages=3),
    KernelConfig("warp_specialized", 64, 128, 64, num_stages=3, split_k=4),
    KernelConfig("warp_specialized", 64, 64, 64, num_stages=3, split_k=4, swap=True),
    KernelConfig("packed", 64, 128, 64, num_stages=3, split_k=2),
]


@pytest.mark.parametrize("config", [*CONFIGS, *SPECIALIZED], ids=str)
def test_a_plan_launches_what_prepare_would(config, as_compiled):
    """Grids, constants and every argument, but for the workspace's own address."""
    odd = config.template == "packed"
    n, k = (200, 515) if odd else (200, 512)
    a, b = draw(96, k), draw(k, n, transposed=True)
    out = torch.empty(96, n, dtype=a.dtype, device=DEVICE)
    launch = prepare(a, b, config, out=out, units=UNITS, sized_for=(128, n))
    case = Case(n, k, a.dtype, a.dtype, Operand.of(a, "a"), Operand.of(b, "b"),
                Operand.of(out, "out"))  # fmt: skip
    plan = Plan.of(case, case.stand_ins(96), config, 1.0, 0.0, UNITS)
    recorder = Recorder()
    plan._steps = [replace(step, kernel=recorder) for step in plan._steps]
    plan.run(a, b, out)
    own = {tensor.data_ptr() for tensor in (a, b, out)}

    def seen(arg):
        if hasattr(arg, "block_shape"):
            facts = {name: value for name, value in vars(arg).items() if name != "base"}
            return type(arg), facts, seen(arg.base)
        if isinstance(arg, torch.Tensor):
            return arg.dtype, arg.data_ptr() if arg.data_ptr() in own else "workspace"
        return arg

    assert len(recorder.calls) == len(list(launch.steps()))
    for (grid, args, constants), step in zip(recorder.calls, launch.steps(), strict=True):
        assert grid == step.grid and constants == step.constants
        assert [seen(arg) for arg in args] == [seen(arg) for arg in step.args]


# Products


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 40), st.sampled_from([1, 2, 24, 33]), st.sampled_from([16, 40, 47]),
    st.booleans(), st.booleans(), st.integers(0, 3), st.integers(0, 2),
    st.sampled_from([torch.float16, torch.float32, torch.int8]),
)  # fmt: skip
def test_products_are_right(m, n, k, a_transposed, b_transposed, pad, offset, dtype):
    chooser = Dispatcher(H200 if INTERPRETED else None, on=(DEVICE,))
    a, b = draw(m, k, dtype, a_transposed, pad, offset), draw(k, n, dtype, b_transposed, pad)
    assert chooser.explain(a, b, choose="triton").runs == "triton"
    check(chooser.product(a, b, choose="triton"), a, b)
    assert not chooser._failed


@pytest.mark.parametrize("choose", ["auto", "triton", "vendor"])
def test_types_of_results_do_not_depend_on_who_computes(chooser, choose):
    for dtype, made in (
        (torch.float16, torch.float16), (torch.int8, torch.int32),
        (torch.float8_e4m3fn, torch.bfloat16),
    ):  # fmt: skip
        a, b = draw(16, 32, dtype), draw(32, 16, dtype, transposed=True)
        found = cm.matmul(a, b, choose=choose)
        assert found.dtype == made
        check(found, a, b)


def test_out_is_written_in_place(chooser):
    a, b = draw(20, 32), draw(32, 24)
    out = torch.full((20, 40), 7.0, dtype=a.dtype, device=DEVICE)
    assert cm.matmul(a, b, out=out[:, :24], choose="triton").data_ptr() == out.data_ptr()
    check(out[:, :24], a, b)
    assert bool((out[:, 24:] == 7).all())


@pytest.mark.parametrize("shape", [(24,), (1, 24), (20, 24), (20, 1), ()])
def test_addmm_adds_what_broadcasts(chooser, shape):
    a, b = draw(20, 32), draw(32, 24)
    c = draw(20, 24).reshape(-1)[: max(int(np.prod(shape)), 1)].reshape(shape)
    found = cm.addmm(c, a, b, beta=0.5, alpha=2.0)
    check(found, a, b, 0.5 * c.double(), 2.0)
    assert chooser.explain(a, b, c=c, alpha=2.0, beta=0.5, choose="triton").runs == "triton"


def test_addmm_does_not_read_c_where_beta_is_0(chooser):
    a, b = draw(20, 32), draw(32, 24)
    c = torch.full((24,), float("nan"), dtype=a.dtype, device=DEVICE)
    check(cm.addmm(c, a, b, beta=0), a, b)


@pytest.mark.parametrize("lead, k", [((), 32), ((3,), 32), ((2, 3), 32), ((0, 3), 32), ((2,), 0)])
def test_linear_flattens_what_leads(chooser, lead, k):
    weight, bias = draw(24, k), draw(1, 24)[0]
    x = draw(max(int(np.prod(lead)), 1), k)[: int(np.prod(lead))].reshape(*lead, k)
    for added in (None, bias):
        found = cm.linear(x, weight, added)
        expected = torch.nn.functional.linear(
            x.double(), weight.double(), None if added is None else added.double()
        )
        assert found.shape == expected.shape
        assert (found - expected).norm() <= 1e-3 * expected.norm()


def test_many_threads_get_each_its_own_product(chooser):
    wrong = []

    def work(seed):
        for m in (1 + seed, 3, 5 + seed):
            a, b = draw(m, 32) * (seed + 1), draw(32, 24)
            try:
                check(cm.matmul(a, b, choose="triton"), a, b)
            except BaseException as error:
                wrong.append(error)

    # Triton's interpreter itself patches the language while a kernel runs: one at a time
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
        if INTERPRETED:
            thread.join()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_one_thread_chooses_while_others_wait(monkeypatch):
    chooser = Dispatcher(H200, on=(DEVICE,))
    chosen = []
    run = Dispatcher._decide

    def counted(self, *given):
        chosen.append(threading.get_ident())
        return run(self, *given)

    monkeypatch.setattr(Dispatcher, "_decide", counted)
    a, b = draw(8, 16), draw(16, 8)
    threads = [
        threading.Thread(target=chooser.product, args=(a, b, None, "vendor")) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(chosen) == 1


def test_nothing_is_kept_alive(chooser):
    a, b = draw(8, 16), draw(16, 8)
    seen = weakref.ref(a)
    cm.matmul(a, b, choose="triton")
    del a
    gc.collect()
    assert seen() is None


def test_a_call_of_a_known_kind_chooses_nothing(chooser, monkeypatch):
    cm.matmul(draw(8, 16), draw(16, 8), choose="triton")
    monkeypatch.setattr(Dispatcher, "_decide", None)
    other = draw(8, 16) + 1
    check(cm.matmul(other, draw(16, 8), choose="triton"), other, draw(16, 8))


def test_a_kernel_that_fails_gives_way_to_the_next(chooser):
    a, b = draw(8, 16), draw(16, 8)
    first = chooser.explain(a, b, choose="triton").config
    run = Plan.run

    def failing(self, *given):
        raise RuntimeError("out of resource: shared memory")

    Plan.run = failing
    try:
        with pytest.warns(RuntimeWarning, match="shared memory"):
            found = cm.matmul(a, b, choose="triton")
    finally:
        Plan.run = run
    check(found, a, b)  # torch's, in the end
    assert first in {config for _, config in chooser._failed}
    assert chooser.explain(a, b, choose="triton").config != first


# What goes to torch


@pytest.mark.parametrize(
    "a, b",
    [
        (torch.ones(4), torch.ones(4)),
        (torch.ones(2, 3, 4), torch.ones(2, 4, 5)),
        (torch.ones(2, 3, 4), torch.ones(4, 5)),
        (torch.ones(3, 4), torch.ones(4)),
        (torch.ones(3, 4).double(), torch.ones(4, 3).double()),
        pytest.param(
            torch.ones(3, 4, dtype=torch.int64),
            torch.ones(4, 3, dtype=torch.int64),
            marks=pytest.mark.skipif(not INTERPRETED, reason="torch has no such product on CUDA"),
        ),
        (torch.ones(3, 4, dtype=torch.cfloat), torch.ones(4, 3, dtype=torch.cfloat)),
        (torch.ones(0, 4), torch.ones(4, 3)),
        (torch.ones(3, 0), torch.ones(0, 3)),
        (torch.ones(1, 4).expand(3, 4), torch.ones(4, 3)),
        (torch.ones(3, 8)[:, ::2], torch.ones(4, 3)),
        (torch.ones(3, 4).to_sparse(), torch.ones(4, 3)),
        (torch.complex(torch.ones(3, 4), torch.ones(3, 4)).conj().imag, torch.ones(4, 3)),
    ],
)
def test_other_operands_are_torchs(chooser, a, b):
    a, b = a.to(DEVICE), b.to(DEVICE)
    if a.layout == torch.strided:
        assert chooser.explain(a, b, choose="triton").runs == "vendor"
    close(cm.matmul(a, b), torch.matmul(a, b))


@pytest.mark.parametrize(
    "a, b", [((3, 4), (5, 3)), ((4,), (5,)), ((2, 3, 4), (3, 4, 5))]
)  # fmt: skip
def test_errors_are_torchs(chooser, a, b):
    a, b = torch.ones(a, device=DEVICE), torch.ones(b, device=DEVICE)
    with pytest.raises(RuntimeError) as theirs:
        torch.matmul(a, b)
    with pytest.raises(RuntimeError) as ours:
        cm.matmul(a, b)
    assert str(ours.value) == str(theirs.value)


def test_two_types_are_torchs_error(chooser):
    with pytest.raises(RuntimeError):
        cm.matmul(draw(3, 4), draw(4, 3, torch.float32))
    with pytest.raises(RuntimeError):
        cm.addmm(draw(1, 3, torch.float32), draw(3, 4), draw(4, 3))


def test_an_unknown_choice_is_named():
    with pytest.raises(cm.CostModelError, match="triton"):
        cm.matmul(draw(3, 4), draw(4, 3), choose="tritn")


def test_tensors_elsewhere_are_torchs_and_it_is_said():
    decision = cm.explain_matmul(torch.ones(3, 4), torch.ones(4, 3))
    assert decision.runs == "vendor" and "cpu" in str(decision)


def test_a_trace_holds_the_product(chooser):
    a, b = draw(4, 16, torch.float32), draw(16, 8, torch.float32)
    traced = torch.jit.trace(cm.matmul, (a, b))
    close(traced(a + 1, b), (a + 1) @ b)


def test_transforms_are_torchs(chooser):
    a, b = draw(6, 16).float().reshape(2, 3, 16), draw(16, 8).float()
    mapped = torch.func.vmap(lambda x: cm.matmul(x, b))(a)
    close(mapped, a @ b)
    _, along = torch.func.jvp(lambda x: cm.matmul(x, b), (a[0],), (a[1],))
    close(along, a[1] @ b)


# Gradients, fake tensors, torch.compile


def gradients(function, *tensors):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    result = function(*leaves)
    weights = torch.linspace(-1, 1, result.numel(), device=DEVICE).reshape(result.shape)
    (result * weights).sum().backward()
    return [result, *(leaf.grad for leaf in leaves)]


def test_gradients_of_matmul(chooser):
    a, b = draw(12, 32, torch.float32), draw(24, 32, torch.float32)
    ours = gradients(lambda a, b: cm.matmul(a, b.t(), choose="triton"), a, b)
    close(ours, gradients(lambda a, b: a @ b.t(), a, b))
    assert len(chooser._choices) >= 3 * len(SMALL_BUCKETS)  # the product and both gradients


def test_gradients_of_addmm_and_linear(chooser):
    x, w, c = draw(12, 32, torch.float32), draw(24, 32, torch.float32), draw(1, 24, torch.float32)
    close(
        gradients(lambda c, x, w: cm.addmm(c, x, w.t(), beta=0.5, alpha=2.0), c, x, w),
        gradients(lambda c, x, w: torch.addmm(c, x, w.t(), beta=0.5, alpha=2.0), c, x, w),
    )
    x = x.reshape(3, 4, 32)
    close(gradients(cm.linear, x, w, c[0]), gradients(torch.nn.functional.linear, x, w, c[0]))


def test_only_the_gradients_that_are_needed(chooser):
    a, b = draw(4, 16, torch.float32), draw(16, 8, torch.float32).requires_grad_()
    cm.matmul(a, b).sum().backward()
    assert a.grad is None and b.grad is not None
    with torch.no_grad():
        assert not cm.matmul(a, b).requires_grad


def test_second_gradients(chooser):
    a = draw(4, 8, torch.float32).double().float().requires_grad_()
    b = draw(8, 4, torch.float32).requires_grad_()
    (first,) = torch.autograd.grad(cm.matmul(a, b).pow(2).sum(), a, create_graph=True)
    (ours,) = torch.autograd.grad(first.pow(2).sum(), b)
    (first,) = torch.autograd.grad((a @ b).pow(2).sum(), a, create_graph=True)
    (theirs,) = torch.autograd.grad(first.pow(2).sum(), b)
    close(ours, theirs)


def test_the_operators_keep_torchs_rules(chooser):
    a, b, c = (draw(*s, torch.float32).requires_grad_() for s in ((4, 16), (16, 8), (1, 8)))
    torch.library.opcheck(op.matmul_op, (a, b, "auto"))
    torch.library.opcheck(op.addmm_op, (c, a, b, 0.5, 2.0))


def test_fake_tensors_have_the_results_shape_and_type(chooser):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        for dtype, made in ((torch.float16, torch.float16), (torch.int8, torch.int32)):
            a = torch.empty(6, 16, dtype=dtype, device=DEVICE)
            found = cm.matmul(a, torch.empty(16, 8, dtype=dtype, device=DEVICE))
            assert (tuple(found.shape), found.dtype) == ((6, 8), made)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_functions(chooser, backend):
    torch._dynamo.reset()
    graphs = []

    def function(x, w, bias):
        return cm.linear(torch.relu(x), w, bias).sum() + cm.matmul(x, w.t(), choose="triton").sum()

    def watching(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    tensors = [draw(*shape, torch.float32) for shape in ((6, 32), (24, 32))]
    tensors.append(draw(1, 24, torch.float32)[0])
    ours = gradients(torch.compile(function, backend=watching, fullgraph=True), *tensors)
    close(ours, gradients(function, *tensors))
    named = {str(node.target) for graph in graphs for node in graph.graph.nodes}
    assert any("costmodel.matmul" in name for name in named)
    assert any("costmodel.addmm" in name for name in named)


def test_a_changing_m_is_one_compiled_graph(chooser):
    torch._dynamo.reset()
    count = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(cm.linear, backend=count, dynamic=True, fullgraph=True)
    w, bias = draw(24, 32, torch.float32), draw(1, 24, torch.float32)[0]
    for m in (3, 5, 8):
        x = draw(m, 32, torch.float32)
        close(compiled(x, w, bias), torch.nn.functional.linear(x, w, bias))
    assert count.frame_count == 1


# Precision of fp32


@pytest.fixture
def torch_precision():
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    "setting, precision", [("highest", "ieee"), ("high", "tf32"), ("medium", "tf32")]
)
def test_fp32_follows_torchs_setting(chooser, torch_precision, setting, precision):
    a, b = draw(8, 32, torch.float32), draw(32, 16, torch.float32)
    torch.set_float32_matmul_precision(setting)
    assert fp32_precision() == precision
    cm.matmul(a, b, choose="triton")
    assert {case.precision for case, *_ in chooser._choices} == {precision}


def test_allow_tf32_is_the_same_setting(torch_precision):
    torch.backends.cuda.matmul.allow_tf32 = True
    assert fp32_precision() == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = False
    assert fp32_precision() == "ieee"


def test_a_change_of_the_setting_is_another_kind_of_call(chooser, torch_precision):
    a, b = draw(8, 32, torch.float32), draw(32, 16, torch.float32)
    for setting in ("highest", "high", "highest"):
        torch.set_float32_matmul_precision(setting)
        cm.matmul(a, b, choose="triton")
    assert len(chooser._runs) == 2


# Who computes

OURS = Choice((KernelConfig("tile", 64, 64, 64),), (50.0,), "model")


def table(*rows):
    """Rows of (m, n, k, element bytes, vendor's us, ours)."""
    names = ("m", "n", "k", "element_bytes", "vendor_us", "ours_us")
    return VendorTable(**dict(zip(names, np.array(rows).T, strict=True)))


def decided(m, rows=(), answer=None, choose="auto"):
    case = case_for(4096, 4096)
    return next(decisions(case, m, choose, answer, OURS, table(*rows) if rows else None))


def test_the_vendor_runs_where_the_nearest_shape_was_faster_by_the_margin():
    assert decided(100, [(100, 4096, 4096, 2, 9.7, 10.0)]).runs == "vendor"
    assert decided(100, [(100, 4096, 4096, 2, 9.9, 10.0)]).runs == "triton"  # within 2 %
    assert decided(100, [(100, 4096, 4096, 2, 10.1, 10.0)]).runs == "triton"


def test_a_shape_further_off_than_15_percent_says_nothing():
    assert decided(114, [(100, 4096, 4096, 2, 5.0, 10.0)]).runs == "vendor"
    assert decided(116, [(100, 4096, 4096, 2, 5.0, 10.0)]).runs == "triton"
    assert decided(100, [(100, 4096, 4800, 2, 5.0, 10.0)]).runs == "triton"
    assert decided(100, [(100, 4096, 4096, 1, 5.0, 10.0)]).runs == "triton"


def test_of_two_near_shapes_the_nearest_decides():
    rows = [(100, 4096, 4096, 2, 5.0, 10.0), (112, 4096, 4096, 2, 20.0, 10.0)]
    assert decided(101, rows).runs == "vendor"
    assert decided(111, rows).runs == "triton"


def test_a_tuned_answer_outweighs_the_table():
    fast = Answer(KernelConfig("tile", 128, 128, 64), 10.0, 9.0, 11.0, 9.0, "2026-01-01T00:00:00Z")
    rows = [(100, 4096, 4096, 2, 20.0, 10.0)]
    assert decided(100, rows, fast).runs == "vendor"
    ours = decided(100, [(100, 4096, 4096, 2, 5.0, 10.0)], replace(fast, vendor_us=10.1))
    assert (ours.runs, ours.config, ours.source) == ("triton", fast.config, "measured")
    assert ours.vendor_us == 10.1


def test_triton_is_ours_however_slow():
    assert decided(100, [(100, 4096, 4096, 2, 5.0, 10.0)], choose="triton").runs == "triton"


def test_the_vendor_is_last_where_no_kernel_takes_the_tensors():
    *_, last = decisions(case_for(4096, 4096), 100, "triton", None, OURS, None)
    assert last.runs == "vendor" and "no configuration" in last.reason


def test_what_was_tuned_is_taken_for_its_bucket(tmp_path):
    tuned = KernelConfig("tile", 32, 64, 64, num_stages=3)
    problem = cm.Gemm(64, 24, 32, "fp16", "nn")
    remember(problem, H200, Answer(tuned, 3.0, 2.9, 3.1, None, "2026-01-01T00:00:00Z"))
    chooser = Dispatcher(H200, on=("meta",))
    for m in (64, 40):
        found = chooser.explain(*(torch.empty(s, dtype=torch.half, device="meta")
                                  for s in ((m, 32), (32, 24))))  # fmt: skip
        assert (found.config, found.source, found.bucket) == (tuned, "measured", 64)


def test_the_shipped_table_holds_the_times_of_the_comparison():
    """256x2304x16384 fp16 nt: where the vendor's library is ahead of our first choice."""
    rows = csv.DictReader((RESULTS / "vendor_h200.csv").read_text(encoding="utf-8").splitlines())
    (row,) = (r for r in rows if (r["m"], r["n"], r["k"]) == ("256", "2304", "16384"))
    found = vendor_table("h200-sxm").nearest(256, 2304, 16384, 2)
    assert found.shape == (256, 2304, 16384)
    assert found.ours_us == pytest.approx(float(row["predicted_us"]), rel=1e-6)
    assert found.vendor_us == pytest.approx(float(row["vendor_us"]), rel=1e-6)
    assert found.vendor_us < 0.8 * found.ours_us
    assert vendor_table("no-such-chip") is None


def test_a_shape_that_the_vendor_wins_is_explained():
    a = torch.empty(256, 16384, dtype=torch.half, device="meta")
    b = torch.empty(2304, 16384, dtype=torch.half, device="meta").t()
    found = cm.explain_matmul(a, b, profile="h200-sxm")
    assert found.runs == "vendor" and "256x2304x16384" in str(found)
    assert found.as_dict()["config"]["block_m"] == found.config.block_m


# On a GPU


@pytest.mark.gpu
def test_a_captured_graph_follows_new_operands(chooser):
    pairs = [(draw(16, 4096), draw(4096, 4096)), (draw(8, 14336), draw(14336, 512))]
    for a, b in pairs:
        cm.matmul(a, b, choose="triton")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [cm.matmul(a, b, choose="triton") for a, b in pairs]
    for _ in range(3):
        for a, _ in pairs:
            a.normal_()
        graph.replay()
        for found, (a, b) in zip(results, pairs, strict=True):
            check(found, a, b)


@pytest.mark.gpu
def test_a_first_call_inside_a_capture_is_the_vendors(chooser):
    a, b = draw(24, 4096), draw(4096, 512)
    torch.matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = cm.matmul(a, b, choose="triton")
    a.normal_()
    graph.replay()
    check(found, a, b)
    assert not chooser._runs


@pytest.mark.gpu
def test_autocast_multiplies_in_its_type(chooser):
    a, b = draw(24, 64, torch.float32).requires_grad_(), draw(64, 48, torch.float32)
    with torch.autocast("cuda", torch.float16):
        found = cm.matmul(a, b, choose="triton")
        assert found.dtype == torch.float16
        assert cm.linear(a, b.t(), draw(1, 48, torch.float32)[0]).dtype == torch.float16
    check(found, a.half(), b.half())
    found.sum().backward()
    assert a.grad.dtype == torch.float32


@pytest.mark.gpu
def test_threads_with_streams_of_their_own(chooser):
    wrong = []

    def work(seed):
        with torch.cuda.stream(torch.cuda.Stream()):
            for turn in range(20):
                a, b = draw(1 + (seed * 7 + turn) % 40, 7168), draw(7168, 2112)
                try:
                    check(cm.matmul(a, b, choose="triton"), a, b)
                except BaseException as error:
                    wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.gpu
def test_kernels_compiled_for_every_m(chooser):
    def held():
        device = torch.cuda.current_device()
        return sum(len(kernel.device_caches[device][0]) for kernel in kernels())

    rows, b = draw(512, 4096), draw(4096, 4096, transposed=True)
    before = held()
    for m in range(1, 513):
        cm.matmul(rows[:m], b, choose="triton")
    assert held() - before <= MOST_KERNELS
