"""The tile of "warp_specialized" and "packed": runs, groups, registers, and the compiler's bytes.

What needs the compiler runs in a process of its own, where Triton's interpreter is off; it needs
no GPU.
"""

import json
import os
import subprocess
import sys
from itertools import combinations_with_replacement

import numpy as np
import pytest

from costmodel.config import ConfigTable, KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.resources.footprint import footprint
from costmodel.resources.registers import register_columns, threads_per_block
from costmodel.resources.warp_groups import (
    WORKER_REGISTERS,
    blocks_per_unit,
    column_runs,
    is_specialized,
    warp_group_tile,
)

H200 = load_profile("h200-sxm")
WIDTHS_OF_ONE_RUN = (8, 16, 32, 64, 128)
#: every tile near those that there are, and many that there are not
TILES = ConfigTable.grid(
    template=("warp_specialized", "packed"), block_m=range(32, 417, 32), block_n=range(4, 417, 4),
    block_k=64, group_m=8, split_k=1, num_warps=(None, *range(1, 18)), num_stages=2, load_bits=128,
    swap=False, epilogue_parts=1,
)  # fmt: skip


def tile_of(block_m, block_n, num_warps, **knobs):
    config = KernelConfig("warp_specialized", block_m, block_n, 64, num_warps=num_warps, **knobs)
    return warp_group_tile(ConfigTable.of(config))


# --- runs of columns -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "runs"),
    [
        (8, (8, 0, 0)),
        (24, (16, 8, 0)),
        (64, (64, 0, 0)),
        (136, (128, 8, 0)),
        (200, (128, 64, 8)),
        (208, (128, 64, 16)),
        (256, (128, 128, 0)),
        (264, (128, 128, 8)),
        (384, (128, 128, 128)),
    ],
)
def test_columns_are_runs_of_powers_of_two_the_widest_first(columns, runs):
    assert tuple(column_runs(np.array([columns]))[:, 0]) == runs


@pytest.mark.parametrize(
    ("columns", "made"),
    [
        (120, 64 + 32 + 16),  # 8 are left over
        (248, 128 + 64 + 32),
        (392, 3 * 128),
        (4, 0),
        (12, 8),
    ],
)
def test_what_three_runs_do_not_make_is_left_over(columns, made):
    assert column_runs(np.array([columns])).sum() == made


def test_runs_make_the_columns_where_any_three_powers_of_two_do():
    makeable = {
        sum(choice)
        for count in (1, 2, 3)
        for choice in combinations_with_replacement(WIDTHS_OF_ONE_RUN, count)
    }
    columns = np.arange(1, 600)
    runs = column_runs(columns)
    assert set(columns[runs.sum(axis=0) == columns].tolist()) == makeable
    assert set(runs.ravel().tolist()) == {0, *WIDTHS_OF_ONE_RUN}
    assert (np.diff(runs, axis=0) <= 0).all()
    assert (runs.sum(axis=0) <= columns).all()


# --- groups and sums -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "columns", "warps", "sums"),
    [  # rows of a group * columns / 128 threads
        (64, 8, 4, 4),
        (64, 64, 4, 32),
        (64, 320, 4, 160),
        (128, 176, 4, 176),
        (128, 256, 8, 128),
        (256, 128, 8, 128),
        (128, 136, 8, 68),
        (192, 192, 12, 96),
        (384, 96, 12, 96),
    ],
)
def test_a_tile_of_whole_groups_and_runs_whose_sums_fit_is_sound(rows, columns, warps, sums):
    tile = tile_of(rows, columns, warps)
    assert tile.is_sound.tolist() == [True]
    assert tile.sums.tolist() == [sums]
    swapped = tile_of(columns, rows, warps, swap=True)
    assert swapped.is_sound.tolist() == [True]
    assert (swapped.rows[0], swapped.columns[0]) == (rows, columns)


@pytest.mark.parametrize(
    ("rows", "columns", "warps"),
    [
        (32, 64, 4),  # wgmma takes 64 rows
        (96, 64, 4),
        (192, 64, 8),  # groups of 96 rows
        (256, 64, 4),  # a group of 256 rows
        (64, 64, 8),  # groups of 32 rows
        (100, 64, 8),
        (64, 120, 4),  # four runs
        (64, 4, 4),
        (64, 60, 4),
        (64, 384, 4),  # 192 sums of 176
        (128, 192, 4),
        (128, 264, 8),  # 132 of 128
        (192, 200, 12),  # 100 of 96
        (256, 64, 16),  # four groups
        (64, 64, 2),  # half a group
        (64, 64, 5),  # a group and a warp
        (64, 64, None),
    ],
)
def test_other_tiles_are_not(rows, columns, warps):
    assert tile_of(rows, columns, warps).is_sound.tolist() == [False]
    assert tile_of(columns, rows, warps, swap=True).is_sound.tolist() == [False]


# --- registers -----------------------------------------------------------------------------------


def test_every_sound_tile_fits_the_register_file_and_a_thread_holds_its_sums():
    tile = warp_group_tile(TILES)
    sound = tile.is_sound
    assert sound.sum() > 100 and set(tile.groups[sound].tolist()) == {1, 2, 3}
    threads = threads_per_block(TILES, H200)[sound]
    assert (threads == (tile.groups[sound] + 1) * 128).all()
    registers = tile.registers[sound]
    assert (registers * threads <= 65536).all()
    assert (registers % 8 == 0).all() and (registers <= 255).all()  # PTX ISA, maxnreg
    predicted = register_columns(Gemm(4096, 4096, 4096), TILES, H200)
    assert (predicted.allocated[sound] == registers).all()


def test_what_the_groups_trade_is_no_more_than_the_block_has():
    tile = warp_group_tile(TILES)
    sound = tile.is_sound
    groups, registers = tile.groups[sound], tile.registers[sound]
    worker = np.take(WORKER_REGISTERS, groups)
    # the loading warp's group keeps 24; the first group takes what the others leave (setmaxnreg)
    first = registers * (groups + 1) - 24 - worker * (groups - 1)
    sums = tile.sums[sound]
    assert (first >= sums).all()
    assert (worker[groups > 1] >= sums[groups > 1]).all()
    assert (first[groups > 1] >= worker[groups > 1]).all()


def test_two_blocks_share_a_unit_where_one_group_has_few_sums_and_both_fit():
    few, many, two = tile_of(64, 128, 4), tile_of(128, 128, 4), tile_of(128, 128, 8)
    half = 233472 // 2 - 1024  # each block takes 1 KiB of the unit's 228 besides
    for tile, shared, blocks in (
        (few, half, 2), (few, half + 1, 1), (few, 1024, 2),  # 64 sums: 128 registers, 256 threads
        (many, 1024, 1),  # 128 sums: 232 registers
        (two, 1024, 1),  # 168 registers, 384 threads
    ):  # fmt: skip
        assert blocks_per_unit(tile, np.array([shared])).tolist() == [blocks]


def test_the_two_templates_of_this_kernel_and_where_their_sums_go():
    for template, split, through in (
        ("warp_specialized", 1, False), ("warp_specialized", 2, True), ("packed", 1, True),
    ):  # fmt: skip
        table = ConfigTable.of(KernelConfig(template, 64, 64, 64, split_k=split))
        assert is_specialized(table).all()
        assert warp_group_tile(table).through_parts.tolist() == [through]
    for template in ("tile", "split_k", "persistent_tma", "matvec"):
        assert not is_specialized(ConfigTable.of(KernelConfig(template, 64, 64, 64))).any()


# --- shared memory -------------------------------------------------------------------------------


def test_the_bytes_by_hand():
    problem = Gemm(4096, 4096, 4096)
    config = KernelConfig("warp_specialized", 128, 136, 64, num_warps=8, num_stages=3)
    found = footprint(problem, config, H200)
    # 3 stages of (128 + 136) * 64 elements of 2 bytes; C's tile; 3 barriers, from the next
    # multiple of 16 another 3, and 216 bytes of arguments of two groups and two runs
    assert found.operand_ring_bytes == 3 * 264 * 64 * 2
    assert found.staging_bytes == 128 * 136 * 2
    assert found.barrier_bytes == 32 + 24 + 216
    assert found.shared_bytes == 101376 + 34816 + 272
    shared = footprint(problem, KernelConfig(**config.as_dict() | {"epilogue_parts": 2}), H200)
    assert shared.staging_bytes == 128 * 128 * 2  # one buffer of the widest run
    parts = footprint(problem, KernelConfig(**config.as_dict() | {"split_k": 4}), H200)
    assert parts.staging_bytes == 0


#: compiles what it is told as JSON, a configuration a line, and says what the compiler took:
#: shared memory alone, which is known before PTX is, or registers and spills too
COMPILE = """
import json, sys
from costmodel.config import KernelConfig
from costmodel.problem import Gemm
from costmodel.profile import load_profile
from costmodel.compiler.survey import machine_code_facts, stopping_before
from costmodel.compiler.witness import compiling_for, storageless_launch

def product(problem, config):
    launch = storageless_launch(Gemm(**problem), KernelConfig(**config), 132)
    while launch.kernel.__name__ != "warp_specialized_kernel":
        launch = launch.then
    return launch

def compiled(launch):
    return launch.kernel.warmup(*launch.args, grid=launch.grid, **launch.constants)

with compiling_for(load_profile("h200-sxm")):
    for line in sys.stdin:
        problem, config, full = json.loads(line)
        launch = product(problem, config)
        if full:
            kernel = compiled(launch)
            print(json.dumps({"shared": kernel.metadata.shared} | machine_code_facts(kernel)))
            continue
        try:
            with stopping_before("llir"):
                compiled(launch)
        except Exception as stop:
            print(json.dumps({"shared": stop.metadata["shared"]}))
"""


def compile_all(cases, folder, full):
    """What the compiler takes for (problem, config) pairs, each as a dict."""
    pytest.importorskip("torch")
    triton = pytest.importorskip("triton")
    if triton.__version__ != "3.6.0":
        pytest.skip(f"the figures are Triton 3.6.0's, this is {triton.__version__}")
    lines = [json.dumps([vars(problem), config.as_dict(), full]) for problem, config in cases]
    # a folder of its own: what is in the compiler's cache does not pass the stage that stops it
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", COMPILE], input="\n".join(lines), env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def drawn(count, seed):
    """Random legal (problem, config) pairs over all that decides the bytes."""
    from costmodel.space.prune import broken_rule

    rng = np.random.default_rng(seed)
    makeable = [w for w in range(8, 321, 8) if column_runs(np.array([w])).sum() == w]
    kinds = (("fp16", 2), ("bf16", 2), ("fp16", 2), ("fp8_e4m3", 1), ("fp32", 4))
    found = []
    while len(found) < count:
        dtype, size = kinds[rng.integers(len(kinds))]
        layout = str(rng.choice(["nn", "nt", "tn", "tt"])) if size == 2 else "nt"
        packed = size == 2 and rng.random() < 0.3
        problem = Gemm(
            1000, 1016, 2048 + packed, dtype=dtype, layout=layout,
            out_dtype=str(rng.choice(["fp16", "bf16", "fp32"])),
            alpha=float(rng.choice([1.0, 0.5])), beta=float(rng.choice([0.0, 0.0, 1.0])),
            epilogue=rng.choice([None, None, "bias", "bias+gelu", "relu"]),
        )  # fmt: skip
        groups = int(rng.integers(1, 4))
        rows, columns = groups * int(rng.choice([64, 128])), int(rng.choice(makeable))
        swap = bool(rng.random() < 0.5)
        split = int(rng.choice([1, 1, 2, 5]))
        config = KernelConfig(
            "packed" if packed else "warp_specialized",
            block_m=columns if swap else rows, block_n=rows if swap else columns,
            block_k=int(rng.choice([32, 64, 128])), split_k=split, num_warps=4 * groups,
            num_stages=int(rng.integers(2, 9)), swap=swap,
            epilogue_parts=1 if packed or split > 1 else int(rng.integers(1, 3)),
        )  # fmt: skip
        if broken_rule(problem, config, H200) is None:
            found.append((problem, config))
    return found


def test_the_bytes_are_the_compilers(tmp_path):
    cases = drawn(72, seed=1)
    taken = compile_all(cases, tmp_path, full=False)
    assert len(taken) == len(cases)
    misses = [
        f"{problem} {config}: {predicted}, compiler {found['shared']}"
        for (problem, config), found in zip(cases, taken, strict=True)
        if (predicted := footprint(problem, config, H200).shared_bytes) != found["shared"]
    ]
    assert not misses, "\n".join(misses)


def test_the_draws_cover_both_templates_every_group_count_run_count_and_type():
    cases = drawn(72, seed=1)
    tile = warp_group_tile(ConfigTable.of([config for _, config in cases]))
    assert set(zip(tile.groups.tolist(), tile.run_count.tolist(), strict=True)) == {
        (groups, runs) for groups in (1, 2, 3) for runs in (1, 2, 3)
    }
    assert {config.template for _, config in cases} == {"warp_specialized", "packed"}
    assert {p.dtype for p, _ in cases} == {"fp16", "bf16", "fp8_e4m3", "fp32"}
    assert {p.layout for p, _ in cases} == {"nn", "nt", "tn", "tt"}
    assert {config.epilogue_parts for _, config in cases} == {1, 2}
    assert {config.swap for _, config in cases} == {False, True}


#: (rows, columns, warps) with as many sums as a group may have: 176, 128 and 96, and the 96 up to
#: which one group is compiled for two blocks a unit
FULLEST = [
    (128, 176, 4), (128, 256, 8), (256, 128, 8), (192, 192, 12), (384, 96, 12), (64, 192, 4),
]  # fmt: skip


def test_no_tile_at_its_register_limit_spills(tmp_path):
    cases = []
    for number, (rows, columns, warps) in enumerate(FULLEST):
        scaled = Gemm(4096, 4096, 4096, alpha=0.5, layout=("nt", "tn")[number % 2])
        config = KernelConfig("warp_specialized", rows, columns, 64, num_warps=warps, num_stages=2)
        fields = config.as_dict()
        swapped = fields | {"block_m": columns, "block_n": rows, "swap": True}
        cases += [
            (scaled, config),
            (Gemm(4096, 4096, 4096, out_dtype="fp32"), KernelConfig(**fields | {"split_k": 4})),
            (Gemm(4096, 4096, 4096, dtype="fp8_e4m3"), KernelConfig(**swapped)),
        ]
    tile = warp_group_tile(ConfigTable.of([config for _, config in cases]))
    assert set(zip(tile.groups.tolist(), tile.sums.tolist(), strict=True)) == {
        (1, 176), (1, 96), (2, 128), (3, 96),
    }  # fmt: skip
    taken = compile_all(cases, tmp_path, full=True)
    budgets = tile.registers.tolist()
    for (problem, config), found, budget in zip(cases, taken, budgets, strict=True):
        assert found["spill"] == 0, f"{problem} {config}: {found}"
        assert found["registers"] <= budget, f"{problem} {config}: {found}"
        assert found["instructions"] == ["wgmma"]
