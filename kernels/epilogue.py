"""What happens to the sums on their way to C, as every template takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from costmodel.errors import ConfigError
from costmodel.problem import ACTIVATIONS


@dataclass(frozen=True)
class Epilogue:
    """C = activation(alpha * A B + bias) + beta * added.

    ``bias`` is [N], ``added`` lies as C does: C itself, or a residual.
    """

    alpha: float = 1.0
    beta: float = 0.0
    bias: torch.Tensor | None = None
    activation: str | None = None
    added: torch.Tensor | None = None

    @classmethod
    def of(
        cls,
        out: torch.Tensor,
        alpha: float,
        beta: float | None,
        bias: torch.Tensor | None,
        activation: str | None,
        residual: torch.Tensor | None,
    ) -> Epilogue:
        """Check the parts against C. Raises ``ConfigError`` with what does not fit."""
        if activation is not None and activation not in ACTIVATIONS:
            raise ConfigError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
        if (activation or bias is not None) and not out.dtype.is_floating_point:
            raise ConfigError(f"bias and activation need a floating C, not {out.dtype}")
        if bias is not None and (bias.shape != out.shape[-1:] or bias.stride() != (1,)):
            raise ConfigError(f"bias must be [{out.shape[-1]}] and contiguous")
        if residual is not None:
            alike = residual.shape == out.shape and residual.stride() == out.stride()
            if not alike or residual.dtype != out.dtype:
                raise ConfigError(
                    f"residual must lie as C does: shape {tuple(out.shape)}, strides "
                    f"{out.stride()}, {out.dtype}"
                )
            beta = 1.0 if beta is None else beta
            if out.data_ptr() and residual.data_ptr() == out.data_ptr():
                residual = None  # C itself, under another name
        return cls(float(alpha), float(beta or 0.0), bias, activation, residual)

    def constants(self) -> dict[str, Any]:
        """What the kernels are compiled for."""
        return {
            "SCALED": self.alpha != 1.0,
            "HAS_BETA": self.beta != 0.0,
            "HAS_BIAS": self.bias is not None,
            "ACTIVATION": self.activation or "",
        }

    @property
    def may_store_twice(self) -> bool:
        """Whether storing an element twice gives what once gives: C is not what is added."""
        return self.beta == 0.0 or self.added is not None

    def tensors(self, stored: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What is added and the bias; C in the place of one that is not there."""
        added = stored if self.added is None else self.added
        return added, stored if self.bias is None else self.bias
