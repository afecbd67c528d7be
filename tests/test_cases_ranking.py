"""Cases that others met in public, put to this ranking and to the H200's own runs."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from numpy.typing import NDArray

from costmodel.config import ConfigTable, KernelConfig
from costmodel.measure.decide import TIE, decide, finalists
from costmodel.predict import predict_best, rank
from costmodel.problem import Gemm
from costmodel.profile import list_profiles, load_profile
from costmodel.ranking.baselines import default_config
from costmodel.records import packaged_runs
from costmodel.records.groups import Group, groups_of
from costmodel.records.schema import Row, make_row
from costmodel.space.candidates import candidates
from costmodel.space.prune import prune

H200 = load_profile("h200-sxm")
#: a preference of less than a tenth may turn with the configurations that were drawn
CLEAR = 0.10


@pytest.fixture(scope="module")
def small() -> list[Group]:
    """Runs of M up to 16 on the H200."""
    frame = packaged_runs()
    return groups_of(frame[frame["m"] <= 16], H200.name)


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path) -> None:
    """A user's folder without models and answers."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))


def least(times: NDArray[np.float64], rows: NDArray[np.bool_]) -> float:
    return float(times[rows].min())


# --- split-k-sign: one row; splitting K wins with N=2048, K=8192, loses with N=7168, K=2048


def split_and_whole(table: ConfigTable) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Kernels of the matrix unit that cut K, and those that do not; "matvec" is neither."""
    return table.split_k > 1, (table.split_k == 1) & ~table.is_template("matvec")


def split_ratios(group: Group, model: str | None) -> tuple[float, float]:
    """Best with K cut over the best with K whole: measured, and predicted."""
    cut, whole = split_and_whole(group.table)
    ranking, _ = rank(group.problem, group.table, H200, model)  # type: ignore[arg-type]
    predicted = np.empty(len(group.table))
    predicted[ranking.order] = ranking.time_us
    measured = least(group.time_us, cut) / least(group.time_us, whole)
    return measured, least(predicted, cut) / least(predicted, whole)


@pytest.fixture(scope="module")
def one_row(small) -> list[Group]:
    """Problems of one row with at least three runs of either kind."""
    return [
        group
        for group in small
        if group.problem.m == 1
        and min(int(rows.sum()) for rows in split_and_whole(group.table)) >= 3
    ]


@pytest.mark.parametrize(
    ("n", "k", "cut_wins"),
    [(2112, 7168, True), (1944, 5120, True), (7168, 2048, False), (9216, 2048, False)],
)
def test_the_h200_splits_k_where_a_public_report_of_a_b300_does(one_row, n, k, cut_wins) -> None:
    """The sizes measured nearest to 2048x8192, and 7168x2048 itself with a neighbour."""
    (group,) = [
        g for g in one_row
        if (g.problem.n, g.problem.k, g.problem.layout) == (n, k, "nt")
    ]  # fmt: skip
    measured, predicted = split_ratios(group, None)
    assert (measured < 1) == cut_wins
    assert (predicted < 1) == cut_wins


@pytest.mark.parametrize("model", [None, "physics"])
def test_of_one_row_the_ranking_cuts_k_where_the_runs_say_so(one_row, model) -> None:
    """On 19 of 20 measured problems of one row where it matters by over a tenth either way."""
    pairs = np.array([split_ratios(group, model) for group in one_row])
    clear = pairs[np.abs(np.log(pairs[:, 0])) > np.log1p(CLEAR)]
    cut = clear[:, 0] < 1
    assert min(cut.sum(), (~cut).sum()) >= 8  # both signs are there
    assert np.mean((clear[:, 1] < 1) == cut) >= 0.95


def test_of_one_row_long_k_wants_the_cut_and_wide_n_does_not(one_row) -> None:
    """As measured: the cut wins on most with K >= 2 N, loses on most with K <= N / 2."""
    ratio = np.array([group.problem.k / group.problem.n for group in one_row])
    wins = np.array([split_ratios(group, None)[0] < 1 for group in one_row])
    assert wins[ratio >= 2].mean() > 0.75
    assert wins[ratio <= 0.5].mean() < 0.25


@pytest.mark.parametrize(("n", "k"), [(2048, 8192), (7168, 2048)])
def test_the_two_public_shapes_themselves_are_ranked_by_that_sign(n, k) -> None:
    ranking = predict_best(Gemm(1, n, k), H200).ranking
    cut, whole = split_and_whole(ranking.configs)
    assert (least(ranking.time_us, cut) < least(ranking.time_us, whole)) == (k > n)


# --- decode-m1


#: bound by latency there, not by memory: 28 programs are predicted fastest on its 64 units
_ELSE = "max-1550-stack"


@pytest.mark.parametrize("chip", [name for name in list_profiles() if name != _ELSE])
def test_one_row_gets_a_block_on_most_units(chip) -> None:
    """M=1, N=1792, K=5120: 28 tiles of 64 columns would leave most units idle."""
    profile = load_profile(chip)
    config = predict_best(Gemm(1, 1792, 5120), profile).config
    programs = ceil(1 / config.block_m) * ceil(1792 / config.block_n) * config.split_k
    assert programs > profile.units / 2


# --- small-m-tile


@pytest.mark.parametrize("chip", ["h100-sxm", "h100-pcie", "h200-sxm", "h20"])
@pytest.mark.parametrize("k", [4096, 14336])
def test_of_16_rows_blocks_of_64_rows_stay_among_the_candidates(chip, k) -> None:
    profile, problem = load_profile(chip), Gemm(16, 4096, k)
    kept, _ = prune(problem, candidates(problem, profile), profile)
    assert ((kept.block_m == 64) & (kept.swap == 0)).any()


def test_of_2_to_16_rows_the_h200_is_fastest_with_64_columns_on_the_matrix_units_tall_side(
    small,
) -> None:
    """As measured for a linear layer, with N of 2048 and more and K up to 4 N.

    The tall side's 64 rows are met by N of a swapped product: that wins most, and BLOCK_M = 64
    unswapped, 48 of whose rows are empty, wins nowhere by more than the noise.
    """
    swapped, tall, count = 0, 0, 0
    for group in small:
        problem, table = group.problem, group.table
        if not (2 <= problem.m <= 16 and problem.layout == "nt"):
            continue
        if problem.n < 2048 or problem.k > 4 * problem.n:
            continue
        columns = (table.swap == 1) & (table.block_n >= 64)
        rows = (table.block_m == 64) & (table.swap == 0)
        if min(columns.sum(), rows.sum()) < 3:
            continue
        best = group.time_us.min()
        count += 1
        swapped += least(group.time_us, columns) <= best * (1 + TIE)
        tall += least(group.time_us, rows) <= best * (1 + TIE)
    assert count >= 30
    assert swapped > 0.7 * count
    assert tall == 0


# --- tie


def rows_of(times: dict[KernelConfig, tuple[float, ...]]) -> list[Row]:
    problem, run = Gemm(4096, 4096, 4096), {"device": "h200-sxm", "device_name": "NVIDIA H200"}
    common = run | {"backend": "triton", "protocol": "cold-l2-clean/1", "run": "a", "units": 132}
    return [
        make_row(problem, config, time_us=us, p10_us=us, p90_us=us, sequence=0, **common)
        for config, found in times.items()
        for us in found
    ]


def test_two_within_the_noise_have_one_answer_whichever_reads_faster_and_it_says_tie() -> None:
    """0.4 % apart, as repeats of one kernel of 180 us are on an H200."""
    problem = Gemm(4096, 4096, 4096)
    first, second = predict_best(problem, H200, use_measured=False).ranking.configs[:2]
    for times in ((180.0, 180.7), (180.7, 180.0)):
        rows = rows_of({first: (times[0],) * 2, second: (times[1],) * 2})
        assert finalists(rows, [first, second]) == [first, second]
        found = decide(problem, [first, second], default_config(problem), rows)
        assert found.config == first
        assert "tie" in found.note
