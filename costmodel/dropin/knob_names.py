"""Parameter names of other people's GEMM kernels as our knobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.config import KernelConfig

#: our knob -> names that kernels give it, as in Triton's tutorials, PyTorch Inductor, vLLM,
#: FlagGems and many private kernels
KNOB_NAMES: dict[str, tuple[str, ...]] = {
    "block_m": ("BLOCK_SIZE_M", "BLOCK_M", "BM", "TILE_M", "BLOCK_SIZE_ROW", "M_BLOCK"),
    "block_n": ("BLOCK_SIZE_N", "BLOCK_N", "BN", "TILE_N", "BLOCK_SIZE_COL", "N_BLOCK"),
    "block_k": ("BLOCK_SIZE_K", "BLOCK_K", "BK", "TILE_K", "BLOCK_SIZE_INNER", "K_BLOCK"),
    "group_m": ("GROUP_SIZE_M", "GROUP_M", "GM", "GROUP_SIZE", "SWIZZLE_GROUP"),
    "split_k": ("SPLIT_K", "SPLITK", "SPLIT_K_SIZE", "NUM_SPLIT_K"),
    "num_warps": ("num_warps",),
    "num_stages": ("num_stages",),
}
#: knobs without which a kernel is no GEMM that we know
NEEDED = ("block_m", "block_n", "block_k")


def mapping_of(parameters: Mapping[str, Any], names: Mapping[str, str] | None) -> dict[str, str]:
    """Our knob -> the kernel's parameter, for those that are there.

    ``names`` (the kernel's parameter -> our knob) comes first; else the name is looked up in
    ``KNOB_NAMES`` without regard to case.
    """
    found = {knob: name for name, knob in (names or {}).items() if name in parameters}
    by_lower = {name.lower(): name for name in parameters}
    for knob, known in KNOB_NAMES.items():
        for name in known:
            if knob not in found and name.lower() in by_lower:
                found[knob] = by_lower[name.lower()]
    return found


def config_of_parameters(
    parameters: Mapping[str, Any],
    names: Mapping[str, str] | None = None,
    template: str | None = None,
) -> KernelConfig | None:
    """The configuration that a kernel's parameters name; None where they name no tile.

    ``template`` is the family that the kernel resembles: "split_k" where K is split and "tile"
    where not, unless it is given.
    """
    found = mapping_of(parameters, names)
    knobs = {knob: parameters[name] for knob, name in found.items()}
    if any(knob not in knobs for knob in NEEDED):
        return None
    for knob, value in knobs.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            if knob in NEEDED:
                return None
            knobs = {other: v for other, v in knobs.items() if other != knob}
    kind = template or ("split_k" if knobs.get("split_k", 1) > 1 else "tile")
    return KernelConfig(kind, **({"group_m": 8} | knobs))
