"""The ladder changes one variable a rung, keeps what gains, and counts no wrong result.

The measuring process is a stand-in whose clock is a function of the configuration: what is proved
is which times decide and what is told of them, not that any of them is right.
"""

import json
from dataclasses import asdict
from itertools import count, pairwise

import pytest
from typer.testing import CliRunner

import costmodel as cm
from costmodel.cli import app as frame
from costmodel.cli.ladder import RUNG_COLUMNS, rung_rows
from costmodel.config import KNOBS, KernelConfig
from costmodel.errors import ConfigError, DeviceError, NoCandidateError, UnknownNameError
from costmodel.explain.plots import ladder_picture
from costmodel.measure import climb as module
from costmodel.measure.climb import ladder
from costmodel.measure.rungs import MOST_TRIED, PLAIN, STEPS, choices
from costmodel.measure.timing import Protocol
from costmodel.measure.vendor_kernels import VendorGemm, launches_of
from costmodel.predict import predict_best
from costmodel.problem import Gemm
from costmodel.profile import list_profiles, load_profile
from costmodel.records.log import RunLog
from costmodel.records.schema import config_of, make_row
from costmodel.space.prune import broken_rule

H200 = load_profile("h200-sxm")
PROBLEM = Gemm(4096, 4096, 4096)
CHIP = ["--profile", "h200-sxm"]
VENDOR_US = 200.0
SEEN = VendorGemm(
    launches_of(
        [
            {
                "cat": "kernel", "name": "nvjet_hsh_192x192_64x3_2x1_v_bz_TNN", "ts": 0.0,
                "dur": 190.0, "args": {"grid": [132, 1, 1], "block": [384, 1, 1]},
            }
        ]
    )
)  # fmt: skip


def speed(config):
    """A clock in us by which each variable but one has one best value; the vendor takes 200."""
    if config is None:
        return VENDOR_US
    blocks = {(128, 64, 32): 0.7, (128, 256, 64): 0.6}
    return (
        1000.0
        * blocks.get((config.block_m, config.block_n, config.block_k), 1.0)
        * {16: 1.0, 32: 0.8, 64: 0.6, 128: 0.5}[config.load_bits]
        * (0.8 if config.num_stages == 4 else 1.0)
        * (0.9 if config.num_warps == 8 else 1.0)
        * (0.95 if config.group_m == 8 else 1.0)
        * (1.1 if config.swap else 1.0)
        * (1.2 if config.split_k > 1 else 1.0)
        * (0.9 if config.template == "persistent_tma" else 1.0)
    )


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A user's folder without models and answers."""
    for name in ("M", "N", "K", "DTYPE", "REPEATS", "BACKEND"):
        monkeypatch.delenv(f"COSTMODEL_{name}", raising=False)
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def clock(monkeypatch):
    """Put stand-ins in the places of the measuring process and of the compilers.

    ``read(config)`` is a time in us, or the word and reason of a failure; gives what was asked.
    """

    def install(read=speed, device="h200-sxm", late=()):
        asked = []
        facts = {"device": device, "device_name": "NVIDIA H200", "units": 132, "run": "a"}

        class StandIn:
            def __init__(self, options):
                install.options = options
                self.facts = facts
                self.sequence = count()

            def __enter__(self):
                return self

            def __exit__(self, *_):
                return None

            def measure(self, problem, configs):
                for config in configs:
                    asked.append(config)
                    yield self.row(problem, config, read(config))

            def failure(self, problem, config, word, why):
                return self.row(problem, config, (word, why))

            def row(self, problem, config, read):
                outcome = (
                    {"invalidity": read[0], "reason": read[1]}
                    if isinstance(read, tuple)
                    else {"time_us": read, "p10_us": read - 1, "p90_us": read + 1, "error": 2e-4}
                )
                return make_row(
                    problem, config, backend="triton" if config else "origin",
                    protocol="stand-in/1", sequence=next(self.sequence), **facts, **outcome,
                )  # fmt: skip

        class Pool:
            def __init__(self, profile):
                pass

            def submit(self, problem, configs):
                return configs

            def wait(self, pending):
                return [config for config in pending if config in late]

            def close(self):
                asked.append("closed")

        monkeypatch.setattr(module, "MeasuringProcess", StandIn)
        monkeypatch.setattr(module, "CompilePool", Pool)
        monkeypatch.setattr(module, "require_gpu", lambda: None)
        monkeypatch.setattr(module, "vendor_kernel_if_seen", lambda problem, device: SEEN)
        return asked

    return install


# --- the steps ------------------------------------------------------------------------------------


def differing(one, other):
    return {name for name in KNOBS if getattr(one, name) != getattr(other, name)}


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (16, 4096, 4096), (512, 512, 8192)])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_steps_choices_change_its_variable_alone_and_can_run(step, shape):
    problem = Gemm(*shape)
    found = choices(step, problem, H200, PLAIN)
    assert len(found) <= MOST_TRIED and len(set(found)) == len(found)
    for config in found:
        assert differing(PLAIN, config) and differing(PLAIN, config) <= set(step.knobs)
        assert broken_rule(problem, config, H200) is None
    assert found == choices(step, problem, H200, PLAIN)
    assert found[:2] == choices(step, problem, H200, PLAIN, most=2)


def test_the_steps_are_those_of_tuning_by_hand_and_name_every_knob():
    assert [step.name for step in STEPS] == [
        "blocks", "load width", "pipeline depth", "blocks again", "warps", "order of tiles",
        "operand swap", "split of K", "accumulation", "template", "its blocks", "its depth",
        "epilogue",
    ]  # fmt: skip
    knobs = [name for step in STEPS for name in step.knobs]
    assert sorted(set(knobs)) == sorted(KNOBS)


def test_the_plain_kernel_loads_an_element_at_a_time_and_can_run_on_every_gpu():
    assert str(PLAIN) == "tile 64x64x32 w4 s2 g1 load16"
    for chip in map(load_profile, list_profiles()):
        if not chip.knobs:  # a chip that names its own knobs has other kernels
            assert broken_rule(PROBLEM, PLAIN, chip) is None


def names(step_name, problem, config):
    step = next(step for step in STEPS if step.name == step_name)
    return choices(step, problem, H200, config)


def test_rows_of_tiles_are_grouped_only_where_there_are_several():
    # 4096 / 64 = 64 rows of tiles; 16 rows of C are one
    groups = sorted(c.group_m for c in names("order of tiles", PROBLEM, PLAIN))
    assert groups == [2, 4, 8, 16, 32]
    assert names("order of tiles", Gemm(16, 4096, 4096), PLAIN) == []
    # 128 / 64 = 2 rows: a group of 4 is the whole already
    two = Gemm(128, 4096, 4096)
    assert [c.group_m for c in names("order of tiles", two, PLAIN)] == [2]


def test_depth_is_no_variable_where_loads_are_not_pipelined():
    # 16 bits are below the asynchronous copy's least: only "no overlap" is another kernel
    assert [c.num_stages for c in names("pipeline depth", PROBLEM, PLAIN)] == [1]
    wide = KernelConfig(**PLAIN.as_dict() | {"load_bits": 128})
    depths = {c.num_stages for c in names("pipeline depth", PROBLEM, wide)}
    assert depths == {1, 3, 4, 5, 6, 8, 12}


def test_narrow_loads_leave_out_blocks_whose_loads_take_minutes_to_compile():
    blocks = {(c.block_m, c.block_n, c.block_k) for c in names("blocks", PROBLEM, PLAIN)}
    # elements a thread at 16 bits, 128 threads: 192 * 32 / 128 = 48, and 256 * 64 / 128 = 128 > 96
    assert (128, 64, 32) in blocks and (128, 128, 64) not in blocks


# --- the climb ------------------------------------------------------------------------------------


def test_every_rung_changes_its_variable_alone_until_the_tuned_one(clock):
    asked = clock()
    found = ladder(PROBLEM, H200)
    assert [rung.name for rung in found.rungs] == [
        "plain", *(step.name for step in STEPS), "tuned",
    ]  # fmt: skip
    for before, rung in pairwise(found.rungs[:-1]):
        assert differing(before.config, rung.config) <= set(rung.knobs)
        assert rung.gained == (rung.config != before.config)
        if not rung.gained:
            assert rung.time_us == before.time_us and rung.change.startswith("kept")
    assert found.rungs[0].config == PLAIN
    assert all(rung.tried <= MOST_TRIED for rung in found.rungs)
    assert asked[-1] == "closed"


def test_the_best_value_of_each_variable_is_kept_and_a_worse_one_never(clock):
    clock()
    found = {rung.name: rung for rung in ladder(PROBLEM, H200).rungs}
    assert found["plain"].time_us == 1000.0
    assert found["blocks"].change == "64x64x32 to 128x64x32"
    assert found["load width"].change == "16 bits to 128 bits"
    assert found["pipeline depth"].change == "2 to 4"
    assert found["warps"].change == "4 to 8"
    assert found["order of tiles"].change == "1 to 8"
    # 1.1 times as long, and the least of the splits 1.2 times
    swap, split, sums = (found[n] for n in ("operand swap", "split of K", "accumulation"))
    assert (swap.change, split.change, sums.change) == ("kept as given", "kept tile 1", "kept")
    assert swap.note == "nothing gained, the best of 1 tried took +10.0% time"
    assert split.note == "nothing gained, the best of 6 tried took +20.0% time"
    assert sums.note == "sums in fp16 are a choice of the problem, never of a kernel for it"
    assert found["template"].change == "tile to persistent_tma"
    assert found["accumulation"].tried == 0
    # 1000 * 0.7 * 0.5 * 0.8 * 0.9 * 0.95 * 0.9
    assert found["epilogue"].time_us == pytest.approx(215.46)


def test_the_last_rung_measures_the_models_choices_and_the_vendors_tile(clock):
    asked = clock()
    found = ladder(PROBLEM, H200)
    ranked = list(predict_best(PROBLEM, H200, use_measured=False).ranking.configs[:8])
    assert set(ranked) <= set(asked)
    assert {(192, 192)} <= {(c.block_m, c.block_n) for c in asked if isinstance(c, KernelConfig)}
    last = found.rungs[-1]
    best = min((c for c in set(asked) if isinstance(c, KernelConfig)), key=speed)
    assert speed(last.config) == speed(best) == last.time_us


def test_within_the_noise_the_old_value_stays(clock):
    clock(lambda config: VENDOR_US if config is None else 100.0 - 0.1 * (config.load_bits == 128))
    found = ladder(PROBLEM, H200)
    assert {rung.config for rung in found.rungs} == {PLAIN}
    assert found.rungs[2].note.endswith("-0.1% time")


def test_a_luckier_first_time_does_not_decide(clock):
    times = {}

    def read(config):
        if config is None:
            return VENDOR_US
        times[config] = times.get(config, 0) + 1
        return 50.0 if times[config] == 1 and config != PLAIN else 100.0

    clock(read)
    assert {rung.config for rung in ladder(PROBLEM, H200).rungs} == {PLAIN}


def test_a_wrong_or_failing_configuration_is_counted_and_never_chosen(clock):
    def read(config):
        if config and config.load_bits == 128:
            return ("correctness", "relative error 0.5")
        return speed(config)

    clock(read)
    found = {rung.name: rung for rung in ladder(PROBLEM, H200).rungs}
    assert found["load width"].change == "16 bits to 64 bits"
    assert (found["load width"].tried, found["load width"].failed) == (3, 1)
    # every candidate of the model's promises 128 bits
    assert found["tuned"].note == "none of the 12 tried ran correctly"


def test_what_does_not_compile_in_time_is_a_row_and_not_measured(clock, home):
    slow = KernelConfig(**PLAIN.as_dict() | {"load_bits": 128, "block_m": 128})
    asked = clock(late=[slow])
    found = {rung.name: rung for rung in ladder(PROBLEM, H200).rungs}
    assert slow not in asked
    assert found["load width"].change == "16 bits to 64 bits"
    logged = RunLog(home / "log.jsonl").read().rows
    assert [row["invalidity"] for row in logged if config_of(row) == slow] == ["timeout"]


def test_rows_go_to_the_log_in_order_and_the_vendor_is_timed_each_rung(clock, tmp_path):
    asked = clock()
    found = ladder(PROBLEM, H200, log=tmp_path / "own.jsonl")
    assert RunLog(tmp_path / "own.jsonl").read().rows == found.rows
    assert [config_of(row) for row in found.rows] == asked[:-1]
    rungs_with_runs = sum(rung.tried > 0 for rung in found.rungs)
    assert asked.count(None) == rungs_with_runs
    assert (found.vendor_us, found.vendor_error) == (VENDOR_US, 2e-4)


def test_each_backend_alone(clock):
    asked = clock()
    ours = ladder(PROBLEM, H200, backend="triton")
    assert None not in asked and ours.vendor_us is None and ours.vendor is None
    assert {row["vendor_ratio"] for row in ours.figures()} == {None}
    asked.clear()
    theirs = ladder(PROBLEM, H200, backend="origin")
    assert asked == [None, "closed"]
    assert (theirs.rungs, theirs.vendor_us, theirs.vendor) == ((), VENDOR_US, SEEN)


def test_repeats_fix_the_timed_launches_and_leave_the_protocol(clock):
    clock()
    ladder(PROBLEM, H200, backend="origin", repeats=30)
    used = install_options(clock)
    assert asdict(used) == asdict(Protocol()) | {"least_repeats": 30, "most_repeats": 30}
    ladder(PROBLEM, H200, backend="origin")
    assert install_options(clock) == Protocol()


def install_options(clock):
    return clock.options.protocol


# --- refusals -------------------------------------------------------------------------------------


def test_without_a_gpu_the_error_is_that_of_tune():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError, match="predict needs none"):
        ladder(PROBLEM, H200)


def test_what_cannot_be_asked_is_refused_before_anything_is_measured(clock):
    asked = clock()
    with pytest.raises(UnknownNameError, match="unknown backend 'cublas'"):
        ladder(PROBLEM, H200, backend="cublas")
    with pytest.raises(ConfigError, match="repeats must be a positive whole number"):
        ladder(PROBLEM, H200, repeats=0)
    with pytest.raises(NoCandidateError, match="grid"):
        ladder((64, 64, 64), H200, batch=70_000)
    assert asked == []


def test_another_chip_than_the_one_at_hand_is_refused(clock):
    asked = clock(device="h100-sxm")
    with pytest.raises(DeviceError, match="the GPU at hand is h100-sxm, not h200-sxm"):
        ladder(PROBLEM, H200)
    assert asked == []


def test_a_plain_kernel_that_does_not_run_ends_the_ladder_with_its_reason(clock):
    asked = clock(lambda config: ("runtime", "illegal address") if config else VENDOR_US)
    with pytest.raises(DeviceError, match="plain kernel did not run .*illegal address"):
        ladder(PROBLEM, H200)
    assert asked == [None, PLAIN, "closed"]


def test_a_vendor_that_fails_leaves_its_figures_unknown_unless_it_was_all_that_was_asked(clock):
    clock(lambda config: speed(config) if config else ("runtime", "no such kernel"))
    found = ladder(PROBLEM, H200)
    assert (found.vendor_us, found.vendor_tflops, found.vendor_error) == (None, None, None)
    with pytest.raises(DeviceError, match="no such kernel"):
        ladder(PROBLEM, H200, backend="origin")


# --- what is told ---------------------------------------------------------------------------------


def test_figures_are_rates_shares_and_both_gaps(clock):
    clock()
    found = ladder(PROBLEM, H200)
    plain, blocks = found.figures()[:2]
    # 2 * 4096^3 FLOP in 1000 us; the H200's dense fp16 peak is 989.4 TFLOPS
    assert plain["tflops"] == pytest.approx(137.439, abs=1e-3)
    assert plain["of_peak"] == pytest.approx(137.439 / 989.4, rel=1e-3)
    assert plain["gap_to_peak"] == pytest.approx(plain["of_peak"] - 1)
    assert (plain["vendor_ratio"], plain["gain"]) == (0.2, None)
    assert plain["gap_to_vendor"] == pytest.approx(-0.8)
    assert blocks["gain"] == pytest.approx(1 / 0.7 - 1)
    assert blocks["error"] == 2e-4


def run(*arguments):
    from importlib import import_module

    for name in frame.COMMANDS:
        import_module(f"costmodel.cli.{name}")
    result = CliRunner().invoke(frame.app, ["ladder", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_json_holds_every_rung_with_its_figures(clock):
    clock()
    answer = run(4096, 4096, 4096, *CHIP, "--json")
    assert answer.exit_code == 0
    plain = json.loads(answer.stdout)
    assert plain["problem"] == "4096x4096x4096 fp16 nt" and plain["bound"] == "compute"
    assert plain["vendor_us"] == VENDOR_US
    assert plain["vendor_kernels"]["kernels"][0]["tile"] == [192, 192]
    assert len(plain["rungs"]) == len(STEPS) + 2
    for rung in plain["rungs"]:
        assert set(rung) == {
            "rung", "variable", "change", "gained", "config", "config_text", "time_us", "p10_us",
            "p90_us", "tflops", "of_peak", "gap_to_peak", "vendor_ratio", "gap_to_vendor", "gain",
            "error", "tried", "failed", "note",
        }  # fmt: skip
    assert plain["rungs"][0]["config"] == PLAIN.as_dict()
    assert plain["rungs"][1]["variable"] == ["block_m", "block_n", "block_k"]


def test_the_table_shows_each_rung_and_fits_the_screen(clock):
    clock()
    text = run(4096, 4096, 4096, *CHIP).stdout
    assert max(map(len, text.splitlines())) <= 100
    words = " ".join(text.split())
    assert "vendor: nvjet 192x192, K step 64 x 3 stages, cluster 2x1" in words
    assert "operand swap: nothing gained, the best of 1 tried took +10.0% time" in words
    assert "times the plain kernel's rate" in words
    rows = rung_rows(ladder(PROBLEM, H200))
    assert all(len(row) == len(RUNG_COLUMNS) for row in rows)
    assert rows[0] == (
        "plain", str(PLAIN), "137.4", "14% (-86%)", "20% (-80%)", "", "2.0e-04", "1",
    )  # fmt: skip
    assert rows[1][5] == "+42.9%"


def test_the_environment_stands_in_for_arguments_and_an_argument_wins(clock, monkeypatch):
    asked = clock()
    given = {"M": 512, "N": 256, "K": 1024, "DTYPE": "bf16", "REPEATS": 7, "BACKEND": "origin"}
    for name, value in given.items():
        monkeypatch.setenv(f"COSTMODEL_{name}", str(value))
    plain = json.loads(run(*CHIP, "--json").stdout)
    assert plain["problem"] == "512x256x1024 bf16 nt"
    assert plain["rungs"] == [] and asked == [None, "closed"]
    assert install_options(clock).most_repeats == 7
    plain = json.loads(run(64, *CHIP, "--dtype", "fp16", "--json").stdout)
    assert plain["problem"] == "64x256x1024 fp16 nt"


def test_a_picture_is_written_with_or_without_the_vendor(clock, tmp_path):
    pytest.importorskip("matplotlib")
    clock()
    assert run(4096, 4096, 4096, *CHIP, "--plot", tmp_path / "a.png").exit_code == 0
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    for backend in ("triton", "origin"):
        ladder_picture(ladder(PROBLEM, H200, backend=backend), tmp_path / f"{backend}.svg")
        text = (tmp_path / f"{backend}.svg").read_text(encoding="utf-8")
        assert "<svg" in text


def test_the_public_name_is_the_function():
    assert cm.ladder is ladder
