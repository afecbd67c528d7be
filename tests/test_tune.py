"""``tune`` measures few, believes no wrong result, breaks ties the same way, and remembers.

The measuring process is a stand-in whose clock is a function of the configuration: what is proved
is which times decide, not that any of them is right.
"""

import json
import subprocess
import sys
import time
from itertools import count

import pytest

from costmodel.cli.tuning import measured_rows, summary
from costmodel.config import KernelConfig
from costmodel.errors import ConfigError, DeviceError, ProblemError
from costmodel.measure import tune as module
from costmodel.measure import worker
from costmodel.measure.decide import TIE, usual_config
from costmodel.measure.tune import survivors, tune
from costmodel.measure.vendor_kernels import VendorGemm, VendorLaunch, parse_kernel_name
from costmodel.predict import predict_best
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.ranking.baselines import default_config
from costmodel.records.answers import recall
from costmodel.records.log import RunLog
from costmodel.records.schema import config_of, make_row

H200 = load_profile("h200-sxm")
PROBLEM = Gemm(4096, 4096, 4096)
#: what tune measures beside the first few: tile 64x64x32
DEFAULT = default_config(PROBLEM)
FACTS = {"device": "h200-sxm", "device_name": "NVIDIA H200", "units": 132, "run": "a"}


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A user's folder without models and answers."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def clock(monkeypatch):
    """Put a stand-in in the measuring process' place; gives what was measured, in order.

    ``read(config, n)`` is the n-th time of a configuration (None for the vendor's), in us, or the
    word and reason of its failure. The default is slow unless ``default_us`` says otherwise, and
    with None it is read as the others.
    """

    def install(read, facts=FACTS, default_us=99.0):
        asked = []

        class StandIn:
            def __init__(self, options):
                self.facts = facts
                self.sequence = count()

            def __enter__(self):
                return self

            def __exit__(self, *_):
                return None

            def measure(self, problem, configs):
                for config in configs:
                    slow = config == DEFAULT and default_us is not None
                    time_us = default_us if slow else read(config, asked.count(config))
                    asked.append(config)
                    outcome = (
                        {"invalidity": time_us[0], "reason": time_us[1]}
                        if isinstance(time_us, tuple)
                        else {"time_us": time_us, "p10_us": time_us - 1, "p90_us": time_us + 1}
                    )
                    yield make_row(
                        problem, config, backend="triton" if config else "origin",
                        protocol="stand-in/1", sequence=next(self.sequence), **facts, **outcome,
                    )  # fmt: skip

        monkeypatch.setattr(worker, "MeasuringProcess", StandIn)
        monkeypatch.setattr(module, "require_gpu", lambda: None)
        monkeypatch.setattr(module, "vendor_kernel_if_seen", lambda problem, device: None)
        return asked

    return install


def ranked(number=8):
    """The first few of the prediction, which is what ``tune`` measures."""
    return list(predict_best(PROBLEM, H200, use_measured=False).ranking.configs[:number])


# --- how many -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "top_k", "expected"),
    [
        (6, 0.5, 3),  # of 10 candidates 4 were rejected
        (6, 8, 6),
        (6, 1, 1),
        (6, 1.0, 6),
        (6, 0.01, 1),
        (600, 8, 8),
        (600, 2.0, 2),
        (1, 0.5, 1),
    ],
)
def test_top_k_is_a_number_or_a_share_of_what_survived(number, top_k, expected):
    assert survivors(number, top_k) == expected


@pytest.mark.parametrize("top_k", [0, -1, 0.0, float("nan"), True, "8", None])
def test_a_top_k_that_is_no_positive_number_is_refused(top_k):
    with pytest.raises(ConfigError, match="top_k must be a positive number or share"):
        survivors(6, top_k)


def test_a_promise_measures_as_many_as_the_ranking_says(clock):
    asked = clock(lambda config, n: 10.0 if config else 12.0)
    wanted = predict_best(PROBLEM, H200, use_measured=False).enough(0.05, 0.8)
    found = tune(PROBLEM, H200, within=0.05, confidence=0.8)
    assert asked[: wanted + 2] == [None, *ranked(wanted), DEFAULT]
    assert (found.within, found.confidence, found.measured) == (0.05, 0.8, wanted + 1)
    assert f"{wanted + 1} measured: within 5% of the best of" in summary(found)


@pytest.mark.parametrize("half", [{"within": 0.02}, {"confidence": 0.9}])
def test_half_a_promise_is_two_percent_with_ninety(clock, half):
    clock(lambda config, n: 10.0)
    found = tune(PROBLEM, H200, **half)
    assert (found.within, found.confidence) == (0.02, 0.9)


@pytest.mark.parametrize("half", [{"within": 0.02}, {"confidence": 0.9}])
def test_a_number_and_a_promise_at_once_are_refused_before_anything_is_measured(clock, half):
    asked = clock(lambda config, n: 10.0)
    with pytest.raises(ConfigError, match="give one or the other"):
        tune(PROBLEM, H200, top_k=8, **half)
    assert not asked


@pytest.mark.parametrize("promise", [{"within": 1.0}, {"within": -0.1}, {"confidence": 1.0}])
def test_a_promise_that_is_no_share_is_refused_before_anything_is_measured(clock, promise):
    asked = clock(lambda config, n: 10.0)
    with pytest.raises(ConfigError, match="must be a share"):
        tune(PROBLEM, H200, **promise)
    assert not asked


def test_an_infinite_top_k_is_all_or_is_refused():
    try:
        number = survivors(6, float("inf"))
    except ConfigError:
        return
    assert number == 6


# --- which ----------------------------------------------------------------------------------------


def test_the_top_few_are_measured_and_the_fastest_three_again_with_the_vendor_between(clock):
    chosen = ranked(5)
    speed = dict(zip(chosen, (50.0, 40.0, 30.0, 20.0, 10.0), strict=True))
    asked = clock(lambda config, n: speed[config] if config else 25.0)
    found = tune(PROBLEM, H200, top_k=5)
    again = [chosen[4], None, chosen[3], None, chosen[2], None]
    assert asked == [None, *chosen, DEFAULT, None, *again]
    assert (found.config, found.time_us, found.vendor_us) == (chosen[4], 10.0, 25.0)
    assert (found.measured, found.note) == (6, "measured")
    assert found.vendor_ratio == 2.5


def test_a_finalists_last_time_decides_and_not_its_luckiest(clock):
    lucky, steady = ranked(2)
    times = {lucky: (5.0, 12.0), steady: (10.0, 10.0), None: (11.0,) * 9}
    clock(lambda config, n: times[config][n])
    found = tune(PROBLEM, H200, top_k=2)
    assert (found.config, found.time_us) == (steady, 10.0)


def test_two_within_the_noise_are_a_tie_and_the_better_predicted_of_them_wins_each_time(clock):
    first, second = ranked(2)
    speed = {first: 10.0 * (1 + TIE * 0.9), second: 10.0, None: 11.0}
    clock(lambda config, n: speed[config])
    for _ in range(2):
        found = tune(PROBLEM, H200, top_k=2, again=True)
        assert found.config == first
        assert found.note.startswith("a tie of 2 within 0.5%")


def test_two_further_apart_than_the_noise_are_no_tie(clock):
    first, second = ranked(2)
    speed = {first: 10.0 * (1 + TIE * 1.5), second: 10.0, None: 11.0}
    clock(lambda config, n: speed[config])
    found = tune(PROBLEM, H200, top_k=2)
    assert (found.config, found.note) == (second, "measured")


def test_of_more_ties_than_finalists_the_better_predicted_are_timed_again(clock):
    """Else noise would choose the three, and with them the answer."""
    chosen = ranked(5)
    for turn in (1, -1):  # which of the five reads fastest changes; all lie within the noise
        speed = {c: 10.0 + turn * 0.001 * place for place, c in enumerate(chosen)} | {None: 11.0}
        asked = clock(lambda config, n, speed=speed: speed[config])
        found = tune(PROBLEM, H200, top_k=5, again=True)
        assert asked[-6::2] == chosen[:3]
        assert found.config == chosen[0]
        assert found.note.startswith("a tie of 3 within 0.5%")


# --- a gain or none ---------------------------------------------------------------------------


def test_the_default_is_timed_beside_the_chosen_and_its_ratio_is_told(clock):
    clock(lambda config, n: 10.0 if config else 12.0, default_us=30.0)
    found = tune(PROBLEM, H200, top_k=2)
    assert (found.default, found.default_us, found.default_ratio) == (DEFAULT, 30.0, 3.0)
    assert "the default, tile 64x64x32 w4 s3 g8: 30.00 us, 3.00 times as long" in summary(found)
    assert ["tile 64x64x32 w4 s3 g8 (default)"] == [name for name, *_ in measured_rows(found)[-1:]]
    assert "no gain" not in found.note
    plain = found.as_dict()
    assert (plain["default_us"], plain["default_ratio"]) == (30.0, 3.0)
    assert KernelConfig(**plain["default_config"]) == DEFAULT


def test_a_default_as_fast_is_no_gain_and_the_better_predicted_still_the_answer(clock):
    first = ranked(1)[0]
    clock(lambda config, n: 10.0 if config else 12.0, default_us=10.0 * (1 + TIE * 0.9))
    found = tune(PROBLEM, H200, top_k=1)
    assert found.config == first
    assert found.note.startswith("a tie of 2")
    assert found.note.endswith("no gain over the default, tile 64x64x32 w4 s3 g8: 10.04 us")


def test_a_default_faster_than_all_predicted_is_the_answer_and_says_so(clock):
    clock(lambda config, n: 10.0 if config else 12.0, default_us=8.0)
    found = tune(PROBLEM, H200, top_k=3)
    assert (found.config, found.time_us) == (DEFAULT, 8.0)
    assert "no gain over the default" in found.note
    assert recall(PROBLEM, H200).config == DEFAULT


def test_a_vendor_as_fast_is_no_gain_and_a_slower_one_is_none_told(clock):
    clock(lambda config, n: 10.0 if config else 10.04)
    assert "no gain over the vendor's GEMM: 10.04 us" in tune(PROBLEM, H200, top_k=1).note
    clock(lambda config, n: 10.0 if config else 10.06)
    assert tune(PROBLEM, H200, top_k=1, again=True).note == "measured"


def test_where_no_candidate_but_the_default_runs_it_is_the_answer(clock):
    clock(lambda config, n: ("compile", "ptxas gave up") if config else 10.0, default_us=20.0)
    assert tune(PROBLEM, H200, top_k=2).config == DEFAULT


def test_a_default_that_fails_leaves_its_time_unknown(clock):
    clock(lambda config, n: ("runtime", "no") if config == DEFAULT else 10.0, default_us=None)
    found = tune(PROBLEM, H200, top_k=2)
    assert (found.default_us, found.default_ratio) == (None, None)
    assert "the default" not in summary(found)


def test_a_default_that_the_chip_refuses_is_not_measured():
    # 128x128x64 of fp32 in 3 stages, 2 buffers: 2 * (128 + 128) * 64 * 4 = 131072 of 101376 bytes
    assert usual_config(Gemm(64, 64, 4096, dtype="fp32"), load_profile("rtx-4090")) is None
    assert usual_config(PROBLEM, H200) == DEFAULT


def test_a_wrong_result_never_wins_however_fast(clock):
    wrong, right = ranked(2)

    def read(config, n):
        return ("correctness", "relative error 0.5") if config == wrong else 10.0

    clock(read)
    found = tune(PROBLEM, H200, top_k=2)
    assert found.config == right
    assert [run["invalidity"] for run in found.as_dict()["runs"]].count("correctness") == 1


def test_a_wrong_result_with_a_time_never_wins_and_one_that_goes_wrong_later_does_neither(clock):
    turns, right = ranked(2)

    def read(config, n):
        if config == turns:
            return 5.0 if n == 0 else ("correctness", "relative error 0.5")
        return 10.0

    clock(read)
    assert tune(PROBLEM, H200, top_k=2).config == right


def test_where_every_candidate_fails_the_reasons_are_named_and_nothing_is_remembered(clock):
    first = ranked(1)[0]

    def read(config, n):
        if config is None:
            return 10.0
        return ("compile", "ptxas gave up") if config == first else ("runtime", "illegal address")

    clock(read, default_us=None)
    with pytest.raises(DeviceError, match="illegal address; ptxas gave up"):
        tune(PROBLEM, H200, top_k=3)
    assert recall(PROBLEM, H200) is None


def test_a_vendor_that_fails_leaves_its_time_unknown(clock):
    clock(lambda config, n: 10.0 if config else ("runtime", "no such kernel"))
    found = tune(PROBLEM, H200, top_k=2)
    assert (found.vendor_us, found.vendor_ratio) == (None, None)
    assert recall(PROBLEM, H200).vendor_us is None


# --- the vendor's tile -------------------------------------------------------------------------

SEEN = VendorGemm(
    (
        VendorLaunch(
            parse_kernel_name("nvjet_hsh_192x192_64x3_2x1_v_bz_TNN"), (132, 1, 1), (384, 1, 1), 9.0
        ),
    )
)


def test_the_vendors_tile_joins_what_is_measured_and_can_win(clock, monkeypatch):
    asked = clock(lambda config, n: 10.0 if config and config.block_m == 192 else 20.0)
    monkeypatch.setattr(module, "vendor_kernel_if_seen", lambda problem, device: SEEN)
    found = tune(PROBLEM, H200, top_k=2, seeds=1)
    assert asked[1:3] == ranked(2)
    assert (asked[3].block_m, asked[3].block_n) == (192, 192)
    assert (found.config, found.measured) == (asked[3], 4)
    assert found.as_dict()["vendor_kernels"]["tile"] == (192, 192)
    assert "vendor: nvjet 192x192, K step 64 x 3 stages" in summary(found)


def test_without_being_asked_the_vendors_kernel_is_shown_and_not_tried(clock, monkeypatch):
    asked = clock(lambda config, n: 10.0)
    monkeypatch.setattr(module, "vendor_kernel_if_seen", lambda problem, device: SEEN)
    found = tune(PROBLEM, H200, top_k=2)
    assert set(asked) == {None, *ranked(2), DEFAULT}
    assert found.vendor is SEEN


# --- what stays -----------------------------------------------------------------------------------


def test_an_answer_is_remembered_and_given_back_unmeasured(clock, home):
    asked = clock(lambda config, n: 10.0 if config else 12.0)
    first = tune(PROBLEM, H200, top_k=2)
    number = len(asked)
    second = tune(PROBLEM, H200, top_k=2)
    assert len(asked) == number
    assert (second.config, second.time_us, second.vendor_us) == (first.config, 10.0, 12.0)
    assert (second.measured, second.rows) == (0, [])
    assert second.note.startswith("measured before, on 20")
    predicted = predict_best(PROBLEM, H200)
    assert (predicted.source, predicted.time_us) == ("measured", 10.0)
    assert predicted.interval == (9.0, 11.0)


def test_again_measures_what_is_known(clock):
    asked = clock(lambda config, n: 10.0)
    tune(PROBLEM, H200, top_k=2)
    number = len(asked)
    tune(PROBLEM, H200, top_k=2, again=True)
    assert len(asked) == 2 * number


def test_every_row_goes_to_the_log_and_failures_too(clock, home, tmp_path):
    clock(lambda config, n: 10.0 if config else ("runtime", "no such kernel"))
    found = tune(PROBLEM, H200, top_k=2, log=tmp_path / "own.jsonl")
    assert RunLog(tmp_path / "own.jsonl").read().rows == found.rows
    # vendor, two candidates, the default, vendor; each of the three again, the vendor after it
    assert [config_of(row) is None for row in found.rows] == [
        True, False, False, False, True, False, True, False, True, False, True,
    ]  # fmt: skip
    assert not (home / "log.jsonl").exists()
    tune(PROBLEM, H200, top_k=2, again=True)
    assert len(RunLog(home / "log.jsonl").read().rows) == 11


def test_plain_values_can_be_written_as_json(clock):
    clock(lambda config, n: 10.0 if config else 12.0)
    plain = json.loads(json.dumps(tune(PROBLEM, H200, top_k=2).as_dict(), allow_nan=False))
    assert plain["configs_measured"] == 3
    assert plain["vendor_ratio"] == 1.2
    assert plain["tflops"] == pytest.approx(2 * 4096**3 / 10 / 1e6)
    assert [run["config"] for run in plain["runs"]].count("vendor") == 5


# --- without measuring ----------------------------------------------------------------------------


def test_the_one_candidate_that_survives_is_returned_without_measuring(monkeypatch):
    only = KernelConfig("tile", 128, 128, 64, num_warps=8)
    huge = KernelConfig("tile", 256, 256, 256, num_warps=8, num_stages=5)

    def two(problem, chip, **options):
        return predict_best(problem, chip, configs=[huge, only], **options)

    monkeypatch.setattr(module, "predict_best", two)
    found = tune(PROBLEM, H200)
    assert (found.config, found.measured, found.rows) == (only, 0, [])
    assert found.note == "one candidate survived pruning: nothing to measure"
    assert recall(PROBLEM, H200) is None


def test_without_a_gpu_the_error_says_that_predict_needs_none():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError, match="predict needs none"):
        tune(PROBLEM, H200)


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DeviceError, match=r"torch and triton .*predict needs none"):
        tune(PROBLEM, H200)


def test_a_profile_of_another_chip_than_the_one_at_hand_is_refused(clock):
    asked = clock(lambda config, n: 10.0, facts=FACTS | {"device": "h100-sxm"})
    with pytest.raises(DeviceError, match="the GPU at hand is h100-sxm, not h200-sxm"):
        tune(PROBLEM, H200)
    assert not asked


def test_a_bad_shape_is_refused_before_anything_is_measured(clock):
    asked = clock(lambda config, n: 10.0)
    with pytest.raises(ProblemError):
        tune((0, 1, 1), H200)
    assert not asked


# --- at once

AT_ONCE = """
import json, pathlib, sys, threading, time
from itertools import count
from costmodel.measure import tune as module, worker
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.records.schema import make_row

folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
FACTS = {"device": "h200-sxm", "device_name": "NVIDIA H200", "units": 132, "run": name}

class StandIn:
    def __init__(self, options):
        self.facts, self.sequence = FACTS, count()

    def __enter__(self):
        (folder / f"measured-{name}-{threading.get_ident()}").touch()
        time.sleep(0.3)  # the others come while this one measures
        return self

    def __exit__(self, *_):
        return None

    def measure(self, problem, configs):
        for config in configs:
            yield make_row(
                problem, config, backend="triton" if config else "origin", time_us=150.0,
                p10_us=150.0, p90_us=150.0, protocol="stand-in/1", sequence=next(self.sequence),
                **FACTS,
            )

worker.MeasuringProcess = StandIn
module.require_gpu = lambda: None
module.vendor_kernel_if_seen = lambda problem, device: None
(folder / f"ready-{name}").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
found = []

def tune():
    found.append(module.tune(Gemm(4096, 4096, 4096), load_profile("h200-sxm"), top_k=2))

threads = [threading.Thread(target=tune) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps([[str(r.config), r.time_us, r.measured] for r in found]))
"""


def test_two_threads_in_each_of_two_processes_make_one_measurement_and_get_one_answer(
    home, tmp_path
):
    command = [sys.executable, "-c", AT_ONCE, str(tmp_path)]
    running = [
        subprocess.Popen([*command, name], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for name in "ab"
    ]
    while not all((tmp_path / f"ready-{name}").exists() for name in "ab"):
        assert all(process.poll() is None for process in running)
        time.sleep(0.01)
    (tmp_path / "go").touch()
    answers = [answer for process in running for answer in json.loads(process.communicate()[0])]
    assert len(list(tmp_path.glob("measured-*"))) == 1
    assert len(answers) == 4 and len({(config, time_us) for config, time_us, _ in answers}) == 1
    assert sorted(measured for *_, measured in answers) == [0, 0, 0, 3]  # two and the default
    assert len((home / "answers.jsonl").read_text().splitlines()) == 1
