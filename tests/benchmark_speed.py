"""How fast answers are: ``pytest tests/benchmark_speed.py`` (not part of the tests).

On one core: ``taskset -c 0 pytest tests/benchmark_speed.py``. Read the medians, on a machine that
does nothing else.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import costmodel as cm
from costmodel.config import ConfigTable
from costmodel.ranking.shelf import shelf_of

CHIP = cm.load_profile("h200-sxm")


def shapes(count, multiple, seed=0):
    """Sizes of 16 to 16384, log-uniform, and multiples of ``multiple``."""
    draw = np.random.default_rng(seed)
    sizes = np.exp2(draw.uniform(4, 14, (count, 3)))
    return [tuple(row) for row in (np.ceil(sizes / multiple).astype(int) * multiple).tolist()]


@pytest.mark.parametrize("multiple", [8, 1])
def test_predict_a_new_shape(benchmark, multiple):
    # the kinds are known: what a kind costs once is another figure
    cm.predict_many(shapes(500, multiple, seed=1), CHIP, use_measured=False)
    new = iter(shapes(500, multiple))
    benchmark.pedantic(
        lambda: cm.predict_best(next(new), CHIP, use_measured=False), rounds=500, iterations=1
    )


def test_predict_the_same_shape_again(benchmark):
    benchmark(lambda: cm.predict_best((4096, 4096, 4096), CHIP))


@pytest.mark.parametrize("multiple", [8, 1])
def test_predict_1000_shapes(benchmark, multiple):
    many = shapes(1000, multiple)
    benchmark.pedantic(
        lambda: cm.predict_many(many, CHIP, use_measured=False), rounds=3, warmup_rounds=1
    )


def test_a_kind_that_was_not_met_yet(benchmark):
    # each multiple of 2^i has its own alignment, and each scaling doubles the kinds
    kinds = iter(
        cm.Gemm(512, 512 + 2**i, 512 + 2**j, dtype=dtype, beta=beta)
        for i in range(4) for j in range(4) for dtype in ("fp16", "bf16") for beta in (0.0, 1.0)
    )  # fmt: skip
    benchmark.pedantic(lambda: shelf_of(next(kinds), CHIP), rounds=60, iterations=1)


def test_import_and_first_answer(benchmark):
    code = "import costmodel as cm; cm.predict_best((4096, 4096, 4096), 'h200-sxm')"
    benchmark.pedantic(
        lambda: subprocess.run([sys.executable, "-c", code], check=True), rounds=5, iterations=1
    )


def test_prune_100_000_candidates(benchmark):
    problem = cm.Gemm(512, 512, 8192)
    table = cm.candidates(problem, CHIP)
    many = ConfigTable.concat([table] * (100_000 // len(table) + 1))[slice(0, 100_000)]
    benchmark(lambda: cm.prune(problem, many, CHIP))
