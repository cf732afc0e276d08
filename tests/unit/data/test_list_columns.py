"""Columns of lists: what is done with matrices gives what PyArrow gives list by list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.data import hashing
from penstock.data.column_view import vectors_at, view
from penstock.data.delta import Delta
from penstock.data.equality import equal_rows
from penstock.state.merge import merge_runs
from penstock.state.run import sort_run
from twin.rows import small_state

NAN = float("nan")
KINDS = [
    pa.float32(),
    pa.float64(),
    pa.int16(),
    pa.int64(),
    pa.decimal128(10, 2),
    pa.large_string(),
    pa.bool_(),
]
SHAPES: dict[str, list[Any]] = {
    "of one length": [[1, 2], [3, 4], [1, 2], [5, 6], [0, 1]],
    "of several lengths": [[1], [2, 3], [], [4, 5], [2, 3]],
    "with a NULL": [[1, 2], None, [3, 4], [1, 2], [5, 6]],
    "with a NULL inside": [[1, 2], [3, None], [3, 4], [3, None], [5, 6]],
    "empty": [[], [], [], [], []],
}


def lists(rows: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_large_string(kind):
        rows = [None if row is None else [None if one is None else str(one) for one in row] for row in rows]
    elif pa.types.is_boolean(kind):
        rows = [None if row is None else [None if one is None else one > 2 for one in row] for row in rows]
    return pa.array(rows, pa.large_list(kind))


def layouts(array: pa.Array) -> list[pa.Array]:
    """The same rows in several layouts: as they are, in the middle of others, with items in the middle of others."""
    around = pa.concat_arrays([array, array, array])[len(array) : 2 * len(array)]
    items = pa.concat_arrays([array.values, array.values])[len(array.values) :]
    moved = pa.LargeListArray.from_arrays(
        array.offsets, items, mask=array.is_null() if array.null_count else None
    )
    return [array, around, moved]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_lists_are_gathered_and_compared_as_arrow_does(kind: pa.DataType, shape: str) -> None:
    array = lists(SHAPES[shape], kind)
    every = np.arange(len(array))
    for positions in (np.array([4, 0, 0, 2]), np.array([1]), np.zeros(0, np.int64), every):
        for layout in layouts(array):
            gathered = view(layout).gather(positions)
            gathered.validate(full=True)
            assert gathered.equals(array.take(pa.array(positions)))
            for other in layouts(array):
                same = equal_rows([layout], every.repeat(5), [other], np.tile(every, 5), as_rows=True)
                rows = array.to_pylist()
                assert same.tolist() == [a == b for a in rows for b in rows]


def test_zeros_and_nans_in_lists() -> None:
    array = pa.array([[0.0, 1.0], [-0.0, 1.0], [NAN, 1.0], [NAN, 1.0]], pa.large_list(pa.float64()))
    left, right = np.array([0, 0, 2, 2]), np.array([1, 0, 3, 0])
    assert equal_rows([array], left, [array], right).tolist() == [True, True, True, False]
    assert equal_rows([array], left, [array], right, as_rows=True).tolist() == [False, True, True, False]
    longer = pa.array([[0.0, 1.0, 2.0]], array.type)
    assert not equal_rows([array], left[:1], [longer], left[:1]).any()


def test_which_lists_are_matrices() -> None:
    ragged = lists(SHAPES["of several lengths"], pa.float32())
    assert vectors_at(ragged, np.array([1, 3])).tolist() == [[2, 3], [4, 5]]  # type: ignore[union-attr]
    assert vectors_at(ragged, np.array([0, 1])) is None
    assert vectors_at(ragged, np.array([2])) is None
    with_null = lists(SHAPES["with a NULL"], pa.float32())
    assert vectors_at(with_null, np.array([0, 2])) is not None
    assert vectors_at(with_null, np.array([0, 1])) is None
    assert vectors_at(lists(SHAPES["with a NULL inside"], pa.float32()), np.array([0])) is None
    assert vectors_at(pa.array([1]), np.array([0])) is None


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("width", [1, 3, 128])
def test_the_hash_of_lists_of_one_length_is_that_of_lists(kind: pa.DataType, width: int) -> None:
    """State and shards rely on it: a list has one hash, whatever the lists beside it are."""
    rng = np.random.default_rng(width)
    rows = rng.integers(-3, 4, (600, width)).tolist()
    alike = lists(rows, kind)
    mixed = lists([*rows, []], kind)
    assert (hashing.hash_rows([alike]) == hashing.hash_rows([mixed])[:-1]).all()
    assert (hashing.hash_rows([alike[7:300]]) == hashing.hash_rows([alike])[7:300]).all()


@pytest.mark.parametrize("kind", [pa.float32(), pa.int64(), pa.large_string()], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_runs_of_lists_are_merged(kind: pa.DataType, shape: str) -> None:
    array = lists(SHAPES[shape], kind)
    keys = pa.array(np.arange(len(array)))
    with small_state():
        runs = [
            sort_run(hashing.hash_rows([keys]), Delta((keys, column), np.full(len(array), weight)), name)
            for name, (column, weight) in enumerate(zip(layouts(array), (1, 1, -1), strict=True))
        ]
        merged = merge_runs(runs, 9)
    rows = dict(zip(merged.columns[0].to_pylist(), merged.columns[1].to_pylist(), strict=True))
    merged.columns[1].validate(full=True)
    assert rows == dict(enumerate(array.to_pylist()))
    assert merged.weights.tolist() == [1] * len(array)
