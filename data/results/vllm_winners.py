"""Where vLLM's tuned configurations stand in our estimate: writes ``vllm_winners.csv``.

``vllm_tuned.csv`` holds, by chip, kernel and M, the configuration that vLLM's own tuning found
fastest on the device and ships (vllm-project/vllm, quantization/utils/configs and
fused_moe/configs, Apache License 2.0). Each row is taken as one plain product of that type, A
[M, K] and B stored [N, K], template "tile", and ranked by the physics estimate alone among the
grid that the table's own values span, as far as it fits the chip. A tuned kernel does more than a
plain product (it multiplies by the scales of 128 x 128 blocks, or gathers rows), so this asks for
the neighbourhood of the winner, not for its place. ``python data/results/vllm_winners.py``
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import costmodel as cm
from costmodel.config import ConfigTable
from costmodel.physics.estimate import estimate_columns

HERE = Path(__file__).parent
#: the table's chips and types as ours
CHIPS = {
    "A100-SXM4-80GB": "a100-sxm-80gb", "H100-SXM": "h100-sxm", "H200": "h200-sxm",
    "MI300X": "mi300x", "RTX4090": "rtx-4090",
}  # fmt: skip
TYPES = {"fp8": "fp8_e4m3", "int8": "int8", "moe_bf16": "bf16"}
#: a block of scales is 128 deep: a step of K lies within one
SCALE_BLOCK = 128
#: fused MoE's files do not name K: that of models with this N (Mixtral's hidden size)
ASSUMED_K = 4096
#: AMD's files do not name stages: what vLLM's AMD kernels are launched with
ASSUMED_STAGES = 2
KNOBS = ("block_m", "block_n", "block_k", "group_m", "num_warps", "num_stages")


def problem_of(row: dict[str, str]) -> cm.Gemm:
    """The plain product that a row's kernel is taken for."""
    dtype = next(ours for theirs, ours in TYPES.items() if row["kind"].startswith(theirs))
    if dtype.startswith("fp8") and row["device"] == "MI300X":
        dtype += "fnuz"
    return cm.Gemm(int(row["M"]), int(row["N"]), int(row["K"] or ASSUMED_K), dtype=dtype)


def grid_of(rows: list[dict[str, str]], row: dict[str, str]) -> ConfigTable:
    """Every combination of the whole table's values that a row's kernel could have taken."""
    values: dict[str, Any] = {
        knob: sorted({int(each[knob]) for each in rows if each[knob] != "-"}) for knob in KNOBS
    }
    if "blk" in row["kind"]:
        values["block_k"] = [k for k in values["block_k"] if SCALE_BLOCK % k == 0]
    if row["num_stages"] == "-":
        values["num_stages"] = ASSUMED_STAGES
    return ConfigTable.grid(
        template="tile", split_k=1, load_bits=128, swap=False, epilogue_parts=1, **values
    )


def place(rows: list[dict[str, str]], row: dict[str, str]) -> dict[str, Any]:
    """Where the winner stands: equal estimates share their mean rank."""
    chip, problem = cm.load_profile(CHIPS[row["device"]]), problem_of(row)
    table, _ = cm.prune(problem, grid_of(rows, row), chip)
    time_us = estimate_columns(problem, table, chip).time_us
    told = {knob: row[knob] if row[knob] != "-" else ASSUMED_STAGES for knob in KNOBS}
    same = np.logical_and.reduce([getattr(table, knob) == int(told[knob]) for knob in KNOBS])
    found: dict[str, Any] = dict(row) | {"profile": chip.name, "candidates": len(table)}
    if not same.any():
        return found | {"rank": "", "percentile": "", "over_best": ""}
    winner = time_us[same][0]
    equal = int((time_us == winner).sum())
    rank = int((time_us < winner).sum()) + (equal + 1) / 2
    return found | {
        "rank": rank, "percentile": round(100 * rank / len(table), 2),
        "over_best": round(float(winner / time_us.min()), 4),
    }  # fmt: skip


def main() -> None:
    """Rank every row, write them, print the summary."""
    with (HERE / "vllm_tuned.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    found = [place(rows, row) for row in rows]
    with (HERE / "vllm_winners.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    summary(found)


def summary(found: list[dict[str, Any]]) -> None:
    """Print a line a chip and kernel, and one for all."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        groups[f"{row['profile']} {row['kind']}"].append(row)
    groups["all"] = found
    print("| winners of | rows | unfit | median percentile | in the top 25 % | in the first ten |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, part in groups.items():
        ranked = [row for row in part if row["rank"] != ""]
        places = np.array([row["percentile"] for row in ranked], dtype=float)
        near = np.mean([float(row["rank"]) <= 10 for row in ranked])
        print(
            f"| {name} | {len(part)} | {len(part) - len(ranked)} | {np.median(places):.1f} | "
            f"{np.mean(places <= 25):.0%} | {near:.0%} |"
        )


if __name__ == "__main__":
    main()
