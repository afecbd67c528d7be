"""The products as torch operators: shapes for fake tensors, gradients, and torch.compile."""

from __future__ import annotations

from typing import Any

import torch

from costmodel.dropin.dispatch import Dispatcher
from costmodel.dropin.vendor import out_dtype

_DEFAULT = Dispatcher()


def dispatcher() -> Dispatcher:
    """The one that the public functions and the operators share."""
    return _DEFAULT


def _matmul(a: torch.Tensor, b: torch.Tensor, choose: str) -> torch.Tensor:
    """A [M, K] times B [K, N], as ``costmodel.matmul`` does it."""
    return dispatcher().product(a, b, None, choose)


def _addmm(
    c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: float, alpha: float
) -> torch.Tensor:
    """Beta * C + alpha * A B, as ``costmodel.addmm`` does it."""
    return dispatcher().product(a, b, None, "auto", c, alpha, beta)


def _matmul_shape(a: torch.Tensor, b: torch.Tensor, choose: str) -> torch.Tensor:
    torch._check(a.shape[1] == b.shape[0], lambda: f"cannot multiply {a.shape} and {b.shape}")
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype(a.dtype))


def _addmm_shape(
    c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: float, alpha: float
) -> torch.Tensor:
    torch._check(a.shape[1] == b.shape[0], lambda: f"cannot multiply {a.shape} and {b.shape}")
    return a.new_empty((a.shape[0], b.shape[1]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    a, b, ctx.choose = inputs
    ctx.save_for_backward(a, b)


def _gradients(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b = ctx.saved_tensors
    need_a, need_b, _ = ctx.needs_input_grad
    return (*_operand_gradients(grad, a, b, need_a, need_b, ctx.choose), None)


def _keep_added(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    c, a, b, ctx.beta, ctx.alpha = inputs
    ctx.added_shape = c.shape
    ctx.save_for_backward(a, b)


def _gradients_added(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b = ctx.saved_tensors
    need_c, need_a, need_b, *_ = ctx.needs_input_grad
    of_c = (grad * ctx.beta).sum_to_size(ctx.added_shape) if need_c else None
    scaled = grad if ctx.alpha == 1 else grad * ctx.alpha
    return (of_c, *_operand_gradients(scaled, a, b, need_a, need_b, "auto"), None, None)


def _operand_gradients(
    grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, need_a: bool, need_b: bool, choose: str
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Grad of A is G B^T and of B is A^T G, by the same operator; fp8 is widened to G's type."""
    of_a = matmul_op(grad, b.t().to(grad.dtype), choose).to(a.dtype) if need_a else None
    of_b = matmul_op(a.t().to(grad.dtype), grad, choose).to(b.dtype) if need_b else None
    return of_a, of_b


matmul_op: Any = torch.library.custom_op("costmodel::matmul", _matmul, mutates_args=())
addmm_op: Any = torch.library.custom_op("costmodel::addmm", _addmm, mutates_args=())
matmul_op.register_fake(_matmul_shape)
addmm_op.register_fake(_addmm_shape)
matmul_op.register_autograd(_gradients, setup_context=_keep)
addmm_op.register_autograd(_gradients_added, setup_context=_keep_added)
