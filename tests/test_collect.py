"""``collect`` measures what is missing, once, and keeps what it measured however it ends.

Stand-ins take the places of the measuring process and of the compilers: nothing is compiled, and
every time is 10 us.
"""

import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from costmodel.config import ConfigTable, KernelConfig
from costmodel.measure import collect as module
from costmodel.measure.collect import collect
from costmodel.measure.jobs import Job, ranked_job, sample_job, whole_job, winners_jobs
from costmodel.measure.worker import WorkerOptions
from costmodel.predict import predict_best
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.records.groups import Group
from costmodel.records.log import RunLog
from costmodel.records.schema import config_of, make_row, row_key
from costmodel.records.source_hash import kernel_hash
from costmodel.space.candidates import candidates
from costmodel.space.prune import prune

H200 = load_profile("h200-sxm")
ONE, TWO = Gemm(512, 512, 512), Gemm(1024, 512, 512)
FACTS = {
    "device": "h200-sxm", "device_name": "NVIDIA H200", "units": 132, "driver": "580.1",
    "torch": "2.11.0", "triton": "3.6.0", "run": "a",
}  # fmt: skip
CONFIGS = tuple(
    KernelConfig("tile", m, 64, 64, num_stages=s) for m in (32, 64, 128) for s in (2, 3)
)


class StandIn:
    """Gives 10 us for everything, and counts what it was asked in ``asked``."""

    def __init__(self, options):
        self.options = options
        self.facts = FACTS
        self.floor = SimpleNamespace(median_us=2.5)
        self.sequence = count()
        self.asked = []
        self.read = lambda config: 10.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def measure(self, problem, configs):
        for config in configs:
            time_us = self.read(config)
            self.asked.append((problem, config))
            if time_us is None:
                yield self.failure(problem, config, "compile", "ptxas gave up")
            else:
                yield self._row(problem, config, time_us=time_us)

    def failure(self, problem, config, word, why):
        return self._row(problem, config, invalidity=word, reason=why)

    def _row(self, problem, config, **outcome):
        return make_row(
            problem, config, backend="triton" if config else "origin",
            kernel_hash=kernel_hash(config.template) if config else None,
            protocol=self.options.protocol.name, sequence=next(self.sequence), **FACTS, **outcome,
        )  # fmt: skip


class Compilers:
    """Compiles nothing; ``late`` are the configurations that it does not finish."""

    late: tuple[KernelConfig, ...] = ()

    def __init__(self, profile, workers):
        self.submitted = []
        self.closed = False

    def submit(self, problem, configs):
        self.submitted += configs
        return list(configs)

    def wait(self, pending):
        return [config for config in pending if config in self.late]

    def close(self):
        self.closed = True


@pytest.fixture
def bench(monkeypatch):
    """The stand-ins of the latest collection, as ``bench.process`` and ``bench.pool``."""
    latest = SimpleNamespace(process=None, pool=None, read=lambda config: 10.0, late=())

    def process(options):
        latest.process = StandIn(options)
        latest.process.read = latest.read
        return latest.process

    def pool(profile, workers):
        latest.pool = Compilers(profile, workers)
        latest.pool.late = latest.late
        return latest.pool

    monkeypatch.setattr(module, "MeasuringProcess", process)
    monkeypatch.setattr(module, "CompilePool", pool)
    return latest


@pytest.fixture
def log(tmp_path):
    return RunLog(tmp_path / "log.jsonl")


def run(jobs, log, **options):
    return collect(jobs, log, H200, options=WorkerOptions(run="a"), **options)


# --- what is measured -----------------------------------------------------------------------------


def test_everything_is_measured_and_logged_with_the_vendor_before_and_after(bench, log):
    report = run([Job(ONE, CONFIGS), Job(TWO, CONFIGS[:2])], log)
    asked = [config for _, config in bench.process.asked]
    assert asked == [None, *CONFIGS, None, None, *CONFIGS[:2], None]
    rows = log.read().rows
    assert [config_of(row) for row in rows] == asked
    assert (report.measured, report.failed, report.skipped, report.jobs) == (12, 0, 0, 2)
    assert (report.stopped, report.floor_us) == ("finished", 2.5)
    assert bench.pool.closed


def test_the_vendor_is_timed_again_after_every_so_many_configurations(bench, log, monkeypatch):
    monkeypatch.setattr(module, "_VENDOR_EVERY", 4)
    run([Job(ONE, CONFIGS)], log)
    asked = [config for _, config in bench.process.asked]
    assert asked == [None, *CONFIGS[:4], None, *CONFIGS[4:], None]


def test_a_second_collection_measures_only_what_is_missing(bench, log):
    run([Job(ONE, CONFIGS[:4])], log)
    report = run([Job(ONE, CONFIGS), Job(TWO, CONFIGS[:1])], log)
    assert [c for p, c in bench.process.asked if c and p == ONE] == list(CONFIGS[4:])
    assert bench.pool.submitted == [*CONFIGS[4:], CONFIGS[0]]
    assert report.skipped == 4
    keys = Counter(row_key(row) for row in log.read().rows if row["backend"] == "triton")
    assert len(keys) == 7 and set(keys.values()) == {1}


def test_a_job_with_nothing_left_costs_nothing_and_not_even_the_vendors_time(bench, log):
    run([Job(ONE, CONFIGS)], log)
    report = run([Job(ONE, CONFIGS)], log)
    assert bench.process.asked == []
    assert (report.measured, report.skipped, report.jobs) == (0, 6, 0)


def test_a_failure_is_known_too_and_not_tried_again(bench, log):
    bench.read = lambda config: None if config == CONFIGS[1] else 10.0
    report = run([Job(ONE, CONFIGS)], log)
    assert (report.measured, report.failed) == (7, 1)
    assert run([Job(ONE, CONFIGS)], log).skipped == 6


def test_rows_known_from_elsewhere_are_not_measured(bench, log, tmp_path):
    elsewhere = RunLog(tmp_path / "elsewhere.jsonl")
    run([Job(ONE, CONFIGS[:3])], elsewhere)
    report = run([Job(ONE, CONFIGS)], log, known=elsewhere.keys())
    assert [c for _, c in bench.process.asked if c] == list(CONFIGS[3:])
    assert report.skipped == 3


def test_again_measures_what_is_known(bench, log):
    run([Job(ONE, CONFIGS)], log)
    report = run([Job(ONE, CONFIGS)], log, again=True)
    assert (report.measured, report.skipped) == (8, 0)
    assert len(log.read().rows) == 16


@pytest.mark.parametrize(
    "other",
    [
        Gemm(512, 512, 512, dtype="bf16"),
        Gemm(512, 512, 512, layout="nn"),
        Gemm(512, 512, 512, batch=2),
        Gemm(512, 512, 512, beta=1.0),
    ],
)
def test_another_problem_of_the_same_sizes_is_not_known(bench, log, other):
    run([Job(ONE, CONFIGS)], log)
    assert run([Job(other, CONFIGS)], log).skipped == 0


def test_jobs_are_compiled_ahead_and_all_are_measured(bench, log, monkeypatch):
    monkeypatch.setattr(module, "_LOOKAHEAD", 2)
    problems = [Gemm(64 * i, 64, 64) for i in range(1, 8)]
    submitted = []

    def see(job, row):
        submitted.append(len(bench.pool.submitted))

    report = run([Job(p, CONFIGS[:1]) for p in problems], log, on_row=see)
    assert report.jobs == 7
    assert submitted[0] == 3  # the first job is measured when two more are being compiled
    assert [p for p, c in bench.process.asked if c] == problems


def test_what_the_compilers_do_not_finish_is_a_timeout_and_the_rest_is_measured(bench, log):
    bench.late = CONFIGS[:2]
    report = run([Job(ONE, CONFIGS)], log)
    assert [c for _, c in bench.process.asked if c] == list(CONFIGS[2:])
    late = [row for row in log.read().rows if row["invalidity"] == "timeout"]
    assert [config_of(row) for row in late] == list(CONFIGS[:2])
    assert {row["reason"] for row in late} == {"not compiled in 60 s"}
    assert (report.measured, report.failed) == (6, 2)


# --- how it ends ----------------------------------------------------------------------------------


def test_a_budget_of_runs_ends_it_and_a_second_call_goes_on(bench, log):
    report = run([Job(ONE, CONFIGS)], log, runs=4)
    assert (report.measured, report.stopped) == (4, "the budget of 4 runs is spent")
    assert len(log.read().rows) == 4  # the vendor's and three
    assert run([Job(ONE, CONFIGS)], log).skipped == 3


def test_a_budget_of_seconds_ends_it_after_the_row_at_hand(bench, log, monkeypatch):
    now = iter([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(now)))
    report = run([Job(ONE, CONFIGS)], log, seconds=2.5)
    assert report.stopped == "the budget of 2.5 s is spent"
    assert len(log.read().rows) == 3  # at 1, 2 and 3 s
    assert report.seconds == 4.0
    assert bench.pool.closed


def test_ctrl_c_keeps_what_is_measured_and_says_so(bench, log):
    def read(config):
        if config == CONFIGS[3]:
            raise KeyboardInterrupt
        return 10.0

    bench.read = read
    report = run([Job(ONE, CONFIGS)], log)
    assert report.stopped == "interrupted"
    assert report.measured == len(log.read().rows) == 4  # the vendor's and three
    assert bench.pool.closed
    bench.read = lambda config: 10.0
    assert run([Job(ONE, CONFIGS)], log).skipped == 3


def test_another_error_is_not_swallowed_and_keeps_the_rows(bench, log):
    def read(config):
        if config == CONFIGS[1]:
            raise OSError("disk full")
        return 10.0

    bench.read = read
    with pytest.raises(OSError, match="disk full"):
        run([Job(ONE, CONFIGS)], log)
    assert len(log.read().rows) == 2
    assert bench.pool.closed


def test_each_row_is_shown_with_its_job(bench, log):
    seen = []
    jobs = [Job(ONE, CONFIGS[:1]), Job(TWO, CONFIGS[:1])]
    run(jobs, log, on_row=lambda job, row: seen.append((job, row["m"])))
    assert seen == [(jobs[0], 512)] * 3 + [(jobs[1], 1024)] * 3


# --- jobs -----------------------------------------------------------------------------------------


def test_a_sample_is_the_same_for_the_same_seed_and_problem_and_another_for_others():
    one = sample_job(ONE, H200, 40, seed=1)
    assert one == sample_job(ONE, H200, 40, seed=1)
    assert one.configs != sample_job(ONE, H200, 40, seed=2).configs
    assert len(set(one.configs)) == 40


def test_a_sample_is_legal_and_none_is_drawn_twice():
    for problem in (ONE, Gemm(1, 4096, 4096), Gemm(17, 33, 65)):
        job = sample_job(problem, H200, 100, seed=3)
        kept, rejected = prune(problem, job.configs, H200)
        assert len(rejected) == 0 and len(set(kept)) == len(job.configs)


def test_few_kernels_are_shared_by_problems_and_fill_the_sample():
    few = [sample_job(problem, H200, 60, seed=1, kernels=0.0) for problem in (ONE, TWO)]
    many = [sample_job(problem, H200, 60, seed=1) for problem in (ONE, TWO)]
    assert [len(job.configs) for job in few] == [60, 60]

    def kernels(jobs):
        return len({replace(c, group_m=None, split_k=1) for job in jobs for c in job.configs})

    assert kernels(few) < 0.7 * kernels(many)


def test_draws_are_as_many_and_each_shape_takes_one():
    # of whole kernels: "tile" alone, whose kernels the cut leaves to the draw
    sizes = [Gemm(256 * m, 256 * n, 1024) for m in (2, 4, 8) for n in (2, 4, 8)]
    one = {
        frozenset(c for c in sample_job(p, H200, 20, 1, 0.0, draws=1).configs if c.split_k == 1)
        for p in sizes
    }
    many = {
        frozenset(c for c in sample_job(p, H200, 20, 1, 0.0, draws=9).configs if c.split_k == 1)
        for p in sizes
    }
    kernels = [len(frozenset().union(*some)) for some in (one, many)]
    assert kernels[1] > 2 * kernels[0]
    problem = sizes[0]
    job = sample_job(problem, H200, 20, 1, 0.0, draws=9)
    assert job == sample_job(problem, H200, 20, 1, 0.0, draws=9)


def test_ranked_are_the_first_of_the_prediction():
    first = [row.config for row in predict_best(ONE, H200, use_measured=False).ranking][:5]
    assert ranked_job(ONE, H200, 5) == Job(ONE, tuple(first))


def test_the_whole_holds_what_prune_rejects():
    whole = whole_job(ONE, H200)
    kept, rejected = prune(ONE, whole.configs, H200)
    assert len(rejected) > 0 and len(kept) + len(rejected) == len(whole.configs)


def test_a_sample_larger_than_the_grid_is_the_grid():
    kept, _ = prune(ONE, candidates(ONE, H200), H200)
    for number in (None, 10**6, len(kept)):
        assert sample_job(ONE, H200, number, seed=0).configs == tuple(kept)


def test_the_winners_are_the_fastest_of_each_group_fastest_first():
    times = np.array([30.0, 10.0, 20.0, 10.0, 50.0, 40.0])
    group = Group(ONE, "h200-sxm", ConfigTable.of(CONFIGS), times, times < 0, float("nan"))
    (job,) = winners_jobs([group], 3)
    # two are equal: the first of them in the table comes first
    assert job == Job(ONE, (CONFIGS[1], CONFIGS[3], CONFIGS[2]))
    assert len(winners_jobs([group], 99)[0].configs) == 6


KILLED = """
import os, signal, sys, time
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from costmodel.config import KernelConfig
from costmodel.measure import collect as module
from costmodel.measure.worker import WorkerOptions
from costmodel.predict import predict_best
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.records.log import RunLog
from costmodel.records.schema import make_row
from costmodel.records.source_hash import kernel_hash

FACTS = {"device": "h200-sxm", "device_name": "NVIDIA H200", "units": 132, "run": sys.argv[2]}
CONFIGS = tuple(KernelConfig("tile", m, 64, 64, num_stages=s) for m in (32, 64, 128, 256)
                for s in (2, 3, 4, 5, 6))
last = int(sys.argv[3])  # the measurement that the process does not outlive

class StandIn:
    def __init__(self, options):
        self.options, self.facts = options, FACTS
        self.floor, self.sequence = SimpleNamespace(median_us=2.5), count()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def measure(self, problem, configs):
        for config in configs:
            number = next(self.sequence)
            if number == last:
                os.kill(os.getpid(), signal.SIGKILL)
            yield make_row(
                problem, config, backend="triton" if config else "origin", time_us=10.0,
                kernel_hash=kernel_hash(config.template) if config else None, sequence=number,
                protocol=self.options.protocol.name, **FACTS,
            )

class Compilers:
    def __init__(self, profile, workers):
        pass

    def submit(self, problem, configs):
        return []

    def wait(self, pending):
        return []

    def close(self):
        pass

module.MeasuringProcess, module.CompilePool = StandIn, Compilers
report = module.collect([module.Job(Gemm(512, 512, 512), CONFIGS)], RunLog(sys.argv[1]),
                        load_profile("h200-sxm"), options=WorkerOptions(run=sys.argv[2]))
print(report.measured, report.skipped)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kills with SIGKILL")
def test_a_collection_that_was_killed_half_way_measures_only_what_is_missing(log, tmp_path):
    def collect_in_a_process(run, last):
        command = [sys.executable, "-c", KILLED, str(log.path), run, str(last)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert collect_in_a_process("a", 11).returncode == -signal.SIGKILL
    assert len(log.read().rows) == 11  # the vendor's and ten of twenty
    done = collect_in_a_process("b", -1)
    assert done.stdout.split() == ["12", "10"]  # the other ten, the vendor's before and after
    keys = Counter(row_key(row) for row in log.read().rows if row["backend"] == "triton")
    assert len(keys) == 20 and set(keys.values()) == {1}
    assert collect_in_a_process("c", -1).stdout.split() == ["0", "20"]
