"""Ways of choosing without the model, on the same shapes: what its shares are held against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodel.learning.peers import Rows, Way, inductor_ways, nvmatmul_ways
from costmodel.learning.shares import TOPS, best_row, row_weights, shares_of, summary
from costmodel.learning.train import Prepared, prepare
from costmodel.physics.estimate import estimate_columns
from costmodel.profile import HardwareProfile
from costmodel.ranking.baselines import default_config, nearest_row
from costmodel.records.groups import Group

#: ways that order all of a problem's rows, so that the best of the first k means something
_ORDERS = ("physics", "ridge")


def baselines(
    groups: Sequence[Group], chip: HardwareProfile, training: Sequence[Group]
) -> dict[str, dict[str, float]]:
    """Share of the best that each way reaches over the groups: mean, tenth percentile, worst.

    - "physics": the estimate alone.
    - "starting_table": the table that engineers start tuning from.
    - "inductor_first", "inductor_list", "inductor_list_with_tma": PyTorch Inductor's lists.
    - "nvmatmul_first", "nvmatmul_best_of_8": nvMatmulHeuristics, where it is installed.
    - "nearest_training": what was best on the nearest training problem.
    - "ridge": a linear model on the trees' features, target and weights.
    - "random": the expected value of a uniform choice.

    A configuration that was not measured is judged by the nearest measured row. Ways that learn
    are left out where there are no training groups.
    """

    def by_physics(group: Group) -> Rows:
        times = estimate_columns(group.problem, group.table, chip).time_us
        return np.argsort(times, kind="stable")

    def by_table(group: Group) -> Rows:
        return np.array([nearest_row(group.table, default_config(group.problem))])

    ways: dict[str, Way] = {"physics": by_physics, "starting_table": by_table}
    ways |= inductor_ways() | nvmatmul_ways(groups, chip)
    if training:
        ways["nearest_training"] = nearest_training(training)
        data = prepare(training)
        # a profile that lacks what an estimate needs leaves nothing to correct
        if all(np.isfinite(item.target).all() for item in data):
            ways["ridge"] = ridge(data)
    found: dict[str, dict[str, float]] = {}
    for name, way in ways.items():
        shares = np.array([shares_of(group, way(group)) for group in groups])
        found[name] = summary(shares[:, 0])
        if name in _ORDERS:
            found[name] |= {f"top{k}": summary(shares[:, i])["geomean"] for i, k in enumerate(TOPS)}
    # the expected value of a uniform choice, not one draw of it
    logs = [np.log(g.time_us[best_row(g)] / g.time_us).mean() for g in groups]
    found["random"] = summary(np.minimum(np.exp(np.array(logs)), 1.0))
    return found


def nearest_training(training: Sequence[Group]) -> Way:
    """Choose what was best on the nearest training problem.

    A problem of the same type and layout is nearer than any other; then the distance is
    Euclid's, over the logarithms of M, N and K.
    """
    sizes = np.log(np.array([group.shape for group in training], dtype=np.float64))
    kinds = [(group.problem.dtype, group.problem.layout) for group in training]
    best = [group.table[best_row(group)] for group in training]

    def choose(group: Group) -> Rows:
        wanted = (group.problem.dtype, group.problem.layout)
        other = np.array([kind != wanted for kind in kinds])
        distance = np.linalg.norm(sizes - np.log(group.shape), axis=1)
        nearest = int(np.lexsort((distance, other))[0])
        return np.array([nearest_row(group.table, best[nearest])])

    return choose


def ridge(data: Sequence[Prepared]) -> Way:
    """Order by a linear fit of log(time / estimate) on the standardised features of the trees."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), Ridge()).fit(
        np.concatenate([item.features for item in data]).astype(np.float64),
        np.concatenate([item.target for item in data]),
        ridge__sample_weight=np.concatenate([row_weights(item.group.time_us) for item in data]),
    )

    def choose(group: Group) -> Rows:
        (item,) = prepare([group])
        log_ratio = model.predict(item.features.astype(np.float64))
        return np.argsort(item.estimate_us * np.exp(log_ratio), kind="stable")

    return choose
