"""Every template compiles for an H200 with whatever it takes: what the interpreter cannot tell.

One process with the interpreter off; no GPU.
"""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

COMPILE = """
import json, sys
import costmodel as cm
from costmodel.compiler.witness import compile_offline
from costmodel.config import KernelConfig

profile = cm.load_profile("h200-sxm")
for line in sys.stdin:
    problem, config = json.loads(line)
    try:
        compile_offline(cm.Gemm(*problem.pop("sizes"), **problem), KernelConfig(**config), profile)
        print("compiled")
    except Exception as error:
        print(f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}")
"""
TILES = {
    "tile": {"block_m": 64, "block_n": 64, "block_k": 64, "num_stages": 3},
    "split_k": {"block_m": 64, "block_n": 64, "block_k": 64, "num_stages": 3, "split_k": 2},
    "persistent_tma": {
        "block_m": 128, "block_n": 128, "block_k": 64, "num_stages": 3, "epilogue_parts": 2,
    },
    "warp_specialized": {
        "block_m": 128, "block_n": 144, "block_k": 64, "num_warps": 8, "num_stages": 4,
    },
    "matvec": {"block_m": 4, "block_n": 4, "block_k": 512, "num_stages": 1},
}  # fmt: skip
KINDS = (
    {},
    {"dtype": "bf16", "epilogue": "bias+relu"},
    {"epilogue": "gelu", "beta": 1.0},
    {"epilogue": "silu", "alpha": 0.5},
    {"accumulate": "fp16", "epilogue": "gelu"},
    {"dtype": "fp8_e4m3"},
    {"dtype": "int8"},
)
#: what a template refuses in words before it compiles
REFUSED = {
    ("warp_specialized", 4), ("warp_specialized", 6), ("matvec", 4), ("matvec", 5), ("matvec", 6),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What became of each (template, kind)."""
    keys = [(template, kind) for template in TILES for kind in range(len(KINDS))]
    lines = [
        json.dumps(
            [
                {"sizes": (256, 3 if template == "matvec" else 264, 1040)} | KINDS[kind],
                {"template": template} | TILES[template],
            ]
        )
        for template, kind in keys
    ]
    folder = tmp_path_factory.mktemp("triton")
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", COMPILE], input="\n".join(lines), env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(keys, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=lambda kind: str(KINDS[kind]))
@pytest.mark.parametrize("template", TILES)
def test_a_template_compiles_for_all_that_it_takes(outcomes, template, kind):
    outcome = outcomes[template, kind]
    if (template, kind) in REFUSED:
        assert outcome.startswith("ConfigError: ")
    else:
        assert outcome == "compiled"
