"""The kernels before and after "packed" and split "warp_specialized": copying, and adding parts.

Both are plain Triton, and interpreted where there is no GPU. The product between them has no
interpreter: here float64 stands in for it, from the launcher's own copies into its own workspace.
"""

import os
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
# before ``binder`` turns the interpreter off: Gluon looks at it as it is imported
pytest.importorskip("costmodel.kernels.warp_specialized", exc_type=ImportError)

from costmodel.config import KernelConfig  # noqa: E402
from costmodel.kernels import reduce_parts  # noqa: E402
from costmodel.kernels.launch import prepare  # noqa: E402
from costmodel.kernels.operands import make_operands  # noqa: E402
from costmodel.kernels.pack import pack_kernel  # noqa: E402
from costmodel.problem import Gemm  # noqa: E402
from costmodel.profile import load_profile  # noqa: E402
from costmodel.space.candidates import candidates  # noqa: E402
from costmodel.space.prune import prune  # noqa: E402

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    # NumPy's warning, caused in Triton 3.6's interpreter
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim"),
    pytest.mark.skipif(
        not INTERPRETED and (torch.version.hip or torch.cuda.get_device_capability() < (9, 0)),
        reason="the kernels belong to a product on sm_90",
    ),
]
H200 = load_profile("h200-sxm")
LAYOUTS = ("nn", "nt", "tn", "tt")
POISON = 7.0


@pytest.fixture(scope="module", autouse=True)
def no_grid_dependency():
    """The interpreter runs one program after another: there is no product to wait for."""
    with pytest.MonkeyPatch.context() as patch:
        if INTERPRETED:
            patch.setattr(reduce_parts, "gdc_wait", lambda: None)
        yield


@pytest.fixture(scope="module")
def binder():
    """``prepare`` as on a GPU: it binds what the interpreter could not run."""
    from triton import knobs

    def bind(*args, **options):
        before = knobs.runtime.interpret
        knobs.runtime.interpret = False
        try:
            return chain(prepare(*args, **options))
        finally:
            knobs.runtime.interpret = before

    return bind


def chain(launch):
    """Launches in order, by the names of their kernels."""
    found = {}
    while launch is not None:
        found[launch.kernel.__name__] = launch
        launch = launch.then
    return found


def start(launch):
    """Launch one kernel alone, as a plain launch."""
    options = {k: v for k, v in launch.constants.items() if k != "launch_pdl"}
    launch.kernel[launch.grid](*launch.args, **options)


def bits(*shape, seed=0):
    """Random 16-bit patterns as fp16, NaN among them: a copy changes none."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(-(2**15), 2**15, shape, dtype=torch.int16, generator=generator)
    return words.view(torch.float16).to(DEVICE)


def same_bits(a, b):
    return torch.equal(a.contiguous().view(torch.int16), b.contiguous().view(torch.int16))


# --- copying -------------------------------------------------------------------------------------


def pack(a, b, rows, words):
    """Copies of two [height, width] views with rows of multiples of 64 elements; None stays out."""
    copies, sizes, blocks = [], [], []
    for source in (a, b):
        height, width = source.shape
        units = triton.cdiv(width, 64)
        room = torch.full((height, units * 64), POISON, device=DEVICE, dtype=torch.float16)
        copies.append(room)
        sizes += [height, width, source.stride(0), units]
        blocks.append(triton.cdiv(height, rows) * triton.cdiv(width, 2 * words))
    pack_kernel[(sum(blocks),)](a, b, *copies, blocks[0], *sizes, ROWS=rows, WORDS=words)
    return copies


def view(height, width, leading, first, seed):
    """A [height, width] view of rows ``leading`` elements apart, from element ``first`` on."""
    whole = bits(first + height * leading + width, seed=seed)
    return whole.as_strided((height, width), (leading, 1), first)


VIEWS = st.builds(
    view,
    height=st.integers(1, 40),
    width=st.integers(1, 150),
    leading=st.integers(150, 190),
    first=st.integers(0, 30).map(lambda pairs: 2 * pairs),  # an address of 4 bytes
    seed=st.integers(0, 5),
)


@settings(max_examples=40 if INTERPRETED else 25, deadline=None)
@given(VIEWS, VIEWS, st.sampled_from([1, 4, 8]), st.sampled_from([16, 256]))
def test_a_copy_has_the_bits_of_its_source_and_leaves_the_rest_of_its_rows(a, b, rows, words):
    for source, copy in zip((a, b), pack(a, b, rows, words), strict=True):
        width = source.shape[1]
        assert same_bits(copy[:, :width], source)
        # the last pair may bring one element more
        assert (copy[:, width + width % 2 :] == POISON).all()


@pytest.mark.parametrize("leading", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("height", [1, 2, 9])
def test_a_single_column_is_copied_from_rows_of_any_length(height, leading):
    a, b = view(height, 1, leading, 0, seed=1), view(height, 1, leading, 2, seed=2)
    for source, copy in zip((a, b), pack(a, b, 8, 256), strict=True):
        assert same_bits(copy[:, :1], source)
        assert (copy[:, 2:] == POISON).all()


@pytest.mark.parametrize("width", [1, 2, 511, 512, 513, 1024, 1025, 1537])
def test_rows_around_whole_blocks_are_copied(width):
    a, b = bits(9, width, seed=3), bits(8, width + 1, seed=4)[:, :width]
    for source, copy in zip((a, b), pack(a, b, 8, 256), strict=True):
        assert same_bits(copy[:, :width], source)


@pytest.mark.skipif(not INTERPRETED, reason="looks at each pointer in the interpreter")
@pytest.mark.parametrize("width", [1, 2, 33, 64, 101])
@pytest.mark.parametrize("leading", [101, 102, 107])
def test_each_word_that_is_read_holds_an_element_of_the_source(width, leading, monkeypatch):
    from triton.runtime.interpreter import InterpreterBuilder

    a, b = view(7, width, leading, 4, seed=5), view(5, width, leading, 2, seed=6)
    elements = {
        source.data_ptr() + 2 * (row * leading + column)
        for source in (a, b)
        for row in range(source.shape[0])
        for column in range(width)
    }
    original, read = InterpreterBuilder.create_masked_load, set()

    def load(self, pointers, mask, *rest):
        read.update(pointers.data[mask.data].astype(np.int64).tolist())
        return original(self, pointers, mask, *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_masked_load", load)
    pack(a, b, 8, 256)
    # a word of 4 aligned bytes with one byte that is ours lies in our page
    assert all({word, word + 2} & elements for word in read)
    assert elements <= read | {word + 2 for word in read}


# --- adding --------------------------------------------------------------------------------------


def add(parts, out, *, transposed=False, alpha=1.0, block=(4, 16), at_once=4, align=1):
    """Sum parts [split, rows, ld] into C [m, n] (or the C whose transpose is [m, n])."""
    split, rows, ld = parts.shape
    m, n = out.shape[::-1] if transposed else out.shape
    reduce_parts.reduce_parts_kernel[(triton.cdiv(m, block[0]), triton.cdiv(n, block[1]))](
        parts, out, out, out, split, rows * ld // 64, ld // 8, m, n, out.stride(0) // align,
        alpha, 0.0,
        BLOCK_M=block[0], BLOCK_N=block[1], PARTS=at_once, ALIGN_C=align, C_TRANSPOSED=transposed,
        SCALED=alpha != 1.0, HAS_BETA=False, HAS_BIAS=False, ACTIVATION="",
    )  # fmt: skip
    return out


def part_sums(split, rows, ld, m, n, seed):
    """Parts with NaN in the padding, and their sum's [m, n] in float64."""
    generator = torch.Generator().manual_seed(seed)
    parts = torch.randn(split, rows, ld, generator=generator).to(DEVICE)
    parts[:, m:], parts[:, :, n:] = float("nan"), float("nan")
    return parts, parts[:, :m, :n].double().sum(0), parts[:, :m, :n].double().abs().sum(0)


ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-7, torch.float32: 2.0**-24}


def is_sum(out, exact, sizes):
    bound = ROUNDING[out.dtype] * exact.abs() + 2.0**-20 * sizes + 2.0**-25
    return bool(((out.double() - exact).abs() <= bound).all())  # False for a NaN


@settings(max_examples=40 if INTERPRETED else 25, deadline=None)
@given(
    split=st.integers(1, 20),
    m=st.integers(1, 64),
    n=st.integers(1, 72),
    at_once=st.sampled_from([1, 2, 16]),
    block=st.sampled_from([(1, 8), (8, 16), (64, 32)]),
    transposed=st.booleans(),
    alpha=st.sampled_from([1.0, -0.5]),
    kind=st.sampled_from(list(ROUNDING)),
    seed=st.integers(0, 5),
)
def test_parts_add_to_their_sum_and_padding_reaches_no_c(
    split, m, n, at_once, block, transposed, alpha, kind, seed
):
    parts, exact, sizes = part_sums(split, 64, -(-n // 8) * 8, m, n, seed)
    shape = (n, m) if transposed else (m, n)
    whole = torch.full((shape[0] + 2, shape[1] + 3), POISON, device=DEVICE, dtype=kind)
    inside = whole[1:-1, 2:-1]
    add(parts, inside, transposed=transposed, alpha=alpha, block=block, at_once=at_once)
    result = inside.T if transposed else inside
    assert is_sum(result, alpha * exact, sizes)
    outside = torch.ones_like(whole, dtype=torch.bool)
    outside[1:-1, 2:-1] = False
    assert (whole[outside] == POISON).all()


def test_the_sum_has_the_same_bits_each_time_and_however_c_is_cut():
    parts, _, _ = part_sums(24, 64, 72, 50, 70, seed=1)
    out = torch.empty(50, 70, device=DEVICE)
    first = add(parts, out).clone()
    for block in ((4, 16), (1, 8), (64, 64)):
        assert torch.equal(add(parts, out.fill_(float("nan")), block=block), first)


@pytest.mark.skipif(not INTERPRETED, reason="looks at each pointer in the interpreter")
@pytest.mark.parametrize("block", [(4, 16), (64, 64)])
def test_no_load_of_a_part_leaves_the_workspace(block, monkeypatch):
    from triton.runtime.interpreter import InterpreterBuilder

    parts, exact, sizes = part_sums(5, 64, 72, 50, 70, seed=1)  # 72 is no multiple of a block
    original, read = InterpreterBuilder.create_masked_load, []

    def load(self, pointers, mask, *rest):
        read.append(pointers.data[mask.data].astype(np.int64))
        return original(self, pointers, mask, *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_masked_load", load)
    assert is_sum(add(parts, torch.empty(50, 70, device=DEVICE), block=block), exact, sizes)
    addresses = np.concatenate(read) - parts.data_ptr()
    assert addresses.min() == 0 and addresses.max() < 4 * parts.numel()
    # each element of the rows that hold C is read once
    assert len(np.unique(addresses)) == len(addresses)


# --- both, as the launcher binds them ------------------------------------------------------------


def stand_in_product(launch):
    """What the product leaves: sums of each part of K, zeros where a tile reaches past C."""
    a_desc, b_desc, *_ = launch.args
    constants = SimpleNamespace(**launch.constants)
    parts, (m, n, k), split = launch.args[7], launch.args[10:13], launch.args[-1]
    a, b = a_desc.base.double(), b_desc.base.double()
    a, b = (a if constants.A_K else a.T), (b.T if constants.B_K else b)
    rows = constants.GROUPS * constants.GROUP_ROWS
    columns = constants.RUN0 + constants.RUN1 + constants.RUN2
    padded = parts.view(split, triton.cdiv(m, rows) * rows, triton.cdiv(n, columns) * columns)
    padded.zero_()
    steps = triton.cdiv(k, constants.BLOCK_K)
    for part in range(split):
        begin = steps * part // split * constants.BLOCK_K
        end = min(steps * (part + 1) // split * constants.BLOCK_K, k)
        padded[part, :m, :n] = a[:, begin:end] @ b[begin:end]


def run(launches):
    """All kernels of a launch, float64 in the place of the product."""
    if "pack_kernel" in launches:
        start(launches["pack_kernel"])
    stand_in_product(launches["warp_specialized_kernel"])
    start(launches["reduce_parts_kernel"])


def is_product(out, a, b, alpha):
    exact = alpha * (a.double() @ b.double())
    sizes = abs(alpha) * (a.double().abs() @ b.double().abs())
    return is_sum(out, exact, sizes)


def legal(problem, template):
    """Configurations of a template that the chip runs, in a fixed order."""
    kept, _ = prune(problem, candidates(problem, H200), H200)
    return kept[np.flatnonzero(kept.is_template(template))]


@settings(max_examples=40 if INTERPRETED else 15, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 150), st.integers(1, 150), st.integers(1, 300)),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(["fp16", "bf16"]),
    alpha=st.sampled_from([1.0, 0.5]),
    pick=st.randoms(use_true_random=False),
)
def test_packed_multiplies_any_size_around_its_product(binder, sizes, layout, dtype, alpha, pick):
    problem = Gemm(*sizes, dtype=dtype, layout=layout, alpha=alpha)
    table = legal(problem, "packed")
    if not len(table):  # its rows are aligned
        table = legal(problem, "warp_specialized")
        table = table[np.flatnonzero(table.split_k > 1)]
    assume(len(table))
    config = table[pick.randrange(len(table))]
    a, b, out = make_operands(problem, DEVICE, torch.Generator(DEVICE).manual_seed(1))
    run(binder(a, b, config, out=out.fill_(float("nan")), alpha=alpha))
    assert is_product(out, a, b, alpha)


@pytest.mark.parametrize(
    ("left", "right"),
    [  # (first row, first column, rows, columns) of a larger matrix; addresses of 4 bytes
        ((0, 0, 50, 101), (0, 0, 101, 70)),
        ((2, 4, 50, 101), (4, 2, 101, 70)),
        ((2, 4, 1, 101), (4, 2, 101, 70)),
        ((2, 4, 50, 101), (4, 2, 101, 1)),  # a single column
        ((2, 4, 50, 1), (4, 2, 1, 70)),
        ((2, 4, 128, 64), (4, 2, 64, 64)),  # whole tiles at odd places
    ],
)
@pytest.mark.parametrize("leading", [303, 305, 304])
def test_packed_multiplies_views_that_start_in_the_middle_of_a_row(binder, left, right, leading):
    whole = torch.randn(300, leading, device=DEVICE).half()
    a, b = (whole[r : r + m, c : c + n] for r, c, m, n in (left, right))
    config = KernelConfig("packed", 64, 64, 64, num_stages=2)
    out = torch.full((len(a), b.shape[1]), float("nan"), device=DEVICE).half()
    run(binder(a, b, config, out=out))
    assert is_product(out, a, b, 1.0)


def test_only_what_is_not_aligned_is_copied(binder):
    config = KernelConfig("packed", 64, 64, 64, num_stages=2)
    odd, even = bits(64, 101), bits(64, 128)
    for a, b, copied in (
        (odd[:, :64], even[:, :64].T, {"a"}),
        (even[:, :64], odd[:, :64].T, {"b"}),
        (odd[:, :64], odd[:, :64].T, {"a", "b"}),
        (even[:, :64], even[:, :64].T, set()),
        (even[:, 2:66], even[:, :64].T, {"a"}),  # aligned rows, but not their start
    ):
        launches = binder(a, b, config)
        product = launches["warp_specialized_kernel"]
        bases = {"a": (product.args[0].base, a), "b": (product.args[1].base, b)}
        found = {n for n, (base, own) in bases.items() if base.data_ptr() != own.data_ptr()}
        assert found == copied
        assert ("pack_kernel" in launches) == bool(copied)


def test_the_adding_grid_stays_within_its_limits_for_the_widest_c(binder):
    problem = Gemm(3, 5_000_001, 64)
    a, b, out = make_operands(problem, "meta")
    launches = binder(a, b, KernelConfig("packed", 64, 64, 64, num_stages=2), out=out)
    adding = launches["reduce_parts_kernel"]
    assert adding.grid[0] * adding.constants["BLOCK_M"] >= 3
    assert adding.grid[1] * adding.constants["BLOCK_N"] >= 5_000_001
    assert adding.grid[1] <= 65535
