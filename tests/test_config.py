"""Kernel configurations, one by one and as columns."""

from dataclasses import FrozenInstanceError, asdict, fields
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.config import ConfigTable, KernelConfig
from costmodel.errors import ConfigError, UnknownNameError

TEMPLATES = ("tile", "split_k", "persistent_tma")
NUMBERS = (
    "block_m", "block_n", "block_k", "group_m", "split_k", "num_warps", "num_stages", "load_bits",
    "epilogue_parts",
)  # fmt: skip
OPTIONAL = ("group_m", "num_warps", "num_stages", "load_bits")

POSITIVE = st.integers(1, 2**15)
MAYBE = st.none() | POSITIVE
CONFIGS = st.builds(
    KernelConfig,
    template=st.sampled_from(TEMPLATES),
    block_m=POSITIVE,
    block_n=POSITIVE,
    block_k=POSITIVE,
    group_m=MAYBE,
    split_k=POSITIVE,
    num_warps=MAYBE,
    num_stages=MAYBE,
    load_bits=MAYBE,
    swap=st.booleans(),
    epilogue_parts=POSITIVE,
)
THREE = [
    KernelConfig("tile", 128, 256, 64, num_warps=8),
    KernelConfig("split_k", 16, 64, 128, split_k=4, group_m=None),
    KernelConfig("persistent_tma", 128, 128, 64, swap=True, epilogue_parts=2),
]


# --- one configuration ---------------------------------------------------------------------------


def test_the_defaults():
    assert asdict(KernelConfig("tile", 128, 64, 32)) == {
        "template": "tile",
        "block_m": 128,
        "block_n": 64,
        "block_k": 32,
        "group_m": 8,
        "split_k": 1,
        "num_warps": 4,
        "num_stages": 3,
        "load_bits": 128,
        "swap": False,
        "epilogue_parts": 1,
    }


@pytest.mark.parametrize("knob", NUMBERS)
@pytest.mark.parametrize("value", [0, -16, 16.0, True, "16"])
def test_a_knob_that_is_not_a_positive_whole_number_is_an_error(knob, value):
    knobs = {"template": "tile", "block_m": 16, "block_n": 16, "block_k": 16} | {knob: value}
    with pytest.raises(ConfigError) as caught:
        KernelConfig(**knobs)
    assert knob in str(caught.value) and repr(value) in str(caught.value)


@pytest.mark.parametrize("knob", NUMBERS)
def test_only_a_knob_that_a_chip_may_lack_can_be_none(knob):
    knobs = {"template": "tile", "block_m": 16, "block_n": 16, "block_k": 16} | {knob: None}
    if knob in OPTIONAL:
        assert getattr(KernelConfig(**knobs), knob) is None
    else:
        with pytest.raises(ConfigError, match=knob):
            KernelConfig(**knobs)


@pytest.mark.parametrize("value", [0, 1, None, "yes"])
def test_swap_is_true_or_false(value):
    with pytest.raises(ConfigError, match="swap"):
        KernelConfig("tile", 16, 16, 16, swap=value)


@pytest.mark.parametrize(
    ("name", "close"),
    [("split-k", "split_k"), ("tiles", "tile"), ("persistent_tam", "persistent_tma")],
)
def test_a_misspelt_template_is_an_error_with_the_close_name(name, close):
    with pytest.raises(UnknownNameError, match=f"did you mean '{close}'"):
        KernelConfig(name, 16, 16, 16)


def test_a_configuration_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        THREE[0].block_m = 64


@given(CONFIGS)
def test_a_configuration_is_rebuilt_from_its_dict(config):
    rebuilt = KernelConfig(**config.as_dict())
    assert rebuilt == config and hash(rebuilt) == hash(config)


# --- many, as columns ----------------------------------------------------------------------------


@given(st.lists(CONFIGS, max_size=8))
def test_a_table_gives_back_the_configurations_it_was_made_of(configs):
    table = ConfigTable.of(configs)
    assert len(table) == len(configs)
    assert list(table) == configs


@given(st.lists(CONFIGS, min_size=1, max_size=8))
def test_every_column_is_int64_and_as_long_as_the_table(configs):
    table = ConfigTable.of(configs)
    for field in fields(KernelConfig):
        column = getattr(table, field.name)
        assert column.dtype == np.int64 and column.shape == (len(configs),)


def test_a_knob_that_is_absent_is_zero_in_its_column():
    table = ConfigTable.of([KernelConfig("tile", 16, 32, 64, num_warps=None, num_stages=None)])
    assert (table.num_warps[0], table.num_stages[0], table.block_n[0]) == (0, 0, 32)


def test_a_table_is_taken_as_it_is_and_one_configuration_makes_one_row():
    table = ConfigTable.of(THREE)
    assert ConfigTable.of(table) is table
    assert list(ConfigTable.of(THREE[1])) == [THREE[1]]
    assert list(ConfigTable.of(config for config in THREE)) == THREE


def test_a_whole_number_picks_a_configuration():
    table = ConfigTable.of(THREE)
    assert [table[0], table[-1], table[np.int64(1)]] == [THREE[0], THREE[2], THREE[1]]
    with pytest.raises(IndexError):
        table[3]


@pytest.mark.parametrize(
    ("index", "rows"),
    [
        (slice(1, None), [1, 2]),
        (slice(None, None, -1), [2, 1, 0]),
        (np.array([True, False, True]), [0, 2]),
        (np.array([2, 0, 2]), [2, 0, 2]),
        (np.zeros(3, dtype=bool), []),
    ],
)
def test_a_slice_a_mask_and_an_index_array_pick_a_table(index, rows):
    picked = ConfigTable.of(THREE)[index]
    assert isinstance(picked, ConfigTable)
    assert list(picked) == [THREE[row] for row in rows]


def test_is_template_marks_its_rows():
    table = ConfigTable.of(THREE)
    assert table.is_template("split_k").tolist() == [False, True, False]


@given(st.lists(st.lists(CONFIGS, max_size=4), min_size=1, max_size=4))
def test_concat_keeps_every_row_in_order(groups):
    table = ConfigTable.concat([ConfigTable.of(group) for group in groups])
    assert list(table) == [config for group in groups for config in group]


def test_a_grid_is_the_product_of_its_values():
    table = ConfigTable.grid(
        template=("tile", "persistent_tma"), block_m=(64, 128), block_n=(32, 64, 256), block_k=64,
        group_m=8, split_k=1, num_warps=(4, 8), num_stages=(3,), load_bits=128,
        swap=(False, True), epilogue_parts=1,
    )  # fmt: skip
    expected = {
        KernelConfig(template, block_m, block_n, 64, num_warps=warps, swap=swap)
        for template, block_m, block_n, warps, swap in product(
            ("tile", "persistent_tma"), (64, 128), (32, 64, 256), (4, 8), (False, True)
        )
    }
    assert len(table) == 2 * 2 * 3 * 2 * 2 == len(expected)
    assert set(table) == expected


def test_a_grid_takes_none_for_a_knob_that_the_chip_lacks():
    table = ConfigTable.grid(
        template="tile", block_m=(16, 32), block_n=16, block_k=16, group_m=None, split_k=1,
        num_warps=None, num_stages=(None, 2), load_bits=None, swap=False, epilogue_parts=1,
    )  # fmt: skip
    assert {(c.block_m, c.num_warps, c.num_stages, c.load_bits) for c in table} == {
        (16, None, None, None),
        (16, None, 2, None),
        (32, None, None, None),
        (32, None, 2, None),
    }


def test_a_scalar_column_stands_for_every_row():
    columns = asdict(KernelConfig("tile", 1, 1, 1)) | {"template": 0, "block_m": [16, 32, 64]}
    assert [config.block_m for config in ConfigTable(**columns)] == [16, 32, 64]


@pytest.mark.parametrize("change", [{"block_q": 1}, {"block_m": ...}])
def test_an_unknown_or_a_missing_column_is_an_error_that_names_it(change):
    columns = asdict(KernelConfig("tile", 16, 16, 16)) | {"template": 0} | change
    columns = {name: value for name, value in columns.items() if value is not ...}
    (name,) = change
    with pytest.raises(ConfigError, match=f"differing: \\['{name}'\\]"):
        ConfigTable(**columns)
