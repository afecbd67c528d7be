"""Configurations for a case, best first: one bucket of M alone, or all small ones together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.config import ConfigTable, KernelConfig
from costmodel.dropin.case import SMALL_BUCKETS, Case
from costmodel.dropin.cover import cover
from costmodel.errors import ConfigError
from costmodel.predict import Ranking, Source, rank
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.space.candidates import candidates
from costmodel.space.prune import prune

#: kernels compiled for M = 1 to 512 of one case, those that finish a split K among them
MOST_KERNELS = 12
#: configurations of a bucket's ranking that may be chosen; behind them the best of each template
_HEAD = 16

Kernels = frozenset[tuple[object, ...]]


@dataclass(frozen=True)
class Choice:
    """Configurations in the order in which they are tried, their predicted times, and whence."""

    configs: tuple[KernelConfig, ...]
    time_us: tuple[float, ...]
    source: Source


def choose_alone(case: Case, bucket: int, chip: HardwareProfile) -> Choice:
    """The best of the bucket's ranking. Raises what ``prune`` raises."""
    ranking, source = _ranked(case.problem(bucket), chip)
    head = _head(ranking)
    times = tuple(float(time) for time in ranking.time_us[head])
    return Choice(tuple(ranking.configs[head]), times, source)


def choose_together(
    case: Case,
    chip: HardwareProfile,
    buckets: tuple[int, ...] = SMALL_BUCKETS,
    limit: int = MOST_KERNELS,
) -> dict[int, Choice]:
    """For each bucket, first the configuration of the few kernels that serve all of them best.

    What stands high in one bucket's ranking is priced for all. At most ``limit`` kernels are
    among the first choices; a bucket that none of them can serve has its own best.
    """
    ranked = {bucket: _ranked(case.problem(bucket), chip) for bucket in buckets}
    pool = list(dict.fromkeys(c for r, _ in ranked.values() for c in r.configs[_head(r)]))
    times = np.array([_times(case.problem(bucket), pool, chip) for bucket in buckets])
    kernels = [
        _kernels(case, bucket, pool, row, chip) for bucket, row in zip(buckets, times, strict=True)
    ]
    bundles = list(dict.fromkeys(found for row in kernels for found in row if found))
    chosen = _cover(times, kernels, bundles, limit)
    choices = {}
    for row, bucket in enumerate(buckets):
        usable = [i for i, found in enumerate(kernels[row]) if found]
        usable.sort(key=lambda i: (not kernels[row][i] <= chosen, times[row, i]))
        choices[bucket] = Choice(
            tuple(pool[i] for i in usable),
            tuple(float(times[row, i]) for i in usable),
            ranked[bucket][1],
        )
    return choices


def _ranked(
    problem: Gemm, chip: HardwareProfile, configs: ConfigTable | None = None
) -> tuple[Ranking, Source]:
    """Those of the configurations that the chip can run, by the time of the plain product.

    Reading C and scaling cost every tile alike, and the model was fitted on plain products.
    """
    table = candidates(problem, chip) if configs is None else configs
    legal, _ = prune(problem, table, chip)
    return rank(replace(problem, alpha=1.0, beta=0.0), legal, chip)


def _head(ranking: Ranking) -> NDArray[np.int64]:
    """Rows of the first few, and of the best of every template: one of them takes any tensors."""
    _, firsts = np.unique(ranking.configs.template, return_index=True)
    return np.union1d(np.arange(min(_HEAD, len(ranking))), firsts)


def _times(problem: Gemm, pool: list[KernelConfig], chip: HardwareProfile) -> list[float]:
    """Predicted time of each configuration, in us, inf where the chip cannot run it."""
    ranking, _ = _ranked(problem, chip, ConfigTable.of(pool))
    known = dict(zip(ranking.configs, ranking.time_us.tolist(), strict=True))
    return [known.get(config, float("inf")) for config in pool]


def kernels_of(case: Case, m: int, config: KernelConfig, units: int) -> Kernels:
    """The kernels that this M compiles, by what decides their code; none if it cannot run."""
    from costmodel.kernels.launch import prepare

    a, b, out = case.stand_ins(m)
    scale, add = 2.0 if case.scaled else 1.0, 1.0 if case.adds else 0.0
    try:
        launch = prepare(
            a, b, config, out=out, alpha=scale, beta=add, **case.options(m, units)
        )  # fmt: skip
    except ConfigError:
        return frozenset()
    return frozenset(replace(step, then=None).variant for step in launch.steps())


def _kernels(
    case: Case,
    bucket: int,
    pool: list[KernelConfig],
    times: Iterable[float],
    chip: HardwareProfile,
) -> list[Kernels]:
    return [
        kernels_of(case, bucket, config, chip.units) if time < np.inf else frozenset()
        for config, time in zip(pool, times, strict=True)
    ]


def _cover(
    times: NDArray[np.float64], kernels: list[list[Kernels]], bundles: list[Kernels], limit: int
) -> Kernels:
    place: Mapping[Kernels, int] = {bundle: i for i, bundle in enumerate(bundles)}
    names = list(dict.fromkeys(name for bundle in bundles for name in bundle))
    needs = np.array([[name in bundle for name in names] for bundle in bundles], dtype=bool)
    best = np.full((len(times), len(bundles)), np.inf)
    for row, found in enumerate(kernels):
        for column, bundle in enumerate(found):
            if bundle:
                at = place[bundle]
                best[row, at] = min(best[row, at], times[row, column])
    chosen = cover(best, needs, limit)
    return frozenset(name for name, taken in zip(names, chosen, strict=True) if taken)
