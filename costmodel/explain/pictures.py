"""Pictures of one prediction: roofline, where the time goes, tiles, rejections, and all in one."""

from __future__ import annotations

import os
import textwrap
from typing import Any

import numpy as np

from costmodel.config import ConfigTable, KernelConfig
from costmodel.explain.report import time_parts
from costmodel.explain.theme import COLOURS, HATCHES, Picture, finished, new_figure
from costmodel.physics.estimate import estimate_columns
from costmodel.physics.roofline import copy_bandwidth_gb_s, peak_of
from costmodel.predict import Prediction
from costmodel.price import price
from costmodel.space.prune import Rejections

Path = str | os.PathLike[str] | None
#: configurations whose time is cut into parts, and those that stand out on the roofline
_SHOWN, _FIRST = 5, 8
#: blocks a side of the heat map; more cannot be read
_MOST_BLOCKS = 9
#: the heat map's colours end at this many times the best
_SLOWEST_SHOWN = 3.0


def roofline_picture(prediction: Prediction, path: Path = None) -> Picture:
    """Every ranked configuration under the chip's roofline, the chosen one marked."""
    figure, axes = new_figure()
    draw_roofline(axes, prediction)
    return finished(figure, path)


def time_picture(prediction: Prediction, path: Path = None) -> Picture:
    """Where the time goes: the estimate of the first few configurations, cut into parts."""
    figure, axes = new_figure()
    draw_time(axes, prediction)
    return finished(figure, path)


def rejection_picture(prediction: Prediction, path: Path = None) -> Picture:
    """How many configurations each rule rejected, and how near the nearest came."""
    figure, axes = new_figure((6.4, 2.6))
    draw_rejections(axes, prediction.rejections, len(prediction.ranking))
    return finished(figure, path)


def heat_map(prediction: Prediction, path: Path = None) -> Picture:
    """Best predicted time for each BLOCK_M x BLOCK_N, over all other knobs."""
    figure, axes = new_figure()
    draw_heat_map(figure, axes, prediction)
    return finished(figure, path)


def overview(prediction: Prediction, path: Path = None) -> Picture:
    """The four pictures of a prediction on one page."""
    figure, axes = new_figure((12.0, 8.0), 2, 2)
    draw_roofline(axes[0, 0], prediction)
    draw_time(axes[0, 1], prediction)
    draw_heat_map(figure, axes[1, 0], prediction)
    draw_rejections(axes[1, 1], prediction.rejections, len(prediction.ranking))
    figure.suptitle(f"{prediction.problem} on {prediction.profile.name}: {prediction.config}")
    return finished(figure, path)


def draw_roofline(axes: Any, prediction: Prediction) -> None:
    """TFLOPS over FLOP a byte of DRAM traffic as scheduled, both logarithmic."""
    problem, profile, ranking = prediction.problem, prediction.profile, prediction.ranking
    peak, bandwidth = peak_of(problem, profile), copy_bandwidth_gb_s(profile)
    reached = problem.flops / (ranking.time_us * 1e6)
    intensity = _intensity(prediction, ranking.configs)
    chosen_at = float(_intensity(prediction, ConfigTable.of(prediction.config))[0])
    ridge = peak * 1e3 / bandwidth
    points = np.append(intensity, [chosen_at, problem.arithmetic_intensity])
    low, high = min(points.min(), ridge) / 2.5, max(points.max(), ridge) * 2.5
    line = np.geomspace(low, high, 200)
    roof = np.minimum(line * bandwidth / 1e3, peak)
    axes.loglog(line, roof, "-", lw=1.4, color=COLOURS["ideal"],
                label=f"roofline: {peak:.0f} TFLOPS, {bandwidth:.0f} GB/s")  # fmt: skip
    least = problem.arithmetic_intensity
    axes.axvline(least, ls=":", lw=0.9, color=COLOURS["ideal"],
                 label=f"least traffic: {least:.1f} FLOP a byte")  # fmt: skip
    axes.loglog(intensity, reached, ".", ms=2.5, alpha=0.4, color=COLOURS["random"],
                rasterized=True, label=f"{len(ranking)} configurations")  # fmt: skip
    axes.loglog(intensity[:_FIRST], reached[:_FIRST], "o", ms=4, alpha=0.9,
                color=COLOURS["model"], label=f"the first {min(_FIRST, len(ranking))}")  # fmt: skip
    axes.loglog([chosen_at], [prediction.tflops], "*", ms=13, color=COLOURS["physics"],
                mec="white", mew=0.6, label=f"chosen: {prediction.tflops:.1f} TFLOPS")  # fmt: skip
    axes.set_xlim(low, high)
    axes.set_ylim(max(reached.min(), roof.max() * 1e-4) / 3, roof.max() * 1.6)
    axes.set_xlabel("FLOP a byte of DRAM traffic")
    axes.set_ylabel("TFLOPS, predicted")
    axes.set_title("Under the roofline")
    # where the cloud is not: all configurations of a problem move much the same bytes
    left_half = np.log(chosen_at / low) < 0.5 * np.log(high / low)
    axes.legend(loc="lower right" if left_half else "lower left", fontsize=7, framealpha=0.9)


def _intensity(prediction: Prediction, table: ConfigTable) -> Any:
    physics = estimate_columns(prediction.problem, table, prediction.profile)
    moved = physics.traffic.dram_bytes + physics.traffic.store_bytes
    return prediction.problem.flops / moved


def draw_time(axes: Any, prediction: Prediction) -> None:
    """Stacked bars that add up to the estimate; a mark where the prediction lies."""
    configs = [prediction.config]
    times = [prediction.time_us]
    for row in range(min(_SHOWN, len(prediction.ranking))):
        other = prediction.ranking[row]
        if other.config not in configs and len(configs) < _SHOWN:
            configs.append(other.config)
            times.append(other.time_us)
    parts = [
        time_parts(
            prediction, estimate_columns(prediction.problem, ConfigTable.of(c), prediction.profile)
        )
        for c in configs
    ]
    named = {
        "start": ("launch and first load", [p.start_us for p in parts]),
        "loop": ("K loop", [p.loop_us for p in parts]),
        "epilogue": ("epilogue", [p.epilogue_us for p in parts]),
        "wait": ("waiting for DRAM", [p.dram_wait_us for p in parts]),
        "split": ("adding parts, copying rows", [p.split_us for p in parts]),
        "unhidden": ("not hidden", [p.unhidden_us for p in parts]),
    }
    places = np.arange(len(configs))
    left = np.zeros(len(configs))
    for name, (label, values) in named.items():
        widths = np.maximum(np.asarray(values), 0.0)
        if widths.max() <= 0.0:
            continue
        axes.barh(places, widths, left=left, height=0.62, color=COLOURS[name], edgecolor="white",
                  linewidth=0.4, hatch=HATCHES[name], label=label)  # fmt: skip
        left += widths
    axes.plot(times, places, "D", ms=5, color="white", mec=COLOURS["ideal"], mew=1.1, ls="",
              label="predicted")  # fmt: skip
    axes.set_yticks(places, ["\n".join(textwrap.wrap(str(c), 24)) for c in configs], fontsize=7)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlim(0, max(left.max(), max(times)) * 1.06)
    axes.set_xlabel("µs, by physics")
    axes.set_title("Where the time goes")
    # below the bars: no corner is free in every picture
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.17), ncols=3, fontsize=7, frameon=False)


def draw_rejections(axes: Any, rejections: Rejections, legal: int) -> None:
    """A bar a rule, and beside it how far the nearest configuration misses it."""
    counts = rejections.counts()
    total = legal + len(rejections)
    axes.set_title(f"{len(rejections)} of {total} candidates cannot run")
    if not counts:
        axes.text(0.5, 0.5, "every candidate can run", ha="center", va="center",
                  transform=axes.transAxes)  # fmt: skip
        axes.set_axis_off()
        return
    names, numbers = list(counts), list(counts.values())
    places = np.arange(len(names))
    axes.barh(places, numbers, height=0.5, color=COLOURS["physics"])
    for place, name in zip(places, names, strict=True):
        nearest = _nearest(rejections, name)
        told = f"{counts[name]}: nearest needs {nearest.needed} of {nearest.limit} {nearest.unit}"
        axes.annotate(told.strip(), (0, place - 0.25), (4, 3), textcoords="offset points",
                      va="bottom", ha="left", fontsize=7)  # fmt: skip
    axes.set_yticks(places, [name.replace("_", "\n") for name in names], fontsize=8)
    axes.set_ylim(max(len(names), 3) - 0.5, -0.75)  # a single bar shall not fill the picture
    axes.set_xlim(0, max(numbers) * 1.08)
    axes.grid(False, axis="y")
    axes.set_xlabel("configurations")


def _nearest(rejections: Rejections, reason: str) -> Any:
    excess = rejections.needed - rejections.limit
    for row in np.argsort(excess, kind="stable"):
        found = rejections[int(row)]
        if found.reason == reason:
            return found
    raise KeyError(reason)


def draw_heat_map(figure: Any, axes: Any, prediction: Prediction) -> None:
    """Cells are times over the best; hatched ones cannot run, empty ones are no candidates."""
    rows = _blocks(prediction.ranking.configs.block_m)
    columns = _blocks(prediction.ranking.configs.block_n)
    grid = _times_by_tile(prediction, rows, columns)
    from matplotlib import colormaps

    shown = axes.imshow(grid, cmap=colormaps["cividis_r"], vmin=1.0, vmax=_SLOWEST_SHOWN,
                        aspect="auto")  # fmt: skip
    rejected = prediction.rejections.configs
    for y, block_m in enumerate(rows):
        for x, block_n in enumerate(columns):
            if np.isfinite(grid[y, x]):
                dark = grid[y, x] > (1 + _SLOWEST_SHOWN) / 2
                axes.text(x, y, f"{grid[y, x]:.2f}", ha="center", va="center", fontsize=7,
                          color="white" if dark else "black")  # fmt: skip
            elif ((rejected.block_m == block_m) & (rejected.block_n == block_n)).any():
                axes.text(x, y, "×", ha="center", va="center", fontsize=9)
    chosen = prediction.config
    if chosen.block_m in rows and chosen.block_n in columns:
        from matplotlib.patches import Rectangle

        corner = columns.index(chosen.block_n) - 0.5, rows.index(chosen.block_m) - 0.5
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, ec=COLOURS["physics"], lw=2.2))
    axes.set_xticks(range(len(columns)), [str(block) for block in columns])
    axes.set_yticks(range(len(rows)), [str(block) for block in rows])
    axes.grid(False)
    axes.set_xlabel("BLOCK_N")
    axes.set_ylabel("BLOCK_M")
    axes.set_title("Predicted time over the best (framed: chosen, ×: cannot run)")
    bar = figure.colorbar(shown, ax=axes, extend="max", fraction=0.05, pad=0.02)
    bar.ax.tick_params(labelsize=7)


def _times_by_tile(prediction: Prediction, rows: list[int], columns: list[int]) -> Any:
    """[rows, columns]: the best of each tile over the best of all, NaN where there is none.

    The first of the ranking stands for its tile, and all of them are priced together: behind the
    shortlist the ranking itself holds the slowest time of the shortlist.
    """
    configs = prediction.ranking.configs
    first: dict[tuple[int, int], KernelConfig] = {}
    for y, block_m in enumerate(rows):
        for x, block_n in enumerate(columns):
            here = np.flatnonzero((configs.block_m == block_m) & (configs.block_n == block_n))
            if len(here):
                first[y, x] = configs[int(here[0])]
    priced = price(
        prediction.problem, first.values(), prediction.profile, prediction.source
    ).time_us  # fmt: skip
    grid = np.full((len(rows), len(columns)), np.nan)
    for place, config in first.items():
        grid[place] = priced[config] / min(priced.values())
    return grid


def _blocks(values: Any) -> list[int]:
    """Powers of two, and of the others those that stand highest in the ranking."""
    found = list(dict.fromkeys(int(value) for value in values))  # in the order of the ranking
    plain = sorted(value for value in found if value & (value - 1) == 0)[-_MOST_BLOCKS:]
    others = [value for value in found if value not in plain][: max(_MOST_BLOCKS - len(plain), 0)]
    return sorted(plain + others)
