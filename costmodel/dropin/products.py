"""``matmul``, ``addmm``, ``linear`` and ``explain_matmul``: torch's products by chosen kernels."""

from __future__ import annotations

import os
from typing import Any

import torch

from costmodel.dropin.decision import CHOICES, Choose, Decision
from costmodel.dropin.dispatch import Dispatcher
from costmodel.dropin.op import addmm_op, dispatcher, matmul_op
from costmodel.dropin.route import Route, autocast, route_of
from costmodel.dropin.vendor import vendor_product
from costmodel.errors import unknown_name
from costmodel.profile import HardwareProfile, resolve_profile

#: where tensors may be when a decision for a named chip is explained and nothing is run
_ANYWHERE = ("cuda", "cpu", "meta")


def matmul(
    a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None, choose: Choose = "auto"
) -> torch.Tensor:
    """``torch.matmul`` by the kernel that is fastest for these tensors on their chip.

    ``a`` is [M, K] and ``b`` [K, N], fp16, bf16, fp32 (as torch's fp32 precision says), int8
    (giving int32) or fp8 (giving bf16), row- or column-major. Whatever else torch multiplies, and
    tensors on a CPU, go to ``torch.matmul``; ``explain_matmul`` says so. ``choose``: "auto" takes
    the vendor's GEMM where it is measured faster, "triton" our kernels wherever they can,
    "vendor" never. The first call of a kind chooses and compiles (M up to 512: at most 12 kernels
    in all, for a row-major ``a``); make it before a CUDA graph is captured, which otherwise holds
    the vendor's GEMM. Gradients are ours too. Raises what ``torch.matmul`` raises, and
    ``UnknownNameError`` for another ``choose``.
    """
    if choose not in CHOICES:
        raise unknown_name("choose", choose, CHOICES)
    if out is None:
        a, b = autocast(a, b)
    route = route_of(a, b)
    if route is Route.DIRECT:
        return dispatcher().product(a, b, out, choose)
    if route is Route.OPERATOR and out is None and _is_for_operator(a, b):
        return matmul_op(a, b, choose)
    return vendor_product(a, b, out)


def addmm(
    c: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
) -> torch.Tensor:
    """``torch.addmm``: beta * C + alpha * A B, with one rounding.

    ``c`` broadcasts to [M, N] and is of the operands' type. Where beta is 0, ``c`` is not read.
    As ``matmul`` in all else.
    """
    c, a, b = autocast(c, a, b)
    route = route_of(a, b, c)
    if route is Route.DIRECT:
        return dispatcher().product(a, b, None, "auto", c, alpha, beta)
    if route is Route.OPERATOR and _is_for_operator(a, b) and c.dtype == a.dtype:
        return addmm_op(c, a, b, beta, alpha)
    return torch.addmm(c, a, b, beta=beta, alpha=alpha)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``torch.nn.functional.linear``: x [..., K] times weight [N, K] transposed, plus bias [N].

    Leading dimensions are one M. As ``matmul`` in all else.
    """
    if x.dim() == 0 or weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        return torch.nn.functional.linear(x, weight, bias)
    rows = x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2)
    if bias is None:
        product = matmul(rows, weight.t())
    else:
        product = addmm(bias, rows, weight.t())
    return product.reshape(*x.shape[:-1], weight.shape[0])


def explain_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    choose: Choose = "auto",
    profile: str | os.PathLike[str] | HardwareProfile | None = None,
) -> Decision:
    """What ``matmul`` would run on these tensors, and why; nothing is run.

    With a ``profile`` the answer is for that chip, and the tensors may be on any device, "meta"
    among them.
    """
    if choose not in CHOICES:
        raise unknown_name("choose", choose, CHOICES)
    chooser = dispatcher()
    if profile is not None:
        chooser = Dispatcher(resolve_profile(profile), on=_ANYWHERE)
    return chooser.explain(a, b, choose=choose)


def _is_for_operator(a: Any, b: Any) -> bool:
    return (
        a.dim() == b.dim() == 2
        and a.dtype == b.dtype
        and a.device.type in dispatcher().on
        and b.device == a.device
    )


def forget() -> None:
    """Choose anew from the next call on, as after ``tune`` or ``train``."""
    dispatcher().forget()
