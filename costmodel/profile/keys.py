"""What may stand in a profile's file: sections, keys, words, and what each figure may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from costmodel.dtypes import OPERANDS

SCHEMA = 1
#: the words of Triton's own targets: NVIDIA, AMD, Intel and Kunlunxin, Ascend, Moore Threads,
#: MetaX, Cambricon, Enflame, and any that has none yet
BACKENDS: tuple[str, ...] = ("cuda", "hip", "xpu", "npu", "musa", "maca", "mlu", "gcu", "other")
CONFIDENCES: tuple[str, ...] = ("documented", "reported", "inferred", "measured")
#: what may stand in ``[peak_tflops]``: the operand types, and fp32 rounded to tf32 on the way in
RATES: tuple[str, ...] = (*OPERANDS, "tf32")
#: larger than any figure of a chip, and safe as a float and as an int64
LARGEST = 2**62


class Key(NamedTuple):
    """Where a figure stands in the file, and what it may be."""

    section: str
    key: str
    whole: bool = True
    required: bool = False  # may not be "unknown"
    zero: bool = False  # may be 0
    optional: bool = False  # may be left out


TEXTS = {
    **{key: ("identity", key) for key in ("name", "vendor", "model", "architecture")},
    **{key: ("identity", key) for key in ("backend", "target")},
    "unit_name": ("compute", "unit_name"),
}
LISTS = {
    "mma": ("compute", "mma"),
    "async_copy": ("compute", "async_copy"),
    "device_names": ("identity", "device_names"),
}
#: words that rules look for: a misspelt one would silently mean a lesser chip
WORDS = {
    "mma": ("mma.sync", "wgmma", "tcgen05", "mfma", "wmma", "dpas", "cube", "matrix"),
    "async_copy": ("cp.async", "tma", "buffer_load_to_lds", "prefetch", "dma"),
}
#: rates that large products reached, and the entries of ``[peak_tflops]`` that each stands below
REACHED: dict[str, tuple[str, ...]] = {
    "achievable_tflops_fp16": ("fp16",),
    "achievable_tflops_bf16": ("bf16",),
    "achievable_tflops_fp8": ("fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz"),
    "achievable_tflops_tf32": ("tf32",),
    "achievable_tflops_int8": ("int8",),
}
FIGURES = {
    "units": Key("compute", "units", required=True),
    "boost_clock_mhz": Key("compute", "boost_clock_mhz", whole=False),
    "peak_clock_mhz": Key("compute", "peak_clock_mhz", whole=False),
    "warp_size": Key("compute", "warp_size", required=True),
    "memory_bytes": Key("memory", "capacity_bytes"),
    "bandwidth_gb_s": Key("memory", "bandwidth_gb_s", whole=False, required=True),
    "copy_bandwidth_gb_s": Key("memory", "copy_bandwidth_gb_s", whole=False),
    "l2_bytes": Key("memory", "l2_bytes"),
    "l2_partitions": Key("memory", "l2_partitions"),
    "mall_bytes": Key("memory", "mall_bytes", zero=True),
    "mall_bandwidth_gb_s": Key("memory", "mall_bandwidth_gb_s", whole=False, optional=True),
    "line_bytes": Key("memory", "line_bytes"),
    "sector_bytes": Key("memory", "sector_bytes"),
    "shared_per_block_bytes": Key("shared", "per_block_bytes", required=True),
    "shared_per_unit_bytes": Key("shared", "per_unit_bytes"),
    "shared_reserved_bytes": Key("shared", "reserved_per_block_bytes", zero=True),
    "shared_granularity_bytes": Key("shared", "allocation_granularity_bytes"),
    "registers_per_unit": Key("registers", "per_unit"),
    "max_registers_per_thread": Key("registers", "max_per_thread"),
    "register_granularity": Key("registers", "allocation_granularity"),
    "max_warps_per_unit": Key("limits", "max_warps_per_unit"),
    "max_blocks_per_unit": Key("limits", "max_blocks_per_unit"),
    "max_threads_per_block": Key("limits", "max_threads_per_block"),
    "subpartitions": Key("limits", "subpartitions_per_unit"),
    "max_programs": Key("limits", "max_programs", optional=True),
    "launch_floor_us": Key("measured", "launch_floor_us", whole=False),
    **{name: Key("measured", name, whole=False, optional=True) for name in REACHED},
}
#: figures of one of ``[memories]``, with what they are where left out
MEMORY_FIGURES = {"capacity_bytes": None, "buffers": 1, "copies": 1}
MEMORY_KEYS: tuple[str, ...] = (*MEMORY_FIGURES, "holds", "per")
#: sections that may be left out: a chip's own memories, and the knobs that it has
OWN_SECTIONS: tuple[str, ...] = ("memories", "knobs")
#: sections and keys that a GPU needs, and a chip that names its own memories may leave out
_OF_GPUS = ("shared", "registers", "limits")


def layout(document: Mapping[str, Any]) -> dict[str, dict[str, bool]]:
    """Section -> key -> whether it must be there, for a document of this kind."""
    own = "memories" in document
    found: dict[str, dict[str, bool]] = {"peak_tflops": dict.fromkeys(RATES, False)}
    for section, key in (*TEXTS.values(), *LISTS.values()):
        found.setdefault(section, {})[key] = key != "device_names"
    for spec in FIGURES.values():
        needed = not spec.optional and not (own and spec.section in _OF_GPUS)
        found.setdefault(spec.section, {})[spec.key] = needed
    if own:  # its shared memory is one of its memories
        del found["shared"]
    found["sources"] = {}
    return found


def may_be_left_out(section: str, document: Mapping[str, Any]) -> bool:
    """Whether a whole section is not needed in this document."""
    return "memories" in document and section in _OF_GPUS


def required_keys() -> list[str]:
    """What a profile cannot do without, as "[section] key"."""
    texts = [f"[{section}] {key}" for section, key in TEXTS.values() if section == "identity"]
    figures = [f"[{s.section}] {s.key}" for s in FIGURES.values() if s.required]
    return [*texts, *figures, "[peak_tflops] a rate for at least one type"]
