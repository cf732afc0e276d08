"""Rows by their keys, in whole columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.delta import Delta
from penstock.engine.epoch_change import KeyedRows, keyed, last_of_keys, merged, require_unique
from penstock.errors import DataError
from penstock.plan.node import Field

FIELDS = (Field("k", "bigint", True), Field("v", "string", True))
FOLDED = (Field("k", "string collate UTF8_LCASE", True), FIELDS[1])


def _delta(*rows: tuple[Any, Any, int], kind: pa.DataType | None = None) -> Delta:
    keys, values, weights = zip(*rows, strict=True) if rows else ((), (), ())
    columns = pa.array(keys, kind or pa.int64()), pa.array(values, pa.large_string())
    return Delta(columns, np.array(weights, np.int64))


def _shown(rows: KeyedRows) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in (*rows.rows, rows.operations)]
    return list(zip(*columns, strict=True))


def test_the_last_row_of_a_key_stays_where_it_was() -> None:
    rows = _delta((1, "a", 1), (2, "b", 1), (1, "c", -1), (3, "d", 1), (2, "e", 1))
    last = last_of_keys(rows, (0,), FIELDS)
    assert last.columns[1].to_pylist() == ["c", "d", "e"]
    assert last.weights.tolist() == [-1, 1, 1]
    once = _delta((1, "a", 1), (2, "b", 1))
    assert last_of_keys(once, (0,), FIELDS) is once


def test_keys_are_equal_as_their_collation_says() -> None:
    rows = _delta(("A", "a", 1), ("a", "b", 1), kind=pa.large_string())
    assert last_of_keys(rows, (0,), FOLDED).columns[1].to_pylist() == ["b"]
    with pytest.raises(DataError, match=r"several rows with the key k='[aA]'"):
        keyed(rows, (0,), FOLDED, view="v")


def test_an_old_and_a_new_row_of_a_key_are_an_update() -> None:
    change = _delta((1, "old", -1), (2, "new", 1), (1, "new", 1), (3, "gone", -1))
    assert _shown(keyed(change, (0,), FIELDS, view="v")) == [
        (2, "new", "i"),
        (1, "new", "u"),
        (3, "gone", "d"),
    ]
    assert _shown(keyed(_delta(), (0,), FIELDS, view="v")) == []


def test_two_rows_of_a_key_and_null_are_no_key() -> None:
    for change in (_delta((1, "a", 1), (1, "b", 1)), _delta((1, "a", 2)), _delta((1, "a", -2))):
        with pytest.raises(
            DataError, match=r"the view 'totals' has several rows with the key k=1"
        ) as refused:
            keyed(change, (0,), FIELDS, view="totals")
        assert (refused.value.code, refused.value.where) == ("VIEW_KEY", "view 'totals'")
    with pytest.raises(DataError, match="the key column 'k' is NULL in a row of the view 'totals'"):
        keyed(_delta((None, "a", 1)), (0,), FIELDS, view="totals")
    require_unique(_delta((1, "a", 1), (2, "a", 1)), (0,), FIELDS, view="v")
    with pytest.raises(DataError, match="k=2"):
        require_unique(_delta((1, "a", 1), (2, "a", 1), (2, "b", 1)), (0,), FIELDS, view="v")
    # A row that is taken back is not there.
    require_unique(_delta((2, "a", 1), (2, "b", 1), (2, "a", -1)), (0,), FIELDS, view="v")


def test_of_several_changes_the_first_says_what_happens_to_a_key() -> None:
    one = keyed(_delta((1, "a", 1), (2, "b", -1)), (0,), FIELDS, view="v")
    other = keyed(_delta((2, "b", -1), (1, "a", 1), (1, "z", -1), (3, "c", 1)), (0,), FIELDS, view="v")
    nothing = keyed(_delta(), (0,), FIELDS, view="v")
    assert _shown(merged([one, nothing, other], (0,), FIELDS)) == [
        (1, "a", "i"),
        (2, "b", "d"),
        (3, "c", "i"),
    ]
    assert _shown(merged([nothing], (0,), FIELDS)) == []
