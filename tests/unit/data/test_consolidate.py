"""Equality of rows, grouping under collisions, and the canonical form of deltas."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty
from penstock.data.equality import equal_rows, group_rows
from penstock.data.hashing import hash_rows, normalized, weakened

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bigint": (pa.int64(), st.integers(-2, 2)),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, math.nan, 1.5])),
    "string": (pa.large_string(), st.sampled_from(["", "a", "ab", "a longer text, over two words"])),
    "bool": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(20, 2), st.sampled_from([1, -1, 7])),
    "list": (pa.large_list(pa.float64()), st.lists(st.sampled_from([0.0, -0.0, math.nan, None]), max_size=3)),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.large_string())]),
        st.fixed_dictionaries({"a": st.sampled_from([None, 1]), "b": st.sampled_from([None, "x"])}),
    ),
    "map": (
        pa.map_(pa.int64(), pa.large_list(pa.float64())),
        st.dictionaries(st.integers(0, 2), st.sampled_from([None, [], [1.0, math.nan]]), max_size=3).map(
            lambda value: list(value.items())
        ),
    ),
    "void": (pa.null(), st.none()),
}


def canonical(value: Any, as_rows: bool) -> Any:
    """A naive twin of equality: a Python value that is equal exactly when the rows are."""
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return "-0.0" if as_rows and value == 0 and math.copysign(1, value) < 0 else value + 0.0
    if isinstance(value, dict):
        return tuple((name, canonical(item, as_rows)) for name, item in value.items())
    if isinstance(value, list):
        items = tuple(canonical(item, as_rows) for item in value)
        return frozenset(items) if value and isinstance(value[0], tuple) else items
    if isinstance(value, tuple):
        return tuple(canonical(item, as_rows) for item in value)
    return value


def multiset(delta: Delta) -> dict[Any, int]:
    rows = zip(*(column.to_pylist() for column in delta.columns), strict=True)
    counts: Counter[Any] = Counter()
    for row, weight in zip(rows, delta.weights, strict=True):
        counts[tuple(canonical(value, True) for value in row)] += int(weight)
    return {row: weight for row, weight in counts.items() if weight}


@st.composite
def deltas(draw: st.DrawFn, names: tuple[str, ...]) -> Delta:
    rows = st.tuples(*(st.none() | KINDS[name][1] for name in names), st.integers(-2, 2))
    drawn = draw(st.lists(rows, max_size=12))
    columns = (pa.array([row[at] for row in drawn], KINDS[name][0]) for at, name in enumerate(names))
    return Delta(tuple(columns), np.array([row[-1] for row in drawn], np.int64))


SHAPES = [
    ("bigint", "double"),
    ("string", "bool", "decimal"),
    ("list",),
    ("struct", "map"),
    ("void", "bigint"),
]
MASKS = [0xFFFFFFFFFFFFFFFF, 0x1, 0]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("names", SHAPES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_consolidated_rows_are_unique_and_sum_up(
    data: st.DataObject, names: tuple[str, ...], mask: int
) -> None:
    delta = data.draw(deltas(names))
    with weakened(mask):
        result = consolidate(delta)
    assert multiset(result) == multiset(delta)
    assert len(result) == len(multiset(delta))
    assert result.weights.all()


@settings(max_examples=50, deadline=None)
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
@settings(max_examples=25, deadline=None)
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


def test_groups_are_told_apart_when_every_hash_is_the_same() -> None:
    values = pa.array([2, 1, None, 2, None, 1, 1])
    order, starts = group_rows(np.zeros(7, np.uint64), [values])
    groups = np.split(order, starts[1:])
    assert [group.tolist() for group in groups] == [[0, 3], [1, 5, 6], [2, 4]]


def test_normalized_zero_is_positive() -> None:
    values = pa.array([-0.0, None, math.nan, 2.0])
    assert str(normalized(values).to_pylist()) == "[0.0, None, nan, 2.0]"
    assert normalized(pa.array([1])).to_pylist() == [1]
