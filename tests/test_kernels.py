"""Every template computes alpha A B + beta C, against float64.

Without a GPU the kernels run in Triton's interpreter (see conftest.py), which checks indices,
masks and the order of sums; with one they are compiled and run there.
"""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
tl = pytest.importorskip("triton.language")

from costmodel.config import KernelConfig  # noqa: E402
from costmodel.errors import ConfigError  # noqa: E402
from costmodel.kernels.launch import gemm, prepare  # noqa: E402
from costmodel.kernels.operands import make_operands  # noqa: E402
from costmodel.measure.check import Reference, tolerance  # noqa: E402
from costmodel.problem import Gemm  # noqa: E402
from costmodel.profile import load_profile  # noqa: E402
from costmodel.space.prune import broken_rule  # noqa: E402

# NumPy's warning, caused in Triton 3.6's interpreter
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
#: tensor descriptors need compute capability 9.0
HAS_COPY_ENGINE = INTERPRETED or (
    not torch.version.hip and torch.cuda.get_device_capability() >= (9, 0)
)

LAYOUTS = ("nn", "nt", "tn", "tt")
BLOCKS = {"block_m": 64, "block_n": 32, "block_k": 32, "group_m": 2, "num_stages": 2}
TILE = KernelConfig("tile", **BLOCKS)
SPLIT_K = KernelConfig("split_k", **BLOCKS, split_k=3)
TMA = KernelConfig("persistent_tma", **BLOCKS)
POINTER_VARIANTS = [
    TILE,
    SPLIT_K,
    KernelConfig("tile", **BLOCKS, swap=True),
    KernelConfig("split_k", **BLOCKS, split_k=3, swap=True),
]
TMA_VARIANTS = [
    KernelConfig("persistent_tma", **BLOCKS, swap=swap, epilogue_parts=parts)
    for swap in (False, True)
    for parts in (1, 2)
]
VARIANTS = POINTER_VARIANTS + TMA_VARIANTS

#: half the spacing of 1.0: rounding to nearest is off by no more, relative to the value; for bf16
#: the interpreter of Triton 3.6 cuts instead of rounding
ROUNDING = {
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-7 if INTERPRETED else 2.0**-8,
    torch.float32: 2.0**-24,
}
#: sums of a few hundred fp32 products, relative to the sum of the products' sizes
SUM_ERROR = 2.0**-18
#: tf32 cuts both operands to 10 bits of fraction
TF32_ERROR = 2.0**-9
#: Hopper sums fp8 products with about 14 bits (DeepSeek-V3 technical report, section 3.3.2)
FP8_ERROR = 2.0**-12
#: half of fp16's smallest number
UNDERFLOW = 2.0**-25


def variants(configs):
    """Run a test once a configuration, with a readable id."""
    marked = []
    for config in configs:
        name = config.template + ("-swap" if config.swap else "")
        name += f"-epi{config.epilogue_parts}" if config.epilogue_parts > 1 else ""
        lacking = config.template == "persistent_tma" and not HAS_COPY_ENGINE
        skip = pytest.mark.skipif(lacking, reason="this GPU has no copy engine for descriptors")
        marked.append(pytest.param(config, id=name, marks=skip))
    return pytest.mark.parametrize("config", marked)


def sizes_id(sizes):
    return "x".join(map(str, sizes))


@pytest.fixture(scope="module", autouse=True)
def products_of_bf16():
    """The interpreter keeps bf16 as its bits and multiplies those: widen them to fp32 first."""
    if not INTERPRETED:
        yield
        return
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    multiply = InterpreterBuilder.create_dot

    def widened(operand):
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        bits = operand.data.astype(np.uint32) << 16
        return TensorHandle(bits.view(np.float32), tl.float32)

    def create_dot(self, a, b, *rest):
        return multiply(self, widened(a), widened(b), *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpreterBuilder, "create_dot", create_dot)
        yield


def operands(problem, seed=0):
    """A, B and a C full of NaN (or, for beta, of numbers)."""
    a, b, out = make_operands(problem, DEVICE, torch.Generator(DEVICE).manual_seed(seed))
    if not problem.beta and out.is_floating_point():
        out.fill_(float("nan"))
    return a, b, out


def product(a, b, alpha=1.0, beta=0.0, before=None):
    """alpha A B + beta C in float64."""
    exact = alpha * (a.double() @ b.double())
    return exact if before is None else exact + beta * before.double()


def is_right(out, a, b, alpha=1.0, beta=0.0, before=None):
    """Whether each element is float64's, summed in fp32 and rounded to C's type once."""
    exact = product(a, b, alpha, beta, before)
    if out.dtype == torch.int32:
        return torch.equal(out.double(), exact)
    sizes = product(a.double().abs(), b.double().abs(), abs(alpha))
    if before is not None:
        sizes += abs(beta) * before.double().abs()
    bound = ROUNDING[out.dtype] * exact.abs() + SUM_ERROR * sizes + UNDERFLOW
    if not INTERPRETED:  # the interpreter multiplies and sums in fp32
        bound += {4: TF32_ERROR, 1: FP8_ERROR}.get(a.element_size(), 0.0) * sizes
    return bool(((out.double() - exact).abs() <= bound).all())  # False for a NaN


def multiplies(problem, config, seed=0):
    """Whether the kernel is right for random operands of this problem."""
    a, b, out = operands(problem, seed)
    before = out.clone() if problem.beta else None
    result = gemm(a, b, config, out=out, alpha=problem.alpha, beta=problem.beta)
    assert result is out
    return is_right(out, a, b, problem.alpha, problem.beta, before)


# --- right for every template, layout and type ---------------------------------------------------


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("layout", LAYOUTS)
@variants(VARIANTS)
def test_a_template_multiplies_in_every_layout_and_type(config, layout, dtype):
    problem = Gemm(72, 40, 80, dtype=dtype, layout=layout)
    assert multiplies(problem, config)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "sizes",
    [(1, 33, 65), (17, 1, 65), (17, 33, 1), (1, 1, 1), (17, 33, 65), (32, 32, 20), (70, 34, 100)],
    ids=sizes_id,
)
@variants(POINTER_VARIANTS)
def test_a_pointer_template_multiplies_odd_sizes(config, sizes, layout):
    assert multiplies(Gemm(*sizes, layout=layout), config)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(8, 8, 8), (24, 40, 56), (136, 72, 8)], ids=sizes_id)
@variants(TMA_VARIANTS)
def test_the_descriptor_template_multiplies_partial_tiles(config, sizes, layout):
    assert multiplies(Gemm(*sizes, layout=layout), config)


@variants(TMA_VARIANTS)
def test_the_descriptor_template_multiplies_one_row_of_any_length(config):
    assert multiplies(Gemm(1, 72, 80, layout="nt"), config)
    assert multiplies(Gemm(1, 101, 80, layout="nt"), config)  # C never steps to a second row


@pytest.mark.parametrize("layout", LAYOUTS)
@variants(VARIANTS)
def test_a_batch_multiplies_entry_by_entry(config, layout):
    assert multiplies(Gemm(40, 48, 64, layout=layout, batch=3), config)


@variants(VARIANTS)
def test_a_batch_of_one_in_three_dimensions_is_the_plain_product(config):
    a, b, out = operands(Gemm(40, 48, 64))
    gemm(a[None], b[None], config, out=out[None])
    assert is_right(out, a, b)


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 0.5), (1.0, 1.0), (-0.5, 0.0), (0.0, 1.0)])
@variants(VARIANTS)
def test_alpha_scales_the_product_and_beta_what_c_held(config, alpha, beta):
    problem = Gemm(72, 40, 64, layout="nn", alpha=alpha, beta=beta)
    assert multiplies(problem, config)


@variants(VARIANTS)
def test_int8_sums_exactly_in_int32(config):
    a, b, _ = operands(Gemm(72, 48, 320, dtype="int8"))
    out = gemm(a, b, config)
    assert out.dtype == torch.int32
    assert is_right(out, a, b)


@variants(VARIANTS)
def test_sums_in_fp16_are_a_choice_and_less_exact_than_sums_in_fp32(config):
    problem = Gemm(96, 80, 2048, accumulate="fp16")
    a, b, out = make_operands(problem, DEVICE, torch.Generator(DEVICE).manual_seed(1))
    reference = Reference(problem, a, b, out)
    rough = reference.error(gemm(a, b, config, accumulate="fp16")).item()
    exact = reference.error(gemm(a, b, config)).item()
    assert exact <= tolerance(Gemm(96, 80, 2048)) < tolerance(problem)
    assert rough <= tolerance(problem)
    # the interpreter adds in fp32 and rounds once a step
    assert rough > (1.2 if INTERPRETED else 3.0) * exact


@pytest.mark.parametrize(
    ("dtype", "template"), [("bf16", "tile"), ("fp16", "matvec"), ("fp16", "warp_specialized")]
)
def test_what_does_not_sum_in_fp16_says_so(dtype, template):
    a, b, _ = make_operands(Gemm(64, 64, 64, dtype=dtype), "meta")
    with pytest.raises(ConfigError, match="in fp16: only tile, split_k, persistent_tma do"):
        prepare(a, b, KernelConfig(template, 64, 64, 64, num_stages=2), accumulate="fp16")


@pytest.mark.parametrize("out_dtype", ["fp32", "bf16"])
@variants(VARIANTS)
def test_c_may_be_of_another_type_than_a_and_b(config, out_dtype):
    a, b, out = operands(Gemm(72, 48, 64, dtype="fp16", out_dtype=out_dtype))
    gemm(a, b, config, out=out)
    assert is_right(out, a, b)


@pytest.mark.parametrize("dtype", ["fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize("layout", LAYOUTS)
@variants(VARIANTS)
def test_fp8_multiplies_into_bf16(config, layout, dtype):
    if not INTERPRETED and (torch.version.hip or torch.cuda.get_device_capability() < (8, 9)):
        pytest.skip("this GPU does not compile OCP fp8")
    assert multiplies(Gemm(48, 64, 96, dtype=dtype, layout=layout), config)


@variants(VARIANTS)
def test_a_result_made_by_the_launcher_has_the_default_type(config):
    a, b, _ = operands(Gemm(8, 16, 32))
    out = gemm(a, b, config)
    assert (out.dtype, tuple(out.shape)) == (torch.float16, (8, 16))
    assert is_right(out, a, b)


@pytest.mark.parametrize("units", [1, 2, 100])
@variants(TMA_VARIANTS)
def test_the_size_of_a_persistent_grid_changes_no_bit(config, units):
    a, b, out = operands(Gemm(136, 72, 64))
    first = gemm(a, b, config, out=out).clone()
    out.fill_(float("nan"))
    assert torch.equal(gemm(a, b, config, out=out, units=units), first)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 80)] * 3),
    layout=st.sampled_from(LAYOUTS),
    config=st.builds(
        KernelConfig,
        template=st.sampled_from(["tile", "split_k", "persistent_tma"]),
        block_m=st.sampled_from([16, 32, 64]),
        block_n=st.sampled_from([16, 32]),
        block_k=st.sampled_from([16, 32]),
        group_m=st.integers(1, 5),
        num_stages=st.just(2),
        load_bits=st.sampled_from([None, 16, 64, 128]),
        swap=st.booleans(),
    ),
    batch=st.integers(1, 2),
    split_k=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_any_size_up_to_80_multiplies(sizes, layout, config, batch, split_k, seed):
    if config.template == "persistent_tma":
        assume(HAS_COPY_ENGINE)
        sizes = [-(-size // 8) * 8 for size in sizes]  # rows of 16 bytes
    if config.template == "split_k":
        config = replace(config, split_k=split_k)
    assert multiplies(Gemm(*sizes, layout=layout, batch=batch), config, seed)


# --- views ---------------------------------------------------------------------------------------


def numbers(*shape):
    """Standard normal fp16 values, others for another first size."""
    generator = torch.Generator(DEVICE).manual_seed(shape[0])
    return torch.randn(shape, device=DEVICE, generator=generator).half()


def inner(rows, cols, margin):
    """A [rows, cols] slice of a larger matrix: its rows are further apart than they are long."""
    whole = numbers(rows + 2 * margin, cols + 3 * margin)
    return whole[margin : margin + rows, margin : margin + cols]


@variants(VARIANTS)
def test_slices_of_larger_matrices_multiply_and_their_surroundings_stay(config):
    a, b = inner(40, 64, 8), inner(48, 64, 8).T
    whole = torch.full((60, 72), 7.0, device=DEVICE, dtype=torch.float16)
    out = whole[4:44, 8:56]
    gemm(a, b, config, out=out)
    assert is_right(out, a, b)
    outside = torch.ones_like(whole, dtype=torch.bool)
    outside[4:44, 8:56] = False
    assert (whole[outside] == 7.0).all()


@variants(POINTER_VARIANTS)
def test_slices_at_odd_offsets_multiply(config):
    a, b = inner(17, 33, 3), inner(33, 21, 5)
    out = gemm(a, b, config)
    assert is_right(out, a, b)


@variants(POINTER_VARIANTS)
def test_every_other_row_multiplies_without_a_copy(config):
    a = numbers(34, 40)[::2]
    b = numbers(66, 40)[::2].T
    assert is_right(gemm(a, b, config), a, b)


@variants(POINTER_VARIANTS)
def test_one_matrix_serves_a_whole_batch(config):
    a = numbers(3, 24, 40)
    b = numbers(40, 16).expand(3, 40, 16)
    assert is_right(gemm(a, b, config), a, b)


@variants(VARIANTS)
@pytest.mark.parametrize("operand", ["a", "b"])
def test_an_operand_with_no_contiguous_axis_is_an_error_that_names_it(config, operand):
    good = torch.zeros(32, 32, device=DEVICE, dtype=torch.float16)
    bad = torch.zeros(64, 64, device=DEVICE, dtype=torch.float16)[::2, ::2]
    pair = {"a": good, "b": good} | {operand: bad}
    with pytest.raises(ConfigError, match=rf"^{operand} has strides \(128, 2\).*contiguous"):
        prepare(pair["a"], pair["b"], config)


@pytest.mark.parametrize(
    ("sizes", "layout", "operand", "step"),
    [
        ((64, 64, 60), "nt", "a", 60),  # rows of 120 bytes
        ((64, 60, 64), "nn", "b", 60),
        ((60, 64, 64), "tn", "a", 60),
        ((64, 60, 64), "nt", "c", 60),
    ],
)
def test_descriptors_refuse_rows_that_are_no_multiple_of_16_bytes(sizes, layout, operand, step):
    a, b, out = operands(Gemm(*sizes, layout=layout))
    with pytest.raises(ConfigError) as caught:
        prepare(a, b, TMA, out=out)
    message = str(caught.value)
    assert f"{operand} steps by {step} elements" in message
    assert "'tile'" in message and "16 bytes" in message


def test_descriptors_refuse_data_that_does_not_start_at_16_bytes():
    whole = torch.zeros(32, 48, device=DEVICE, dtype=torch.float16)
    b = torch.zeros(32, 32, device=DEVICE, dtype=torch.float16)
    prepare(whole[:, 8:40], b, TMA)
    with pytest.raises(ConfigError, match="aligned data; a is not"):
        prepare(whole[:, 4:36], b, TMA)


@pytest.mark.parametrize(
    ("a", "b", "out", "options", "words"),
    [
        ((8, 16), (32, 8), None, {}, "do not multiply"),
        ((2, 8, 16), (3, 16, 8), None, {}, "do not multiply"),
        ((8, 16), (2, 16, 8), None, {}, "2-D"),
        ((16,), (16,), None, {}, "2-D"),
        ((8, 16), (16, 8), (8, 9), {}, "row-major"),
        ((8, 16), (16, 8), None, {"beta": 1.0}, "beta"),
    ],
)
def test_tensors_that_do_not_fit_together_are_an_error(a, b, out, options, words):
    tensors = [None if s is None else torch.zeros(s, device=DEVICE).half() for s in (a, b, out)]
    with pytest.raises(ConfigError, match=words):
        prepare(tensors[0], tensors[1], TILE, out=tensors[2], **options)


def test_a_batch_past_the_grids_limit_is_an_error_but_for_the_persistent_grid():
    a, b = (torch.empty(65536, 16, 16, device="meta", dtype=torch.float16) for _ in "ab")
    for config in (TILE, SPLIT_K):
        with pytest.raises(ConfigError, match=r"65536.*65535.*persistent_tma"):
            prepare(a, b, config)
    assert prepare(a, b, TMA, units=132).grid == (132,)


def test_operands_of_two_types_are_an_error_that_names_both():
    a = torch.zeros(16, 16, device=DEVICE, dtype=torch.float16)
    with pytest.raises(ConfigError, match=r"float16.*bfloat16"):
        prepare(a, a.bfloat16(), TILE)


def test_a_column_major_c_is_an_error():
    a = torch.zeros(16, 16, device=DEVICE, dtype=torch.float16)
    with pytest.raises(ConfigError, match="row-major"):
        prepare(a, a, TILE, out=torch.zeros(16, 16, device=DEVICE).half().T)


def takes(problem, config):
    """Whether the launcher binds this problem's tensors; it needs no storage to say."""
    a, b, out = make_operands(problem, "meta")
    return prepare(a, b, config, out=out).out is out


H100 = load_profile("h100-sxm")


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 300)] * 3),
    dtype=st.sampled_from(["fp16", "fp32", "int8", "fp8_e4m3"]),
    layout=st.sampled_from(LAYOUTS),
    template=st.sampled_from(["tile", "split_k", "persistent_tma"]),
    swap=st.booleans(),
)
def test_the_launcher_takes_what_pruning_keeps(sizes, dtype, layout, template, swap):
    problem = Gemm(*sizes, dtype=dtype, layout=layout)
    config = KernelConfig(template, **BLOCKS, swap=swap)
    assert broken_rule(problem, config, H100) is not None or takes(problem, config)


@pytest.mark.parametrize(
    ("problem", "config"),
    [
        (Gemm(64, 64, 64, batch=70000), TILE),  # gridDim.y carries the batch: 65535 at most
        (Gemm(1, 100, 64, batch=2), TMA),  # from entry to entry C steps by 200 bytes
    ],
    ids=["batch-of-70000", "one-row-of-100-twice"],
)
def test_the_launcher_takes_a_batch_that_pruning_keeps(problem, config):
    assert broken_rule(problem, config, H100) is not None or takes(problem, config)


# --- split K -------------------------------------------------------------------------------------


def test_split_k_starts_clean_each_time_on_one_plan_and_on_two_by_turns():
    a, b, out = operands(Gemm(72, 40, 320, dtype="fp32"))
    plans = [
        prepare(a, b, KernelConfig("split_k", **BLOCKS, split_k=parts), out=out, precision="ieee")
        for parts in (4, 3)
    ]
    seen = {0: [], 1: []}
    for turn in (0, 0, 1, 0, 1, 1):
        out.fill_(float("nan"))
        plans[turn].run()
        assert is_right(out, a, b)
        seen[turn].append(out.clone())
    for results in seen.values():
        assert all(torch.equal(result, results[0]) for result in results)


def test_split_k_with_beta_adds_what_c_holds_at_each_launch():
    a, b, out = operands(Gemm(40, 40, 160, dtype="fp32"))
    plan = prepare(a, b, SPLIT_K, out=out.zero_(), beta=1.0, precision="ieee")
    plan.run()
    once = out.clone()
    plan.run()
    assert torch.equal(out, 2 * once)  # doubling is exact


@pytest.mark.parametrize("parts", [1, 2, 5, 16])
def test_split_k_takes_more_parts_than_k_has_steps(parts):
    config = KernelConfig("split_k", **BLOCKS, split_k=parts)
    a, b, out = operands(Gemm(40, 40, 100))  # 4 steps of 32
    gemm(a, b, config, out=out)
    assert is_right(out, a, b)


ORDERS = {
    "backwards": lambda count: list(reversed(range(count))),
    "every-other": lambda count: [*range(0, count, 2), *range(1, count, 2)],
    "shuffled": lambda count: np.random.default_rng(1).permutation(count).tolist(),
}


@pytest.mark.parametrize("order", ORDERS)
def test_split_k_gives_the_same_bits_in_whatever_order_its_programs_run(order, monkeypatch):
    a, b, out = operands(Gemm(72, 40, 160, dtype="fp32", batch=2))
    plan = prepare(a, b, KernelConfig("split_k", **BLOCKS, split_k=5), out=out, precision="ieee")
    first = plan.run().clone()
    assert is_right(first, a, b)
    if not INTERPRETED:  # a GPU runs them in an order of its own
        for _ in range(50):
            out.fill_(float("nan"))
            assert torch.equal(plan.run(), first)
        return
    from triton.runtime.interpreter import InterpreterBuilder

    width, batch = plan.grid
    assert (width, batch) == (4 * 5, 2)
    permuted = ORDERS[order](width * batch)
    place = InterpreterBuilder.set_grid_idx

    def set_grid_idx(self, x, y, z):
        program = permuted[x + y * width]
        place(self, program % width, program // width, z)

    monkeypatch.setattr(InterpreterBuilder, "set_grid_idx", set_grid_idx)
    out.fill_(float("nan"))
    assert torch.equal(plan.run(), first)


# --- offsets past 2^31 elements ------------------------------------------------------------------


def far_apart(rows, cols, step, store):
    """[rows, cols] whose rows start ``step`` elements apart, in the upper half of ``store``.

    An offset cut to 32 bits would be negative, and would land among the zeros of the lower half.
    """
    return store.as_strided((rows, cols), (step, 1), store.numel() // 2)


@pytest.mark.parametrize("operand", ["a", "b", "c"])
@variants(POINTER_VARIANTS)
def test_offsets_have_64_bits(config, operand, tmp_path, monkeypatch):
    size = 2**32 + 2**20
    if INTERPRETED:
        # a sparse file: only the pages that are touched exist
        np.memmap(tmp_path / "store", dtype=np.int8, mode="w+", shape=(size,)).flush()
        mapped = np.memmap(tmp_path / "store", dtype=np.int8, mode="r+", shape=(size,))
        store = torch.from_numpy(mapped)
        from triton.runtime.interpreter import GridExecutor

        # it would copy each argument's whole storage onto itself
        monkeypatch.setattr(GridExecutor, "_restore_args_dev", lambda *args: None)
    else:
        store = torch.zeros(size, device=DEVICE, dtype=torch.int8)
    step = 2**27 + 16  # the 17th row starts past 2^31
    values = torch.randint(-2, 3, (2, 17, 17), device=DEVICE, dtype=torch.int8)
    a, b = values[0], values[1]
    out = torch.zeros(17, 17, device=DEVICE, dtype=torch.int8)
    if operand == "a":
        a = far_apart(17, 17, step, store).copy_(a)
    elif operand == "b":
        b = far_apart(17, 17, step, store).copy_(b)
    else:
        out = far_apart(17, 17, step, store)
    assert 16 * step > 2**31
    gemm(a, b, config, out=out)
    assert torch.equal(out.double(), product(values[0], values[1]))  # at most 17 * 2 * 2


@pytest.mark.gpu
@variants([TILE, TMA])
def test_a_c_of_more_than_2_31_elements_is_right_to_its_last_row(config):
    config = replace(config, block_m=128, block_n=128)
    m, n, k = 65536 + 8, 32768, 32
    a, b, out = operands(Gemm(m, n, k))
    assert m * n > 2**31
    gemm(a, b, config, out=out)
    for rows in (slice(0, 256), slice(m // 2, m // 2 + 256), slice(m - 256, m)):
        assert is_right(out[rows], a[rows], b)
    assert not out.isnan().any()


@pytest.mark.skipif(not INTERPRETED, reason="looks at each pointer in the interpreter")
@pytest.mark.parametrize("layout", LAYOUTS)
@variants(POINTER_VARIANTS)
def test_no_load_or_store_leaves_its_tensors(config, layout, monkeypatch):
    from triton.runtime.interpreter import InterpreterBuilder

    a, b, out = operands(Gemm(70, 34, 100, layout=layout, batch=2))
    plan = prepare(a, b, config, out=out)
    tensors = [arg for arg in plan.args if isinstance(arg, torch.Tensor)]
    inside = [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors]
    touched = {"load": 0, "store": 0}

    def checked(kind, original):
        def access(self, pointers, *rest):
            mask = rest[{"load": 0, "store": 1}[kind]].data
            addresses = pointers.data[mask].astype(np.int64)
            within = [(addresses >= start) & (addresses < end) for start, end in inside]
            assert np.logical_or.reduce(within).all()
            touched[kind] += addresses.size
            return original(self, pointers, *rest)

        return access

    for kind in touched:
        method = f"create_masked_{kind}"
        original = getattr(InterpreterBuilder, method)
        monkeypatch.setattr(InterpreterBuilder, method, checked(kind, original))
    plan.run()
    assert touched["load"] >= 2 * (70 + 34) * 100  # each element of A and B at least once
    assert touched["store"] >= 2 * 70 * 34


# --- operands and the check ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "a_strides", "b_strides"),
    [  # A [3, 7], B [7, 5]
        ("nn", (7, 1), (5, 1)),
        ("nt", (7, 1), (1, 7)),
        ("tn", (1, 3), (5, 1)),
        ("tt", (1, 3), (1, 7)),
    ],
)
def test_operands_are_views_of_what_the_layout_stores(layout, a_strides, b_strides):
    a, b, out = make_operands(Gemm(3, 5, 7, layout=layout), DEVICE)
    assert (tuple(a.shape), a.stride()) == ((3, 7), a_strides)
    assert (tuple(b.shape), b.stride()) == ((7, 5), b_strides)
    assert (tuple(out.shape), out.stride()) == ((3, 5), (5, 1))


def test_a_batch_of_operands_has_a_leading_axis():
    a, b, out = make_operands(Gemm(3, 5, 7, batch=4), DEVICE)
    assert [tuple(t.shape) for t in (a, b, out)] == [(4, 3, 7), (4, 7, 5), (4, 3, 5)]


@pytest.mark.parametrize(
    ("dtype", "kind", "out_kind"),
    [
        ("fp16", torch.float16, torch.float16),
        ("fp8_e4m3", torch.float8_e4m3fn, torch.bfloat16),
        ("fp8_e5m2", torch.float8_e5m2, torch.bfloat16),
        ("int8", torch.int8, torch.int32),
    ],
)
def test_operands_have_the_problems_types_and_no_storage_on_meta(dtype, kind, out_kind):
    for where in ("cpu", "meta"):
        a, b, out = make_operands(Gemm(16, 16, 16, dtype=dtype), where)
        assert (a.dtype, b.dtype, out.dtype) == (kind, kind, out_kind)
        assert {t.device.type for t in (a, b, out)} == {where}


@pytest.mark.parametrize(
    ("options", "expected_error"),
    [
        ({"dtype": "fp16"}, 2.0**-9),  # two roundings of 2^-10
        ({"dtype": "bf16"}, 2.0**-6),
        ({"dtype": "fp8_e4m3"}, 2.0**-6),  # C is bf16
        ({"dtype": "fp16", "out_dtype": "fp32"}, 2.0**-22),
        ({"dtype": "fp32", "precision": "ieee"}, 2.0**-22),
        ({"dtype": "fp32"}, 2.0**-9),  # tf32 has fp16's fraction
        ({"dtype": "int8"}, 0.0),
    ],
)
def test_the_error_that_counts_as_correct_is_two_roundings(options, expected_error):
    assert tolerance(Gemm(8, 8, 8, **options)) == expected_error


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "int8"])
def test_a_right_result_passes_the_check_and_a_poisoned_one_does_not(dtype):
    problem = Gemm(72, 40, 64, dtype=dtype)
    a, b, out = make_operands(problem, DEVICE)
    reference = Reference(problem, a, b, out)
    reference.poison(out)
    assert not float(reference.error(out)) <= tolerance(problem)
    gemm(a, b, TILE, out=out)
    assert float(reference.error(out)) <= tolerance(problem)
    out[64:72, 32:40] = 0  # one tile of six is missing
    assert not float(reference.error(out)) <= tolerance(problem)


def test_the_check_restores_the_c_that_beta_reads():
    problem = Gemm(24, 24, 32, alpha=2.0, beta=0.5)
    a, b, out = make_operands(problem, DEVICE)
    reference = Reference(problem, a, b, out)
    for config in (TILE, TILE, SPLIT_K, SPLIT_K):
        reference.poison(out)
        gemm(a, b, config, out=out, alpha=2.0, beta=0.5)
        assert float(reference.error(out)) <= tolerance(problem)
    gemm(a, b, TILE, out=out, alpha=2.0, beta=0.5)  # without it, beta reads the last result
    assert not float(reference.error(out)) <= tolerance(problem)
