"""A ``@triton.autotune`` GEMM tunes itself, Triton's listener logs it, and a model learns from it.

    python data/results/autotune_log.py FOLDER                 # needs a GPU, and Triton 3.8
    python data/results/autotune_log.py FOLDER --only learn    # from the log that lies there

The kernel and its 28 configurations are those of triton_prune.py, unchanged. Each of its tunings
is appended to FOLDER/autotune.jsonl by ``costmodel.records.exchange.listen``; ``learn`` then fits
models of that kernel (``costmodel train --source triton/gemm``), each without a fifth of the
shapes, and asks what the first choice on these reaches of the best, beside the physics estimate
alone. Writes autotune_log.json, and the rows as ``autotune-000.parquet``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.learning.shares import shares_of, summary
from costmodel.learning.train import fit
from costmodel.physics.estimate import estimate_columns
from costmodel.profile import load_profile
from costmodel.records.exchange import Given, listen
from costmodel.records.groups import groups_of
from costmodel.records.log import RunLog
from costmodel.records.store import read_runs, write_shards

SOURCE = "triton/gemm"
FOLDS = 5
_SIDES = (128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
_DEPTHS = (256, 512, 1024, 2048, 4096, 8192)
#: a product of more than this many multiplications and additions takes milliseconds a run
_MOST_FLOP = 6e11


def drawn_shapes(count: int, seed: int) -> list[tuple[int, int, int]]:
    """Sizes of whole tiles, so that Triton compiles each configuration once."""
    rng = np.random.default_rng(seed)
    found: dict[tuple[int, int, int], None] = {}
    while len(found) < count:
        m, n, k = (int(rng.choice(sizes)) for sizes in (_SIDES, _SIDES, _DEPTHS))
        if 2.0 * m * n * k <= _MOST_FLOP:
            found[m, n, k] = None
    return list(found)


def tuned(folder: Path, count: int, seed: int, seconds: float) -> None:
    """Let the kernel tune itself on each shape, listened to."""
    import torch
    import triton
    from triton_prune import Search

    properties = torch.cuda.get_device_properties(0)
    given = Given(
        device_name=properties.name, units=properties.multi_processor_count, layout="nt",
        torch=torch.__version__, triton=triton.__version__,
    )  # fmt: skip
    listen(RunLog(folder / "autotune.jsonl"), given)

    def bench(call: Any, quantiles: Any) -> Any:
        return triton.testing.do_bench(call, warmup=5, rep=30, quantiles=quantiles)

    until = time.monotonic() + seconds
    search = Search(folder / "compiled", bench, None)
    for m, n, k in drawn_shapes(count, seed):
        if time.monotonic() > until:
            print(f"stopped after {seconds:.0f} s")
            break
        a = torch.randn(m, k, device="cuda", dtype=torch.float16)
        b = torch.randn(n, k, device="cuda", dtype=torch.float16).t()
        c = torch.empty(m, n, device="cuda", dtype=torch.float16)
        took = search.run(a, b, c)
        print(f"{m}x{n}x{k}: {len(search.measured)} timed in {took:.2f} s", flush=True)


def learned(folder: Path) -> dict[str, Any]:
    """What models that are fitted on four fifths of the shapes choose on the last fifth."""
    frame = read_runs([*folder.glob("autotune*.jsonl"), *folder.glob("autotune*.parquet")])
    frame = frame.drop_duplicates(["run", "sequence"])
    groups = groups_of(frame, source=SOURCE)
    order = np.random.default_rng(0).permutation(len(groups))
    physics, model = [], []
    for fold in range(FOLDS):
        test = [groups[i] for place, i in enumerate(order) if place % FOLDS == fold]
        rest = [groups[i] for place, i in enumerate(order) if place % FOLDS != fold]
        ranker = fit(rest, folds=0)
        for group in test:
            chip = load_profile(group.device)
            found = estimate_columns(group.problem, group.table, chip)
            physics.append(shares_of(group, np.argsort(found.time_us, kind="stable")))
            times = ranker.times_us(group.problem, group.table, chip, found)
            model.append(shares_of(group, np.argsort(times, kind="stable")))
    write_shards(frame, folder, "autotune")
    shares = {"physics": physics, "model": model}
    names = ("device_name", "torch", "triton", "protocol")
    return {
        "kernel": SOURCE,
        "rows": len(frame),
        "shapes": len(groups),
        "folds": FOLDS,
        "first_choice": {name: summary(np.array(s)[:, 0]) for name, s in shares.items()},
        "best_of_3": {name: summary(np.array(s)[:, 1]) for name, s in shares.items()},
        **{name: sorted(frame[name].dropna().unique().tolist()) for name in names},
    }


def main() -> None:
    """Tune, then learn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shapes", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--only", choices=("tune", "learn"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.only != "learn":
        tuned(options.folder, options.shapes, options.seed, options.seconds)
    if options.only != "tune":
        found = learned(options.folder)
        text = json.dumps(found, indent=1) + "\n"
        (options.folder / "autotune_log.json").write_text(text, encoding="utf-8")
        print(text)


if __name__ == "__main__":
    main()
