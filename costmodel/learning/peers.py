"""What other tools would have chosen, found again among a problem's measured rows."""

from __future__ import annotations

import csv
import importlib
import importlib.util
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable, KernelConfig
from costmodel.paths import packaged
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.ranking.baselines import default_config, nearest_row
from costmodel.records.groups import Group

Rows = NDArray[np.int64]
Way = Callable[[Group], Rows]

_LIBRARY = "nvMatmulHeuristics"
#: configurations that nvMatmulHeuristics is asked for
_ASKED = 8
#: its letters for A and B, sums, C; for fp8: A, B, C's source, sums, C
_PRECISION = {"fp16": "HSH", "bf16": "TST", "fp8_e4m3": "QQTST", "fp8_e5m2": "RRTST"}


@lru_cache(maxsize=2)
def _inductor_lists(op: str) -> tuple[KernelConfig, ...]:
    text = packaged("peers", "inductor_mm.csv").read_text(encoding="utf-8")
    knobs = ("block_m", "block_n", "block_k", "num_stages", "num_warps", "group_m")
    found = []
    for row in csv.DictReader(text.splitlines()):
        if row["op"] != op:
            continue
        m, n, k, stages, warps, group = (int(row[name]) for name in knobs)
        found.append(
            KernelConfig(row["template"], m, n, k, group, num_warps=warps, num_stages=stages)
        )
    return tuple(found)


def inductor_configs(problem: Gemm, template: str = "tile") -> list[KernelConfig]:
    """What PyTorch Inductor's max-autotune times for a problem, in its order, each once.

    ``data/peers/inductor_mm.csv`` holds the lists (torch 2.13), those of ``mm`` and, for fp8, of
    ``scaled_mm``: "tile" is the default one, "persistent_tma" joins it only where
    ``triton.enable_persistent_tma_matmul`` is set. As Inductor does, a block is cut to its side
    rounded up to a power of two, but not below 16, and a warp has at least 256 elements of C.
    """
    found: dict[KernelConfig, None] = {}
    for config in _inductor_lists("scaled_mm" if problem.dtype.startswith("fp8") else "mm"):
        if config.template != template:
            continue
        sides = ((config.block_m, problem.m), (config.block_n, problem.n),
                 (config.block_k, problem.k))  # fmt: skip
        m, n, k = (min(block, max(16, 1 << (side - 1).bit_length())) for block, side in sides)
        assert config.num_warps is not None
        warps = min(config.num_warps, m * n // 256)
        found[KernelConfig(template, m, n, k, group_m=config.group_m, num_warps=warps,
                           num_stages=config.num_stages)] = None  # fmt: skip
    return list(found)


def inductor_first(group: Group) -> Rows:
    """The row nearest to the list's first entry."""
    return np.array([nearest_row(group.table, inductor_configs(group.problem)[0])])


def inductor_best(group: Group, templates: Iterable[str] = ("tile",)) -> Rows:
    """The fastest of the rows nearest to each entry: what timing the whole list would choose.

    An entry's own row may not have been measured; the nearest of its template stands for it.
    Entries of a template of which the problem has no row (descriptors need aligned rows) are left
    out. Inductor times ATen's GEMM too, and cuts a long K in parts: these are its Triton lists
    alone.
    """
    present = [name for name in templates if group.table.is_template(name).any()]
    entries = [c for name in present or ["tile"] for c in inductor_configs(group.problem, name)]
    rows = np.unique([nearest_row(group.table, entry) for entry in entries])
    return rows[[int(np.argmin(group.time_us[rows]))]]


def inductor_ways() -> dict[str, Way]:
    """Inductor's list: its first entry, all of it, and all of it with the list for descriptors."""
    both = ("tile", "persistent_tma")
    return {
        "inductor_first": inductor_first,
        "inductor_list": inductor_best,
        "inductor_list_with_tma": lambda group: inductor_best(group, both),
    }


def nvmatmul_ways(groups: Iterable[Group], chip: HardwareProfile) -> dict[str, Way]:
    """First choice and best of the first 8 of nvMatmulHeuristics; empty where it cannot answer.

    NVIDIA's package ``nvidia-matmul-heuristics`` (its licence forbids shipping it) answers where it
    is installed, for chips that it names and for fp16, bf16 and fp8. It is asked for Triton's
    kernels; its own predicted times order its answers. Where it has none for a problem, the
    starting table answers.
    """
    if importlib.util.find_spec(_LIBRARY) is None:
        return {}
    library: Any = importlib.import_module(_LIBRARY)
    name = chip.name.replace("-", "_").upper()
    known = name in library.NvMatmulHeuristicsNvidiaGpu.__members__
    if not known or any(group.problem.dtype not in _PRECISION for group in groups):
        return {}
    # the plain interface crashes the interpreter when it is freed (0.1.0.27); this one does not
    asked = library.NvMatmulHeuristicsInterfaceEx(
        backend=library.NvMatmulHeuristicsTarget.TRITON,
        flags=library.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=library.NvMatmulHeuristicsNvidiaGpu[name],
    )

    def answers(group: Group, count: int) -> Rows:
        problem = group.problem
        layout = library.NvMatmulHeuristicsMatmulLayout[f"{problem.layout.upper()}_ROW_MAJOR"]
        question = asked.makeNvMatmulHeuristicsProblem(problem.m, problem.n, problem.k, layout)
        found = asked.get(question, _ASKED, _PRECISION[problem.dtype])
        if not found:
            return np.array([nearest_row(group.table, default_config(problem))])
        first = sorted(found, key=lambda answer: answer["runtime"])[:count]
        rows = np.concatenate([granted_rows(group.table, one["kernel"]) for one in first])
        return rows[[int(np.argmin(group.time_us[rows]))]]

    return {
        "nvmatmul_first": lambda group: answers(group, 1),
        "nvmatmul_best_of_8": lambda group: answers(group, _ASKED),
    }


def granted_rows(table: ConfigTable, kernel: Any) -> Rows:
    """The rows nearest to one of its kernels in all that it names, knobs compared in octaves.

    It names tile, stages, parts of K, order of tiles and the tile of a warp, from which the warps
    follow. What it leaves open (template, swap, epilogue) is granted: the fastest row may count.
    """
    warps = [
        getattr(kernel, f"cta_tile_{side}") / max(getattr(kernel, f"warp_tile_{side}"), 1)
        for side in "mnk"
    ]
    wanted = {
        "block_m": kernel.cta_tile_m, "block_n": kernel.cta_tile_n, "block_k": kernel.cta_tile_k,
        "num_stages": kernel.stages, "split_k": kernel.split_k,
        "group_m": kernel.swizzle_factor, "num_warps": np.prod(warps),
    }  # fmt: skip
    distance = np.zeros(len(table))
    for name, value in wanted.items():
        distance += np.abs(np.log2(np.maximum(getattr(table, name), 1) / max(float(value), 1.0)))
    return np.flatnonzero(distance <= distance.min() + 1e-9)
