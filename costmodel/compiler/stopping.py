"""Compilation that ends once shared memory is allocated: a small part of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Stage = Callable[[Any, dict[str, Any]], Any]
#: the pass that sets a module's "ttg.shared", by backend
_ALLOCATIONS = {
    "nvidia": "add_allocate_shared_memory_nv",
    "amd": "add_allocate_shared_memory",
}


def once_allocated(llir: Stage, stop: Stage) -> Stage:
    """The stage ``llir``, with ``stop(module, metadata)`` in the place of all past allocation.

    ``metadata["shared"]`` is then what the whole stage would say, in bytes: no later pass changes
    it. Seen on the kept survey of Triton 3.6.0, which was compiled to the end of the stage: 2700
    of 2700 configurations agree. ``stop`` must raise. A Triton without such a pass runs the whole
    stage.
    """

    def stage(module: Any, metadata: dict[str, Any]) -> Any:
        def end(passes: Any) -> None:
            passes.run(module, "allocation")
            stop(module, metadata | {"shared": module.get_int_attr("ttg.shared")})

        with _after_allocation(end):
            return llir(module, metadata)

    return stage


@contextmanager
def _after_allocation(end: Callable[[Any], None]) -> Iterator[None]:
    """Within the block, adding the allocation to a pass manager calls ``end`` with that manager."""
    from triton._C import libtriton

    def ended(add: Callable[..., None]) -> Callable[..., None]:
        def add_and_end(passes: Any, *arguments: Any) -> None:
            add(passes, *arguments)
            end(passes)

        return add_and_end

    before = []
    for backend, name in _ALLOCATIONS.items():
        room = getattr(libtriton, backend).passes.ttgpuir
        if hasattr(room, name):
            before.append((room, name, getattr(room, name)))
    try:
        for room, name, add in before:
            setattr(room, name, ended(add))
        yield
    finally:
        for room, name, add in before:
            setattr(room, name, add)
