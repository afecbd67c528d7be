"""Bias, activation, residual: each template against float64, and what a problem says of them."""

from __future__ import annotations

import math

import pytest

from costmodel import Gemm
from costmodel.config import KernelConfig
from costmodel.errors import ConfigError, ProblemError, UnknownNameError

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
BLOCKS = {"block_m": 64, "block_n": 32, "block_k": 32, "num_stages": 2}
PLAIN = [
    KernelConfig("tile", **BLOCKS),
    KernelConfig("tile", **BLOCKS, swap=True),
    KernelConfig("split_k", **BLOCKS, split_k=3),
    KernelConfig("persistent_tma", **BLOCKS),
    KernelConfig("persistent_tma", **BLOCKS, swap=True),
]
SPECIALIZED = [
    KernelConfig("warp_specialized", 64, 40, 64, num_warps=4, num_stages=3),
    KernelConfig("warp_specialized", 72, 128, 64, num_warps=8, num_stages=3, swap=True),
    KernelConfig("warp_specialized", 128, 64, 64, num_warps=8, num_stages=3, split_k=2),
    KernelConfig("warp_specialized", 64, 128, 64, num_warps=8, split_k=2, swap=True),
    KernelConfig("packed", 64, 64, 64, num_warps=4, num_stages=3),
]


def function(name, x):
    """The activation by its definition, in float64."""
    if name == "relu":
        return x.clamp_min(0)
    if name == "gelu":
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    if name == "silu":
        return x / (1 + torch.exp(-x))
    return x


def operands(m=104, n=72, k=160, seed=0):
    draw = torch.Generator(device=DEVICE).manual_seed(seed)

    def matrix(*shape):
        return torch.randn(shape, generator=draw, device=DEVICE).half()

    return matrix(m, k), matrix(n, k).T, matrix(n), matrix(m, n)


def check(config, activation, with_bias, with_residual, alpha=1.0):
    from costmodel.kernels.launch import gemm

    if config.template == "packed":
        a, b, bias, residual = operands(103, 71, 161)
    else:
        a, b, bias, residual = operands()
    out = torch.full_like(residual, float("nan"))
    options = {"bias": bias if with_bias else None, "activation": activation}
    if with_residual:
        options |= {"residual": residual, "beta": 0.5}
    gemm(a, b, config, out=out, alpha=alpha, **options)
    sums = alpha * (a.double() @ b.double())
    expected = function(activation, sums + bias.double() if with_bias else sums)
    if with_residual:
        expected = expected + 0.5 * residual.double()
    error = (out.double() - expected).norm() / expected.norm()
    assert error < 2 * 2.0**-10


@pytest.mark.parametrize("config", PLAIN, ids=str)
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize(("with_bias", "with_residual"), [(True, False), (False, True)])
def test_templates_finish_their_sums(config, activation, with_bias, with_residual):
    check(config, activation, with_bias, with_residual, alpha=0.5)


@pytest.mark.parametrize("config", PLAIN, ids=str)
def test_bias_activation_and_residual_together(config):
    check(config, "gelu", True, True)


@pytest.mark.parametrize("swap", [False, True])
def test_matvec_finishes_its_sums(swap):
    from costmodel.kernels.launch import gemm

    rows, k = 50, 96
    a, b, bias, residual = operands(1, rows, k) if swap else operands(rows, 1, k)
    config = (
        KernelConfig("matvec", 1, 4, 128, num_stages=1, swap=True) if swap
        else KernelConfig("matvec", 4, 1, 128, num_stages=1)
    )  # fmt: skip
    out = torch.full_like(residual, float("nan"))
    gemm(a, b, config, out=out, bias=bias, activation="silu", residual=residual)
    expected = function("silu", a.double() @ b.double() + bias.double()) + residual.double()
    assert (out.double() - expected).norm() / expected.norm() < 2 * 2.0**-10


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="Gluon has no interpreter")
@pytest.mark.parametrize("config", SPECIALIZED, ids=str)
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize(
    ("with_bias", "with_residual"), [(True, False), (False, True), (True, True)]
)
def test_warp_groups_finish_their_sums(config, activation, with_bias, with_residual):
    check(config, activation, with_bias, with_residual, alpha=0.5)


def test_what_does_not_fit_c_is_refused():
    from costmodel.kernels.launch import prepare

    a, b, bias, residual = operands()
    config = PLAIN[0]
    with pytest.raises(ConfigError, match="bias must be"):
        prepare(a, b, config, bias=bias[:-1])
    with pytest.raises(ConfigError, match="residual must lie as C does"):
        prepare(a, b, config, residual=residual.T.contiguous().T)
    with pytest.raises(ConfigError, match="activation must be one of"):
        prepare(a, b, config, activation="tanh")


def test_a_problem_names_its_epilogue():
    problem = Gemm(8, 16, 32, epilogue="bias+gelu")
    assert problem.has_bias and problem.activation == "gelu"
    assert str(problem) == "8x16x32 fp16 nt bias+gelu"
    assert Gemm(8, 16, 32, epilogue="relu").has_bias is False
    assert Gemm(8, 16, 32, epilogue="bias").activation is None
    # the bias is read once: 16 values of 2 bytes
    assert problem.compulsory_bytes == Gemm(8, 16, 32).compulsory_bytes + 32
    with pytest.raises(UnknownNameError, match="bias"):
        Gemm(8, 16, 32, epilogue="bias+tanh")
    with pytest.raises(ProblemError, match="int8"):
        Gemm(8, 16, 32, dtype="int8", epilogue="relu")


def test_a_bench_row_keeps_its_epilogue():
    from costmodel.records.schema import make_row, problem_of

    problem = Gemm(8, 16, 32, epilogue="bias+silu")
    row = make_row(
        problem, PLAIN[0], backend="triton", time_us=5.0, protocol="p", device_name="d", run="r",
        sequence=0,
    )  # fmt: skip
    assert row["epilogue"] == "bias+silu" and problem_of(row) == problem


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="the interpreter's maximum keeps NaN, the machine's does not")
@pytest.mark.parametrize("config", [PLAIN[0], SPECIALIZED[0]], ids=str)
def test_relu_keeps_nan(config):
    from costmodel.kernels.launch import gemm

    a, b, *_ = operands()
    a[3, 5] = float("nan")
    out = gemm(a, b, config, activation="relu")
    assert out[3].isnan().all() and not out[4].isnan().any()


def test_a_residual_may_be_added_with_a_factor_of_zero():
    from costmodel.kernels.launch import gemm

    a, b, _, residual = operands()
    assert torch.equal(gemm(a, b, PLAIN[0], residual=residual, beta=0.0), gemm(a, b, PLAIN[0]))
    assert not torch.equal(gemm(a, b, PLAIN[0], residual=residual), gemm(a, b, PLAIN[0]))
