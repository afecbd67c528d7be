"""Which calls our kernels take, and what a call asks for."""

from __future__ import annotations

import math
from typing import Any

import torch

from costmodel.dropin.case import Case, Operand
from costmodel.dropin.vendor import out_dtype

_TYPES = (
    torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.float8_e4m3fn,
    torch.float8_e5m2,
)  # fmt: skip


class IneligibleError(Exception):
    """Why a call goes to the vendor's GEMM whatever its speed."""


def fp32_precision() -> str:
    """What torch's settings ask of fp32 products: "ieee", or "tf32" for "high" and "medium"."""
    try:
        return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    except RuntimeError:  # set through the newer fp32_precision alone, which the older cannot name
        setting = torch.backends.cuda.matmul.fp32_precision
        return "tf32" if setting == "tf32" else "ieee"


def case_of(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None,
    c: torch.Tensor | None,
    alpha: float,
    beta: float,
    on: tuple[str, ...],
) -> Case:
    """What decides the kernels for a call on device types ``on``.

    Raises ``IneligibleError`` or ``ConfigError`` where none of ours takes the tensors.
    """
    if a.device.type not in on:
        raise IneligibleError(f"tensors on {a.device.type}, kernels run on {', '.join(on)}")
    if a.dim() != 2 or b.dim() != 2:
        raise IneligibleError(f"kernels take two matrices, not {a.dim()}-D and {b.dim()}-D")
    if a.dtype not in _TYPES or b.dtype != a.dtype:
        raise IneligibleError(f"no kernel multiplies {a.dtype} and {b.dtype}")
    tensors = [tensor for tensor in (a, b, out, c) if tensor is not None]
    if len({tensor.device for tensor in tensors}) > 1:
        raise IneligibleError("tensors are on several devices")
    if any(tensor.is_neg() for tensor in tensors):
        raise IneligibleError("a view that negates is not what its memory holds")
    m, k, n = int(a.shape[0]), int(a.shape[1]), int(b.shape[1])
    if b.shape[0] != k or not m * n * k:
        raise IneligibleError(f"nothing to multiply: {tuple(a.shape)} and {tuple(b.shape)}")
    made = out_dtype(a.dtype)
    if out is not None:
        _check_out(out, a, b, (m, n), made)
    if c is not None:
        _check_added(c, a, made, (m, n), alpha, beta)
    return Case(
        n=n,
        k=k,
        dtype=a.dtype,
        out_dtype=made,
        a=Operand.of(a, "a"),
        b=Operand.of(b, "b"),
        out=_fresh(n, made) if out is None else Operand.of(out, "out"),
        precision=fp32_precision() if a.dtype == torch.float32 else None,
        scaled=alpha != 1.0,
        adds=beta != 0.0,
    )


def _fresh(n: int, dtype: torch.dtype) -> Operand:
    """A row-major C that torch allocates: aligned, rows one behind the other."""
    step = n * dtype.itemsize
    return Operand(False, min(step & -step, 16), 0)


def _check_out(
    out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, shape: tuple[int, int], made: torch.dtype
) -> None:
    if tuple(out.shape) != shape or out.dtype != made or out.requires_grad:
        raise IneligibleError("out is not a tensor of the result's shape and type")
    if out.stride(1) != 1 or out.stride(0) < shape[1]:
        raise IneligibleError("out is not row-major")
    storage = out.untyped_storage().data_ptr()
    if storage in (a.untyped_storage().data_ptr(), b.untyped_storage().data_ptr()):
        raise IneligibleError("out shares memory with an operand")


def _check_added(
    c: torch.Tensor, a: torch.Tensor, made: torch.dtype, shape: tuple[int, int], alpha: Any,
    beta: Any,
) -> None:  # fmt: skip
    if made != a.dtype or c.dtype != a.dtype:
        raise IneligibleError(f"no kernel adds {c.dtype} to a product of {a.dtype}")
    if c.dim() > 2 or any(
        have not in (1, want) for have, want in zip(c.shape[::-1], shape[::-1], strict=False)
    ):
        raise IneligibleError(f"{tuple(c.shape)} does not broadcast to {shape}")
    if not (isinstance(alpha, (int, float)) and isinstance(beta, (int, float))):
        raise IneligibleError("alpha and beta are not real numbers")
    if not (math.isfinite(alpha) and math.isfinite(beta)):
        raise IneligibleError("alpha or beta is not finite")
