"""Tensors for a problem: operands as its layout stores them, with values fit to test and time."""

from __future__ import annotations

from typing import Any

import torch

from costmodel.problem import Gemm

TORCH_DTYPES: dict[str, torch.dtype] = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "fp8_e4m3fnuz": torch.float8_e4m3fnuz,
    "fp8_e5m2fnuz": torch.float8_e5m2fnuz,
    "int8": torch.int8,
    "int32": torch.int32,
}


def epilogue_options(
    problem: Gemm, device: str | torch.device, generator: torch.Generator | None = None
) -> dict[str, Any]:
    """``prepare``'s options for the problem's epilogue: a drawn bias [N] and the activation."""
    if problem.epilogue is None:
        return {}
    bias = None
    if problem.has_bias:
        kind = TORCH_DTYPES[str(problem.out_dtype)]
        bias = torch.empty(problem.n, device=device, dtype=kind)
        if bias.device.type != "meta":
            bias.copy_(torch.randn(problem.n, device=device, generator=generator))
    return {"bias": bias, "activation": problem.activation}


def make_operands(
    problem: Gemm, device: str | torch.device, generator: torch.Generator | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A [M, K], B [K, N] and C [M, N], each with a leading batch axis where batch > 1.

    A and B are views of storage in the problem's layout. Values are standard normal (int8:
    uniform): products on zeros would hide wrong indexing, and run faster than real data does.
    """
    lead = (problem.batch,) if problem.batch > 1 else ()
    dtype = TORCH_DTYPES[problem.dtype]

    def draw(rows: int, cols: int, transposed: bool) -> torch.Tensor:
        shape = (*lead, cols, rows) if transposed else (*lead, rows, cols)
        if torch.device(device).type == "meta":
            stored = torch.empty(shape, device=device, dtype=dtype)
        elif dtype == torch.int8:
            stored = torch.randint(
                -128, 128, shape, device=device, dtype=torch.int8, generator=generator
            )
        else:
            values = torch.randn(shape, device=device, dtype=torch.float32, generator=generator)
            stored = values.to(dtype)
        return stored.transpose(-1, -2) if transposed else stored

    a = draw(problem.m, problem.k, problem.layout[0] == "t")
    b = draw(problem.k, problem.n, problem.layout[1] == "t")
    out_dtype = TORCH_DTYPES[str(problem.out_dtype)]
    out = torch.empty((*lead, problem.m, problem.n), device=device, dtype=out_dtype)
    if problem.beta and out.device.type != "meta":
        out.copy_(torch.randn(out.shape, device=device, generator=generator))
    return a, b, out
