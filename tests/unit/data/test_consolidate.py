"""Equality of rows, grouping under collisions, and the canonical form of deltas."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty
from penstock.data.equality import equal_rows, group_rows
from penstock.data.hashing import hash_rows, normalized
from twin.collisions import weakened
from twin.rows import MASKS, canonical, deltas, examples, multiset

SHAPES = [
    ("bigint", "double"),
    ("string", "bool", "decimal"),
    ("list",),
    ("struct", "map"),
    ("void", "bigint"),
]


@pytest.mark.parametrize("names", SHAPES)
@examples(25)
@given(data=st.data(), mask=st.sampled_from(MASKS))
def test_consolidated_rows_are_unique_and_sum_up(
    data: st.DataObject, names: tuple[str, ...], mask: int
) -> None:
    delta = data.draw(deltas(names))
    with weakened(mask):
        result = consolidate(delta)
    assert multiset(result) == multiset(delta)
    assert len(result) == len(multiset(delta))
    assert result.weights.all()


@examples(50)
@given(a=deltas(SHAPES[0]), b=deltas(SHAPES[0]), c=deltas(SHAPES[0]))
def test_deltas_form_a_group(a: Delta, b: Delta, c: Delta) -> None:
    def same(left: Delta, right: Delta) -> bool:
        return multiset(consolidate(left)) == multiset(consolidate(right))

    zero = empty([pa.int64(), pa.float64()])
    assert same(concat([a, b]), concat([b, a]))
    assert same(concat([concat([a, b]), c]), concat([a, concat([b, c])]))
    assert same(concat([a, zero]), a)
    assert len(consolidate(concat([a, -a]))) == 0
    assert consolidate(consolidate(a)) is not None
    assert same(consolidate(concat([consolidate(a), consolidate(b)])), concat([a, b]))


@pytest.mark.parametrize("as_rows", [True, False])
@pytest.mark.parametrize("names", SHAPES)
@examples(25)
@given(data=st.data())
def test_equality_is_that_of_the_values(data: st.DataObject, names: tuple[str, ...], as_rows: bool) -> None:
    left, right = data.draw(deltas(names)), data.draw(deltas(names))
    if not len(left) or not len(right):
        return
    a = np.repeat(np.arange(len(left)), len(right))
    b = np.tile(np.arange(len(right)), len(left))
    # Offsets and slices must not matter.
    sliced = [pa.concat_arrays([column, column]).slice(len(right)) for column in right.columns]
    found = equal_rows(left.columns, a, sliced, b, as_rows=as_rows)
    rows = [
        [
            tuple(canonical(value, as_rows) for value in row)
            for row in zip(*(c.to_pylist() for c in columns), strict=True)
        ]
        for columns in (left.columns, right.columns)
    ]
    assert found.tolist() == [rows[0][i] == rows[1][j] for i, j in zip(a, b, strict=True)]
    same_hash = hash_rows(left.columns)[a] == hash_rows(right.columns)[b]
    assert (same_hash | ~found).all()


def test_nothing_to_do_returns_the_delta_itself() -> None:
    delta = Delta((pa.array([3, 1, 2]),), np.array([1, -1, 2]))
    assert consolidate(delta) is delta
    none = empty([pa.int64()])
    assert consolidate(none) is none


def test_rows_keep_the_order_of_their_first_appearance() -> None:
    delta = Delta((pa.array([5, 3, 5, 9, 1]), pa.array(list("abacd"))), np.array([1, 1, 1, 0, 1]))
    result = consolidate(delta)
    assert result.columns[0].to_pylist() == [5, 3, 1]
    assert result.weights.tolist() == [2, 1, 1]


def test_zeros_stay_two_rows_and_nans_become_one() -> None:
    delta = Delta((pa.array([0.0, -0.0, math.nan, -math.nan]),), np.array([1, 1, 1, 1]))
    result = consolidate(delta)
    assert str(result.columns[0].to_pylist()) == "[0.0, -0.0, nan]"
    assert result.weights.tolist() == [1, 1, 2]


def test_rows_without_columns_sum_up() -> None:
    assert consolidate(Delta((), np.array([2, 3, -1]))).weights.tolist() == [4]
    assert len(consolidate(Delta((), np.array([2, -2])))) == 0


def test_groups_stay_different_when_every_hash_is_the_same() -> None:
    values = pa.array([2, 1, None, 2, None, 1, 1])
    order, starts = group_rows(np.zeros(7, np.uint64), [values])
    groups = np.split(order, starts[1:])
    assert [group.tolist() for group in groups] == [[0, 3], [1, 5, 6], [2, 4]]


def test_normalized_zero_is_positive() -> None:
    values = pa.array([-0.0, None, math.nan, 2.0])
    assert str(normalized(values).to_pylist()) == "[0.0, None, nan, 2.0]"
    assert normalized(pa.array([1])).to_pylist() == [1]
