"""The compiler as witness: compile a kernel for a chip that is not there, and read what it took.

Needs torch and triton, but no GPU: the kernel is bound to tensors without storage, and a stand-in
driver names the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from costmodel.config import KernelConfig
from costmodel.errors import UnsupportedError
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile


class _StandInDriver:
    """Just enough of a Triton driver to compile: a target, device 0 and a null stream."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def compiling_for(profile: HardwareProfile) -> Iterator[None]:
    """Within the block, Triton compiles for ``profile``'s target. Kernels cannot be launched.

    Leaves no trace: kernels compiled inside are forgotten by the in-memory cache afterwards.
    Raises ``UnsupportedError`` for a backend that Triton has no target for.
    """
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    from costmodel.kernels import launch

    if profile.backend == "cuda":
        target = GPUTarget("cuda", int(profile.target), 32)
    elif profile.backend == "hip":
        target = GPUTarget("hip", profile.target, profile.warp_size)
    else:
        raise UnsupportedError(f"Triton cannot compile for {profile.name} ({profile.backend}) here")
    kernels = launch.kernels()
    before = driver._active
    driver.set_active(_StandInDriver(target))
    for kernel in kernels:
        kernel.device_caches.clear()
    try:
        yield
    finally:
        driver._active = before
        for kernel in kernels:
            kernel.device_caches.clear()


def storageless_launch(problem: Gemm, config: KernelConfig, units: int | None = None) -> Any:
    """The launch of ``config`` on ``problem`` with tensors that have shapes but no storage."""
    from costmodel.kernels.launch import prepare
    from costmodel.kernels.operands import epilogue_options, make_operands

    a, b, out = make_operands(problem, device="meta")
    return prepare(
        a, b, config, out=out, alpha=problem.alpha, beta=problem.beta,
        precision=problem.precision, accumulate=problem.accumulate, units=units,
        **epilogue_options(problem, "meta"),
    )  # fmt: skip


def compile_offline(problem: Gemm, config: KernelConfig, profile: HardwareProfile) -> Any:
    """Compile for the profile's chip; ``.metadata.shared`` is the truth about its SRAM bytes."""
    with compiling_for(profile):
        return storageless_launch(problem, config, profile.units).compile()
