"""Columns put end to end, few rows and many."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.column_view import join_pieces, view
from penstock.data.delta import concat_columns

COUNT = 40_000
NUMBERS = np.arange(COUNT)
COLUMNS = {
    "bigint": pa.array(NUMBERS),
    "int": pa.array(NUMBERS.astype(np.int32)),
    "double with NULL": pa.array(NUMBERS / 3, mask=NUMBERS % 7 == 0),
    "text": pa.array([f"t{number}" for number in range(COUNT)], pa.large_string()),
    "boolean": pa.array(NUMBERS % 3 == 0),
    "decimal": pa.array([Decimal(number) for number in range(COUNT)], pa.decimal128(20, 2)),
    "timestamp": pa.array(NUMBERS).cast(pa.timestamp("us", "UTC")),
    "nothing": pa.nulls(COUNT),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("size", [10, 33_000])
def test_pieces_are_joined_as_arrow_joins_them(name: str, size: int) -> None:
    column = COLUMNS[name]
    pieces = [column.slice(5, size), column.slice(0, 0), column.slice(100, 7)]
    joined = concat_columns(pieces)
    joined.validate(full=True)
    assert joined.equals(pa.concat_arrays(pieces))
    at = np.arange(size)[::-1]
    some = join_pieces([(view(pieces[0]), at), (view(pieces[2]), None), (view(column), at[:3])])
    some.validate(full=True)
    expected = [pieces[0].take(pa.array(at)), pieces[2], column.take(pa.array(at[:3]))]
    assert some.equals(pa.concat_arrays(expected))
