from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from penstock.data.rows import to_arrow
from penstock.errors import DataError

TABLE = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", None]})


class _Stream:
    """The least that the Arrow stream protocol asks for."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return TABLE.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TABLE,
        lambda: TABLE.to_batches()[0],
        lambda: TABLE.to_reader(),
        lambda: TABLE.to_batches(),
        lambda: [TABLE],
        lambda: pl.from_arrow(TABLE),
        lambda: pl.DataFrame(pl.from_arrow(TABLE)).lazy(),
        lambda: pd.DataFrame({"id": [1, 2], "name": ["a", None]}, index=[7, 8]),
        lambda: _Stream(),
        lambda: [{"id": 1, "name": "a"}, {"id": 2}],
        lambda: ({"id": number, "name": name} for number, name in ((1, "a"), (2, None))),
        lambda: {"id": [1, 2], "name": ["a", None]},
        lambda: TABLE.set_column(1, "name", TABLE["name"].dictionary_encode()),
    ],
)
def test_rows_of_every_kind(make: Callable[[], Any]) -> None:
    assert to_arrow(make()).equals(TABLE)
    assert to_arrow(make(), "id INT, name STRING, more DOUBLE").to_pylist() == [
        {"id": 1, "name": "a", "more": None},
        {"id": 2, "name": None, "more": None},
    ]


def test_pyspark_rows_are_dicts() -> None:
    from pyspark.sql import Row

    assert to_arrow([Row(id=1, name="a"), Row(id=2, name=None)]).equals(TABLE)


def test_nested_polars_columns_become_plain() -> None:
    frame = pl.DataFrame({"tags": [["a"], []], "pair": [{"x": "y"}, None]})
    assert to_arrow(frame).schema.types == [pa.list_(pa.string()), pa.struct([("x", pa.string())])]


def test_a_schema_casts_what_python_does_not() -> None:
    table = to_arrow(
        [
            {"at": "2024-05-01 12:00:00", "amount": 1.5, "n": "7"},
            {"at": dt.datetime(2024, 5, 2), "amount": None},
        ][:1],
        "at TIMESTAMP, amount DECIMAL(10,2), n BIGINT NOT NULL",
    )
    assert table.to_pylist() == [
        {"at": dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC), "amount": Decimal("1.50"), "n": 7}
    ]
    assert not table.schema.field("n").nullable


def test_an_empty_list_needs_a_schema() -> None:
    assert to_arrow([], "id INT").schema == pa.schema([("id", pa.int32())])
    with pytest.raises(DataError, match="no columns"):
        to_arrow([])


@pytest.mark.parametrize(
    ("rows", "schema", "code", "part"),
    [
        ([{"id": 1, "nmae": "a"}], "id INT, name STRING", "DATA_UNKNOWN_COLUMN", "did you mean 'name'?"),
        (TABLE, "id INT", "DATA_UNKNOWN_COLUMN", "'name'"),
        ([{"id": 1}, {"id": "x"}], "id INT", "DATA_TYPE", "row 2, value 'x'"),
        ([{"id": 1}, {"id": "x"}], None, "DATA_TYPE", "int, then str"),
        (TABLE, "id INT, name DATE", "DATA_TYPE", "cannot become date32"),
        ([{"id": 300}], "id TINYINT", "DATA_TYPE", "row 1"),
        (TABLE, "id INT, name STRING NOT NULL", "DATA_NULL", "'name' is NOT NULL but has 1 NULL"),
        ([{"id": 1}, 5], None, "DATA_ROWS", "list"),
        (iter([5]), None, "DATA_ROWS", "row 1 is int"),
        (5, None, "DATA_ROWS", "int"),
        ("orders", None, "DATA_ROWS", "str"),
        (pd.DataFrame({"x": [1, "a"]}), None, "DATA_TYPE", "x"),
    ],
)
def test_rows_that_do_not_fit(rows: Any, schema: str | None, code: str, part: str) -> None:
    with pytest.raises(DataError) as caught:
        to_arrow(rows, schema)
    assert caught.value.code == code
    assert part in str(caught.value)
