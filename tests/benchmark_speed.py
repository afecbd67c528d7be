"""How fast answers are: ``pytest tests/benchmark_speed.py`` (not part of the tests).

On one core: ``taskset -c 0 pytest tests/benchmark_speed.py``.
"""

from __future__ import annotations

import costmodel as cm
from costmodel.config import ConfigTable

CHIP = cm.load_profile("h200-sxm")


def test_predict_a_new_shape(benchmark):
    sizes = iter(range(512, 4096))
    benchmark(lambda: cm.predict_best((next(sizes), 4096, 4096), CHIP, use_measured=False))


def test_prune_100_000_candidates(benchmark):
    problem = cm.Gemm(512, 512, 8192)
    table = cm.candidates(problem, CHIP)
    many = ConfigTable.concat([table] * (100_000 // len(table) + 1))[slice(0, 100_000)]
    benchmark(lambda: cm.prune(problem, many, CHIP))
