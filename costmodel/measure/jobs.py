"""What to measure: jobs of one problem and the configurations that a collection takes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.config import KNOBS, ConfigTable, KernelConfig
from costmodel.physics.estimate import estimate_columns
from costmodel.predict import rank
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.records.groups import Group
from costmodel.space.candidates import candidates
from costmodel.space.prune import prune


@dataclass(frozen=True)
class Job:
    """One problem and the configurations to measure on it."""

    problem: Gemm
    configs: tuple[KernelConfig, ...]


def sample_job(
    problem: Gemm, profile: HardwareProfile, count: int | None, seed: int, kernels: float = 1.0,
    draws: int = 1,
) -> Job:  # fmt: skip
    """A job of ``count`` legal configurations drawn without replacement, all where count is None.

    Half of them lie along the order of the physics estimate, dense at its top, where choices are
    made, and ever thinner below; half are drawn evenly. ``kernels`` is the share of all kernels
    that the draw is from, the same ones for every problem, and more where those would not fill
    ``count``: most of a collection's time is compiling. ``draws`` is how many such shares there
    are, of which each problem takes one by its sizes: a model errs most on kernels it saw nothing
    of. The draw depends on the seed and the problem alone, so that a collection resumes on the
    same.
    """
    legal, _ = prune(problem, candidates(problem, profile), profile)
    if count is None or count >= len(legal):
        return Job(problem, tuple(legal))
    sizes = problem.m, problem.n, problem.k, problem.batch
    of_draws = int(np.random.default_rng([seed, *sizes, draws]).integers(draws))
    draw = _kernel_draw(legal, seed + 1_000_003 * of_draws)
    enough = float(np.partition(draw, count - 1)[count - 1])
    legal = legal[np.flatnonzero(draw <= max(kernels, enough))]
    if count >= len(legal):
        return Job(problem, tuple(legal))
    rng = np.random.default_rng([seed, *sizes])
    order = np.argsort(estimate_columns(problem, legal, profile).time_us, kind="stable")
    along = order[_thinning_places(len(order), count // 2, rng)]
    rest = np.setdiff1d(np.arange(len(legal)), along)
    even = rng.choice(rest, size=count - len(along), replace=False)
    return Job(problem, tuple(legal[np.sort(np.concatenate([along, even]))]))


def whole_job(problem: Gemm, profile: HardwareProfile) -> Job:
    """A job of every candidate, also of those that ``prune`` rejects: does it reject the best?"""
    return Job(problem, tuple(candidates(problem, profile)))


def ranked_job(problem: Gemm, profile: HardwareProfile, count: int) -> Job:
    """A job of the ``count`` configurations that ``predict`` ranks first: where it errs shows."""
    legal, _ = prune(problem, candidates(problem, profile), profile)
    ranking, _ = rank(problem, legal, profile)
    return Job(problem, tuple(ranking.configs[:count]))


#: knobs that one compiled kernel takes at run time
_RUN_TIME_KNOBS = ("group_m", "split_k")


def _kernel_draw(table: ConfigTable, seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each row, equal for rows that are one kernel, whatever the table."""
    mixed = np.full(len(table), seed, dtype=np.uint64)
    for knob in KNOBS:
        if knob not in _RUN_TIME_KNOBS:
            # splitmix64's finaliser: every bit of a knob reaches every bit of the number
            mixed = mixed * np.uint64(31) + getattr(table, knob).astype(np.uint64)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


def _thinning_places(length: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``count`` distinct places below ``length``, as likely in each octave as in another."""
    weight = 1.0 / (1.0 + np.arange(length))
    places: NDArray[np.int64] = rng.choice(
        length, size=count, replace=False, p=weight / weight.sum()
    )
    return places


def winners_jobs(groups: Iterable[Group], count: int) -> list[Job]:
    """Jobs of the ``count`` fastest configurations of each group, to be measured again."""
    return [
        Job(group.problem, tuple(group.table[np.argsort(group.time_us, kind="stable")[:count]]))
        for group in groups
    ]
