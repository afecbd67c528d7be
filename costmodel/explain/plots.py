"""Pictures of scorecards and ladders (matplotlib): each takes results, and a file or None."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from costmodel.explain.theme import COLOURS, Picture, finished, new_figure

if TYPE_CHECKING:
    from costmodel.learning.evaluate import Scorecard
    from costmodel.learning.refits import Point
    from costmodel.measure.rungs import Ladder

Path = str | os.PathLike[str] | None
#: room above the highest bar or line, for the legend
_HEADROOM = 1.22


def predicted_against_measured(card: Scorecard, path: Path = None) -> Picture:
    """Every configuration of the held-out shapes: predicted against measured time, in us."""
    figure, axes = new_figure()
    measured = np.concatenate([j.group.time_us[j.order] for j in card.judged])
    predicted = np.concatenate([j.predicted_us for j in card.judged])
    axes.loglog(measured, predicted, ".", ms=1.2, alpha=0.25, color=COLOURS["random"],
                rasterized=True, label=f"all {len(measured):,} configurations")  # fmt: skip
    first = [(j.group.time_us[j.order[:8]], j.predicted_us[:8]) for j in card.judged]
    axes.loglog(
        np.concatenate([m for m, _ in first]), np.concatenate([p for _, p in first]),
        "o", ms=3, alpha=0.8, color=COLOURS["model"], label="the first eight of each shape",
    )  # fmt: skip
    ends = [measured.min(), measured.max()]
    axes.loglog(ends, ends, "-", lw=0.8, color=COLOURS["ideal"])
    axes.set_xlabel("measured, µs")
    axes.set_ylabel("predicted, µs")
    axes.set_title(f"{len(card.judged)} shapes never trained on, ranked by the {card.source}")
    legend = axes.legend(loc="upper left", frameon=False)
    for handle in legend.legend_handles:
        handle.set_alpha(1)
        handle.set_markersize(4)
    return finished(figure, path)


def share_over_measured(card: Scorecard, path: Path = None) -> Picture:
    """Share of the exhaustive best over how many configurations are measured."""
    figure, axes = new_figure()
    most = 32
    counts = np.arange(1, most + 1)
    shares = np.array([_running_shares(j.group.time_us[j.order], j.best_us, most)
                       for j in card.judged])  # fmt: skip
    axes.plot(counts, np.exp(np.log(shares).mean(axis=0)), color=COLOURS["model"],
              label="geometric mean")  # fmt: skip
    axes.plot(counts, np.quantile(shares, 0.1, axis=0), "--", color=COLOURS["model"],
              label="10th percentile")  # fmt: skip
    axes.plot(counts, shares.min(axis=0), ":", color=COLOURS["physics"], label="worst shape")
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
    axes.set_xlabel("configurations measured")
    axes.set_ylabel("share of the exhaustive best")
    axes.set_title(f"{len(card.judged)} shapes never trained on")
    axes.legend(loc="lower right", frameon=False)
    return finished(figure, path)


def _running_shares(times: Any, best: float, most: int) -> Any:
    """Best time over the best of the first 1, 2, ... ``most``; at most 1."""
    running = np.minimum.accumulate(times[:most])
    running = np.pad(running, (0, most - len(running)), mode="edge")
    return np.minimum(best / running, 1.0)


def ladder_picture(ladder: Ladder, path: Path = None) -> Picture:
    """A bar a rung with its TFLOPS, grey where the old value was kept; vendor and peak as lines.

    Where memory bounds the problem its roofline is the ceiling of the picture. The
    file's ending says in which format.
    """
    figure, axes = new_figure()
    axes.grid(False, axis="x")
    axes.set_axisbelow(True)
    rates = [ladder.rate(rung.time_us) for rung in ladder.rungs]
    bars = axes.bar(
        range(len(rates)), rates, width=0.75,
        color=[COLOURS["model" if rung.gained else "random"] for rung in ladder.rungs],
    )  # fmt: skip
    axes.bar_label(bars, [_rate_text(rate) for rate in rates], fontsize=7, padding=1)
    ceiling = max([*rates, ladder.roofline_tflops, ladder.vendor_tflops or 0.0])
    lines = [("peak", ladder.peak_tflops, "ideal", "-")]
    if ladder.bound == "memory":  # the peak may lie far above what memory allows
        lines.append(("memory's roofline", ladder.roofline_tflops, "ideal", ":"))
    if ladder.vendor_tflops is not None:
        lines.append(("vendor's GEMM", ladder.vendor_tflops, "physics", "--"))
    for name, rate, colour, style in lines:
        above = ", above the picture" if rate > _HEADROOM * ceiling else ""
        axes.axhline(rate, color=COLOURS[colour], linestyle=style, linewidth=1.0,
                     label=f"{name} {_rate_text(rate)}{above}")  # fmt: skip
    axes.set_ylim(0, _HEADROOM * ceiling)
    axes.set_xticks(range(len(rates)), [rung.name for rung in ladder.rungs], rotation=35,
                    ha="right", rotation_mode="anchor", fontsize=8)  # fmt: skip
    axes.set_ylabel("TFLOPS")
    title = f"{ladder.problem} on {ladder.profile.name}, a variable a rung (grey: nothing gained)"
    axes.set_title(title, fontsize=9)
    axes.legend(loc="upper left", frameon=False, ncols=3, fontsize=7)
    return finished(figure, path)


def _rate_text(rate: float) -> str:
    """Three digits are what a measurement can hold."""
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def calibration_picture(card: Scorecard, path: Path = None) -> Picture:
    """Measured over predicted time of the first eight choices, with the 90 % interval."""
    from costmodel.learning.calibration import ENDS_US, TIME_GROUPS, calibration
    from costmodel.learning.judged import COVERED

    figure, axes = new_figure()
    predicted = np.concatenate([j.predicted_us[:COVERED] for j in card.judged])
    measured = np.concatenate([j.group.time_us[j.order[:COVERED]] for j in card.judged])
    inside = np.concatenate([j.inside for j in card.judged])
    ratio = measured / predicted
    # one interval, but where the model speaks for some of the problems alone
    for spread in sorted({j.spread for j in card.judged}):
        low, high = np.exp(spread)
        axes.axhspan(low, high, color=COLOURS["wait"], alpha=0.25, lw=0,
                     label=f"90 % interval, {low:.2f} to {high:.2f}")  # fmt: skip
    kinds = ((inside, "model", "o", "inside"), (~inside, "physics", "^", "outside"))
    for mask, colour, marker, name in kinds:
        axes.plot(predicted[mask], ratio[mask], marker, ms=2.5, alpha=0.7, color=COLOURS[colour],
                  label=f"{name}, {mask.mean():.0%}")  # fmt: skip
    axes.axhline(1.0, color=COLOURS["ideal"], lw=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    most = max(ratio.max(), 1 / ratio.min(), 1.5)
    axes.set_ylim(1 / most / 1.1, most * 1.35)
    ticks = [tick for tick in (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2, 4)
             if 1 / most <= tick <= most]  # fmt: skip
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    left, right = axes.get_xlim()
    edges = [left, *ENDS_US, right]
    found = calibration(card.judged)["by_predicted_time"]
    for end in ENDS_US:
        axes.axvline(end, color=COLOURS["random"], lw=0.8, ls=":")
    for name, (start, end) in zip(TIME_GROUPS, pairwise(edges), strict=True):
        if name in found:
            text = f"{name.replace('us', 'µs')}\n{found[name]['coverage']:.0%} inside"
            axes.text((start * end) ** 0.5, 0.98, text, transform=axes.get_xaxis_transform(),
                      ha="center", va="top", fontsize=8)  # fmt: skip
    axes.set_xlabel("predicted, µs")
    axes.set_ylabel("measured over predicted")
    axes.set_title(f"The first eight of {len(card.judged)} shapes never trained on")
    axes.legend(loc="lower right", frameon=False, fontsize=8, ncols=3)
    return finished(figure, path)


def learning_curve(points: Sequence[Point], path: Path = None) -> Picture:
    """Shares of the exhaustive best over the number of shapes that the model was fitted on.

    Means and tenth percentiles on the left; the worst shapes have a scale of their own.
    """
    figure, (means, worst) = new_figure((8.0, 4.0), columns=2)
    shapes = [point.shapes for point in points]
    kinds = (("1", "model", "o", "first choice"), ("3", "epilogue", "s", "best of 3"),
             ("8", "split", "^", "best of 8"))  # fmt: skip
    for measured, colour, marker, name in kinds:
        mean, tenth, least = (
            [point.top[measured][of] for point in points] for of in ("geomean", "p10", "min")
        )
        style = {"marker": marker, "ms": 4, "color": COLOURS[colour]}
        means.plot(shapes, mean, "-", label=name, **style)
        means.plot(shapes, tenth, "--", **style)
        worst.plot(shapes, least, ":", **style)
    for axes in (means, worst):
        axes.set_xscale("log", base=2)
        axes.set_xticks(shapes, [str(count) for count in shapes])
        axes.minorticks_off()
        axes.set_xlabel("shapes fitted on")
    means.set_ylabel("share of the exhaustive best")
    means.set_title("Geometric mean; dashed: 10th percentile", fontsize=9)
    worst.set_title("The worst shape", fontsize=9)
    figure.suptitle("Judged on shapes never trained on")
    figure.legend(loc="outside lower center", frameon=False, ncols=3)
    return finished(figure, path)
