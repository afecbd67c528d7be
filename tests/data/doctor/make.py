"""Makes the doctor's examples anew: ``TRITON_INTERPRET=0 python tests/data/doctor/make.py``.

Compiler output is what Triton and ptxas print for chips that are not there; only debug locations
(which name files of this machine) are taken out. Measured rows are cut from ``data/runs``.
Messages that need a GPU to appear are written by the classes that print them.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from costmodel.compiler.survey import ptxas_report
from costmodel.compiler.witness import compile_offline
from costmodel.config import KNOBS, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.records import frame_rows, packaged_runs

HERE = Path(__file__).parent
HOPPER = "h200-sxm"
LARGE = Gemm(4096, 4096, 4096)
HARD = Gemm(512, 512, 8192)


def bare(text: str) -> str:
    """Without debug locations."""
    text = re.sub(r" ?loc\((?:[^()]|\([^()]*\))*\)", "", text)
    kept = [line for line in text.splitlines() if not re.match(r"#loc|\s*\.(loc|file)\b", line)]
    text = "\n".join(kept)
    code, _, rest = text.partition("\n\t.section\t.debug")
    figures = rest.find("\t.amdgpu_metadata")  # stand behind AMD's debug sections
    tail = rest[figures:].partition("\t.section\t.debug")[0] if figures >= 0 else ""
    return code.rstrip() + "\n" + tail


def compiled(problem: Gemm, config: str, chip: str, stage: str) -> str:
    """One stage of a compilation."""
    kernel = compile_offline(problem, KernelConfig.parse(config), load_profile(chip))
    return bare(kernel.asm[stage])


def assembled(problem: Gemm, config: str) -> str:
    """What ptxas says of a configuration for sm_90a."""
    kernel = compile_offline(problem, KernelConfig.parse(config), load_profile(HOPPER))
    return ptxas_report(kernel.asm["ptx"])


def refused(action: Callable[[], object]) -> str:
    """The message of the error that the action raises, its causes' too."""
    try:
        action()
    except Exception as error:
        told = [f"{type(error).__name__}: {error}"]
        while error.__cause__ is not None and error.__cause__ is not error:
            error = error.__cause__
            told.append(f"{type(error).__name__}: {error}")
        return "\n".join(told) + "\n"
    raise AssertionError("nothing was refused")


def out_of_shared_memory() -> str:
    """What the launcher raises for 256x128x128 in 3 stages, with the compiler's own figure."""
    from triton.runtime.errors import OutOfResources

    chip = load_profile(HOPPER)
    config = KernelConfig.parse("tile 256x128x128 w8 s3")
    needed = compile_offline(LARGE, config, chip).metadata.shared
    error = OutOfResources(needed, chip.shared_per_block_bytes, "shared memory")
    return f"triton.runtime.errors.OutOfResources: {error}\n"


def ptxas_refuses() -> str:
    """A static buffer past 48 KiB, which ptxas itself refuses."""
    ptx = (
        ".version 8.0\n.target sm_90a\n.address_size 64\n"
        ".visible .entry kernel()\n{\n.shared .align 16 .b8 ring[262144];\n"
        ".reg .b64 %rd1;\nmov.u64 %rd1, ring;\nst.shared.b64 [%rd1], %rd1;\nret;\n}\n"
    )
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.ptx").write_text(ptx)
        done = subprocess.run(
            [knobs.nvidia.ptxas.path, "--gpu-name=sm_90a", "kernel.ptx", "-o", "out"],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    return done.stderr


def no_gpu() -> str:
    """A launch where there is no driver."""
    import torch

    from costmodel.kernels.launch import gemm

    a = torch.zeros(64, 64, dtype=torch.float16)
    return refused(lambda: gemm(a, a, KernelConfig("tile", 64, 64, 64)))


def wrong_result() -> str:
    """torch's own comparison of an fp16 sum with an fp32 one."""
    import torch

    generator = torch.Generator().manual_seed(0)
    a = torch.randn(64, 4096, generator=generator)
    exact, rounded = a @ a.t(), (a.half() @ a.half().t()).float()
    return refused(lambda: torch.testing.assert_close(rounded, exact, rtol=1e-5, atol=1e-5))


def conflicting_parameters() -> str:
    """Triton's autotuner where the caller gives a block too."""
    import triton
    from triton.runtime.autotuner import Autotuner

    def kernel() -> None:
        """Stands for a kernel."""

    tuner = Autotuner(kernel, [], [triton.Config({"BLOCK_M": 64})], [], None, None)
    return refused(lambda: tuner._bench(config=tuner.configs[0], BLOCK_M=64))


def descriptor_alignment() -> str:
    """Triton's tensor descriptor of rows of 1001 fp16."""
    import torch
    from triton.tools.tensor_descriptor import TensorDescriptor

    tensor = torch.empty(64, 1001, dtype=torch.float16)
    return refused(lambda: TensorDescriptor.from_tensor(tensor, [64, 64]))


def rows(shapes: Iterable[tuple[int, int, int]], configs: Iterable[str] | None = None,
         dtype: str = "fp16", layout: str = "nt", repeated: bool = False) -> str:  # fmt: skip
    """Measured rows of these shapes as a log, all of them or those of some configurations."""
    frame = RUNS[(RUNS["dtype"] == dtype) & (RUNS["layout"] == layout)]
    wanted = [KernelConfig.parse(text) for text in configs or ()]
    found = []
    for m, n, k in shapes:
        part = frame[(frame["m"] == m) & (frame["n"] == n) & (frame["k"] == k)]
        for row in frame_rows(part):
            knobs = {name: row[name] for name in KNOBS}
            own = row["backend"] == "triton" and KernelConfig(**knobs) in wanted
            vendor = row["backend"] == "origin" and not wanted
            if own or vendor or (not wanted and not repeated):
                found.append(row)
    assert found, "no such rows"
    vendor = [row for row in found if row["backend"] == "origin"]
    ours = sorted((r for r in found if r["backend"] == "triton"), key=lambda r: r["time_us"])
    found = vendor[:2] + ours[:MOST_ROWS] + vendor[2:] if not repeated else found
    found.sort(key=lambda row: (row["run"], row["sequence"]))
    return "".join(json.dumps(row) + "\n" for row in found)


RUNS = packaged_runs()
#: the fastest of a problem are enough
MOST_ROWS = 24


def examples() -> dict[str, Callable[[], str]]:
    """File -> what makes it."""
    return {
        "spill_sm90.ptxas.txt": lambda: assembled(LARGE, "tile 128x256x64 w4 s3"),
        "serialized_sm90.ptxas.txt": lambda: assembled(LARGE, "tile 128x256x64 w8 s4"),
        "healthy_sm90.ptxas.txt": lambda: assembled(
            LARGE, "persistent_tma 128x256x64 w8 s4 g4 epi2"
        ),
        "mma_sync_sm90.ttgir": lambda: compiled(LARGE, "tile 32x64x64 w4 s3", HOPPER, "ttgir"),
        "mma_sync_sm90.ptx": lambda: compiled(LARGE, "tile 32x32x32 w4 s3", HOPPER, "ptx"),
        "healthy_sm90.ttgir": lambda: compiled(LARGE, "tile 128x128x64 w8 s3", HOPPER, "ttgir"),
        "hard_case_no_hints.ttgir": lambda: compiled(
            HARD, "tile 64x64x64 w4 s4 load16", HOPPER, "ttgir"
        ),
        "hard_case_no_hints_sm80.ptx": lambda: compiled(
            HARD, "tile 32x32x64 w4 s4 load16", "a100-sxm-80gb", "ptx"
        ),
        "healthy_hard_case_hints.ttgir": lambda: compiled(
            HARD, "tile 64x64x64 w4 s4", HOPPER, "ttgir"
        ),
        "fp32_ieee_sm90.ptx": lambda: compiled(
            Gemm(1024, 1024, 1024, dtype="fp32", precision="ieee"), "tile 32x32x16 w4 s2",
            HOPPER, "ptx",
        ),
        "spill_gfx942.amdgcn": lambda: compiled(
            LARGE, "tile 256x256x32 w4 s2", "mi300x", "amdgcn"
        ),
        "healthy_gfx942.amdgcn": lambda: compiled(LARGE, "tile 64x64x32 w4 s2", "mi300x", "amdgcn"),
        "fp8_sm80.txt": lambda: refused(
            lambda: compiled(
                Gemm(512, 512, 512, dtype="fp8_e4m3"), "tile 64x64x64", "a100-sxm-80gb", "ptx"
            )
        ),
        "small_dot.txt": lambda: refused(
            lambda: compiled(Gemm(512, 512, 512), "tile 64x64x8", HOPPER, "ptx")
        ),
        "not_power_of_two.txt": lambda: refused(
            lambda: compiled(Gemm(512, 512, 512), "tile 96x64x64", HOPPER, "ptx")
        ),
        "tile_too_large.txt": lambda: refused(
            lambda: compiled(LARGE, "tile 2048x1024x64 w8 s2", HOPPER, "ptx")
        ),
        "out_of_shared_memory.txt": out_of_shared_memory,
        "too_much_static_shared.txt": ptxas_refuses,
        "no_gpu.txt": no_gpu,
        "wrong_result.txt": wrong_result,
        "conflicting_parameters.txt": conflicting_parameters,
        "descriptor_alignment.txt": descriptor_alignment,
    }  # fmt: skip


def measured() -> dict[str, Callable[[], str]]:
    """Logs cut from the shipped runs."""
    return {
        "more_stages_slower.jsonl": lambda: rows(
            [(1024, 8192, 1024)], ["tile 32x64x64 w4 s5 g8", "tile 32x64x64 w4 s16 g8"],
            dtype="bf16",
        ),
        "fell_to_mma_sync.jsonl": lambda: rows(
            [(512, 512, 8192)], ["tile 32x64x128 w4 s8 g8", "tile 32x64x128 w4 s8 g8 swap"]
        ),
        "healthy_4096.jsonl": lambda: rows([(4096, 4096, 4096)]),
        "healthy_1x4096x4096.jsonl": lambda: rows([(1, 4096, 4096)]),
        "cold_machine.jsonl": lambda: rows([(1024, 24000, 1536)], layout="nn", repeated=True),
        "noisy_machine.jsonl": lambda: rows([(16, 64, 128)]),
        "size_collapse.jsonl": lambda: rows([(128, 12288, 2048), (136, 12288, 2048)], layout="nn"),
        "spill_measured.jsonl": lambda: rows(
            [(3443, 7168, 2048)], ["tile 128x256x32 w4 s5 g8", "tile 128x256x32 w8 s5 g8"],
            layout="nn",
        ),
        "behind_vendor.jsonl": lambda: rows([(576, 4096, 14336)]),
    }  # fmt: skip


if __name__ == "__main__":
    for name, make in (examples() | measured()).items():
        (HERE / name).write_text(make(), encoding="utf-8")
        print(name, (HERE / name).stat().st_size)
