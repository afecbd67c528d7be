"""Which of the compiler's habits hold for which Triton version, by backend.

What is not here holds for every surveyed version. A row's evidence is that version's survey
(``data/compiler/survey_triton-<version>.jsonl``: 300 random configurations a target) and, where
named, the intermediate text of a configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata


@dataclass(frozen=True)
class Rules:
    """Habits that changed between versions.

    - ``tcgen05_integers``: int8 is multiplied by tcgen05 on sm_100, as 8-bit floats are.
    - ``tensor_memory_operand``: on sm_100 a first operand of 4-byte words, loaded word by word
      across K, passes through tensor memory and frees its stage.
    - ``both_halves_alive``: on sm_100 both halves of a cut fp32 tile are staged at once.
    - ``detours``: AMD moves a tile that is larger than shared memory by way of a third layout.
    - ``async_copies``: AMD targets whose loads go to shared memory directly: a ring of all stages,
      padded.
    """

    version: str
    tcgen05_integers: bool = False
    tensor_memory_operand: bool = False
    both_halves_alive: bool = False
    detours: bool = False
    async_copies: tuple[str, ...] = ()


#: by backend, oldest first
TABLE: dict[str, tuple[Rules, ...]] = {
    "cuda": (
        # 3.6.0: split_k 256x256x64 s8 fp32 tn with K = 777 holds 7 buffers of A; persistent_tma
        # 64x128x16 s9 fp32 in two parts has two parts' staging beside one ring
        Rules("3.6.0", tensor_memory_operand=True, both_halves_alive=True),
        # 3.9.0: the same two hold 8 buffers and one part; int8 64x128x128 s8 takes 196624 bytes
        Rules("3.9.0", tcgen05_integers=True),
    ),
    "hip": (
        # 3.6.0: split_k 256x128 fp32 swapped takes 16640 bytes on gfx90a
        Rules("3.6.0", detours=True),
        # 3.9.0: the same takes 131072; fp16 128x128x64 s3 takes 3 * 32768 + 1504 on gfx950
        Rules("3.9.0", async_copies=("gfx950",)),
    ),
}


@dataclass(frozen=True)
class Choice:
    """Rules for one backend; ``assumed`` where the wanted version was never surveyed."""

    rules: Rules
    assumed: bool


@cache
def installed_version() -> str | None:
    """Version of the installed Triton, from its metadata: nothing is imported."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return None


@cache
def rules_for(backend: str, triton_version: str | None = None) -> Choice:
    """Rules of a Triton version ("3.6.0", "3.9.0+git..."): by its first two numbers.

    None is the installed version, or the newest surveyed where none is installed. A version that
    was not surveyed gets the newest known rules, marked as assumed.
    """
    known = TABLE.get(backend, TABLE["cuda"])
    wanted = triton_version or installed_version()
    if backend not in TABLE:  # another vendor's compiler: NVIDIA's habits, for want of its own
        return Choice(known[-1], True)
    if wanted is None:
        return Choice(known[-1], False)
    for rules in known:
        if _series(rules.version) == _series(wanted):
            return Choice(rules, False)
    return Choice(known[-1], True)


def _series(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])
