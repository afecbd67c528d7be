"""How a call reaches its kernel: at once, through torch's operator, or by torch.matmul itself."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch
from torch.autograd import forward_ad

_ORDINARY = frozenset((torch.Tensor, torch.nn.Parameter))
_functorch_stack = torch._C._functorch.peek_interpreter_stack
_trace = torch._C._get_tracing_state
_mode_count = torch._C._len_torch_dispatch_stack


class Route(Enum):
    """DIRECT costs least; OPERATOR where torch must see the product; TORCH where it cannot."""

    DIRECT = 1
    OPERATOR = 2
    TORCH = 3


def route_of(*tensors: Any) -> Route:
    """The way for these operands.

    OPERATOR: a gradient is wanted, torch.compile traces, tensors are fake, or a mode watches.
    TORCH: tensors of another class, a transform (vmap, jvp) that the operator has no rule for, or
    torch.jit.trace, which would not see the kernel write.
    """
    if torch.compiler.is_compiling():
        return Route.OPERATOR
    for tensor in tensors:
        if type(tensor) not in _ORDINARY:
            return Route.OPERATOR if _is_fake(tensor) else Route.TORCH
    if _functorch_stack() is not None or forward_ad._current_level >= 0 or _trace() is not None:
        return Route.TORCH
    if _mode_count():
        return Route.OPERATOR
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor.requires_grad:
                return Route.OPERATOR
    return Route.DIRECT


def _is_fake(tensor: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)


def autocast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors in autocast's type where torch's own product would take them so."""
    if not torch.is_autocast_enabled("cuda"):
        return tensors
    kind = torch.get_autocast_dtype("cuda")
    return tuple(
        tensor.to(kind)
        if tensor.is_cuda and tensor.is_floating_point() and tensor.dtype.itemsize in (2, 4)
        else tensor
        for tensor in tensors
    )
