"""Template "matvec" against float64: up to eight columns of C, or rows where operands are swapped.

As in test_kernels.py, kernels are interpreted where there is no GPU.
"""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from costmodel.config import KernelConfig  # noqa: E402
from costmodel.kernels.launch import gemm, prepare  # noqa: E402
from costmodel.kernels.operands import make_operands  # noqa: E402
from costmodel.problem import Gemm  # noqa: E402

# NumPy's warning, caused in Triton 3.6's interpreter
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
LAYOUTS = ("nn", "nt", "tn", "tt")
#: half the spacing of 1.0; for bf16 the interpreter of Triton 3.6 cuts instead of rounding
ROUNDING = {"fp16": 2.0**-11, "bf16": 2.0**-7 if INTERPRETED else 2.0**-8, "fp32": 2.0**-24}
#: sums of some thousand fp32 products, relative to the sum of the products' sizes
SUM_ERROR = 2.0**-18
#: half of fp16's smallest number
UNDERFLOW = 2.0**-25


def matvec(rows, columns, depth, swap=False, num_warps=4):
    """``rows`` of C a program along its long side, and a block for so many along the narrow one."""
    held = 1 << (columns - 1).bit_length()
    block_m, block_n = (held, rows) if swap else (rows, held)
    return KernelConfig(
        "matvec", block_m, block_n, depth, num_warps=num_warps, num_stages=1, swap=swap
    )


def operands(problem, seed=0):
    a, b, out = make_operands(problem, DEVICE, torch.Generator(DEVICE).manual_seed(seed))
    if not problem.beta:
        out.fill_(float("nan"))
    return a, b, out


def is_right(out, a, b, problem, before):
    """Whether each element is float64's, summed in fp32 and rounded to C's type once."""
    a, b = a.double(), b.double()
    exact = problem.alpha * (a @ b)
    sizes = abs(problem.alpha) * (a.abs() @ b.abs())
    if before is not None:
        exact += problem.beta * before.double()
        sizes += abs(problem.beta) * before.double().abs()
    bound = ROUNDING[problem.out_dtype] * exact.abs() + SUM_ERROR * sizes + UNDERFLOW
    return bool(((out.double() - exact).abs() <= bound).all())  # False for a NaN


def multiplies(problem, config, seed=0):
    a, b, out = operands(problem, seed)
    before = out.clone() if problem.beta else None
    gemm(a, b, config, out=out, alpha=problem.alpha, beta=problem.beta, precision=problem.precision)
    return is_right(out, a, b, problem, before)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("columns", [1, 2, 3, 8])
@pytest.mark.parametrize("swap", [False, True])
def test_every_layout_type_and_side_multiplies(swap, columns, layout, dtype):
    m, n = (columns, 37) if swap else (37, columns)
    assert multiplies(Gemm(m, n, 300, dtype=dtype, layout=layout), matvec(4, columns, 128, swap))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("sizes", "depth"),
    [
        ((1, 1, 1), 64),
        ((1, 2, 1), 64),
        ((1, 1, 777), 256),  # one row of one column
        ((37, 2, 1), 64),
        ((37, 5, 65), 64),
        ((3, 7, 300), 64),
        ((37, 1, 63), 64),  # K smaller than a block
        ((37, 2, 64), 64),  # K of a block
        ((37, 1, 65), 64),
        ((5, 2, 1001), 128),
        ((16, 1, 1024), 1024),
    ],
)
def test_odd_sizes_multiply(sizes, depth, layout):
    assert multiplies(Gemm(*sizes, layout=layout), matvec(4, sizes[1], depth))
    m, n, k = sizes
    assert multiplies(Gemm(n, m, k, layout=layout), matvec(4, n, depth, swap=True))


@settings(max_examples=40 if INTERPRETED else 25, deadline=None)
@given(
    long=st.integers(1, 90),
    columns=st.integers(1, 8),
    k=st.integers(1, 900),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(["fp16", "bf16", "fp32"]),
    out_dtype=st.sampled_from([None, "fp16", "bf16", "fp32"]),
    batch=st.integers(1, 3),
    scale=st.sampled_from([(1.0, 0.0), (1.0, 1.0), (-0.5, 0.25), (0.0, 1.0)]),
    rows=st.sampled_from([1, 2, 4, 8, 16, 32]),
    depth=st.sampled_from([32, 128, 512, 1024]),
    swap=st.booleans(),
    seed=st.integers(0, 9),
)
def test_any_narrow_product_is_right(
    long, columns, k, layout, dtype, out_dtype, batch, scale, rows, depth, swap, seed
):
    m, n = (columns, long) if swap else (long, columns)
    problem = Gemm(
        m, n, k, dtype=dtype, layout=layout, batch=batch, out_dtype=out_dtype, alpha=scale[0],
        beta=scale[1], precision="ieee" if dtype == "fp32" else None,
    )  # fmt: skip
    assert multiplies(problem, matvec(rows, columns, depth, swap), seed)


@pytest.mark.parametrize("columns", [1, 2, 6])
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("margin", [1, 3, 8])
def test_a_slice_of_a_larger_c_is_written_and_its_surroundings_stay(swap, columns, margin):
    m, n = (columns, 21) if swap else (21, columns)
    a, b, _ = operands(Gemm(m, n, 70))
    whole = torch.full((m + 2 * margin, n + 2 * margin), 7.0, device=DEVICE, dtype=torch.float16)
    inside = (slice(margin, margin + m), slice(margin, margin + n))
    gemm(a, b, matvec(4, columns, 64, swap), out=whole[inside])
    assert is_right(whole[inside], a, b, Gemm(m, n, 70), None)
    outside = torch.ones_like(whole, dtype=torch.bool)
    outside[inside] = False
    assert (whole[outside] == 7.0).all()


def test_columns_and_rows_of_larger_matrices_multiply_without_a_copy():
    generator = torch.Generator(DEVICE).manual_seed(0)
    big = torch.randn(80, 90, device=DEVICE, generator=generator).half()
    for a, b in (
        (big[3:40, 5:65], big[:60, 7:9]),  # two columns side by side
        (big[3:40, 5:65], big[:60, 7:8]),
        (big[3:63, 5:42].T, big[2:4, 1:61].T),  # two rows, transposed
        (big[::2][:30, :60], big[11:71, 4:5]),
    ):
        out = gemm(a, b, matvec(4, b.shape[1], 32))
        problem = Gemm(a.shape[0], b.shape[1], a.shape[1])
        assert is_right(out, a, b, problem, None)


def test_fp32_is_multiplied_exactly_whatever_the_precision_asked_for():
    problem = Gemm(40, 2, 400, dtype="fp32")
    a, b, _ = operands(problem)
    for precision in (None, "tf32", "tf32x3", "ieee"):
        assert is_right(gemm(a, b, matvec(4, 2, 64), precision=precision), a, b, problem, None)


def test_beta_adds_what_c_holds_at_each_launch_and_no_beta_reads_nothing():
    problem = Gemm(30, 2, 64, dtype="fp32", precision="ieee")
    a, b, out = operands(problem)
    plan = prepare(a, b, matvec(4, 2, 64), out=out, precision="ieee")
    once = plan.run().clone()
    assert is_right(once, a, b, problem, None)  # C held NaN before
    twice = prepare(a, b, matvec(4, 2, 64), out=out, beta=1.0, precision="ieee").run()
    assert torch.equal(twice, 2 * once)  # doubling is exact


@pytest.mark.parametrize("batch", [2, 5])
def test_one_vector_serves_a_whole_batch(batch):
    a, _, _ = operands(Gemm(24, 1, 40, batch=batch))
    b = torch.randn(40, 1, device=DEVICE).half().expand(batch, 40, 1)
    out = gemm(a, b, matvec(4, 1, 32))
    assert is_right(out, a, b, Gemm(24, 1, 40, batch=batch), None)
