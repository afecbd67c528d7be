"""Templates "warp_specialized", "packed" and "matvec" on the GPU, against float64.

Problems and configurations are drawn with a seed, from what ``candidates`` offers and ``prune``
keeps. Each test compiles a kernel or two, so that pytest-xdist can deal them out.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from costmodel.config import ConfigTable, KernelConfig  # noqa: E402
from costmodel.kernels.launch import gemm, prepare  # noqa: E402
from costmodel.kernels.operands import TORCH_DTYPES, make_operands  # noqa: E402
from costmodel.measure.check import Reference, tolerance  # noqa: E402
from costmodel.problem import Gemm  # noqa: E402
from costmodel.profile import load_profile  # noqa: E402
from costmodel.space.candidates import candidates  # noqa: E402
from costmodel.space.prune import broken_rule, prune  # noqa: E402

H200 = load_profile("h200-sxm")
IS_HOPPER = (
    torch.cuda.is_available()
    and not torch.version.hip
    and torch.cuda.get_device_capability() == (9, 0)
)
on_hopper = [
    pytest.mark.gpu,
    pytest.mark.skipif(not IS_HOPPER, reason="wgmma is of compute capability 9.0 alone"),
]

#: how many cases of each template are drawn
DRAWS = {"warp_specialized": 48, "packed": 28, "matvec": 16}
#: the columns' operand is not contiguous along K in "nn", and in "tt" where operands are swapped
LAYOUTS, LAYOUT_ODDS = ("nn", "tt", "tn", "nt"), (0.4, 0.25, 0.15, 0.2)
#: half the spacing of 1.0
ROUNDING = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-24}
#: sums of some thousand products in fp32, relative to the sum of the products' sizes; for tf32,
#: which cuts both operands to 10 bits; and for fp8, summed with about 14 bits on Hopper
#: (DeepSeek-V3 technical report, section 3.3.2)
SUM_ERROR = {2: 2.0**-16, 4: 2.0**-9, 1: 2.0**-11}
#: half of fp16's smallest number
UNDERFLOW = 2.0**-25


@dataclass(frozen=True)
class Case:
    problem: Gemm
    config: KernelConfig
    #: size of a persistent grid: a small one gives each program many tiles
    units: int | None = None

    def __str__(self):
        p = self.problem
        text = f"{p.m}x{p.n}x{p.k}-{p.dtype}-{p.layout}-{self.config}"
        return text.replace(" ", "-") + (f"-u{self.units}" if self.units else "")


# --- drawing -------------------------------------------------------------------------------------


def drawn(template, number):
    """Case ``number`` of a template, from its own seed."""
    rng = np.random.default_rng([list(DRAWS).index(template), number])
    while True:
        problem = {"matvec": narrow_problem, "packed": any_problem}.get(template, aligned_problem)(
            rng
        )
        table = candidates(problem, H200)
        table = table[np.flatnonzero(table.is_template(template))]
        if len(table):
            break
    kept, _ = prune(problem, table, H200)
    across = columns_lie_across_k(problem, kept)
    if across.any() and rng.random() < 0.7:
        kept = kept[np.flatnonzero(across)]
    config = varied(rng, problem, kept[int(rng.integers(len(kept)))])
    return Case(problem, config, [None, 1, 2, 5][rng.integers(4)])


def columns_lie_across_k(problem, table):
    """Rows whose columns' operand is not contiguous along K: where narrow runs summed wrongly."""
    return np.where(table.swap != 0, problem.layout[0] == "t", problem.layout[1] == "n")


def sizes(rng):
    """M, N and K from 1 to 700, each scale alike; sometimes a long K."""
    m, n, k = (int(size) for size in np.exp(rng.uniform(0, np.log(700), 3)).astype(int))
    return m, n, int(rng.integers(700, 5000)) if rng.random() < 0.25 else k


def any_problem(rng):
    m, n, k = sizes(rng)
    return Gemm(
        m, n, k, dtype=str(rng.choice(["fp16", "bf16"])), layout=layout(rng),
        alpha=float(rng.choice([1.0, 1.0, 1.0, -0.5])),
    )  # fmt: skip


def aligned_problem(rng):
    """Rows of 16 bytes, of each type that the template takes."""
    m, n, k = sizes(rng)
    dtype = str(rng.choice(["fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp32"],
                           p=[0.4, 0.25, 0.1, 0.1, 0.15]))  # fmt: skip
    letters = layout(rng) if dtype in ("fp16", "bf16") else "nt"
    n, k = -(-n // 8) * 8, -(-k // 16) * 16
    m = -(-m // 8) * 8 if letters[0] == "t" else m
    return Gemm(
        m, n, k, dtype=dtype, layout=letters, alpha=float(rng.choice([1.0, 1.0, 1.0, -0.5]))
    )


def narrow_problem(rng):
    long, few, k = int(rng.integers(1, 3000)), int(rng.integers(1, 3)), int(rng.integers(1, 5000))
    m, n = (few, long) if rng.random() < 0.5 else (long, few)
    return Gemm(
        m, n, k, dtype=str(rng.choice(["fp16", "bf16", "fp32"])), layout=layout(rng),
        batch=int(rng.choice([1, 1, 3])), alpha=float(rng.choice([1.0, -0.5])),
        beta=float(rng.choice([0.0, 0.0, 0.5])),
    )  # fmt: skip


def layout(rng):
    return str(rng.choice(LAYOUTS, p=LAYOUT_ODDS))


def varied(rng, problem, config):
    """A configuration with knobs that the candidates hold fixed at other legal values."""
    if config.template == "matvec":
        return config
    changed = replace(
        config,
        group_m=int(rng.integers(1, 17)),
        num_stages=int(rng.integers(2, config.num_stages + 1)),
    )
    assert broken_rule(problem, changed, H200) is None
    return changed


CASES = {
    name: [pytest.param(name, number, id=f"{name}-{number}") for number in range(count)]
    for name, count in DRAWS.items()
}


def test_the_draws_are_legal_distinct_and_cover_the_rule_of_narrow_runs():
    cases = {name: [drawn(name, i) for i in range(count)] for name, count in DRAWS.items()}
    for name, found in cases.items():
        assert len(set(found)) == len(found) and {c.config.template for c in found} == {name}
        assert all(broken_rule(c.problem, c.config, H200) is None for c in found)
    specialized = cases["warp_specialized"]
    both = specialized + cases["packed"]
    widths = [
        c.config.block_m if c.config.swap else c.config.block_n
        for c in both
        if columns_lie_across_k(c.problem, ConfigTable.of(c.config))[0]
    ]
    assert len(widths) >= len(both) // 3
    assert set(widths) >= {64, 128, 192, 320}
    assert {c.config.split_k > 1 for c in specialized} == {False, True}
    assert {c.config.epilogue_parts for c in specialized} == {1, 2}
    assert {c.config.num_warps for c in specialized} == {4, 8, 12}
    assert len({c.problem.dtype for c in specialized}) == 5


# --- right ---------------------------------------------------------------------------------------


def within_a_larger_one(problem):
    """A C full of NaN inside a larger matrix of NaN, at an address of 16 bytes."""
    lead = (problem.batch,) if problem.batch > 1 else ()
    width = -(-problem.n // 16) * 16 + 32
    shape = (*lead, problem.m + 2, width)
    whole = torch.full(shape, float("nan"), device="cuda", dtype=TORCH_DTYPES[problem.out_dtype])
    return whole, whole[..., 1:-1, 16 : 16 + problem.n]


def wrong_elements(out, a, b, problem, before=None):
    """How many elements are not float64's, summed in fp32 and rounded to C's type once."""
    a, b = a.double(), b.double()
    exact = problem.alpha * (a @ b)
    terms = abs(problem.alpha) * (a.abs() @ b.abs())
    if before is not None:
        exact += problem.beta * before.double()
        terms += abs(problem.beta) * before.double().abs()
    bound = ROUNDING[problem.out_dtype] * exact.abs() + UNDERFLOW
    bound += SUM_ERROR[problem.element_bytes] * terms
    return int((~((out.double() - exact).abs() <= bound)).sum())  # a NaN is wrong


def check(problem, config, units=None):
    """The product into a slice of NaN: right by element and by norm, and nothing else touched."""
    generator = torch.Generator("cuda").manual_seed(problem.m + problem.n + problem.k)
    a, b, plain = make_operands(problem, "cuda", generator)
    whole, out = within_a_larger_one(problem)
    out.copy_(plain)
    reference = Reference(problem, a, b, out)
    reference.poison(out)
    kept = a.clone(), b.clone()
    options = {"alpha": problem.alpha, "beta": problem.beta, "units": units}
    gemm(a, b, config, out=out, **options)
    torch.cuda.synchronize()
    assert wrong_elements(out, a, b, problem, reference.before) == 0
    assert float(reference.error(out)) <= tolerance(problem)
    assert torch.equal(a, kept[0]) and torch.equal(b, kept[1])
    outside = torch.ones_like(whole, dtype=torch.bool)
    outside[..., 1:-1, 16 : 16 + problem.n] = False
    assert whole[outside].isnan().all()


@pytest.mark.parametrize(
    ("template", "number"), CASES["warp_specialized"] + CASES["packed"] + CASES["matvec"]
)
class TestDrawn:
    pytestmark = on_hopper

    def test_a_drawn_configuration_multiplies(self, template, number):
        case = drawn(template, number)
        print(case)  # shown where it fails
        check(case.problem, case.config, case.units)


SPECIALIZED = KernelConfig("warp_specialized", 128, 64, 64, num_warps=8, num_stages=3)


@pytest.mark.parametrize("units", [1, 132])
@pytest.mark.parametrize(
    ("k", "split", "stages"),
    [
        (64, 1, 8),  # one step, and eight buffers
        (8, 1, 2),
        (320, 5, 4),  # a step a part
        (328, 6, 2),  # the last step has 8 of 64
        (4096, 7, 3),  # parts of 9 and 10 steps
    ],
)
class TestSteps:
    pytestmark = on_hopper

    def test_parts_and_buffers_of_any_number_of_steps_multiply(self, k, split, stages, units):
        config = replace(SPECIALIZED, split_k=split, num_stages=stages)
        check(Gemm(300, 200, k), config, units)
        check(Gemm(301, 201, k + 1), replace(config, template="packed"), units)


@pytest.mark.parametrize("columns", [8, 24, 64, 72, 136, 192, 200, 208, 256])
class TestRuns:
    pytestmark = on_hopper

    def test_runs_of_columns_multiply_along_k(self, columns):
        config = KernelConfig("warp_specialized", 64, columns, 64, num_stages=2)
        check(Gemm(130, 2 * columns + 8, 200), config, units=2)

    def test_swapped_runs_of_rows_multiply_along_k(self, columns):
        config = KernelConfig("warp_specialized", columns, 64, 64, num_stages=2, swap=True)
        check(Gemm(2 * columns + 3, 136, 200), config, units=2)


def views():
    """(A, B) in the middle of larger matrices, at addresses of 4 bytes and not of 16."""
    whole = torch.randn(700, 1003, device="cuda").half()
    return [
        (whole[2:132, 4:305], whole[200:501, 4:141]),
        (whole[2:132, 4:305], whole[10:147, 6:307].T),
        (whole[2:303, 4:134].T, whole[200:501, 4:5]),  # a single column
        (whole[2:3, 4:305], whole[200:501, 4:141]),
        (whole[::2][2:132, 4:305], whole[200:501, 4:141]),
    ]


@pytest.mark.parametrize("number", range(5))
class TestViews:
    pytestmark = on_hopper

    def test_packed_multiplies_views(self, number):
        a, b = views()[number]
        out = gemm(a, b, KernelConfig("packed", 64, 64, 64, num_stages=3))
        problem = Gemm(len(a), b.shape[1], a.shape[1])
        assert wrong_elements(out, a, b, problem) == 0


# --- again, at once, and replayed ----------------------------------------------------------------

#: (problem, configuration) with no part, with parts, copied, and with no matrix unit
KINDS = {
    "whole": (Gemm(500, 320, 1024), SPECIALIZED),
    "scaled": (Gemm(500, 320, 1024, alpha=0.5), replace(SPECIALIZED, epilogue_parts=2)),
    "parts": (Gemm(256, 200, 4096), replace(SPECIALIZED, split_k=8)),
    "packed": (Gemm(257, 201, 1111), replace(SPECIALIZED, template="packed", split_k=3)),
    "matvec": (Gemm(2000, 2, 3000), KernelConfig("matvec", 4, 2, 512, num_stages=1)),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def planned(kind, seed):
    """Operands, C and a launch of one kind."""
    problem, config = KINDS[kind]
    a, b, out = make_operands(problem, "cuda", torch.Generator("cuda").manual_seed(seed))
    return problem, a, b, out, prepare(a, b, config, out=out, alpha=problem.alpha)


@kinds
class TestAgain:
    pytestmark = on_hopper

    def test_each_launch_gives_the_same_bits(self, kind):
        problem, a, b, out, plan = planned(kind, 1)
        first = plan.run().clone()
        assert wrong_elements(first, a, b, problem) == 0
        for _ in range(50):
            out.fill_(float("nan"))
            assert torch.equal(plan.run(), first)

    def test_a_launch_right_behind_another_reads_its_own_operands(self, kind):
        problem, a, b, out, plan = planned(kind, 1)
        others = [torch.randn_like(a) for _ in range(8)]
        results = []
        for other in others:  # nothing waits between them
            a.copy_(other)
            results.append(plan.run().clone())
        for other, result in zip(others, results, strict=True):
            assert wrong_elements(result, other, b, problem) == 0

    def test_two_streams_at_once_do_not_meet(self, kind):
        plans = [planned(kind, seed) for seed in (1, 2)]
        expected = [plan.run().clone() for *_, plan in plans]
        streams = [torch.cuda.Stream() for _ in plans]
        differing = [torch.zeros((), device="cuda", dtype=torch.bool) for _ in plans]
        torch.cuda.synchronize()
        for _ in range(50):
            for place, (_, _, _, out, plan) in enumerate(plans):
                with torch.cuda.stream(streams[place]):
                    out.fill_(float("nan"))
                    differing[place] |= (plan.run() != expected[place]).any()
        torch.cuda.synchronize()
        for place, (problem, a, b, _, _) in enumerate(plans):
            assert wrong_elements(expected[place], a, b, problem) == 0
        assert not any(map(bool, differing))

    @pytest.mark.parametrize("bound", ["before", "within"])
    def test_a_captured_graph_replays_on_new_operands(self, kind, bound):
        problem, a, b, out, plan = planned(kind, 1)
        config = KINDS[kind][1]
        plan.run()  # compiles and loads, which a capture cannot
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            if bound == "before":
                plan.run()
            else:  # the workspace comes from the graph's own memory
                gemm(a, b, config, out=out, alpha=problem.alpha)
        for _ in range(3):
            a.copy_(torch.randn_like(a))
            b.copy_(torch.randn_like(b))
            out.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            assert wrong_elements(out, a, b, problem) == 0
