"""FlagGems' own GEMM under its own tuner: the default policy against ours, over 20 shapes.

``python data/results/flag_gems_policy.py --out data/results`` needs a GPU and ``pip install
flag-gems``, and writes ``flag_gems_<device>.csv``, a row a shape as it goes; shapes that stand
there already are not run again. The kernel (``flag_gems.ops.mm.mm_kernel_general``), its list of
configurations (``runtime.get_tuned_config("mm")``) and ``libtuner`` are FlagGems', unchanged. Each
policy tunes in a process of its own, with an empty database and an empty folder of compiled
kernels, since FlagGems keeps one result for both otherwise. ``fraction`` is the time of the default
policy's choice over that of ours, both timed again in turns.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triton_prune import SHAPES, append, operands, summary

POLICIES = ("default", "costmodel")
#: what FlagGems passes beside the knobs that its list names
GROUP_M = 8
COLUMNS = (
    "m", "n", "k", "dtype", "configs", "full_measured", "pruned_measured", "full_tuning_s",
    "pruned_tuning_s", "full_best", "pruned_best", "full_best_us", "pruned_best_us", "fraction",
    "vendor_us", "error", "device", "flag_gems", "triton", "torch", "timestamp",
)  # fmt: skip


def kernel_and_configs() -> tuple[Any, list[Any]]:
    """FlagGems' kernel without its tuner, and the list that the tuner chooses from."""
    import triton
    from flag_gems import runtime
    from flag_gems.ops.mm import mm_kernel_general

    kernel = mm_kernel_general
    while not isinstance(kernel, triton.runtime.JITFunction):
        kernel = kernel.fn
    return kernel, runtime.get_tuned_config("mm")


def launch(kernel: Any, a: Any, b: Any, c: Any, **more: Any) -> None:
    """One product, as ``flag_gems.ops.mm.general_mm`` launches it."""
    import triton

    (m, k), n = a.shape, b.shape[1]

    def grid(meta: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    more = {"GROUP_M": GROUP_M} | more
    kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), **more)


def tune(
    policy: str, top_k: int, shapes: list[tuple[int, int, int]], seconds: float
) -> Iterator[dict[str, Any]]:
    """In a process of its own: what a policy chooses for each shape, and how long it takes."""
    from flag_gems.utils import libtuner

    if policy == "costmodel":
        from costmodel.dropin.flag_gems import register_policy

        register_policy(policy, top_k=top_k)
    kernel, configs = kernel_and_configs()
    tuned = libtuner(
        configs=configs, key=["M", "N", "K", "stride_am", "stride_bk"],
        strategy=["align32"] * 5, warmup=5, rep=10, policy=policy,
    )(kernel)  # fmt: skip
    until = time.monotonic() + seconds
    for shape in shapes:
        if time.monotonic() > until:
            return
        a, b, c = operands(shape, "cuda")
        begun = time.perf_counter()
        launch(tuned, a, b, c)
        yield {
            "shape": shape,
            "seconds": time.perf_counter() - begun,
            "measured": len(tuned.configs_timings),
            "configs": len(configs),
            "best": tuned.best_config.all_kwargs(),
        }


def tuned_apart(
    policy: str, options: argparse.Namespace, shapes: list[tuple[int, int, int]]
) -> dict[tuple[int, int, int], dict[str, Any]]:
    """``tune`` in a fresh process, as far as it came."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = {
            "FLAGGEMS_DB_URL": f"sqlite:///{folder}/tuned.db",
            "FLAGGEMS_CACHE_DIR": f"{folder}/gems",
            "TRITON_CACHE_DIR": f"{folder}/compiled",
        }
        command = [
            sys.executable, __file__, "--policy", policy, "--top-k", str(options.top_k),
            "--shapes", json.dumps(shapes), "--seconds", str(options.seconds),
        ]  # fmt: skip
        done = subprocess.run(
            command, env=os.environ | fresh, stdout=subprocess.PIPE, text=True, encoding="utf-8",
        )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        print(f"{policy}: ended with {done.returncode} after {len(lines)} shapes")
    return {tuple(line["shape"]): line for line in lines}


def compared(shape: tuple[int, int, int], found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Both choices timed again in turns, and the result of ours against torch's."""
    import torch
    import triton

    kernel, _ = kernel_and_configs()
    a, b, c = operands(shape, "cuda")
    calls = {
        name: lambda knobs=entry["best"]: launch(kernel, a, b, c, **knobs)
        for name, entry in found.items()
    } | {"vendor": lambda: torch.matmul(a, b)}
    again: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(3):
        for name, call in calls.items():
            again[name].append(triton.testing.do_bench(call, quantiles=[0.5]))
    times = {name: statistics.median(some) * 1e3 for name, some in again.items()}
    calls["costmodel"]()
    exact = a.float() @ b.float()
    full, ours = (found[name] for name in POLICIES)
    same = full["best"] == ours["best"]
    return {
        "m": shape[0], "n": shape[1], "k": shape[2], "dtype": "fp16", "configs": full["configs"],
        "full_measured": full["measured"], "pruned_measured": ours["measured"],
        "full_tuning_s": round(full["seconds"], 3), "pruned_tuning_s": round(ours["seconds"], 3),
        "full_best": json.dumps(full["best"]), "pruned_best": json.dumps(ours["best"]),
        "full_best_us": round(times["default"], 3), "pruned_best_us": round(times["costmodel"], 3),
        "fraction": 1.0 if same else round(times["default"] / times["costmodel"], 4),
        "vendor_us": round(times["vendor"], 3),
        "error": f"{float((c.float() - exact).norm() / exact.norm()):.2e}",
    }  # fmt: skip


def main() -> None:
    """Tune by both policies, compare their choices, append a row a shape."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of the CSV")
    parser.add_argument("--top-k", type=int, default=6, help="configurations that ours measures")
    parser.add_argument("--seconds", type=float, default=200.0, help="tune none after, by either")
    parser.add_argument("--policy", choices=POLICIES, help="only tune by this one, and print")
    parser.add_argument("--shapes", type=json.loads, default=SHAPES, help="a JSON list of [M,N,K]")
    options = parser.parse_args()
    shapes = [tuple(shape) for shape in options.shapes]
    if options.policy:
        for line in tune(options.policy, options.top_k, shapes, options.seconds):
            print(json.dumps(line), flush=True)
        return
    import flag_gems
    import torch
    import triton

    device = torch.cuda.get_device_name()
    path = options.out / f"flag_gems_{device.replace(' ', '-').lower()}.csv"
    if path.exists():
        with path.open(newline="", encoding="utf-8") as stream:
            done = {tuple(int(row[x]) for x in "mnk") for row in csv.DictReader(stream)}
        shapes = [shape for shape in shapes if shape not in done]
    tuned = {policy: tuned_apart(policy, options, shapes) for policy in POLICIES[::-1]}
    facts = {
        "device": device, "flag_gems": flag_gems.__version__, "triton": triton.__version__,
        "torch": torch.__version__,
    }  # fmt: skip
    for shape in shapes:
        if not all(shape in tuned[policy] for policy in POLICIES):
            continue
        row = compared(shape, {policy: tuned[policy][shape] for policy in POLICIES})
        append(path, COLUMNS, row | facts)
        print(f"{shape}: {row['fraction']:.3f} of the default policy's", flush=True)
    summary(path)


if __name__ == "__main__":
    main()
