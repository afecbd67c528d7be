"""Shape sets: what a CSV may say, how a bad one is named, and what the shipped ones hold."""

import pytest

from costmodel.errors import RecordError
from costmodel.problem import Gemm
from costmodel.shapes import Shape, read_shapes


def written(tmp_path, text):
    path = tmp_path / "own.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_m_n_k_are_enough_and_the_rest_has_defaults(tmp_path):
    found = read_shapes(written(tmp_path, "m,n,k\n1,2,3\n4,5,6\n"))
    assert found == [Shape(Gemm(1, 2, 3), "", ""), Shape(Gemm(4, 5, 6), "", "")]


def test_every_column_is_read_in_any_order_and_others_are_ignored(tmp_path):
    text = "source,k,n,m,batch,layout,dtype,family,note\nhere,3,2,1,4,tn,bf16,odd,x\n"
    (found,) = read_shapes(str(written(tmp_path, text)))
    assert found == Shape(Gemm(1, 2, 3, dtype="bf16", layout="tn", batch=4), "odd", "here")


def test_an_empty_cell_is_the_default_and_an_empty_line_is_skipped(tmp_path):
    found = read_shapes(written(tmp_path, "m,n,k,dtype,batch\n1,2,3,,\n\n4,5,6,fp16,1\n"))
    assert [shape.problem for shape in found] == [Gemm(1, 2, 3), Gemm(4, 5, 6)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m,n,k\n1,2,3\n1,two,3\n", r"own\.csv, line 3: .*'two'"),
        ("m,n,k\n0,2,3\n", r"own\.csv, line 2: M must be between 1 and"),
        ("m,n,k\n1,2\n", r"own\.csv, line 2: .*columns m, n, k are needed"),
        ("m,n\n1,2\n", r"own\.csv, line 2: .*columns m, n, k are needed"),
        ("m,n,k,dtype\n1,2,3,fp61\n", r"own\.csv, line 2: unknown dtype 'fp61'"),
        ("m,n,k,layout\n1,2,3,xx\n", r"own\.csv, line 2: unknown layout"),
        ("m,n,k\n1.5,2,3\n", r"own\.csv, line 2: "),
        ("m,n,k\n", r"own\.csv holds no shapes; it needs a header m,n,k"),
        ("", r"own\.csv holds no shapes"),
    ],
)
def test_a_bad_set_is_refused_with_its_file_and_line(tmp_path, text, message):
    with pytest.raises(RecordError, match=message):
        read_shapes(written(tmp_path, text))


def test_an_empty_line_does_not_shift_the_number_of_the_bad_one(tmp_path):
    with pytest.raises(RecordError, match=r"line 4: "):
        read_shapes(written(tmp_path, "m,n,k\n1,2,3\n\n1,two,3\n"))


def test_a_file_that_is_missing_or_no_text_is_refused_by_name(tmp_path):
    with pytest.raises(RecordError, match=r"cannot read the shape set .*nowhere\.csv"):
        read_shapes(tmp_path / "nowhere.csv")
    path = tmp_path / "noise.csv"
    path.write_bytes(b"m,n,k\n\xff\xfe")
    with pytest.raises(RecordError, match=r"cannot read the shape set .*noise\.csv"):
        read_shapes(path)


@pytest.mark.parametrize("name", ["heldout", "train"])
def test_each_shipped_set_says_where_a_shape_comes_from_and_names_no_problem_twice(name):
    shapes = read_shapes(name)
    assert len({shape.problem for shape in shapes}) == len(shapes)
    assert all(shape.family and shape.source for shape in shapes)
    assert {shape.problem.batch for shape in shapes} == {1}


def test_110_shapes_are_held_out_and_1080_are_for_training():
    assert (len(read_shapes("heldout")), len(read_shapes("train"))) == (110, 1080)


def test_every_held_out_family_is_trained_on():
    families = [{shape.family for shape in read_shapes(name)} for name in ("heldout", "train")]
    assert families[0] <= families[1]
    assert {"decode", "prefill", "square", "long_k", "flat", "odd", "published"} <= families[0]


def test_no_held_out_shape_is_within_a_tenth_of_a_training_shape_in_all_of_m_n_k():
    def sizes(name):
        return {(s.problem.m, s.problem.n, s.problem.k) for s in read_shapes(name)}

    train = sizes("train")
    for held in sizes("heldout"):
        for seen in train:
            ratios = [max(a, b) / min(a, b) for a, b in zip(held, seen, strict=True)]
            assert max(ratios) > 1.1, (held, seen)


def test_the_held_out_shapes_span_one_row_to_thousands():
    rows = [shape.problem.m for shape in read_shapes("heldout")]
    assert min(rows) == 1 and max(rows) >= 4096
