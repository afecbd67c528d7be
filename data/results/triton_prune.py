"""A public-style ``@triton.autotune`` GEMM: its full search against our prune, over 20 shapes.

``python data/results/triton_prune.py --out data/results`` needs a GPU that Triton supports and
writes ``triton_prune_<device>.csv``, a row a shape as it goes; shapes that stand there already are
not run again. Both searches run in one process on two copies of one kernel, so that each pays for
its own compilations, each with an empty folder of compiled kernels. ``fraction`` is the time of the
full search's best over the time of the pruned search's choice, both timed again in turns.
``TRITON_INTERPRET=1 python data/results/triton_prune.py --dry-run --profile h200-sxm`` takes tiny
shapes through every step on a CPU; its times mean nothing.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import costmodel

SHAPES = (
    (4096, 4096, 4096), (8192, 8192, 8192), (2048, 2048, 2048), (1024, 1024, 1024),
    (512, 512, 512), (512, 512, 8192), (3000, 3000, 3000), (1000, 1000, 1000),
    (4096, 11008, 4096), (512, 4096, 14336), (128, 6144, 4096), (64, 4096, 14336),
    (16, 4096, 4096), (32, 7168, 2048), (333, 7168, 2048), (777, 6144, 5120),
    (2056, 1280, 5120), (8192, 1024, 8192), (128, 128, 16384), (4096, 4096, 128),
)  # fmt: skip
#: (BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, num_stages, num_warps): what such lists hold
CONFIGS = (
    (128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (256, 64, 64, 4, 4), (64, 256, 64, 4, 4),
    (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4),
    (128, 32, 32, 4, 4), (64, 32, 32, 5, 2), (32, 64, 32, 5, 2), (128, 256, 128, 3, 8),
    (256, 128, 128, 3, 8), (256, 64, 128, 4, 4), (64, 256, 128, 4, 4), (128, 128, 64, 3, 8),
    (128, 128, 64, 4, 4), (128, 128, 128, 3, 8), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4),
    (64, 64, 64, 5, 4), (64, 64, 128, 4, 4), (32, 128, 64, 5, 4), (128, 32, 64, 4, 4),
    (32, 32, 128, 5, 2), (16, 128, 128, 5, 4), (16, 64, 128, 6, 4), (128, 256, 64, 4, 4),
)  # fmt: skip
COLUMNS = (
    "m", "n", "k", "dtype", "configs", "full_measured", "pruned_measured", "full_tuning_s",
    "pruned_tuning_s", "full_best", "pruned_best", "full_best_us", "pruned_best_us", "fraction",
    "vendor_us", "error", "device", "triton", "torch", "timestamp",
)  # fmt: skip


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of the CSV")
    parser.add_argument("--top-k", type=int, default=6, help="configurations that ours measures")
    parser.add_argument("--seconds", type=float, default=480.0, help="start no shape after this")
    parser.add_argument("--profile", default=None, help="chip; the GPU at hand by default")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes, interpreted")
    return parser.parse_args()


def gemm(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):  # fmt: skip
    """C = A B in fp16 with fp32 sums, tiles in groups of rows: as tutorials have it."""
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_SIZE_M), tl.cdiv(N, BLOCK_SIZE_N)
    in_group = GROUP_SIZE_M * tiles_n
    first = pid // in_group * GROUP_SIZE_M
    rows_here = min(tiles_m - first, GROUP_SIZE_M)
    tile_m = first + (pid % in_group) % rows_here
    tile_n = (pid % in_group) // rows_here
    rows = (tile_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    cols = (tile_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    ks = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    sums = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_SIZE_K)):
        left = K - step * BLOCK_SIZE_K
        a = tl.load(a_ptrs, mask=ks[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=ks[:, None] < left, other=0.0)
        sums = tl.dot(a, b, sums)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    out_rows = tile_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    out_cols = tile_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_ptrs = c_ptr + out_rows[:, None] * stride_cm + out_cols[None, :] * stride_cn
    inside = (out_rows[:, None] < M) & (out_cols[None, :] < N)
    tl.store(c_ptrs, sums.to(tl.float16), mask=inside)


def wall_clock(call: Callable[[], Any], quantiles: tuple[float, ...]) -> list[float]:
    """Stands for ``do_bench`` where there is no GPU: one call's wall time in milliseconds."""
    begun = time.perf_counter()
    call()
    return [(time.perf_counter() - begun) * 1e3] * len(quantiles)


class Search:
    """A tuner over its own copy of the kernel, with its own folder of compiled kernels."""

    def __init__(self, folder: Path, bench: Any, prune: dict[str, Any] | None) -> None:
        configs = [
            triton.Config(
                {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8},
                num_stages=stages, num_warps=warps,
            )
            for m, n, k, stages, warps in CONFIGS
        ]  # fmt: skip
        self.folder = folder
        self.jit = triton.jit(gemm)
        self.tuned = triton.autotune(
            configs, ["M", "N", "K"], prune_configs_by=prune, do_bench=bench
        )(self.jit)

    def run(self, a: Any, b: Any, c: Any) -> float:
        """Tune for these operands; seconds that it took, compilations and all."""
        triton.knobs.cache.dir = str(self.folder)
        begun = time.perf_counter()
        self.launch(self.tuned, a, b, c)
        return time.perf_counter() - begun

    @property
    def measured(self) -> dict[Any, float]:
        """Milliseconds of every configuration that ran in the last search."""
        times = {config: found[0] for config, found in self.tuned.configs_timings.items()}
        return {config: time_ms for config, time_ms in times.items() if math.isfinite(time_ms)}

    @staticmethod
    def launch(kernel: Any, a: Any, b: Any, c: Any, **more: Any) -> None:
        """One product by a tuner, or by a kernel with a configuration's knobs."""
        (m, k), n = a.shape, b.shape[1]

        def grid(meta: dict[str, int]) -> tuple[int]:
            return (triton.cdiv(m, meta["BLOCK_SIZE_M"]) * triton.cdiv(n, meta["BLOCK_SIZE_N"]),)

        kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), **more)


def operands(shape: tuple[int, int, int], device: str) -> tuple[Any, Any, Any]:
    """A, B as a transposed view, and C; the same in each process."""
    m, n, k = shape
    generator = torch.Generator(device=device).manual_seed(0)
    a = torch.randn(m, k, device=device, dtype=torch.float32, generator=generator).half()
    b = torch.randn(n, k, device=device, dtype=torch.float32, generator=generator).half().t()
    return a, b, torch.empty(m, n, device=device, dtype=torch.float16)


def append(path: Path, columns: Sequence[str], row: dict[str, Any]) -> None:
    """One more row of a CSV file, with the time of day; the first brings the header."""
    row |= {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    with path.open("a", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns)
        if stream.tell() == 0:
            writer.writeheader()
        writer.writerow(row)


def compared(
    shape: tuple[int, int, int], full: Search, pruned: Search, bench: Any, device: str
) -> dict[str, Any]:
    """Both searches on one shape, and their choices timed again in turns."""
    m, n, k = shape
    a, b, c = operands(shape, device)
    pruned_s = pruned.run(a, b, c)
    full_s = full.run(a, b, c)
    best = {"full": full.tuned.best_config, "pruned": pruned.tuned.best_config}
    again: dict[str, list[float]] = {name: [] for name in (*best, "vendor")}
    for _ in range(3):
        for name, config in best.items():
            search = full if name == "full" else pruned
            triton.knobs.cache.dir = str(search.folder)
            knobs = config.all_kwargs()
            call = lambda s=search, kw=knobs: s.launch(s.jit, a, b, c, **kw)  # noqa: E731
            again[name].append(bench(call, quantiles=(0.5, 0.2, 0.8))[0])
        again["vendor"].append(bench(lambda: torch.matmul(a, b), quantiles=(0.5, 0.2, 0.8))[0])
    times = {name: statistics.median(found) * 1e3 for name, found in again.items()}
    pruned.launch(pruned.tuned, a, b, c)
    exact = a.float() @ b.float()
    error = float((c.float() - exact).norm() / exact.norm())
    return {
        "m": m, "n": n, "k": k, "dtype": "fp16", "configs": len(CONFIGS),
        "full_measured": len(full.measured), "pruned_measured": len(pruned.measured),
        "full_tuning_s": round(full_s, 3), "pruned_tuning_s": round(pruned_s, 3),
        "full_best": str(best["full"]), "pruned_best": str(best["pruned"]),
        "full_best_us": round(times["full"], 3), "pruned_best_us": round(times["pruned"], 3),
        "fraction": 1.0 if best["full"] == best["pruned"]
        else round(times["full"] / times["pruned"], 4),
        "vendor_us": round(times["vendor"], 3), "error": f"{error:.2e}",
    }  # fmt: skip


def main() -> None:
    """Compare shape after shape, appending as it goes."""
    options = arguments()
    dry = options.dry_run
    if dry and os.environ.get("TRITON_INTERPRET") != "1":
        raise SystemExit("--dry-run interprets the kernels: set TRITON_INTERPRET=1")
    if not dry and not torch.cuda.is_available():
        raise SystemExit("this needs a GPU; --dry-run takes its steps without one")
    device = "cpu" if dry else "cuda"
    name = "dry-run" if dry else torch.cuda.get_device_name()
    bench = wall_clock if dry else triton.testing.do_bench
    shapes = [(64, 96, 64), (33, 64, 80)] if dry else list(SHAPES)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"triton_prune_{name.replace(' ', '-').lower()}.csv"
    done = set()
    if path.exists():
        with path.open(newline="", encoding="utf-8") as stream:
            done = {tuple(int(row[x]) for x in "mnk") for row in csv.DictReader(stream)}
    until = time.monotonic() + options.seconds
    facts = {"device": name, "triton": triton.__version__, "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / part for part in ("full", "pruned")]
        prune = costmodel.triton_prune(options.top_k, profile=options.profile)
        full, pruned = Search(folders[0], bench, None), Search(folders[1], bench, prune)
        for shape in shapes:
            if shape in done:
                continue
            if time.monotonic() > until:
                print(f"stopped after {options.seconds:.0f} s; run again for the rest")
                break
            try:
                row = compared(shape, full, pruned, bench, device)
            except (RuntimeError, ValueError) as error:  # one shape's fault is not the others'
                print(f"{shape}: {type(error).__name__}: {str(error)[:300]}")
                continue
            append(path, COLUMNS, row | facts)
            print(
                f"{shape}: {row['fraction']:.3f} of its own best, {row['pruned_tuning_s']} s "
                f"against {row['full_tuning_s']} s",
                flush=True,
            )
    summary(path)


def summary(path: Path) -> None:
    """Fractions and tuning times over all shapes in the file."""
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    shares = [float(row["fraction"]) for row in rows]
    full, pruned = (sum(float(row[f"{x}_tuning_s"]) for row in rows) for x in ("full", "pruned"))
    print(
        f"{len(rows)} shapes: geometric mean {statistics.geometric_mean(shares):.3f}, worst "
        f"{min(shares):.3f}; tuning {pruned:.1f} s against {full:.1f} s"
    )


if __name__ == "__main__":
    main()
