"""Examples of the README, its translation and the guide: run, or checked if they need a GPU."""

import ast
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from costmodel.cli import app as frame

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "README.zh-CN.md", "docs/guide.md")
#: need a GPU, minutes, or a file of one's own: their arguments are checked and nothing is run
NOT_RUN = (
    "tune", "ladder", "collect", "train", "evaluate", "cache clear", "runs", "import",
    "profiles calibrate",
)  # fmt: skip
DOCTOR = Path(__file__).parent / "data" / "doctor"


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """An empty folder with the files that a reader would have."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name, example in (
        ("kernel.ptx", "mma_sync_sm90.ptx"),
        ("runs.jsonl", "healthy_4096.jsonl"),
        ("my-log.jsonl", "healthy_4096.jsonl"),
    ):
        (tmp_path / name).write_bytes((DOCTOR / example).read_bytes())
    return tmp_path


def blocks(page, language):
    """(line before, text) of each fenced block of a language."""
    found, inside, mark, before = [], None, "", ""
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            if inside is None:
                inside, kind, mark = [], line[3:], before
            else:
                if kind == language:
                    found.append((mark, "\n".join(inside)))
                inside = None
        elif inside is not None:
            inside.append(line)
        before = line
    return found


def commands(page):
    """The shell lines that start with or pipe into our command."""
    for _, block in blocks(page, ""):
        for line in block.splitlines():
            found = re.search(r"(?:^|\| )(costmodel .*)", line)
            if found:
                yield found.group(1)


COMMANDS = [(page, line) for page in PAGES for line in commands(page)]


def test_each_page_has_examples():
    for page in PAGES:
        assert len(list(commands(page))) >= 5 and len(blocks(page, "python")) >= 2, page


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{p}:{c}" for p, c in COMMANDS])
def test_a_command_of_a_page_runs(page, line):
    for name in frame.COMMANDS:
        import_module(f"costmodel.cli.{name}")
    arguments = shlex.split(line, comments=True)[1:]
    # M N K stand for sizes
    arguments = ["64" if word in ("M", "N", "K") else word for word in arguments]
    if " ".join(arguments).startswith(NOT_RUN):
        command = typer.main.get_command(frame.app)
        while hasattr(command, "commands"):
            command = command.commands[arguments.pop(0)]
        command.make_context("costmodel", arguments)  # raises for what it does not take
        return
    text = "RuntimeError: Triton Error [CUDA]: misaligned address"
    result = CliRunner().invoke(frame.app, arguments, input=text)
    assert result.exit_code == 0, (result.output, result.exception)
    assert result.stdout and max(map(len, result.stdout.splitlines())) <= 100 or "--json" in line


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs_in_its_order(page):
    import costmodel

    names = {"cm": costmodel}
    for mark, code in blocks(page, "python"):
        tree = ast.parse(code)
        if "on a GPU" in mark or re.search(r"kernels\.launch|cm\.matmul", code):
            continue  # it parses; tests of the kernels run what it calls
        exec(compile(tree, page, "exec"), names)  # noqa: S102  (our own pages)


def test_pages_name_no_option_or_file_that_is_not_there():
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"
        for script in re.findall(r"python ((?:data|docs)/[\w/.]+\.py)", text):
            assert (ROOT / script).exists(), f"{page}: {script}"


def test_the_guide_names_every_cause_that_there_is():
    from costmodel.explain.causes import CHECKS

    text = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    assert {check.__name__ for check in CHECKS} == set(
        re.findall(r"^\| (\w+_\w+|spill) \|", text, re.M)
    )


def test_every_command_has_help_with_an_example_that_it_takes():
    for name in frame.COMMANDS:
        import_module(f"costmodel.cli.{name}")
    root = typer.main.get_command(frame.app)

    def walk(command, path):
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(child, [*path, name])
        if not hasattr(command, "commands"):
            yield path, command

    found = list(walk(root, []))
    assert len(found) >= 12
    for path, command in found:
        examples = re.findall(r"`(?:[^`|]*\| )?costmodel ([^`]+)`", command.help or "")
        own = [line for line in examples if line.startswith(" ".join(path))]
        assert own, path
        for line in own:
            arguments = shlex.split(" ".join(line.split()))[len(path) :]
            command.make_context("costmodel", arguments, resilient_parsing=False)
