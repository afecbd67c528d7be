"""What a vendor's kernel says of itself: tile, K step, stages and cluster, read from its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["product", "reduction", "other"]

#: one grammar a family of names: m, n are the tile, k its K step, cm x cn the cluster of blocks.
#: The names are those that cuBLAS, CUTLASS's profiler and Tensile give their kernels; traces wrap
#: some in a C++ type, so a pattern is searched for and ends before the next letter or digit.
_END = r"(?![A-Za-z0-9])"
_GRAMMARS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        (
            "nvjet",
            r"nvjet_(?:sm\d+_)?[a-z0-9]+_(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x(?P<stages>\d+)"
            r"_(?P<cm>\d+)x(?P<cn>\d+)(?:_\w*?)?_(?P<layout>[TN]{3,4})" + _END,
        ),
        (
            "nvjet",
            r"nvjet_sm\d+_[a-z0-9]+_mma_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_(?P<stages>\d+)"
            r"_\w*?_(?P<layout>[TN]{3,4})" + _END,
        ),
        (
            "xmma",
            r"sm\d+_xmma_gemm_\w*?_(?P<layout>[tn]{2})_n_tilesize(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
            r"(?:_stage(?P<stages>\d+))?",
        ),
        (
            "cutlass3x",
            r"cutlass3x_sm\d+_\w*?gemm_\w*?_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
            r"_(?P<cm>\d+)x(?P<cn>\d+)x\d+_(?P<stages>\d+)_(?P<layout>[tn]{2,3})_align\d+",
        ),
        (
            "cutlass",
            r"cutlass_\d+_\w*?gemm_\w*?(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x(?P<stages>\d+)"
            r"_(?P<layout>[tn]{2})_align\d+",
        ),
        (
            "sass",
            r"(?:maxwell|volta|turing|ampere)_\w*?gemm_\w*?(?P<m>\d+)x(?P<n>\d+)"
            r"(?:\w*?_stages_(?P<k>\d+)x(?P<stages>\d+))?\w*?_(?P<layout>[tn]{2})" + _END,
        ),
        ("tensile", r"Cijk_\w*?_MT(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)" + _END),
        ("gemv", r"gemv|gemmSN|gemmk1|dot_kernel"),
    )
)
_SPLIT = re.compile(r"split_?k", re.IGNORECASE)
_REDUCTION = re.compile(r"split_?k_?reduce|reduce\w*_kernel", re.IGNORECASE)


@dataclass(frozen=True)
class VendorKernel:
    """What one name tells; None where it tells nothing.

    ``tile`` is the block's in the vendor's own order. cuBLAS computes column-major products, so
    for a row-major C its first number lies along the problem's N. ``k_step`` is in elements of K,
    ``stages`` the depth of the load pipeline, ``cluster`` in blocks.
    """

    name: str
    family: str
    role: Role
    tile: tuple[int, int] | None = None
    k_step: int | None = None
    stages: int | None = None
    cluster: tuple[int, int] | None = None
    split_k: bool = False
    layout: str | None = None

    def __str__(self) -> str:
        if self.tile is None:
            return _short(self.name)
        text = f"{self.family} {self.tile[0]}x{self.tile[1]}"
        if self.k_step is not None:
            text += f", K step {self.k_step}"
        if self.stages is not None:
            text += f" x {self.stages} stages"
        if self.cluster is not None:
            text += f", cluster {self.cluster[0]}x{self.cluster[1]}"
        return text + (", split K" if self.split_k else "")


def parse_kernel_name(name: str) -> VendorKernel:
    """Read a GPU kernel's name, as a profiler prints it. Never raises: an unknown one is "other".

    >>> str(parse_kernel_name("nvjet_tst_192x192_64x3_2x1_v_bz_TNN"))
    'nvjet 192x192, K step 64 x 3 stages, cluster 2x1'
    """
    split = _SPLIT.search(name) is not None
    if _REDUCTION.search(name):
        return VendorKernel(name, "reduction", "reduction", split_k=split)
    for family, grammar in _GRAMMARS:
        found = grammar.search(name)
        if found:
            told = found.groupdict()
            return VendorKernel(
                name, family, "product", _pair(told, "m", "n"), _number(told, "k"),
                _number(told, "stages"), _pair(told, "cm", "cn"), split, _layout(told),
            )  # fmt: skip
    return VendorKernel(name, "other", "other", split_k=split)


def _number(told: Mapping[str, str | None], key: str) -> int | None:
    """A count that the name gives; 0 stages means that the kernel chose them itself."""
    text = told.get(key)
    return int(text) or None if text else None


def _pair(told: Mapping[str, str | None], one: str, two: str) -> tuple[int, int] | None:
    first, second = _number(told, one), _number(told, two)
    return None if first is None or second is None else (first, second)


def _layout(told: Mapping[str, str | None]) -> str | None:
    text = told.get("layout")
    return text.lower() if text else None


def _short(name: str) -> str:
    """The name without C++'s return type, template arguments and parameters."""
    bare = re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0]
    return bare if len(bare) <= 60 else bare[:57] + "..."


@dataclass(frozen=True)
class VendorLaunch:
    """One launch in a trace: the kernel, its grid and block in CUDA's order, its time in us."""

    kernel: VendorKernel
    grid: tuple[int, ...]
    block: tuple[int, ...]
    time_us: float

    def __str__(self) -> str:
        grid = "x".join(map(str, self.grid))
        return f"{self.kernel}; grid {grid}, {self.time_us:.2f} us warm"


@dataclass(frozen=True)
class VendorGemm:
    """Every kernel that the vendor's library launched for one problem, in order."""

    launches: tuple[VendorLaunch, ...]

    @property
    def product(self) -> VendorKernel | None:
        """The kernel that multiplies: the longest of those whose name says that they do."""
        products = [launch for launch in self.launches if launch.kernel.role == "product"]
        return max(products, key=lambda launch: launch.time_us).kernel if products else None

    @property
    def tile(self) -> tuple[int, int] | None:
        return self.product.tile if self.product else None

    @property
    def split_k(self) -> bool:
        return any(launch.kernel.split_k for launch in self.launches)

    def __str__(self) -> str:
        """A line a launch; times are of a warm L2, as the profiler saw them."""
        return "\n".join(f"vendor: {launch}" for launch in self.launches)

    def as_dict(self) -> dict[str, Any]:
        return {
            "tile": self.tile,
            "split_k": self.split_k,
            "kernels": [
                {
                    "name": launch.kernel.name,
                    "family": launch.kernel.family,
                    "role": launch.kernel.role,
                    "tile": launch.kernel.tile,
                    "k_step": launch.kernel.k_step,
                    "stages": launch.kernel.stages,
                    "cluster": launch.kernel.cluster,
                    "split_k": launch.kernel.split_k,
                    "grid": launch.grid,
                    "block": launch.block,
                    "time_us": launch.time_us,
                }
                for launch in self.launches
            ],
        }


def launches_of(trace: Iterable[Mapping[str, Any]]) -> tuple[VendorLaunch, ...]:
    """GPU kernels among the events of a torch profiler's Chrome trace, by start time.

    Kineto writes them with category "kernel", "dur" in microseconds and the launch's shape in
    "args"; copies and fills have other categories.
    """
    kernels = [event for event in trace if event.get("cat") == "kernel"]
    found = []
    for event in sorted(kernels, key=lambda event: float(event["ts"])):
        shape = event.get("args", {})
        found.append(
            VendorLaunch(
                parse_kernel_name(event["name"]),
                tuple(shape.get("grid", ())),
                tuple(shape.get("block", ())),
                float(event["dur"]),
            )
        )
    return tuple(found)
