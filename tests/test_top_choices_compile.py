"""The compiler confirms the first choice on every NVIDIA and AMD chip: it compiles, and it fits."""

import json
import os
import random
import subprocess
import sys
from dataclasses import asdict

import pytest

from costmodel.predict import predict_best
from costmodel.problem import Gemm
from costmodel.profile import list_profiles, load_profile
from costmodel.resources.footprint import footprint

CHIPS = [name for name in list_profiles() if load_profile(name).backend in ("cuda", "hip")]
COMPILE = """
import json, sys
from costmodel.compiler.witness import compile_offline
from costmodel.config import KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
found = []
for chip, problem, config in json.load(sys.stdin):
    try:
        kernel = compile_offline(Gemm(**problem), KernelConfig(**config), load_profile(chip))
        found.append(kernel.metadata.shared)
    except Exception as error:
        found.append(f"{type(error).__name__}: {str(error)[:200]}")
print(json.dumps(found))
"""


def problem_of(chip):
    """A seeded problem for each chip: any shape, layout and 16-bit type that it multiplies."""
    draw = random.Random(chip)
    sizes = (16, 100, 512, 1000, 2048, 4096)
    dtype = draw.choice([name for name in ("fp16", "bf16") if load_profile(chip).peak(name)])
    layout = draw.choice(("nn", "nt", "tn", "tt"))
    return Gemm(*(draw.choice(sizes) for _ in range(3)), dtype=dtype, layout=layout)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Chip -> (problem, chosen configuration, what the compiler allocated or its error)."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSTMODEL_HOME", str(tmp_path_factory.mktemp("home")))
        chosen = {chip: (problem_of(chip), predict_best(problem_of(chip), chip).config)
                  for chip in CHIPS}  # fmt: skip
    environment = os.environ | {
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")),
    }
    cases = [(chip, asdict(problem), asdict(config)) for chip, (problem, config) in chosen.items()]
    workers = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", COMPILE], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]  # fmt: skip
    found = {}
    for number, worker in enumerate(workers):  # both are fed before either is waited for
        assert worker.stdin is not None
        worker.stdin.write(json.dumps(cases[number::2]))
        worker.stdin.close()
        worker.stdin = None
    for number, worker in enumerate(workers):
        out, err = worker.communicate()
        assert worker.returncode == 0, err
        names = [chip for chip, *_ in cases[number::2]]
        found |= dict(zip(names, json.loads(out.splitlines()[-1]), strict=True))
    return {chip: (*chosen[chip], found[chip]) for chip in CHIPS}


@pytest.mark.parametrize("chip", CHIPS)
def test_the_first_choice_compiles_and_fits_as_predicted(chip, compiled):
    problem, config, actual = compiled[chip]
    assert isinstance(actual, int), (problem, config, actual)  # else it is the compiler's error
    assert actual <= load_profile(chip).shared_per_block_bytes
    assert actual == footprint(problem, config, load_profile(chip)).shared_bytes
