"""Predicted beside actual: the compiler's own figures for a configuration, with no GPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import UnsupportedError
from costmodel.physics.estimate import estimate_columns
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.resources.matrix_unit import MatrixUnit

#: the words of ``survey.machine_code_facts`` for each kind of matrix instruction
_INSTRUCTIONS = {
    MatrixUnit.NONE: (),
    MatrixUnit.MMA_SYNC: ("mma.sync",),
    MatrixUnit.WGMMA: ("wgmma",),
    MatrixUnit.TCGEN05: ("tcgen05",),
    MatrixUnit.MFMA: ("v_mfma",),
}


def _instructions(profile: HardwareProfile, unit: MatrixUnit) -> tuple[str, ...]:
    """RDNA's matrix instruction has another name than CDNA's."""
    if unit is MatrixUnit.MFMA and "wmma" in profile.mma:
        return ("v_wmma",)
    return _INSTRUCTIONS[unit]


@dataclass(frozen=True)
class Compiled:
    """What was predicted and what the compiler took.

    ``spill`` is bytes of spill stores a thread on NVIDIA and spilled VGPRs on AMD; its prediction
    is in registers.
    """

    config: str
    target: str
    triton: str
    predicted_shared_bytes: int
    shared_bytes: int
    shared_limit_bytes: int
    predicted_registers: int
    registers: int
    predicted_spilled_registers: float
    spill: int
    predicted_instructions: tuple[str, ...]
    instructions: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the chip has the shared memory; the compiler itself checks no limit."""
        return self.shared_bytes <= self.shared_limit_bytes

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"fits": self.fits}

    def rows(self) -> list[tuple[str, str, str]]:
        """Figure, predicted, actual: as texts for a table."""
        predicted = ", ".join(self.predicted_instructions) or "none"
        return [
            ("shared memory, bytes", str(self.predicted_shared_bytes), str(self.shared_bytes)),
            ("registers a thread", str(self.predicted_registers), str(self.registers)),
            ("spill", f"{self.predicted_spilled_registers:.0f} registers", str(self.spill)),
            ("matrix instruction", predicted, ", ".join(self.instructions) or "none"),
            ("fits", str(self.predicted_shared_bytes <= self.shared_limit_bytes), str(self.fits)),
        ]


def compiled(problem: Gemm, config: KernelConfig, profile: HardwareProfile) -> Compiled:
    """Compile ``config`` for the profile's chip and read what it took.

    Needs torch and triton, but no GPU. Raises ``UnsupportedError`` where they are missing, where
    Triton has no target for the chip, or where the compiler refuses the configuration.
    """
    try:
        import triton

        from costmodel.compiler.survey import machine_code_facts
        from costmodel.compiler.witness import compile_offline
    except ImportError as error:
        raise UnsupportedError(
            f"compiling needs torch and triton (the package's extra 'gpu'): {error}"
        ) from None
    physics = estimate_columns(problem, ConfigTable.of(config), profile)
    try:
        kernel = compile_offline(problem, config, profile)
    except UnsupportedError:
        raise
    except Exception as error:  # whatever a compiler's pass may raise is its refusal
        first = str(error).strip().split("\n", 1)[0]
        raise UnsupportedError(
            f"the compiler refuses {config} for {profile.name}: {first}"
        ) from None
    facts = machine_code_facts(kernel)
    return Compiled(
        config=str(config),
        target=profile.target,
        triton=triton.__version__,
        predicted_shared_bytes=int(physics.footprint.shared_bytes[0]),
        shared_bytes=int(kernel.metadata.shared),
        shared_limit_bytes=profile.shared_per_block_bytes,
        predicted_registers=int(physics.registers.allocated[0]),
        registers=facts["registers"],
        predicted_spilled_registers=float(physics.registers.spilled[0]),
        spill=facts["spill"],
        predicted_instructions=_instructions(profile, MatrixUnit(int(physics.unit[0]))),
        instructions=tuple(facts["instructions"]),
    )
