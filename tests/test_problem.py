"""A GEMM's description: sizes, types, layouts, and what follows from them by arithmetic."""

from dataclasses import FrozenInstanceError, asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.errors import CostModelError, ProblemError, UnknownNameError
from costmodel.problem import Gemm

OPERAND_TYPES = {  # name: (bytes an element, default output)
    "fp16": (2, "fp16"),
    "bf16": (2, "bf16"),
    "fp32": (4, "fp32"),
    "fp8_e4m3": (1, "bf16"),
    "fp8_e5m2": (1, "bf16"),
    "fp8_e4m3fnuz": (1, "bf16"),
    "fp8_e5m2fnuz": (1, "bf16"),
    "int8": (1, "int32"),
}
LAYOUTS = ("nn", "nt", "tn", "tt")
SIZES = st.integers(1, 2**31 - 2**16)
PROBLEMS = st.builds(
    Gemm,
    m=SIZES,
    n=SIZES,
    k=SIZES,
    dtype=st.sampled_from(sorted(OPERAND_TYPES)),
    layout=st.sampled_from(LAYOUTS),
    batch=st.integers(1, 1000),
    alpha=st.floats(allow_nan=False, allow_infinity=False),
    beta=st.floats(allow_nan=False, allow_infinity=False),
)


# --- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", ["m", "n", "k", "batch"])
@pytest.mark.parametrize("size", [0, -1, 1.5, 4096.0, True, "4096", None, 2**31, 2**80])
def test_a_size_that_is_not_a_whole_number_from_1_to_2_31_less_1_is_an_error(axis, size):
    sizes = {"m": 8, "n": 8, "k": 8, axis: size}
    with pytest.raises(ProblemError) as caught:
        Gemm(**sizes)
    message = str(caught.value)
    assert message.startswith(axis.upper() + " ") and repr(size) in message


def test_the_largest_size_is_2_31_less_1():
    assert Gemm(2**31 - 2**16, 1, 1).m == 2147418112


def test_numpys_whole_numbers_become_pythons():
    problem = Gemm(np.int32(3), np.int64(5), np.uint8(7))
    assert problem == Gemm(3, 5, 7)
    assert [type(size) for size in (problem.m, problem.n, problem.k)] == [int, int, int]


def test_every_error_is_the_packages_own_and_a_valueerror_or_lookuperror():
    for wrong in ({"m": 0}, {"dtype": "float61"}, {"layout": "xy"}, {"alpha": "2"}):
        with pytest.raises(CostModelError) as caught:
            Gemm(**({"m": 8, "n": 8, "k": 8} | wrong))
        assert isinstance(caught.value, (ValueError, LookupError))


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "given_name", "close"),
    [
        ("dtype", "float61", "float16"),
        ("dtype", "fp61", "fp16"),
        ("dtype", "bfloat61", "bfloat16"),
        ("dtype", "fp8_e4m4", "fp8_e4m3"),
        ("dtype", "itn8", "int8"),
        ("out_dtype", "float23", "float32"),
        ("accumulate", "fp23", "fp32"),
        ("layout", "n", "nn"),
        ("precision", "tf23", "tf32"),
        ("precision", "ieeee", "ieee"),
    ],
)
def test_a_misspelt_name_is_an_error_with_the_close_name(field, given_name, close):
    options = {"dtype": "fp32"} | {field: given_name}
    with pytest.raises(UnknownNameError) as caught:
        Gemm(8, 8, 8, **options)
    given_part, _, hint = str(caught.value).partition("; did you mean ")
    assert repr(given_name) in given_part and repr(close) in hint


def test_a_name_like_no_other_is_an_error_with_every_known_name():
    with pytest.raises(UnknownNameError) as caught:
        Gemm(8, 8, 8, layout="xx")
    assert all(layout in str(caught.value) for layout in LAYOUTS)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("float16", "fp16"),
        ("half", "fp16"),
        ("bfloat16", "bf16"),
        ("float32", "fp32"),
        ("torch.float16", "fp16"),
        ("torch.float8_e4m3fn", "fp8_e4m3"),
        ("FP16", "fp16"),
    ],
)
def test_an_alias_means_the_packages_own_name(alias, name):
    assert Gemm(8, 8, 8, dtype=alias) == Gemm(8, 8, 8, dtype=name)


def test_int32_is_an_output_only():
    with pytest.raises(ProblemError, match="int32"):
        Gemm(8, 8, 8, dtype="int32")
    assert Gemm(8, 8, 8, dtype="int8", out_dtype="int32").out_bytes == 4


@pytest.mark.parametrize("dtype", sorted(OPERAND_TYPES))
def test_size_and_default_output_of_a_type(dtype):
    problem = Gemm(8, 8, 8, dtype=dtype)
    assert (problem.element_bytes, problem.out_dtype) == OPERAND_TYPES[dtype]


def test_precision_is_a_choice_for_fp32_alone():
    for precision in ("tf32", "tf32x3", "ieee"):
        assert Gemm(8, 8, 8, dtype="fp32", precision=precision).precision == precision
    with pytest.raises(ProblemError, match="fp16"):
        Gemm(8, 8, 8, dtype="fp16", precision="ieee")


def test_int8_sums_in_int32_and_everything_else_in_floating_point():
    assert Gemm(8, 8, 8, dtype="int8").accumulate == "int32"
    assert Gemm(8, 8, 8, dtype="fp8_e5m2").accumulate == "fp32"
    with pytest.raises(ProblemError, match="int8"):
        Gemm(8, 8, 8, dtype="int8", accumulate="fp32")
    with pytest.raises(ProblemError, match="fp16"):
        Gemm(8, 8, 8, dtype="fp16", accumulate="int32")


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("value", [True, "1", None, 1j])
def test_alpha_and_beta_are_numbers(name, value):
    with pytest.raises(ProblemError, match=name):
        Gemm(8, 8, 8, **{name: value})


# --- layouts, from a stored picture of A [2, 5] and B [5, 3] -------------------------------------


@pytest.mark.parametrize(
    ("layout", "a_row", "b_row"),
    [
        ("nn", 5, 3),  # A stored [2, 5], B stored [5, 3]
        ("nt", 5, 5),  # B stored [3, 5]
        ("tn", 2, 3),  # A stored [5, 2]
        ("tt", 2, 5),
    ],
)
def test_a_stored_row_is_as_long_as_the_layout_says(layout, a_row, b_row):
    problem = Gemm(2, 3, 5, layout=layout)
    assert [problem.row_elements(operand) for operand in "abc"] == [a_row, b_row, 3]


def test_the_default_layout_is_a_linear_layers():
    assert Gemm(8, 8, 8).layout == "nt"


@pytest.mark.parametrize(
    ("row", "align"), [(4096, 16), (16, 16), (24, 8), (20, 4), (18, 2), (17, 1), (1, 1), (32, 16)]
)
def test_a_rows_alignment_is_its_largest_power_of_two_up_to_16(row, align):
    assert Gemm(1, 1, row, layout="nt").row_align("a") == align


# --- arithmetic by hand --------------------------------------------------------------------------


def test_flops_are_two_for_each_of_m_n_k_batch():
    assert Gemm(3, 5, 7).flops == 210  # 2 * 3 * 5 * 7
    assert Gemm(3, 5, 7, batch=4).flops == 840


def test_flops_of_the_largest_sizes_do_not_overflow():
    assert Gemm(2**31 - 2**16, 2**31 - 2**16, 2**31 - 2**16).flops == pytest.approx(
        2.0**94, rel=1e-4
    )


@pytest.mark.parametrize(
    ("options", "expected_bytes"),
    [  # A has 21 elements, B 35, C 15
        ({}, 142),  # (21 + 35) * 2 + 15 * 2
        ({"beta": 0.5}, 172),  # C is read too: + 15 * 2
        ({"batch": 2}, 284),
        ({"out_dtype": "fp32"}, 172),  # 112 + 15 * 4
        ({"dtype": "fp32"}, 284),  # 56 * 4 + 15 * 4
        ({"dtype": "fp8_e4m3"}, 86),  # 56 + 15 * 2, since C is bf16
        ({"dtype": "int8"}, 116),  # 56 + 15 * 4, since C is int32
        ({"layout": "tn"}, 142),  # how it is stored changes nothing
    ],
)
def test_compulsory_bytes_read_each_operand_once_and_write_c_once(options, expected_bytes):
    assert Gemm(3, 5, 7, **options).compulsory_bytes == expected_bytes


def test_intensity_of_a_square_fp16_gemm_is_a_third_of_its_side():
    # 2 n^3 FLOP over 3 n^2 elements of 2 bytes
    assert Gemm(4096, 4096, 4096).arithmetic_intensity == pytest.approx(4096 / 3)


# --- a shape in place of a Gemm ------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 5, 7), [3, 5, 7], np.array([3, 5, 7])])
def test_three_numbers_stand_for_an_fp16_linear_layer(shape):
    assert Gemm.of(shape) == Gemm(3, 5, 7, dtype="fp16", layout="nt")


def test_options_complete_a_tuple():
    assert Gemm.of((3, 5, 7), dtype="bf16", batch=2) == Gemm(3, 5, 7, dtype="bf16", batch=2)


def test_a_gemm_is_taken_as_it_is():
    problem = Gemm(3, 5, 7, dtype="bf16")
    assert Gemm.of(problem) is problem


def test_options_override_a_gemms_fields():
    assert Gemm.of(Gemm(3, 5, 7), layout="tn") == Gemm(3, 5, 7, layout="tn")


@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3", "int8"])
def test_a_changed_dtype_brings_its_own_default_output(dtype):
    assert Gemm.of(Gemm(3, 5, 7), dtype=dtype) == Gemm(3, 5, 7, dtype=dtype)


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 7, 9), (), 4096, None, (3, 5, "7"), "357"])
def test_anything_else_in_place_of_a_shape_is_an_error(shape):
    with pytest.raises(ProblemError):
        Gemm.of(shape)


# --- a value like any other ----------------------------------------------------------------------


def test_a_gemm_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Gemm(3, 5, 7).m = 4


@given(PROBLEMS)
def test_a_gemm_is_rebuilt_from_its_fields(problem):
    rebuilt = Gemm(**asdict(problem))
    assert rebuilt == problem and hash(rebuilt) == hash(problem)


@given(PROBLEMS)
def test_the_transposed_product_reads_and_computes_as_much(problem):
    # C' = B' A': M and N change places, and so do the letters, each flipped
    flip = {"n": "t", "t": "n"}
    layout = flip[problem.layout[1]] + flip[problem.layout[0]]
    mirror = replace(problem, m=problem.n, n=problem.m, layout=layout)
    assert mirror.flops == pytest.approx(problem.flops, rel=1e-12)
    assert mirror.compulsory_bytes == problem.compulsory_bytes
    assert mirror.row_elements("a") == problem.row_elements("b")
    assert mirror.row_elements("b") == problem.row_elements("a")


@given(PROBLEMS)
def test_an_alignment_divides_the_row(problem):
    for operand in "abc":
        align = problem.row_align(operand)
        assert align in (1, 2, 4, 8, 16) and problem.row_elements(operand) % align == 0


@given(st.text(max_size=12))
def test_any_text_as_a_dtype_is_a_known_name_or_the_packages_error(text):
    try:
        problem = Gemm(8, 8, 8, dtype=text)
    except (UnknownNameError, ProblemError) as error:
        assert str(error)
    else:
        assert problem.dtype in OPERAND_TYPES


# --- convolutions --------------------------------------------------------------------------------


def test_a_convolution_is_the_product_of_its_unfolded_image():
    # ResNet's first layer: 224 + 2*3 - 7 = 223 rows of places in steps of 2: 112 of them
    first = Gemm.from_conv2d((8, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3)
    assert (first.m, first.n, first.k, first.batch) == (8 * 112 * 112, 64, 3 * 49, 1)
    # dilation 2 makes a kernel of 3 reach over 5
    wide = Gemm.from_conv2d((1, 16, 20, 30), (32, 16, 3, 3), dilation=2, dtype="bf16")
    assert (wide.m, wide.n, wide.k, wide.dtype) == (16 * 26, 32, 144, "bf16")
    depthwise = Gemm.from_conv2d((2, 12, 10, 10), (12, 1, 3, 3), padding=1, groups=12)
    assert (depthwise.m, depthwise.n, depthwise.k, depthwise.batch) == (200, 1, 9, 12)


@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 12), st.integers(1, 12),
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2),
    st.integers(1, 3),
)  # fmt: skip
def test_a_convolution_has_as_many_outputs_as_torch_gives(
    images, seen, height, width, rows, columns, stride, padding, dilation, groups
):
    torch = pytest.importorskip("torch")
    image = (images, seen * groups, height, width)
    weight = (2 * groups, seen, rows, columns)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    reach = [dilation * (size - 1) + 1 for size in (rows, columns)]
    if height + 2 * padding < reach[0] or width + 2 * padding < reach[1]:
        with pytest.raises(ProblemError, match="no place"):
            Gemm.from_conv2d(image, weight, **options)
        return
    out = torch.nn.functional.conv2d(torch.empty(image), torch.empty(weight), **options)
    problem = Gemm.from_conv2d(image, weight, **options)
    assert problem.m * problem.n * problem.batch == out.numel()
    assert problem.k == seen * rows * columns


@pytest.mark.parametrize(
    ("image", "weight", "options"),
    [
        ((1, 3, 8), (4, 3, 3, 3), {}),
        ((1, 3, 8, 8), (4, 2, 3, 3), {}),
        ((1, 4, 8, 8), (3, 2, 3, 3), {"groups": 2}),
        ((1, 3, 2, 8), (4, 3, 3, 3), {}),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"stride": 0}),
    ],
)
def test_a_convolution_whose_sizes_do_not_fit_is_refused(image, weight, options):
    with pytest.raises(ProblemError):
        Gemm.from_conv2d(image, weight, **options)
