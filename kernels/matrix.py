"""Operands as the kernels see them: which axis is contiguous, steps, descriptors."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from costmodel.config import KernelConfig
from costmodel.errors import ConfigError

_COPY_BYTES = 16  # what the copy engine's rows and addresses are multiples of (CUDA driver API)


@dataclass(frozen=True)
class Matrix:
    """An operand as stored: [batch,] rows, cols with cols contiguous; ``transposed`` or not."""

    stored: torch.Tensor
    transposed: bool

    @classmethod
    def of(cls, tensor: torch.Tensor, name: str) -> Matrix:
        rows, cols = tensor.shape[-2:]
        # an axis of one element may report any stride: it counts as contiguous
        if tensor.stride(-1) == 1 and (rows == 1 or tensor.stride(-2) >= cols):
            return cls(tensor, False)
        if tensor.stride(-2) == 1 or rows == 1:
            if cols == 1 or tensor.stride(-1) >= rows:
                return cls(tensor.transpose(-1, -2), True)
        if cols == 1 and tensor.stride(-2) >= 1:
            return cls(tensor, False)
        raise ConfigError(
            f"{name} has strides {tensor.stride()} for shape {tuple(tensor.shape)}: one of its "
            "last two axes must be contiguous and not overlap; call .contiguous() first"
        )

    @property
    def leading(self) -> int:
        """Elements from one stored row to the next."""
        return int(self.stored.stride(-2))

    @property
    def batch_stride(self) -> int:
        return int(self.stored.stride(0)) if self.stored.ndim == 3 else 0

    def flipped(self) -> Matrix:
        """The transpose of this matrix: the same storage, read the other way."""
        return Matrix(self.stored, not self.transposed)

    def rows(self) -> int:
        return int(self.stored.shape[-1 if self.transposed else -2])

    def cols(self) -> int:
        return int(self.stored.shape[-2 if self.transposed else -1])


def operand_names(config: KernelConfig) -> tuple[str, str]:
    """The caller's names of what the kernel sees as its first and second operand."""
    return ("b", "a") if config.swap else ("a", "b")


def descriptor_facts(
    name: str, template: str, matrix: Matrix, rows: int, cols: int
) -> tuple[list[int], list[int], list[int]]:
    """Shape, strides and block of a tensor descriptor for [rows, cols] of a matrix as stored.

    Raises ``ConfigError`` where the copy engine cannot read it.
    """
    stored = matrix.stored
    if 0 in stored.shape:
        raise ConfigError(f"{template} cannot read {name}, which is empty; use template 'tile'")
    size = stored.element_size()
    strides = list(stored.stride())
    # the copy engine never steps along an axis of one element, yet checks its stride
    for axis in range(stored.ndim - 1):
        if stored.shape[axis] == 1:
            strides[axis] = -(-stored.shape[-1] * size // _COPY_BYTES) * _COPY_BYTES // size
        if strides[axis] * size % _COPY_BYTES:
            raise ConfigError(
                f"{template} needs rows of a multiple of 16 bytes: {name} steps by "
                f"{strides[axis]} elements of {size} bytes; use template 'tile' or 'split_k'"
            )
    if stored.data_ptr() % _COPY_BYTES:
        raise ConfigError(
            f"{template} needs 16-byte aligned data; {name} is not; clone it or use template 'tile'"
        )
    block = [cols, rows] if matrix.transposed else [rows, cols]
    if stored.ndim == 3:
        block.insert(0, 1)
    strides[-1] = 1
    return list(stored.shape), strides, block
