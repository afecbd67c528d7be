"""The command line: what a user types, what comes out, and with which exit status."""

import json
import shutil
import subprocess
import sys
import sysconfig
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from costmodel.cli import app as frame
from costmodel.cli.problem import problem_of
from costmodel.cli.tuning import MEASURED_COLUMNS, measured_rows, share_of, summary
from costmodel.config import KernelConfig
from costmodel.errors import ConfigError
from costmodel.learning.gate import RefusedModelError, Verdict
from costmodel.predict import predict_best
from costmodel.records.log import LineProblem, RunLog
from costmodel.records.schema import make_row

CHIP = ["--profile", "h200-sxm"]


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    folder = tmp_path / "home"
    monkeypatch.setenv("COSTMODEL_HOME", str(folder))
    return folder


def run(*arguments, answer=None):
    """The command in this process; errors of the package are let through."""
    for name in frame.COMMANDS:
        import_module(f"costmodel.cli.{name}")
    result = CliRunner().invoke(frame.app, [str(a) for a in arguments], input=answer)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def printed(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def failure(monkeypatch, capsys, *arguments):
    """Exit status and stderr of the entry point itself."""
    monkeypatch.setattr(sys, "argv", ["costmodel", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        frame.main()
    out, err = capsys.readouterr()
    assert out == ""
    return stop.value.code, err


def narrow(text):
    return max(map(len, text.splitlines())) <= 100


# --- predict and explain -------------------------------------------------------------------


def test_predict_as_json_is_the_library_answer():
    found = json.loads(printed("predict", 512, 512, 8192, *CHIP, "--top", 2, "--json"))
    answer = predict_best((512, 512, 8192), "h200-sxm")
    assert found == json.loads(json.dumps(answer.as_dict(2)))
    assert len(found["ranking"]) == 2


def test_predict_takes_dtype_layout_and_batch():
    text = printed(
        "predict", 64, 128, 256, *CHIP, "--dtype", "bf16", "--layout", "tn", "--batch", 3, "--json"
    )
    assert json.loads(text)["problem"] == str(problem_of(64, 128, 256, "bf16", "tn", 3))
    assert json.loads(text)["problem"] == "3x64x128x256 bf16 tn"


def test_predict_for_people_lists_the_ranking_within_100_columns():
    text = printed("predict", 4096, 4096, 4096, *CHIP, "--top", 8)
    answer = predict_best((4096, 4096, 4096), "h200-sxm")
    for place in range(8):
        row = answer.ranking[place]
        line = next(x for x in text.splitlines() if x.startswith(f" {row.config}  "))
        assert f"{row.time_us:.2f}" in line and row.bound in line
    assert f"{len(answer.rejections)} rejected: " in text
    assert narrow(text) and "\x1b" not in text


def test_explain_as_json_holds_bound_and_causes():
    found = json.loads(printed("explain", 512, 512, 8192, *CHIP, "--json"))
    assert found["bound"] in ("compute", "memory", "latency")
    assert {"low_block_count", "long_k"} <= {c["name"] for c in found["causes"]}
    assert all(set(c) == {"name", "evidence", "remedy"} for c in found["causes"])


def test_explain_with_a_forced_knob_prices_it():
    found = json.loads(printed("explain", 512, 512, 8192, *CHIP, "--set", "num_stages=3", "--json"))
    assert " s3 " in found["config"] and found["instead_of"]["time_us"] <= found["time_us"]
    assert [layer["name"] for layer in found["layers"]] == [
        "hardware_mapping", "data_scheduling", "compute_pipeline",
    ]  # fmt: skip
    text = printed("explain", 512, 512, 8192, *CHIP, "--config", "tile 128x128x64 w8 s4")
    assert "forced         tile 128x128x64 w8 s4 g8" in text and narrow(text)


def test_explain_of_a_configuration_that_does_not_fit_says_so_and_exits_with_0():
    asked = ("explain", 4096, 4096, 4096, *CHIP, "--config", "tile 256x256x64 w8 s5")
    # (256 + 256) x 64 x 2 bytes x 5 stages
    assert "needs 327680 of 232448 bytes, 95232 too many" in " ".join(printed(*asked).split())
    found = json.loads(printed(*asked, "--json"))
    assert found["rejected"] and found["causes"][0]["name"] == "shared_memory"
    assert found["bound"] in ("compute", "memory", "latency")


def test_explain_prints_the_prediction_explained():
    text = printed("explain", 512, 512, 8192, *CHIP)
    assert text.rstrip("\n") == predict_best((512, 512, 8192), "h200-sxm").explain()


# --- doctor --------------------------------------------------------------------------------


def test_doctor_reads_a_text_from_stdin_and_names_the_fault():
    text = "out of resource: shared memory, Required: 262144, Hardware limit: 232448. Reducing"
    result = run("doctor", "-", answer=text)
    assert result.exit_code == 0 and narrow(result.stdout)
    assert "out_of_shared_memory" in result.stdout and "29696 too many" in result.stdout
    found = json.loads(run("doctor", "--json", answer=text).stdout)
    assert found["kind"] == "error text" and not found["healthy"]


def test_doctor_judges_a_configuration_for_a_problem():
    found = json.loads(
        printed(
            "doctor", "--config", "tile 128x256x64 w4 s3", "--problem", "4096x4096x4096", *CHIP,
            "--json",
        )
    )  # fmt: skip
    assert "spill" in [cause["name"] for cause in found["findings"]]


# --- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "-1", "4096", "4096", *CHIP], "M must be between 1 and"),
        (["explain", "4096", "0", "4096", *CHIP], "N must be between 1 and"),
        (["predict", "16", "16", str(2**40), *CHIP], "K must be between 1 and"),
        (["predict", "16", "16", "16", *CHIP, "--batch", "-3"], "got -3"),
        (["predict", "16", "16", "16", *CHIP, "--dtype", "fp61"], "unknown dtype 'fp61'"),
        (["predict", "16", "16", "16", *CHIP, "--layout", "xx"], "unknown layout 'xx'"),
        (["predict", "16", "16", "16", "--profile", "h300-sxm"], "'h100-sxm'"),
        (
            ["predict", "16", "16", "16", "--profile", "a100-sxm-80gb", "--dtype", "fp8_e4m3"],
            "cannot run",
        ),
        (["profiles", "show", "none.toml"], "none.toml: cannot be read"),
        (["explain", "16", "16", "16", *CHIP, "--set", "stages=3"], "unknown knob 'stages'"),
        (["explain", "16", "16", "16", *CHIP, "--config", "tile 16"], "has no blocks"),
        (["doctor", "none.txt"], "there is no file none.txt"),
        (["doctor", "--config", "tile 64x64x64"], "give problem and profile too"),
        (["doctor", "--config", "tile 64x64x64", "--problem", "64"], "reads 4096x4096x4096"),
        (["train", "none.jsonl"], "none.jsonl"),
        (["evaluate", "--runs", "none.jsonl"], "none.jsonl"),
        (["evaluate", "--profile", "h999"], "unknown profile 'h999'"),
    ],
)
def test_an_error_is_one_line_on_stderr_and_exit_status_2(monkeypatch, capsys, arguments, words):
    status, err = failure(monkeypatch, capsys, *arguments)
    assert status == 2
    assert err.startswith("costmodel: ") and err.count("\n") == 1 and words in err


def test_a_misspelt_option_is_named_even_beside_good_sizes(monkeypatch, capsys):
    status, err = failure(monkeypatch, capsys, "predict", 16, 16, 16, "--profle", "h200-sxm")
    assert status == 2 and "--profle" in err and "--profile" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "16", "16", *CHIP], "costmodel predict: Missing argument 'K'; see"),
        (["nonsense"], "costmodel: No such command 'nonsense'; see costmodel --help"),
        (["explain", "16", "16", "16", "--top", "0", *CHIP], "costmodel explain: Invalid value"),
        (["tune", "16"], "costmodel tune: Missing argument"),
        (["explain", "16", "16", "16", *CHIP, "--plot", "shape.bmp"], "ending in .png"),
        (["explain", "16", "16", "16", *CHIP, "--html", "shape.txt"], "ending in .html"),
    ],
)
def test_wrong_use_is_one_line_and_exit_status_2(monkeypatch, capsys, arguments, words):
    status, err = failure(monkeypatch, capsys, *arguments)
    assert status == 2 and err.count("\n") == 1 and words in err


def test_a_command_that_ends_well_has_exit_status_0(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["costmodel", "profiles", "list"])
    with pytest.raises(SystemExit) as stop:
        frame.main()
    assert stop.value.code == 0 and "h200-sxm" in capsys.readouterr().out


def test_the_json_of_explain_and_doctor_has_these_fields_and_no_others():
    found = json.loads(printed("explain", 512, 512, 8192, *CHIP, "--json"))
    assert set(found) == {
        "problem", "profile", "chip", "unit_name", "config", "time_us", "tflops", "peak_tflops",
        "peak_share", "interval", "source", "calibrated", "beware", "spread", "bound",
        "roofline", "parts",
        "resources", "work", "runners_up", "candidates", "rejections", "causes", "unknown",
        "layers", "neighbours", "instead_of",
    }  # fmt: skip
    assert set(found["neighbours"][0]) == {
        "knob", "value", "config", "time_us", "change", "bound", "rejection",
    }  # fmt: skip
    refused = json.loads(
        printed("explain", 64, 64, 64, *CHIP, "--config", "tile 256x256x64 w8 s5", "--json")
    )
    assert set(refused) == {
        "problem", "profile", "config", "rejected", "reason", "meaning", "needed", "limit",
        "unit", "bound", "parts_bytes", "repairs", "causes",
    }  # fmt: skip


def test_explain_draws_its_pictures_and_its_page(tmp_path):
    pytest.importorskip("matplotlib")
    picture, page = tmp_path / "shape.svg", tmp_path / "shape.html"
    printed("explain", 512, 512, 512, *CHIP, "--plot", picture, "--html", page)
    assert picture.read_text().startswith("<?xml") and "</html>" in page.read_text()


def test_a_size_that_is_no_number_is_a_usage_error(monkeypatch, capsys):
    status, err = failure(monkeypatch, capsys, "predict", "many", 16, 16, *CHIP)
    assert status == 2 and "Invalid value for 'M'" in err


# --- tune ----------------------------------------------------------------------------------


@pytest.fixture
def tuned(monkeypatch):
    """A tuning result as a GPU would give it, and a record of the call."""
    prediction = predict_best((512, 512, 8192), "h200-sxm")
    best = prediction.ranking[0].config
    row = {"protocol": "cold-l2/1", "device_name": "NVIDIA H200", "run": "r", "sequence": 0}
    good = {"count": 10, "error": 1e-4, "invalidity": "correct", **row}
    wrong = {"invalidity": "correctness", "reason": "error 0.5", **row}
    rows = [
        make_row(prediction.problem, prediction.ranking[1].config, backend="triton", **wrong),
        make_row(prediction.problem, None, backend="origin", time_us=30.0, **good),
        make_row(
            prediction.problem, best, backend="triton", time_us=20.0, p10_us=19.5, p90_us=21.0,
            **good,
        ),
    ]  # fmt: skip
    calls = []
    result = SimpleNamespace(
        problem=prediction.problem, config=best, time_us=20.0, vendor_us=30.0, rows=rows,
        prediction=prediction, note="2 configurations measured", vendor=None,
        default=None, default_us=None, within=None, confidence=None,
        as_dict=lambda: {"time_us": 20.0, "spread": float("inf")},
    )  # fmt: skip

    def fake(problem, profile=None, *, top_k=None, within=None, confidence=None, seeds=0):
        calls.append((str(problem), profile, top_k, within, confidence))
        return result

    monkeypatch.setattr(import_module("costmodel.measure.tune"), "tune", fake)
    return SimpleNamespace(result=result, calls=calls)


def test_tune_hands_on_problem_chip_and_top_k_and_infinity_is_null_in_json(tuned):
    text = printed("tune", 512, 512, 8192, *CHIP, "--top-k", 2, "--json")
    assert tuned.calls == [("512x512x8192 fp16 nt", "h200-sxm", 2, None, None)]
    assert json.loads(text) == {"time_us": 20.0, "spread": None}


@pytest.mark.parametrize(
    ("written", "share"), [("2%", 0.02), ("0.02", 0.02), (" 2.5 % ", 0.025), ("0", 0.0)]
)
def test_a_share_is_written_in_percent_or_as_a_number(written, share):
    assert share_of("--within", written) == pytest.approx(share)


@pytest.mark.parametrize("written", ["", "%", "two", "nan", "inf", "-2%", "100%", "1e400"])
def test_what_is_no_share_is_refused_by_the_options_name(written):
    with pytest.raises(ConfigError, match="--within takes a share below 1, such as 2% or 0.02"):
        share_of("--within", written)


def test_a_share_written_without_its_percent_sign_is_asked_about():
    with pytest.raises(ConfigError, match="got '90'; did you mean 90%"):
        share_of("--confidence", "90")


def test_tune_hands_on_what_was_promised(tuned):
    printed("tune", 512, 512, 8192, *CHIP, "--within", "2%", "--confidence", "0.95", "--json")
    assert tuned.calls == [("512x512x8192 fp16 nt", "h200-sxm", None, 0.02, 0.95)]


def test_tune_lists_runs_by_time_with_the_vendor_and_failures_last(tuned):
    rows = measured_rows(tuned.result)
    first = tuned.result.prediction.ranking[0]
    # 2 * 512 * 512 * 8192 FLOP / 20 us = 214.7 TFLOPS
    assert rows[0] == (
        str(first.config), "20.00", "19.50", "21.00", "214.7", f"{first.time_us:.2f}",
    )  # fmt: skip
    assert rows[1][:2] == ("the vendor's GEMM", "30.00")
    assert rows[2][1] == "correctness"
    assert all(len(row) == len(MEASURED_COLUMNS) for row in rows)
    assert "1.50 times as long" in summary(tuned.result)
    text = printed("tune", 512, 512, 8192, *CHIP)
    assert "the vendor's GEMM" in text and narrow(text)


# --- train and evaluate --------------------------------------------------------------------


def test_train_reports_what_was_fitted_and_where_it_lies(monkeypatch, tmp_path):
    verdict = Verdict({"geomean": 0.96}, {"geomean": 0.95}, 48)

    def fake(logs, profile, *, out, shipped, source, force):
        assert logs == [Path("a.jsonl"), Path("b.jsonl")] and profile == "h200-sxm"
        assert (shipped, source, force) == (True, None, False)
        manifest = {"scores": {"cv_top1_geomean": 0.95, "cv_top1_min": 0.7}, "devices": ["d"]}
        return SimpleNamespace(
            ranker=SimpleNamespace(low=-0.1, high=0.2), path=out, shapes=3, rows=40,
            manifest=manifest, verdict=verdict, kept=tmp_path / "m.old.npz",
            problems=[("a.jsonl", LineProblem(3, "above the roofline", "row"))],
        )  # fmt: skip

    monkeypatch.setattr(import_module("costmodel.learning.train"), "train", fake)
    arguments = ["train", "a.jsonl", "b.jsonl", *CHIP, "--out", tmp_path / "m.npz"]
    found = json.loads(printed(*arguments, "--json"))
    assert found["path"] == str(tmp_path / "m.npz") and found["rows"] == 40
    assert found["spread"] == [-0.1, 0.2] and found["scores"]["cv_top1_min"] == 0.7
    text = printed(*arguments)
    assert "40 runs of 3 problems" in text and "0.700 on the worst" in text
    assert "left out: a.jsonl, line 3: above the roofline" in text
    assert "0.960 of the best with the new model, 0.950 with the old" in text
    assert "the old model is kept as" in text and "m.old.npz" in text
    assert found["gate"]["old"] == {"geomean": 0.95} and found["installed"] is True


def test_a_refused_model_is_one_line_with_both_scores_and_exit_status_2(monkeypatch, capsys):
    verdict = Verdict({"geomean": 0.7}, {"geomean": 0.95}, 48, reasons=["it chooses worse"])

    def fake(*_, **__):
        raise RefusedModelError(verdict)

    monkeypatch.setattr(import_module("costmodel.learning.train"), "train", fake)
    status, err = failure(monkeypatch, capsys, "train", "a.jsonl")
    assert status == 2 and err.count("\n") == 1
    assert "0.700 of the best with the new model, 0.950 with the old" in err and "--force" in err
    monkeypatch.setattr(sys, "argv", ["costmodel", "train", "a.jsonl", "--json"])
    with pytest.raises(SystemExit):
        frame.main()
    plain = json.loads(capsys.readouterr().out)
    assert plain["installed"] is False and plain["gate"]["new"] == {"geomean": 0.7}


@pytest.fixture
def heldout_log(tmp_path):
    """A log with four runs of one held-out shape: the best took 100 us."""
    from costmodel.shapes import read_shapes

    problem = read_shapes("heldout")[0].problem
    log = RunLog(tmp_path / "runs.jsonl")
    for number, block in enumerate((16, 32, 64, 128)):
        config = KernelConfig("tile", block, 64, 32, num_warps=4, num_stages=2)
        log.append(
            make_row(
                problem, config, backend="triton", time_us=100.0 * (number + 1), count=10,
                error=1e-4, invalidity="correct", protocol="cold-l2/1", device="h200-sxm",
                device_name="NVIDIA H200", run="r", sequence=number,
                timestamp="2026-01-01T00:00:00Z",
            )
        )  # fmt: skip
    return log.path


def test_evaluate_on_four_runs_of_one_shape(heldout_log):
    arguments = ["evaluate", "--runs", heldout_log, *CHIP, "--physics"]
    found = json.loads(printed(*arguments, "--json"))
    assert found["n_shapes"] == 1 and found["ranked_by"] == "physics"
    assert set(found["top"]) == {"1", "3", "5", "8", "16"}
    assert found["top"]["5"] == {"geomean": 1.0, "p10": 1.0, "min": 1.0}  # all four among five
    # best over a uniform choice, geometric mean: (1 * 1/2 * 1/3 * 1/4) ** (1/4) = 0.4518
    assert found["baselines"]["random"]["geomean"] == 0.4518
    assert {"prune_recall", "kendall_tau", "interval_coverage"} <= set(found)

    text = printed(*arguments)
    for words in ("top 16", "random", "The five worst", "Kendall's tau", "worst"):
        assert words in text
    assert narrow(text)
    markdown = printed(*arguments, "--markdown")
    assert "| first k | geometric mean | 10th percentile | worst |" in markdown
    assert "| --- | ---: | ---: | ---: |" in markdown
    assert "| top 5 | 1.000 | 1.000 | 1.000 |" in markdown


@pytest.mark.parametrize("also", [["--physics"], ["--curve"]])
def test_a_plot_folder_that_cannot_be_made_is_one_line_and_exit_status_1(
    monkeypatch, capsys, heldout_log, also
):
    pytest.importorskip("matplotlib")

    def judged(*given, **options):
        raise AssertionError("the folder comes first")

    monkeypatch.setattr("costmodel.learning.evaluate.evaluate", judged)
    monkeypatch.setattr("costmodel.learning.evaluate.judging_and_training", lambda *of: ([], []))
    monkeypatch.setattr("costmodel.learning.refits.Refits.curve", judged)
    command = ["evaluate", "--runs", heldout_log, *CHIP, *also, "--plot", heldout_log]
    told = f"costmodel: {heldout_log}: File exists\n"
    assert failure(monkeypatch, capsys, *command) == (1, told)


# --- profiles and cache --------------------------------------------------------------------


def test_profiles_are_listed_and_shown_with_their_evidence():
    names = json.loads(printed("profiles", "list", "--json"))
    assert {"a100-sxm-80gb", "h200-sxm", "mi300x"} <= set(names)
    assert "132 SMs" in printed("profiles", "list")
    found = json.loads(printed("profiles", "show", "h200-sxm", "--json"))
    assert found["figures"]["units"] == 132
    assert found["figures"]["peak_tflops.fp16"] == 989.4
    assert found["evidence"]["launch_floor_us"]["confidence"] == "measured"
    text = printed("profiles", "show", "mi300x")
    assert "unknown" in text and narrow(text)


def test_cache_shows_sizes_and_clears_only_what_the_package_wrote(home):
    (home / "models").mkdir(parents=True)
    (home / "profiles").mkdir()
    ours = {"log.jsonl": 10, "answers.jsonl": 5, "models/ranker.npz": 7, "models/ranker.json": 2}
    for name, size in ours.items():
        (home / name).write_bytes(b"x" * size)
    others = ["notes.txt", "models/mine.npz", "profiles/own.toml"]
    for name in others:
        (home / name).write_text("mine")
    found = json.loads(printed("cache", "show", "--json"))
    assert found == {"folder": str(home), "files": ours, "bytes": 24}
    assert "answers.jsonl" in printed("cache", "show")

    refused = run("cache", "clear", answer="n\n")
    assert refused.exit_code == 1 and (home / "log.jsonl").exists()
    assert "removed 4 files" in printed("cache", "clear", "--yes")
    left = sorted(p.relative_to(home).as_posix() for p in home.rglob("*") if p.is_file())
    assert left == sorted(others)


def test_an_empty_models_folder_goes_with_its_model_and_nothing_to_clear_is_no_error(home):
    (home / "models").mkdir(parents=True)
    (home / "models" / "ranker.npz").write_bytes(b"x")
    assert "removed 1 file" in printed("cache", "clear", "--yes")
    assert home.is_dir() and not (home / "models").exists()
    assert "nothing there" in printed("cache", "clear")
    assert json.loads(printed("cache", "show", "--json"))["files"] == {}


# --- the installed script ------------------------------------------------------------------


@pytest.fixture(scope="module")
def script():
    path = shutil.which("costmodel", path=sysconfig.get_path("scripts"))
    assert path, "the package is not installed"
    return path


def test_the_installed_script_prints_version_and_json_alone(script, tmp_path):
    def call(*arguments):
        return subprocess.run([script, *arguments], cwd=tmp_path, text=True, capture_output=True)

    version = call("--version")
    assert version.stdout.strip() == metadata.version("triton-costmodel")
    done = call("explain", "1", "4096", "4096", *CHIP, "--json")
    assert done.returncode == 0 and done.stderr == ""
    assert "memory_bound" in {c["name"] for c in json.loads(done.stdout)["causes"]}
    bad = call("predict", "-1", "2", "3", *CHIP)
    assert bad.returncode == 2 and bad.stdout == ""
    assert bad.stderr.startswith("costmodel: M must be") and "Traceback" not in bad.stderr


def test_every_command_has_help_with_an_example():
    for command in (
        ["predict"], ["explain"], ["tune"], ["ladder"], ["collect"], ["train"], ["evaluate"],
        ["import"], ["export"], ["runs", "best"], ["runs", "compare"], ["runs", "check"],
        ["runs", "compact"],
        ["profiles", "list"], ["profiles", "show"], ["cache", "show"], ["cache", "clear"],
    ):  # fmt: skip
        text = printed(*command, "--help")
        assert "Example" in text and f"costmodel {' '.join(command)}" in " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--winners", 3], "needs --have"),
        (["--ranked", "--unpruned"], "give one"),
        (["--winners", 3, "--have", "x", "--ranked"], "give one"),
        (["--unpruned", "--configs", 10], "not of --unpruned"),
        (["--ranked", "--kernels", 0], "--ranked takes none"),
        (["--kernels", 0], "needs --configs"),
        (["--draws", 8], "give --kernels too"),
        (["--seed", -1], "'--seed'"),
    ],
)
def test_options_of_collect_of_which_one_would_be_ignored_are_refused(
    monkeypatch, capsys, options, message
):
    status, err = failure(monkeypatch, capsys, "collect", "--shapes", "train", *options)
    assert status == 2 and message in " ".join(err.split())


@pytest.mark.parametrize("option", [("--plot", "a.png"), ("--html", "a.html"), ("--compile",)])
def test_a_configuration_that_cannot_run_is_not_drawn(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run("explain", 512, 512, 8192, *CHIP, "--set", "num_stages=32", *option)
    assert found.exit_code == 2 and "cannot run" in found.stderr and not list(tmp_path.iterdir())
