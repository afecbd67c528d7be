"""Draw the shapes on which our kernels meet the vendor's: writes ``vendor.csv``.

Seven sets, in this order: "flagos" (every shape of one public model's serving log), "mixed" (drawn
with a seed from two public lists), "small_m", "large", "long_k", "odd" and "fp8".
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SEED = 20261130
MIXED = 150
FLAGOS_SOURCE = "FlagOSTune/Qwen3.5-35B-A3B-p32768d1024:mm"
#: (N, K) of layers: Llama 3 8B and 70B, Qwen 2.5 7B, DeepSeek V3
SMALL_M_LAYERS = (
    (4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (10240, 8192),
    (3584, 18944), (37888, 3584), (7168, 2048), (2112, 7168),
)  # fmt: skip
LONG_K = (
    (64, 64, 4096), (128, 128, 65536), (512, 512, 8192), (256, 256, 32768), (384, 640, 16384),
    (96, 496, 40640), (512, 8, 500000), (32, 32, 8192), (416, 304, 27008), (128, 512, 16384),
    (1024, 1024, 16384), (200, 300, 12000),
)  # fmt: skip
ODD = (
    (4095, 4097, 4096 + 1), (1001, 999, 777), (333, 7169, 2047), (127, 4099, 4095),
    (2055, 1281, 5121), (35, 8457, 2563), (511, 513, 8191), (1255, 225, 3845),
    (2367, 3423, 73), (15, 4095, 4097), (5125, 701, 2049), (257, 3841, 1281),
)  # fmt: skip
FP8 = (
    (64, 2112, 7168), (64, 24576, 1536), (64, 7168, 16384), (128, 4096, 7168), (128, 7168, 2048),
    (4096, 4096, 7168), (4096, 7168, 16384), (4096, 24576, 1536), (16, 4096, 4096),
    (512, 8192, 8192), (8192, 8192, 8192), (2048, 1280, 8192),
)  # fmt: skip

Line = tuple[str, int, int, int, str, str, str]


def _rows(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _mixed() -> list[tuple[int, int, int, str, str]]:
    """150 distinct shapes of both lists. Their layouts are of column-major BLAS or of torch:
    "NN" is taken as row-major nn, every other as nt, a linear layer's.
    """
    found: dict[tuple[int, int, int], tuple[int, int, int, str, str]] = {}
    for name in ("llm_bench.csv", "deepbench.csv"):
        for row in _rows(name):
            m, n, k = (int(row[axis]) for axis in "mnk")
            layout = "nn" if row["layout"] == "NN" else "nt"
            found.setdefault((m, n, k), (m, n, k, layout, row["source"]))
    every = list(found.values())
    chosen = np.random.default_rng(SEED).choice(len(every), size=MIXED, replace=False)
    return [every[i] for i in sorted(chosen)]


def lines() -> Iterator[Line]:
    """Every row of the file: set, m, n, k, dtype, layout, source."""
    for row in _rows("flagos.csv"):
        if row["source"] == FLAGOS_SOURCE:
            yield "flagos", int(row["m"]), int(row["n"]), int(row["k"]), "bf16", "nt", FLAGOS_SOURCE
    for m, n, k, layout, source in _mixed():
        yield "mixed", m, n, k, "fp16", layout, source
    for n, k in SMALL_M_LAYERS:
        for m in (1, 2, 4, 8, 16):
            yield "small_m", m, n, k, "fp16", "nt", "layers of current models"
    for m, n, k in ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 11008, 4096)):
        yield "large", m, n, k, "fp16", "nt", "large"
    for m, n, k in LONG_K:
        yield "long_k", m, n, k, "fp16", "nt", "chosen: K >= 16 max(M, N)"
    for index, (m, n, k) in enumerate(ODD):
        yield "odd", m, n, k, "fp16", "nn" if index % 2 else "nt", "chosen: no multiple of 8"
    for m, n, k in FP8:
        yield "fp8", m, n, k, "fp8_e4m3", "nt", "DeepGEMM's and layers"


def main() -> None:
    """Write the file."""
    with (HERE / "vendor.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("family", "m", "n", "k", "dtype", "layout", "source"))
        writer.writerows(lines())


if __name__ == "__main__":
    main()
