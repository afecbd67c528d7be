"""One chip as Triton sees it: its figures, each with the evidence for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from costmodel.dtypes import PRECISIONS
from costmodel.errors import unknown_name
from costmodel.profile.memory import Memory

_Value = TypeVar("_Value")


class Evidence(NamedTuple):
    """Where a figure comes from: a sentence, and one of ``CONFIDENCES``."""

    value: float
    source: str
    confidence: str


class FrozenMap(Mapping[str, _Value]):
    """A mapping without a way to write to it. Unlike a mappingproxy it can be copied."""

    def __init__(self, items: Mapping[str, _Value]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> _Value:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"FrozenMap({self._items!r})"


@dataclass(frozen=True, kw_only=True)
class HardwareProfile:
    """One chip as Triton sees it. A figure that nobody knows is None.

    A unit is what holds a block: an SM, a CU, a core. ``peak_tflops`` are dense rates that sum in
    fp32 (int32 for int8), at ``peak_clock_mhz`` where they are matrix rates; "fp32" is the rate
    without rounding to tf32, and a type that the chip does not multiply natively is absent.
    ``l2_bytes`` is one L2 and ``l2_partitions`` how many there are that share no contents;
    ``mall_bytes`` is a cache on the memory's side. ``copy_bandwidth_gb_s`` counts bytes read and
    bytes written. ``shared_per_block_bytes`` is the opt-in limit; ``shared_reserved_bytes`` is
    taken on top of what a block asks for. ``register_granularity`` is in registers a thread.

    A chip whose on-chip memories are not a GPU's names them in ``memories``; then
    ``shared_per_block_bytes`` is the capacity of ``block_memory``. ``knobs`` holds the values that
    a knob may take there, an empty tuple for one that the chip lacks; a knob that is not named is
    as on every GPU. ``max_programs`` is the largest grid, and with ``persistent_grid`` a launch has
    one program a unit, which takes its tiles in turn. ``achievable_tflops_...`` are the rates that
    large products reach, since power holds them below the peak.

    ``evidence`` has an entry for each known figure, by attribute name ("peak_tflops.fp16" for a
    rate, "memories.L1.capacity_bytes" for a memory). Equality and hash leave it out.
    """

    name: str
    vendor: str
    model: str
    architecture: str
    backend: str
    target: str
    units: int
    warp_size: int
    peak_tflops: Mapping[str, float] = field(hash=False)
    bandwidth_gb_s: float
    shared_per_block_bytes: int
    device_names: tuple[str, ...] = ()
    unit_name: str = "unit"
    boost_clock_mhz: float | None = None
    peak_clock_mhz: float | None = None
    mma: tuple[str, ...] = ()
    async_copy: tuple[str, ...] = ()
    memory_bytes: int | None = None
    copy_bandwidth_gb_s: float | None = None
    l2_bytes: int | None = None
    l2_partitions: int | None = None
    mall_bytes: int | None = None
    mall_bandwidth_gb_s: float | None = None
    line_bytes: int | None = None
    sector_bytes: int | None = None
    shared_per_unit_bytes: int | None = None
    shared_reserved_bytes: int | None = None
    shared_granularity_bytes: int | None = None
    registers_per_unit: int | None = None
    max_registers_per_thread: int | None = None
    register_granularity: int | None = None
    max_warps_per_unit: int | None = None
    max_blocks_per_unit: int | None = None
    max_threads_per_block: int | None = None
    subpartitions: int | None = None
    max_programs: int | None = None
    persistent_grid: bool = False
    memories: tuple[Memory, ...] = ()
    knobs: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: FrozenMap({}), hash=False)
    launch_floor_us: float | None = None
    achievable_tflops_fp16: float | None = None
    achievable_tflops_bf16: float | None = None
    achievable_tflops_fp8: float | None = None
    achievable_tflops_tf32: float | None = None
    achievable_tflops_int8: float | None = None
    evidence: Mapping[str, Evidence] = field(
        default_factory=lambda: FrozenMap({}), compare=False, repr=False
    )

    def __post_init__(self) -> None:
        for name in ("peak_tflops", "knobs", "evidence"):
            object.__setattr__(self, name, FrozenMap(getattr(self, name)))

    @property
    def compute_capability(self) -> int | None:
        """Ten times the CUDA compute capability (90 for 9.0); None for another vendor's chip."""
        return int(self.target) if self.backend == "cuda" else None

    @property
    def block_memory(self) -> Memory | None:
        """The memory that a block's operands pass through; the first where none is named so."""
        for memory in self.memories:
            if "operands" in memory.holds:
                return memory
        return self.memories[0] if self.memories else None

    def _repr_html_(self) -> str:
        from costmodel.markup import table

        rows = [
            (name, found.value, found.confidence, found.source)
            for name, found in sorted(self.evidence.items())
        ]
        head = ("figure", "value", "confidence", "source")
        return table(rows, head, f"{self.name}: {self.model}, {self.units} {self.unit_name}s")

    def peak(self, dtype: str, precision: str | None = None) -> float | None:
        """Peak rate in TFLOPS for operands of ``dtype``, or None where the chip has none.

        ``precision`` matters for fp32 alone; None means tf32 where the chip has it, else ieee.
        "tf32x3" takes three tf32 products for one, so it has a third of the rate.
        """
        if dtype != "fp32":
            return self.peak_tflops.get(dtype)
        if precision is None:
            precision = "tf32" if "tf32" in self.peak_tflops else "ieee"
        if precision not in PRECISIONS:
            raise unknown_name("precision", precision, PRECISIONS)
        rate = self.peak_tflops.get("fp32" if precision == "ieee" else "tf32")
        return rate / 3 if rate is not None and precision == "tf32x3" else rate
