"""The launchers of "warp_specialized", "packed" and "matvec" refuse what they cannot do, in words.

Every refusal is a ``ConfigError`` that says what to do instead. Nothing is launched: binding needs
no GPU, only Triton's interpreter out of the way, since Gluon has none.
"""

import re

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
# while the interpreter is still in place: Gluon looks at it as it is imported
pytest.importorskip("costmodel.kernels.warp_specialized", exc_type=ImportError)
pytest.importorskip("costmodel.kernels.reduce_parts", exc_type=ImportError)
pytest.importorskip("costmodel.kernels.pack")

from costmodel.config import KernelConfig  # noqa: E402
from costmodel.errors import ConfigError  # noqa: E402
from costmodel.kernels.launch import prepare  # noqa: E402
from costmodel.kernels.operands import make_operands  # noqa: E402
from costmodel.problem import Gemm  # noqa: E402

PLAIN = KernelConfig("warp_specialized", 128, 64, 64, num_warps=8)
SPLIT = KernelConfig("warp_specialized", 128, 64, 64, num_warps=8, split_k=2)
SWAP = KernelConfig("warp_specialized", 64, 128, 64, num_warps=8, swap=True)
PACKED = KernelConfig("packed", 128, 64, 64, num_warps=8)
SPECIALIZED = [PLAIN, SPLIT, SWAP, PACKED]
MATVEC = KernelConfig("matvec", 4, 1, 512, num_stages=1)
MATVEC_SWAP = KernelConfig("matvec", 1, 4, 512, num_stages=1, swap=True)
#: words of which every refusal has one: what to do
ADVICE = re.compile(r"\b(use|call|set|take|takes|leave|clone|must|needs)\b")
FP8 = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)


def each(configs):
    return pytest.mark.parametrize("config", configs, ids=str)


def zeros(*shape, dtype=torch.float16):
    return torch.zeros(shape, dtype=torch.float32).to(dtype)


def flat(first, rows, cols):
    """A [rows, cols] matrix that starts ``first`` elements into its storage."""
    return zeros(first + rows * cols).view(-1)[first:].view(rows, cols)


def refusal(a, b, config, **options):
    with pytest.raises(ConfigError) as caught:
        prepare(a, b, config, **options)
    message = str(caught.value)
    assert ADVICE.search(message), message
    return message


A, B = zeros(128, 128), zeros(64, 128).T


@each(SPECIALIZED)
def test_a_plain_product_is_bound(config):
    launch = prepare(A, B, config)
    assert tuple(launch.out.shape) == (128, 64) and launch.grid[0] >= 1


# --- views ---------------------------------------------------------------------------------------


@each([*SPECIALIZED, MATVEC])
@pytest.mark.parametrize(
    "a",
    [
        zeros(1, 128).expand(128, 128),
        zeros(128, 1).expand(128, 128),
        zeros(256, 256)[::2, ::2],
        zeros(300).as_strided((128, 128), (1, 1)),
        zeros(128 * 128).as_strided((128, 128), (64, 1)),
    ],
    ids=["stride-0-rows", "stride-0-columns", "every-other", "all-strides-1", "overlapping"],
)
def test_an_operand_without_rows_of_its_own_is_refused_by_name(config, a):
    assert refusal(a, B[:, :1] if config is MATVEC else B, config).startswith("a has strides")


@each([*SPECIALIZED, MATVEC])
@pytest.mark.parametrize(
    "strides", [(1, 128), (0, 1), (1, 1), (63, 1)], ids=["transposed", "0", "1", "63"]
)
def test_a_c_that_is_not_row_major_or_lies_over_itself_is_refused(config, strides):
    b = zeros(64, 128).T
    out = zeros(128 * 64 + 64).as_strided((128, 64), strides)
    message = refusal(A, b, config, out=out)
    assert "row-major" in message and str(strides) in message


def test_a_batch_of_cs_in_one_place_is_refused():
    a, b = zeros(3, 128, 64), zeros(3, 64, 1)
    out = zeros(1, 128, 1).expand(3, 128, 1)
    assert "strides (0, 1, 1)" in refusal(a, b, MATVEC, out=out)


@each([PLAIN, SPLIT, SWAP])
def test_rows_and_starts_off_16_bytes_are_refused_by_the_callers_name(config):
    assert "a steps by 101 elements" in refusal(zeros(128, 101), zeros(64, 104).T[:101], config)
    assert "b steps by 101 elements" in refusal(zeros(128, 104)[:, :101], zeros(64, 101).T, config)
    assert "; a is not" in refusal(flat(4, 128, 128), B, config)
    assert "; b is not" in refusal(A, flat(4, 64, 128).T, config)


@each([PLAIN, SWAP])
def test_an_odd_c_is_refused_where_a_descriptor_stores_it_and_taken_from_a_workspace(config):
    for out in (zeros(128, 65)[:, :64], zeros(128, 72)[:, 3:67]):
        assert re.search(r"\bc\b", refusal(A, B, config, out=out))
        for other in (SPLIT, PACKED):
            assert prepare(A, B, other, out=out).out is out


def test_packed_takes_addresses_of_4_bytes_and_names_an_operand_at_2():
    for config in (PACKED, KernelConfig(**PACKED.as_dict() | {"block_m": 64, "block_n": 128,
                                                              "swap": True})):  # fmt: skip
        prepare(flat(2, 128, 101), flat(2, 64, 101).T, config)
        assert "a's is not" in refusal(flat(1, 128, 101), zeros(64, 101).T, config)
        assert "b's is not" in refusal(zeros(128, 101), flat(3, 64, 101).T, config)


@pytest.mark.parametrize("dtype", [FP8, torch.float32])
def test_packed_copies_16_bit_elements_alone(dtype):
    a, b = zeros(128, 101, dtype=dtype), zeros(64, 101, dtype=dtype).T
    assert "16-bit" in refusal(a, b, PACKED)


@each(SPECIALIZED)
@pytest.mark.parametrize("sizes", [(0, 64, 128), (128, 0, 128), (128, 64, 0), (0, 0, 0)])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_an_empty_product_is_refused(config, sizes, layout):
    m, n, k = sizes
    a = zeros(m, k) if layout[0] == "n" else zeros(k, m).T
    b = zeros(k, n) if layout[1] == "n" else zeros(n, k).T
    refusal(a, b, config)


def test_matvec_of_no_rows_is_empty_and_of_no_k_is_bound():
    assert tuple(prepare(zeros(0, 64), zeros(64, 1), MATVEC).out.shape) == (0, 1)
    assert prepare(zeros(8, 0), zeros(0, 1), MATVEC).grid == (2, 1)


# --- types ---------------------------------------------------------------------------------------


@each([*SPECIALIZED, MATVEC])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float64, torch.float8_e4m3fnuz, torch.bool])
def test_other_types_are_refused_by_name(config, dtype):
    n = 1 if config is MATVEC else 64
    a, b = zeros(128, 128, dtype=dtype), zeros(n, 128, dtype=dtype).T
    assert str(dtype) in refusal(a, b, config)


def test_matvec_takes_no_8_bit_floats():
    assert "float8" in refusal(zeros(8, 64, dtype=FP8), zeros(64, 1, dtype=FP8), MATVEC)


@each(SPECIALIZED)
@pytest.mark.parametrize("dtype", [FP8, torch.float8_e5m2, torch.float32])
def test_8_and_32_bit_operands_off_k_are_refused(config, dtype):
    a, b = zeros(128, 128, dtype=dtype), zeros(64, 128, dtype=dtype).T
    prepare(a, b, config)
    off_a, off_b = zeros(128, 128, dtype=dtype).T, zeros(128, 64, dtype=dtype)
    for pair in ((off_a, b), (a, off_b), (off_a, off_b)):
        assert "along K" in refusal(*pair, config)


@each(SPECIALIZED)
def test_fp32_in_more_than_tf32_is_refused(config):
    a, b = zeros(128, 128, dtype=torch.float32), zeros(64, 128, dtype=torch.float32).T
    prepare(a, b, config, precision="tf32")
    for precision in ("ieee", "tf32x3"):
        assert precision in refusal(a, b, config, precision=precision)


@each([PLAIN, SWAP])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float64])
def test_a_c_that_no_descriptor_stores_is_refused(config, dtype):
    assert "c of" in refusal(A, B, config, out=zeros(128, 64, dtype=dtype))


# --- what the kernel does not do -----------------------------------------------------------------


@each(SPECIALIZED)
def test_a_batch_is_refused_and_a_batch_of_one_is_not(config):
    assert "beta" in refusal(A, B, config, beta=1.0)  # there is no C to add
    assert "batch" in refusal(A.expand(2, 128, 128), B.expand(2, 128, 64), config)
    out = zeros(1, 128, 64)
    assert prepare(A[None], B[None], config, out=out).out is out


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"block_m": 96}, "tile"),
        ({"block_n": 120}, "tile"),
        ({"num_warps": 6}, "tile"),
        ({"num_warps": None}, "tile"),
        ({"num_warps": 16, "block_m": 256}, "tile"),
        ({"block_k": 48}, "tile"),
        ({"num_stages": 1}, "2 stages"),  # loads and products would wait for each other
        ({"split_k": 3}, "2 steps"),  # a part of no steps would signal a buffer it never used
    ],
)
@pytest.mark.parametrize("template", ["warp_specialized", "packed"])
def test_a_configuration_that_no_kernel_is_for_is_refused(template, knobs, words):
    config = KernelConfig(**PLAIN.as_dict() | {"template": template} | knobs)
    assert words in refusal(A, B, config)


@pytest.mark.parametrize("template", ["warp_specialized", "packed"])
@pytest.mark.parametrize(("columns", "taken"), [(64, True), (72, False), (136, False), (192, True)])
def test_narrow_runs_across_k_are_refused(template, columns, taken):
    config = KernelConfig(template, 64, columns, 64)
    swapped = KernelConfig(template, columns, 64, 64, swap=True)
    prepare(zeros(64, 128), zeros(columns, 128).T, config)
    prepare(zeros(columns, 128), zeros(64, 128).T, swapped)
    across_b = (zeros(64, 128), zeros(128, columns), config)
    across_a = (zeros(128, columns).T, zeros(64, 128).T, swapped)
    for name, case in (("b", across_b), ("a", across_a)):
        if taken:
            prepare(*case)
        else:
            assert f"needs {name} contiguous along K" in refusal(*case)


def test_matvec_takes_columns_that_fill_more_than_half_its_block_and_no_more_than_eight():
    a = zeros(8, 64)
    for held in (1, 2, 3, 4, 8, 16):
        for n in (1, 2, 3, 4, 8, 9):
            config = KernelConfig("matvec", 4, held, 64, num_stages=1)
            if held // 2 < n <= held <= 8 and held != 3:
                prepare(a, zeros(64, n), config)
            else:
                assert f"{n} columns" in refusal(a, zeros(64, n), config)
    assert "2 rows" in refusal(zeros(2, 64), zeros(64, 8), MATVEC_SWAP)


@each([*SPECIALIZED, MATVEC])
@pytest.mark.parametrize("units", [0, -1])
def test_a_grid_of_no_programs_is_refused(config, units):
    assert "units" in refusal(A, B[:, :1] if config is MATVEC else B, config, units=units)


def test_in_the_interpreter_the_message_sends_to_another_template(monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    for config in SPECIALIZED:
        assert "interpreter" in refusal(A, B, config)


# --- what pruning keeps is taken -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["fp16", "fp32", "fp8_e4m3"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1), (1, 64, 64), (64, 1, 64), (64, 64, 1), (1, 64, 1), (64, 1, 1), (1, 1, 64),
        (2, 100, 100), (100, 2, 100), (100, 100, 1), (77, 99, 1001), (128, 200, 4096),
    ],
    ids=lambda sizes: "x".join(map(str, sizes)),
)  # fmt: skip
def test_every_candidate_that_pruning_keeps_is_bound(sizes, layout, dtype):
    from costmodel.profile import load_profile
    from costmodel.space.candidates import candidates
    from costmodel.space.prune import prune

    problem, profile = Gemm(*sizes, dtype=dtype, layout=layout), load_profile("h200-sxm")
    kept, _ = prune(problem, candidates(problem, profile), profile)
    a, b, out = make_operands(problem, "meta")
    new = [c for c in kept if c.template in ("warp_specialized", "packed", "matvec")]
    for config in new[:: max(len(new) // 40, 1)]:
        assert prepare(a, b, config, out=out, precision=problem.precision).out is out
