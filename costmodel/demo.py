"""``python -m costmodel.demo``: three shapes predicted and explained, measured where possible.

Prediction and explanation need no GPU and no torch. Where torch sees a GPU, the best few of each
shape are measured beside the vendor's GEMM.
"""

from __future__ import annotations

import textwrap

from costmodel.errors import CostModelError
from costmodel.explain.layers import us
from costmodel.explain.report import report
from costmodel.explain.text import WIDTH
from costmodel.predict import Prediction, predict_best
from costmodel.problem import Gemm

PROFILE = "h200-sxm"
#: compute-bound, memory-bound, and one with too few tiles for the chip
SHAPES = (Gemm(4096, 4096, 4096), Gemm(16, 4096, 4096), Gemm(512, 512, 8192))
TOP = 5
TOP_K = 8


def main() -> None:
    """Run the demonstration."""
    for problem in SHAPES:
        print(described(predict_best(problem, PROFILE, use_measured=False)), end="\n\n")
    if not gpu_is_there():
        print("No GPU that torch can see: nothing was measured.")
        return
    for problem in SHAPES:
        _measure(problem)


def described(prediction: Prediction) -> str:
    """One shape's answer: the best few, what bounds them, why, and how many were rejected."""
    found = report(prediction)
    lines = [f"{found.problem} on {found.profile}"]
    for place in range(min(TOP, len(prediction.ranking))):
        row = prediction.ranking[place]
        rate = prediction.problem.flops / (row.time_us * 1e6)
        lines.append(f"  {place + 1}. {row.config!s:<52} {us(row.time_us):>9} {rate:7.1f} TFLOPS")
    lines.append(
        f"  bound by {found.bound}; {found.peak_share:.0%} of the peak, "
        f"{found.roofline.reached:.0%} of the roofline"
    )
    for cause in found.causes:
        lines += _wrapped(f"{cause.name}: {cause.evidence}. Remedy: {cause.remedy}.")
    rejected = ", ".join(f"{group.count} {group.reason}" for group in found.rejections)
    lines.append(
        f"  {len(prediction.rejections)} of {found.candidates} candidates rejected"
        + (f": {rejected}" if rejected else "")
    )
    return "\n".join(lines)


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(
        sentence, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )


def gpu_is_there() -> bool:
    """Whether torch can be imported and sees a GPU."""
    try:
        import torch
    except (ImportError, OSError):  # OSError: a library that torch needs did not load
        return False
    return bool(torch.cuda.is_available())


def _measure(problem: Gemm) -> None:
    from costmodel.cli.show import print_table
    from costmodel.cli.tuning import MEASURED_COLUMNS, measured_rows, summary
    from costmodel.measure.tune import tune

    try:
        result = tune(problem, top_k=TOP_K)
    except CostModelError as error:
        print(f"{problem}: not measured: {error}")
        return
    print(summary(result))
    if result.rows:
        print_table("", MEASURED_COLUMNS, measured_rows(result))


if __name__ == "__main__":
    main()
