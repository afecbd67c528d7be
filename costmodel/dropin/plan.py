"""A launch kept for reuse: per call only tensors, descriptors and workspace are put in again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from costmodel.config import KernelConfig
from costmodel.dropin.case import Case

if TYPE_CHECKING:
    from costmodel.kernels.launch import Launch

#: places of the call's own tensors among the things that arguments are filled from
_A, _B, _OUT = 0, 1, 2


#: A, B and C on device "meta"
StandIns = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Workspace:
    """Memory that one call needs for itself, so that calls on several streams never share it."""

    count: int
    dtype: torch.dtype
    zeroed: bool


@dataclass(frozen=True)
class _Descriptor:
    """A tensor descriptor without its tensor: ``place`` says which one it gets."""

    place: int
    kind: type
    facts: dict[str, Any]


#: releases whose compiled kernels are known to take every argument, constants too, in order
_DIRECT_RELEASES = ("3.6.",)


@dataclass
class _Step:
    """One kernel. ``fills`` are (argument, place of what it gets) pairs.

    What decides which compiled kernel Triton takes, a plan has fixed: so it is asked once, and
    later calls launch what it took, which costs a third of asking again.
    """

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    constants: dict[str, Any]
    fills: tuple[tuple[int, int], ...]
    compiled: Any = None
    trailing: tuple[Any, ...] = ()

    def launch(self, held: list[Any]) -> None:
        args = list(self.args)
        for position, place in self.fills:
            args[position] = held[place]
        if self.compiled is not None:
            self.compiled(*args, *self.trailing)
            return
        taken = self.kernel[self.grid](*args, **self.constants)
        known = isinstance(self.kernel, JITFunction) and isinstance(taken, CompiledKernel)
        if known and triton.__version__.startswith(_DIRECT_RELEASES):
            names = self.kernel.arg_names[len(args) :]
            self.trailing = tuple(self.constants[name] for name in names)
            self.compiled = taken[(*self.grid, 1, 1)[:3]]


class Plan:
    """Every kernel of a product with what does not change from call to call.

    Made from tensors that stand in for the call's own ones, so it keeps none of them alive.
    ``run`` shares nothing between calls: it may be called from several threads and streams, and
    while a CUDA graph is captured.
    """

    def __init__(
        self,
        launch: Launch,
        stand_ins: StandIns,
        beta: float,
    ) -> None:
        out = stand_ins[_OUT]
        self.shape = tuple(out.shape)
        self.dtype = out.dtype
        self.adds = beta != 0.0
        self.workspaces: list[Workspace] = []
        self._descriptors: list[_Descriptor] = []
        places = {_storage(tensor): place for place, tensor in enumerate(stand_ins)}
        steps = list(launch.steps())
        for step in steps:
            for position, arg in enumerate(step.args):
                tensor = arg.base if _is_descriptor(arg) else arg
                if isinstance(tensor, torch.Tensor) and _storage(tensor) not in places:
                    places[_storage(tensor)] = len(stand_ins) + len(self.workspaces)
                    self.workspaces.append(_workspace(tensor, position in step.zeroed))
        self._first_descriptor = len(stand_ins) + len(self.workspaces)
        self._steps = [self._step(step, places) for step in steps]

    @classmethod
    def of(
        cls,
        case: Case,
        stand_ins: StandIns,
        config: KernelConfig,
        alpha: float,
        beta: float,
        units: int,
    ) -> Plan:
        """Raises ``ConfigError`` where the configuration cannot take such tensors."""
        from costmodel.kernels.launch import prepare

        a, b, out = stand_ins
        options = case.options(int(a.shape[0]), units)
        launch = prepare(a, b, config, out=out, alpha=alpha, beta=beta, **options)
        return cls(launch, stand_ins, beta)

    def run(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        out: torch.Tensor | None = None,
        c: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Launch on tensors like those that it was made for; ``c`` is copied where it is added."""
        if out is None:
            out = torch.empty(self.shape, dtype=self.dtype, device=a.device)
        if self.adds:
            out.copy_(c)
        held: list[Any] = [a, b, out]
        for room in self.workspaces:
            make = torch.zeros if room.zeroed else torch.empty
            held.append(make(room.count, dtype=room.dtype, device=a.device))
        for made in self._descriptors:
            # not through the constructor: it checks again what the plan's own passed
            descriptor: Any = object.__new__(made.kind)
            descriptor.__dict__.update(made.facts)
            descriptor.base = held[made.place]
            held.append(descriptor)
        for step in self._steps:
            step.launch(held)
        return out

    def _step(self, step: Launch, places: dict[int, int]) -> _Step:
        args = list(step.args)
        fills = []
        for position, arg in enumerate(args):
            if _is_descriptor(arg):
                fills.append((position, self._place(arg, places[_storage(arg.base)])))
                args[position] = None
            elif isinstance(arg, torch.Tensor):
                fills.append((position, places[_storage(arg)]))
                args[position] = None
        return _Step(step.kernel, step.grid, tuple(args), step.constants, tuple(fills))

    def _place(self, descriptor: Any, place: int) -> int:
        """Where a descriptor like this one stands: equal ones are made once a call."""
        facts = {name: value for name, value in vars(descriptor).items() if name != "base"}
        made = _Descriptor(place, type(descriptor), facts)
        if made not in self._descriptors:
            self._descriptors.append(made)
        return self._first_descriptor + self._descriptors.index(made)


def _is_descriptor(arg: Any) -> bool:
    return hasattr(arg, "block_shape")


def _storage(tensor: torch.Tensor) -> int:
    """What tells one stand-in's memory from another's: all addresses on "meta" are alike."""
    return int(tensor.untyped_storage()._cdata)


def _workspace(tensor: torch.Tensor, zeroed: bool) -> Workspace:
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return Workspace(count, tensor.dtype, zeroed)
