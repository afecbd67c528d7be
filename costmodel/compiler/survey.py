"""A survey of what the compiler allocates: random configurations, drawn with a seed, compiled.

Each entry is a problem, a configuration and a target, with the compiler's own figures beside it.
Results are appended to a JSON Lines file as they come, so that a run resumes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.compiler.stopping import once_allocated
from costmodel.compiler.witness import compiling_for, storageless_launch
from costmodel.config import TEMPLATES, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile, load_profile

#: one profile a target that Triton compiles for
TARGETS: dict[str, str] = {
    "sm_80": "a100-sxm-80gb",
    "sm_86": "rtx-3090",
    "sm_89": "rtx-4090",
    "sm_90": "h200-sxm",
    "sm_100": "b200",
    "sm_120": "rtx-5090",
    "gfx90a": "mi250x",
    "gfx942": "mi300x",
    "gfx950": "mi355x",
}
#: those whose registers are surveyed; sm_75 stands for the chips whose matrix unit Triton leaves
#: alone, so that 16-bit operands are widened in registers
REGISTER_TARGETS = TARGETS | {"sm_75": "t4"}
#: past this a thread's unrolled work makes ptxas run for minutes
_MOST_PER_THREAD = 512
_STOPPED = "stopped"
#: a full compile is given up after so many seconds
LONGEST_S = 60.0
_PTX_MARKS = {"wgmma": "wgmma.", "tcgen05": "tcgen05.mma", "mma.sync": "mma.sync"}


@dataclass(frozen=True)
class Draw:
    """One thing to compile."""

    target: str
    problem: Gemm
    config: KernelConfig

    def key(self) -> str:
        """What names it in the results file."""
        problem = {name: value for name, value in vars(self.problem).items() if name != "epilogue"}
        return json.dumps([self.target, problem, self.config.as_dict()], sort_keys=True)


def draws(target: str, count: int, seed: int) -> list[Draw]:
    """``count`` distinct random configurations for a target."""
    number = int.from_bytes(target.encode(), "big") % 2**32
    rng = np.random.default_rng([seed, number])
    profile = load_profile(TARGETS[target])
    found: dict[str, Draw] = {}
    while len(found) < count:
        draw = Draw(target, draw_problem(rng, profile), _config(rng, profile))
        if _bearable(draw):
            found.setdefault(draw.key(), draw)
    return list(found.values())


#: templates that ``draws`` does not know: its draws stay what they were, and so do their results
OWN_TEMPLATES = ("warp_specialized", "packed", "matvec")
_OWN_PER_PROBLEM = 3


def own_draws(target: str, count: int, seed: int) -> list[Draw]:
    """Up to ``count`` configurations of ``OWN_TEMPLATES``, drawn from candidates of random sizes.

    Stages are drawn anew, so that some do not fit. A target with none of these templates but
    "matvec" gets a quarter of ``count``.
    """
    from costmodel.space.candidates import candidates

    number = int.from_bytes(target.encode(), "big") % 2**32
    rng = np.random.default_rng([seed, number, 3])
    profile = load_profile(TARGETS[target])
    wanted = count if "wgmma" in profile.mma else count // 4
    kinds = [TEMPLATES.index(name) for name in OWN_TEMPLATES]
    found: dict[str, Draw] = {}
    while len(found) < wanted:
        drawn = draw_problem(rng, profile)
        narrow = rng.random() < (0.2 if "wgmma" in profile.mma else 1.0)
        sizes = [int(size) for size in rng.integers(1, 3000, 3)]
        if rng.random() < 0.7:
            sizes = [8 * -(-size // 8) for size in sizes]
        if narrow:
            sizes[int(rng.integers(2))] = int(rng.integers(1, 3))
        problem = replace(drawn, m=sizes[0], n=sizes[1], k=sizes[2], beta=0.0, batch=1)
        table = candidates(problem, profile)
        table = table[np.flatnonzero(np.isin(table.template, kinds))]
        for row in rng.permutation(len(table))[:_OWN_PER_PROBLEM]:
            config = table[int(row)]
            if config.template != "matvec":
                config = replace(config, num_stages=int(rng.integers(2, 17)))
            draw = Draw(target, problem, config)
            if _well_formed(draw):
                found.setdefault(draw.key(), draw)
    return list(found.values())[:wanted]


def draw_problem(rng: np.random.Generator, profile: HardwareProfile) -> Gemm:
    """A random problem of a type that the chip multiplies, in any layout."""
    kinds: list[tuple[str, str | None]] = [
        (name, None) for name in profile.peak_tflops if name not in ("tf32", "fp32")
    ]
    kinds.append(("fp32", "ieee"))
    if "tf32" in profile.peak_tflops:
        kinds.append(("fp32", "tf32"))
    dtype, precision = kinds[rng.integers(len(kinds))]
    # mostly aligned sizes; some with rows of 8 elements, some odd, some of one row
    size = ((4096, 2048, 4096), (1024, 4096, 512), (1000, 1000, 1000), (4096, 4104, 264),
            (1001, 999, 777), (16, 4096, 4096), (1, 4096, 4096))  # fmt: skip
    m, n, k = size[rng.choice(len(size), p=(0.35, 0.2, 0.15, 0.1, 0.06, 0.08, 0.06))]
    return Gemm(
        m, n, k, dtype=dtype, precision=precision,
        layout=str(rng.choice(["nn", "nt", "tn", "tt"])),
        beta=float(rng.random() < 0.1), batch=2 if rng.random() < 0.1 else 1,
    )  # fmt: skip


def _config(rng: np.random.Generator, profile: HardwareProfile) -> KernelConfig:
    templates = ["tile", "split_k"] + (["persistent_tma"] if "tma" in profile.async_copy else [])
    template = str(rng.choice(templates))
    return KernelConfig(
        template,
        block_m=int(rng.choice([16, 32, 64, 128, 256])),
        block_n=int(rng.choice([16, 32, 64, 128, 256])),
        block_k=int(rng.choice([16, 32, 64, 128])),
        split_k=4 if template == "split_k" else 1,
        num_warps=int(rng.choice([1, 2, 4, 8, 16], p=(0.08, 0.12, 0.4, 0.3, 0.1))),
        num_stages=int(rng.choice(np.arange(1, 17), p=_stage_odds())),
        swap=bool(rng.random() < 0.25),
        epilogue_parts=2 if template == "persistent_tma" and rng.random() < 0.4 else 1,
    )


def _stage_odds() -> Any:
    odds = 1.0 / np.arange(1, 17)
    odds[0] = 0.3
    return odds / odds.sum()


def _bearable(draw: Draw) -> bool:
    threads = 32 * (draw.config.num_warps or 4)
    c = draw.config
    sums = c.block_m * c.block_n / threads
    loads = (c.block_m + c.block_n) * c.block_k / threads
    if sums > _MOST_PER_THREAD or loads > _MOST_PER_THREAD:
        return False
    return _well_formed(draw)


def _well_formed(draw: Draw) -> bool:
    """Whether no limit but those of memory and threads stands against a draw."""
    from costmodel.config import ConfigTable
    from costmodel.resources.legality import RULES

    table, profile = ConfigTable.of(draw.config), load_profile(TARGETS[draw.target])
    malformed = [rule for rule in RULES if rule.name not in ("shared_memory", "threads")]
    return not any(
        np.any(np.greater(*np.broadcast_arrays(*rule.needs(draw.problem, table, profile))))
        for rule in malformed
    )


class _StoppedError(Exception):
    """Raised where compilation is to end, with what is known by then."""

    def __init__(self, source: Any, metadata: dict[str, Any]) -> None:
        super().__init__("stopped")
        self.source = source
        self.metadata = metadata


@contextmanager
def stopping_before(*names: str) -> Iterator[None]:
    """Within the block, compilation ends where the first of these stages would begin.

    "llir" ends inside that stage, once shared memory is allocated.
    """
    from triton import knobs

    def hook(*call: Any) -> tuple[str, str] | None:
        if not call:  # Triton 3.9 asks so for what to add to its cache's keys
            return _STOPPED, _STOPPED
        stages = call[1]
        if "llir" in names:
            stages["llir"] = once_allocated(stages["llir"], _stop)
        for name in names:
            if name != "llir" and name in stages:
                stages[name] = _stop
        return None

    def _stop(source: Any, metadata: dict[str, Any]) -> None:
        raise _StoppedError(source, dict(metadata))

    before = knobs.runtime.add_stages_inspection_hook, knobs.compilation.always_compile
    knobs.runtime.add_stages_inspection_hook = hook
    # a kernel that lies in the cache on disk would pass no stage at all
    knobs.compilation.always_compile = True
    try:
        yield
    finally:
        knobs.runtime.add_stages_inspection_hook, knobs.compilation.always_compile = before


def survey(
    wanted: Iterable[Draw], results: Path, *, full: bool = False
) -> Iterator[dict[str, Any]]:
    """Compile what the results file does not hold yet; yields and appends each result.

    Stops where shared memory is known, which is half of the time; ``full`` goes on to registers
    and spills, and gives up on what takes longer than ``LONGEST_S``, saying so in its entry.
    """
    from costmodel.records.log import append_lines

    done = {entry["key"] for entry in read_results(results)}
    by_target: dict[str, list[Draw]] = {}
    for draw in wanted:
        if draw.key() not in done:
            by_target.setdefault(draw.target, []).append(draw)
    for target, group in by_target.items():
        with compiling_for(load_profile(REGISTER_TARGETS[target])):
            for draw in group:
                entry = {"key": draw.key()} | (_machine_code(draw) if full else _compiled(draw))
                append_lines(results, [json.dumps(entry).encode() + b"\n"])
                yield entry


def read_results(path: Path) -> list[dict[str, Any]]:
    """Entries of a results file; none where there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as stream:
        return [json.loads(line) for line in stream if line.endswith("\n")]


def _compiled(draw: Draw) -> dict[str, Any]:
    return _until(draw, ("llir", "ptx", "amdgcn"), lambda stop: {"shared": stop.metadata["shared"]})


def _machine_code(draw: Draw) -> dict[str, Any]:
    """Shared memory, registers and spills, within ``LONGEST_S``; the object file is not needed."""

    def facts(stop: _StoppedError) -> dict[str, Any]:
        return {"shared": stop.metadata["shared"]} | _facts(stop.source)

    return _within(LONGEST_S, lambda: _until(draw, ("cubin", "hsaco"), facts))


def _until(
    draw: Draw, stages: tuple[str, ...], facts: Callable[[_StoppedError], dict[str, Any]]
) -> dict[str, Any]:
    launch = storageless_launch(draw.problem, draw.config, 132)
    found: dict[str, Any] = {"error": "nothing was compiled"}
    try:
        # of several kernels the product takes the most
        while launch is not None:
            try:
                with stopping_before(*stages):
                    replace(launch, then=None).compile()
            except _StoppedError as stop:
                seen = facts(stop)
                found = max(found, seen, key=lambda one: int(one.get("shared", -1)))
            launch = launch.then
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".split("\n", 1)[0][:200]}
    return found


def _within(seconds: float, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """``call``'s answer from a process of its own, which can be ended: a compiler pass cannot."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)

    def answer() -> None:
        os.setsid()
        sender.send_bytes(json.dumps(call()).encode())

    process = fork.Process(target=answer)
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            return {"error": f"took longer than {seconds} s"}
        return dict(json.loads(receiver.recv_bytes()))
    except EOFError:
        return {"error": "the compiler ended its process"}
    finally:
        if process.is_alive():
            # ptxas runs in the same session
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()


def machine_code_facts(kernel: Any) -> dict[str, Any]:
    """Registers a thread, spills, and which matrix instructions a compiled kernel holds."""
    return _facts(kernel.asm["ptx"] if "ptx" in kernel.asm else kernel.asm["amdgcn"])


def _facts(text: str) -> dict[str, Any]:
    """``spill`` is bytes of spill stores a thread for PTX, and spilled VGPRs for AMD's assembly.

    AMD's ``registers`` count architectural and accumulation registers together, as they share a
    file (gfx90a and later); ``agprs`` are the latter, ``scratch`` the bytes a lane has in memory.
    """
    if ".target" in text and ".visible" in text:
        kinds = [name for name, mark in _PTX_MARKS.items() if mark in text]
        return {"instructions": kinds} | _ptxas_facts(text)
    kinds = [name for name in ("v_mfma", "v_wmma") if name in text]

    def number(key: str) -> int:
        found = re.search(rf"\.{key}:\s*(\d+)", text)
        return int(found.group(1)) if found else 0

    return {
        "instructions": kinds,
        "registers": number("vgpr_count"),
        "spill": number("vgpr_spill_count"),
        "agprs": number("agpr_count"),
        "scratch": number("private_segment_fixed_size"),
    }


def ptxas_report(ptx: str) -> str:
    """What ``ptxas -v`` of Triton's own wheel prints for a kernel.

    Raises ``RuntimeError`` where ptxas refuses the code.
    """
    from triton import knobs

    arch = re.search(r"\.target\s+(sm_\w+)", ptx)
    name = arch.group(1) if arch else "sm_90a"
    number = int(re.sub(r"\D", "", name))
    tool = knobs.nvidia.ptxas_blackwell if number >= 100 else knobs.nvidia.ptxas
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx, encoding="utf-8")
        command = [tool.path, "-v", f"--gpu-name={name}", str(source), "-o", f"{folder}/out"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stderr


def _ptxas_facts(ptx: str) -> dict[str, int]:
    """Registers and bytes of spill stores a thread."""
    log = ptxas_report(ptx)
    registers = re.search(r"Used (\d+) registers", log)
    spill = re.search(r"(\d+) bytes spill stores", log)
    return {
        "registers": int(registers.group(1)) if registers else 0,
        "spill": int(spill.group(1)) if spill else 0,
    }
