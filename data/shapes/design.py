"""Draw the shapes that are measured: run ``python data/shapes/design.py`` to write both files.

``train.csv`` spreads over log M, N, K by family; ``heldout.csv`` is measured exhaustively and
never trained on. No held-out shape lies within 10 % of a training shape in all three dimensions.
Half of each comes from shapes that people published (the other files of this folder), half is
drawn by family, so that no region of the space is empty.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SEED = 20261129
TRAIN, HELDOUT = 340, 48
#: a second round, of the families that a model fitted on the first missed by most
MORE, MORE_FAMILIES = 200, ("odd", "unaligned", "skinny", "odd", "prefill")
#: a third round, of every type and layout: 1,040 shapes to train on and 110 held out
WIDER_TRAIN, WIDER_HELDOUT = 500, 62
WIDER_FAMILIES = (
    "decode", "narrow", "prefill", "long_k", "odd", "skinny", "wave_edge", "unaligned", "cube",
    "flat", "narrow", "prefill", "spread", "odd",
)  # fmt: skip
#: a fourth round, for training: rows that are no multiple of 16 bytes, and so load words of 4 or 8
WORDS_TRAIN, WORDS_FAMILIES = 40, ("words",)
#: longest product, in FLOP: 1.5 ms at the H200's rate, so that a configuration stays cheap
LARGEST_FLOP = 1.2e12
#: exhaustive measuring times every slow configuration too
LARGEST_HELDOUT_FLOP = 3e11
#: (N, K) of layers of current models: Llama 3, Qwen 2.5 and 3, DeepSeek V3, Mixtral, Gemma
LAYERS = (
    (4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (8192, 8192),
    (57344, 8192), (8192, 28672), (3584, 3584), (4608, 3584), (37888, 3584), (3584, 18944),
    (2560, 2560), (1536, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168),
    (7168, 2048), (2112, 7168), (5120, 5120), (1280, 5120), (2304, 2048), (12288, 2048),
    (2048, 4096), (3072, 8192), (16384, 3072), (2880, 4096), (640, 2560), (9216, 2304),
)  # fmt: skip
FAMILIES = (
    "decode", "prefill", "square", "odd", "long_k", "flat", "wave_edge", "unaligned", "spread",
)  # fmt: skip


def log_uniform(rng: np.random.Generator, low: float, high: float) -> int:
    """A whole number between two, every octave as likely as another."""
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def step(value: int, multiple: int) -> int:
    """Round down to a multiple, but not to 0."""
    return max(multiple, value // multiple * multiple)


def draw(family: str, rng: np.random.Generator) -> tuple[int, int, int]:
    """One (m, n, k) of a family."""
    n, k = LAYERS[rng.integers(len(LAYERS))]
    if family == "decode":
        return int(rng.choice([1, 1, 2, 4, 8, 16, 24, 32, 48, 64])), n, k
    if family == "narrow":
        few, many = int(rng.integers(1, 9)), step(log_uniform(rng, 64, 40000), 8)
        return (few, many, k) if rng.random() < 0.6 else (many, few, k)
    if family == "skinny":
        return step(log_uniform(rng, 65, 640), int(rng.choice([1, 2, 8]))), n, k
    if family == "prefill":
        return step(log_uniform(rng, 96, 8192), int(rng.choice([1, 8, 16, 64]))), n, k
    if family == "square":
        size = step(log_uniform(rng, 128, 8192), 64)
        return size, size, size
    if family == "cube":
        size = step(log_uniform(rng, 128, 6000), 8)
        return size, size, size
    if family == "odd":
        return tuple(log_uniform(rng, low, 4000) | 1 for low in (17, 33, 65))  # type: ignore[return-value]
    if family == "long_k":
        small = [step(log_uniform(rng, 32, 768), 16) for _ in range(2)]
        return small[0], small[1], step(log_uniform(rng, 16, 96) * max(small), 64)
    if family == "flat":
        big = [step(log_uniform(rng, 1024, 12288), 128) for _ in range(2)]
        return big[0], big[1], step(log_uniform(rng, 32, 512), 32)
    if family == "wave_edge":
        # just past a whole number of waves of 128x256 or 128x128 tiles on 132 units
        tile = int(rng.choice([128, 256]))
        columns = int(rng.integers(4, 34))
        rows = -(-132 * int(rng.integers(1, 4)) // columns)
        extra = int(rng.choice([0, 8, 64]))
        return 128 * rows + extra, tile * columns, step(log_uniform(rng, 512, 8192), 64)
    if family == "words":
        width = int(rng.choice([2, 4, 4, 4]))
        n = width * (log_uniform(rng, 96, 4096) // width | 1)
        k = step(log_uniform(rng, 256, 8192), 64)
        if rng.random() < 0.3:
            k = width * (k // width | 1)
        return step(log_uniform(rng, 32, 4096), 4), n, k
    if family == "unaligned":
        return tuple(8 * (log_uniform(rng, 8, 512) | 1) for _ in range(3))  # type: ignore[return-value]
    return tuple(step(log_uniform(rng, 16, 12288), 16) for _ in range(3))  # type: ignore[return-value]


def published() -> list[tuple[int, int, int, str]]:
    """Distinct (m, n, k, source) of the published sets."""
    found = {}
    for name in ("llm_bench", "deepbench", "flagos"):
        with (HERE / f"{name}.csv").open(encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                found.setdefault((int(row["m"]), int(row["n"]), int(row["k"])), row["source"])
    return [(*shape, source) for shape, source in sorted(found.items())]


def near(shape: tuple[int, int, int], others: np.ndarray, within: float) -> bool:
    """Whether some other shape differs by at most ``within`` in every dimension."""
    if not len(others):
        return False
    ratio = np.abs(np.log(others / np.asarray(shape)))
    return bool((ratio.max(axis=1) <= np.log1p(within)).any())


def plain_kind(rng: np.random.Generator, shape: tuple[int, int, int]) -> tuple[str, str]:
    """A type and a layout: bf16 runs as fp16 does, and each kernel compiles."""
    layout = "nn" if rng.random() < 0.4 else "nt"
    return "bf16" if layout == "nt" and rng.random() < 0.2 else "fp16", layout


def any_kind(rng: np.random.Generator, shape: tuple[int, int, int]) -> tuple[str, str]:
    """A type and a layout of all that a library multiplies with the matrix unit at full rate."""
    layout = str(rng.choice(["nt", "nn", "tn", "tt"], p=[0.55, 0.25, 0.1, 0.1]))
    # the vendor's fp8 product takes rows of 16 elements and B along K alone
    if layout == "nt" and shape[1] % 16 == 0 and shape[2] % 16 == 0 and rng.random() < 0.4:
        return "fp8_e4m3", layout
    return str(rng.choice(["fp16", "bf16"], p=[0.6, 0.4])), layout


def pick(
    count: int, taken: list, apart: np.ndarray, largest: float, rng, public: list,
    families: tuple[str, ...] = FAMILIES, kind=plain_kind,
) -> list:  # fmt: skip
    """``count`` shapes, half published, no two of them within 3 % and none near ``apart``."""
    chosen: list[dict[str, object]] = []
    order = rng.permutation(len(public))
    position = 0
    while len(chosen) < count:
        if len(chosen) % 2 and position < len(order):
            m, n, k, source = public[order[position]]
            position += 1
            family = "published"
        else:
            family = families[(len(chosen) // 2) % len(families)]
            m, n, k = draw(family, rng)
            source = "drawn"
        shape = (m, n, k)
        own = np.array(taken + [(c["m"], c["n"], c["k"]) for c in chosen], dtype=float)
        if 2.0 * m * n * k > largest or near(shape, own, 0.03) or near(shape, apart, 0.10):
            continue
        dtype, layout = kind(rng, shape)
        chosen.append(
            {
                "m": m, "n": n, "k": k,
                "dtype": dtype, "layout": layout,
                "family": family, "source": source,
            }
        )  # fmt: skip
    return chosen


def write(name: str, rows: list) -> None:
    """Write one set beside this file."""
    with (HERE / name).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Draw both sets, a round's held-out shapes first: the other set keeps away from them."""
    rng = np.random.default_rng(SEED)
    public = published()
    none = np.empty((0, 3))
    heldout = pick(HELDOUT, [], none, LARGEST_HELDOUT_FLOP, rng, public)
    apart = np.array([(r["m"], r["n"], r["k"]) for r in heldout], dtype=float)
    train = pick(TRAIN, [], apart, LARGEST_FLOP, rng, public)
    known = [(r["m"], r["n"], r["k"]) for r in train]
    train += pick(MORE, known, apart, LARGEST_HELDOUT_FLOP, rng, public, MORE_FAMILIES)
    seen = np.array([(r["m"], r["n"], r["k"]) for r in train], dtype=float)
    held = [(r["m"], r["n"], r["k"]) for r in heldout]
    heldout += pick(
        WIDER_HELDOUT, held, seen, LARGEST_HELDOUT_FLOP, rng, public, WIDER_FAMILIES, any_kind
    )
    apart = np.array([(r["m"], r["n"], r["k"]) for r in heldout], dtype=float)
    known = [(r["m"], r["n"], r["k"]) for r in train]
    train += pick(
        WIDER_TRAIN, known, apart, LARGEST_HELDOUT_FLOP, rng, public, WIDER_FAMILIES, any_kind
    )
    known += [(r["m"], r["n"], r["k"]) for r in train[len(known) :]]
    train += pick(
        WORDS_TRAIN, known, apart, LARGEST_HELDOUT_FLOP / 3, rng, [], WORDS_FAMILIES, any_kind
    )
    write("heldout.csv", heldout)
    write("train.csv", train)


if __name__ == "__main__":
    main()
