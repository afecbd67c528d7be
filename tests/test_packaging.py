"""The wheel holds what the repository tracks, and it predicts with numpy alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# A folder of the repository -> where its files stand in the wheel.
MAPPED = {"costmodel/": "costmodel/", "kernels/": "costmodel/kernels/", "data/": "costmodel/data/"}

# Runs in a bare interpreter: -I -S leaves out the environment's .pth files, among them the
# editable install, which would supply a file that the wheel lacks.
PREDICT = """
import sys

BLOCKED = {"torch", "triton", "sklearn", "scipy", "pandas"}

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked in this test", name=name)

sys.meta_path.insert(0, Blocker())
sys.path[:0] = [sys.argv[1]]  # the wheel
sys.path += sys.argv[2:]  # numpy

import costmodel

assert costmodel.__file__.startswith(sys.argv[1]), costmodel.__file__
print(costmodel.predict_best((4096, 4096, 4096), "h200-sxm").config)
assert not BLOCKED & set(sys.modules)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return its stdout; where it fails, say what it printed."""
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def tracked() -> set[str]:
    """Paths below the root that git tracks, or would with the next `git add .`."""
    if not (ROOT / ".git").exists():
        pytest.skip("which files belong to the project is known only in a git checkout")
    listing = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    return {path for path in listing.split("\0") if path and (ROOT / path).is_file()}


@pytest.fixture(scope="session")
def wheel(tracked: set[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a stale build/ or egg-info in the checkout would leak in."""
    source = tmp_path_factory.mktemp("source")
    for path in tracked:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, source / path)
    for folder in MAPPED:  # what an import of the checkout leaves
        (source / folder / "__pycache__").mkdir()
        (source / folder / "__pycache__" / "stale.cpython-311.pyc").write_bytes(b"")
    out = tmp_path_factory.mktemp("wheel")
    run(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source),
        cwd=out,
    )
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def packed(wheel: Path) -> set[str]:
    """Files in the wheel, without the metadata folder."""
    with zipfile.ZipFile(wheel) as archive:
        return {n for n in archive.namelist() if ".dist-info/" not in n and not n.endswith("/")}


@pytest.mark.parametrize("folder", ["kernels/", "data/"])
def test_every_tracked_file_of_a_mapped_folder_is_in_the_wheel(
    folder: str, tracked: set[str], packed: set[str]
) -> None:
    wanted = {MAPPED[folder] + p.removeprefix(folder) for p in tracked if p.startswith(folder)}
    assert f"{MAPPED[folder]}__init__.py" in wanted
    assert wanted - packed == set()


def test_every_tracked_module_is_in_the_wheel(tracked: set[str], packed: set[str]) -> None:
    wanted = {p for p in tracked if p.startswith("costmodel/") and p.endswith(".py")}
    assert "costmodel/__init__.py" in wanted
    assert wanted - packed == set(), "a new sub-package? list it in pyproject.toml under packages"


def test_the_wheel_says_that_it_is_typed(packed: set[str]) -> None:
    assert "costmodel/py.typed" in packed


def test_the_wheel_has_no_file_that_is_not_tracked(tracked: set[str], packed: set[str]) -> None:
    known = {
        target + path.removeprefix(folder)
        for folder, target in MAPPED.items()
        for path in tracked
        if path.startswith(folder)
    }
    assert packed - known == set()


def test_the_wheel_installs_no_package_but_costmodel(packed: set[str]) -> None:
    assert {name.partition("/")[0] for name in packed} == {"costmodel"}


def test_the_wheel_has_no_bytecode(packed: set[str]) -> None:
    assert [n for n in packed if "__pycache__" in n or n.endswith((".pyc", ".pyo"))] == []


def test_the_wheel_carries_licence_and_notice(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(n).name for n in archive.namelist() if ".dist-info/licenses/" in n}
    assert names == {"LICENSE", "NOTICE"}


def test_the_installed_wheel_predicts_without_torch_triton_sklearn_scipy_pandas(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))  # not this user's own answers
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
        *("--no-compile", "--target", site, wheel),
        cwd=elsewhere,
    )
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    config = run(sys.executable, "-I", "-S", "-c", PREDICT, site, *libraries, cwd=elsewhere)
    assert config.strip() not in ("", "None")
