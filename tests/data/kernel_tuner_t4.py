"""Writes ``kernel_tuner_t4.json``: Kernel Tuner itself tunes a blocked product on the CPU.

Needs ``pip install kernel_tuner`` (1.5.0 wrote the file that stands here) and g++, but no GPU:
``python tests/data/kernel_tuner_t4.py``.
"""

from pathlib import Path

import numpy as np
from kernel_tuner import tune_kernel
from kernel_tuner.file_utils import store_output_file

SIZE = 128
SOURCE = """
#include <chrono>
extern "C" float gemm(float *c, const float *a, const float *b) {
  auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 128 * 128; ++i) c[i] = 0;
  for (int i0 = 0; i0 < 128; i0 += BLOCK_SIZE_M)
    for (int k0 = 0; k0 < 128; k0 += BLOCK_SIZE_K)
      for (int j0 = 0; j0 < 128; j0 += BLOCK_SIZE_N)
        for (int i = i0; i < i0 + BLOCK_SIZE_M; ++i)
          for (int k = k0; k < k0 + BLOCK_SIZE_K; ++k)
            for (int j = j0; j < j0 + BLOCK_SIZE_N; ++j)
              c[i * 128 + j] += a[i * 128 + k] * b[k * 128 + j];
  std::chrono::duration<float, std::milli> spent = std::chrono::steady_clock::now() - begun;
  return spent.count();
}
"""


def main() -> None:
    """Tune, and store the results beside this script."""
    draw = np.random.default_rng(0)
    a = draw.random((SIZE, SIZE), dtype=np.float32)
    b = draw.random((SIZE, SIZE), dtype=np.float32)
    knobs = {"BLOCK_SIZE_M": [16, 32], "BLOCK_SIZE_N": [16, 64], "BLOCK_SIZE_K": [16, 32]}
    results, _ = tune_kernel(
        "gemm", SOURCE, 1, [np.zeros_like(a), a, b], knobs, lang="C", compiler="g++",
        compiler_options=["-O2"], answer=[a @ b, None, None], atol=1e-3,
    )  # fmt: skip
    path = Path(__file__).with_suffix(".json")
    store_output_file(str(path), results, knobs)


if __name__ == "__main__":
    main()
