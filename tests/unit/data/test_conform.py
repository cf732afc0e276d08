from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.data.conform import conform
from penstock.errors import DataError

UTC_MICROS = pa.timestamp("us", tz="UTC")


def _conform(
    values: list[Any], given: pa.DataType | None, wanted: pa.DataType, nullable: bool = True
) -> list[Any]:
    table = pa.table({"c": pa.array(values, given)})
    (column,) = conform(table, [("c", wanted, nullable)], where="source 't'")
    assert column.type == wanted
    result: list[Any] = column.to_pylist()
    return result


@pytest.mark.parametrize(
    ("values", "given", "wanted", "expected"),
    [
        ([1, None], pa.int32(), pa.int64(), [1, None]),
        ([127, -128], pa.int64(), pa.int8(), [127, -128]),
        ([5], pa.int64(), pa.decimal128(10, 2), [Decimal("5.00")]),
        ([Decimal("1.50")], pa.decimal128(5, 2), pa.decimal128(10, 4), [Decimal("1.5000")]),
        ([Decimal("3")], pa.decimal128(5, 0), pa.int32(), [3]),
        ([0.1, None], pa.float64(), pa.decimal128(10, 2), [Decimal("0.10"), None]),
        ([2**53], pa.int64(), pa.float64(), [float(2**53)]),
        (["x"], pa.string(), pa.large_string(), ["x"]),
        (["x"], pa.dictionary(pa.int32(), pa.string()), pa.large_string(), ["x"]),
        ([b"x"], pa.binary(), pa.large_binary(), [b"x"]),
        (["2026-02-03"], pa.string(), pa.date32(), [date(2026, 2, 3)]),
        (["2026-02-03T04:05:06Z"], pa.string(), UTC_MICROS, [datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)]),
        ([None], pa.null(), pa.large_string(), [None]),
        ([[1]], pa.list_(pa.int32()), pa.list_(pa.int64()), [[1]]),
        ([{"a": 1}], pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())]), [{"a": 1}]),
    ],
)
def test_what_fits_is_taken(
    values: list[Any], given: pa.DataType, wanted: pa.DataType, expected: list[Any]
) -> None:
    assert _conform(values, given, wanted) == expected


@pytest.mark.parametrize(
    ("values", "given", "wanted", "sample"),
    [
        ([1, 300], pa.int64(), pa.int8(), "300"),
        ([1.5], pa.float64(), pa.int64(), "1.5"),
        ([2**53 + 1], pa.int64(), pa.float64(), ""),
        (["5"], pa.string(), pa.int64(), "'5'"),
        ([5], pa.int64(), pa.large_string(), "5"),
        ([0.125], pa.float64(), pa.decimal128(10, 2), ""),
        ([Decimal("1.555")], pa.decimal128(5, 3), pa.decimal128(5, 2), "1.555"),
        ([True], pa.bool_(), pa.int64(), "True"),
        (["soon"], pa.string(), pa.date32(), "'soon'"),
        ([datetime(2026, 1, 1)], pa.timestamp("us"), UTC_MICROS, "2026"),
        ([{"b": 1}], pa.struct([("b", pa.int32())]), pa.struct([("a", pa.int64())]), "b"),
    ],
)
def test_what_would_lose_something_is_refused(
    values: list[Any], given: pa.DataType, wanted: pa.DataType, sample: str
) -> None:
    with pytest.raises(DataError) as caught:
        _conform(values, given, wanted)
    assert caught.value.code == "DATA_TYPE"
    assert "'c'" in caught.value.message
    assert sample in caught.value.message


def test_names_are_checked() -> None:
    fields = [("id", pa.int64(), True), ("amount", pa.int64(), True)]
    with pytest.raises(DataError, match="did you mean 'amount'"):
        conform(pa.table({"id": [1], "amout": [2]}), fields, where="source 't'")
    with pytest.raises(DataError, match="column 'amount' is missing"):
        conform(pa.table({"id": [1]}), fields, where="source 't'")
    with pytest.raises(DataError, match="NOT NULL"):
        _conform([None], pa.int64(), pa.int64(), nullable=False)


def test_columns_come_in_the_declared_order_and_whole() -> None:
    chunked = pa.chunked_array([[1], [2]])
    table = pa.table({"b": pa.chunked_array([["x"], ["y"]]), "a": chunked})
    columns = conform(table, [("a", pa.int64(), True), ("b", pa.large_string(), True)], where="t")
    assert [column.to_pylist() for column in columns] == [[1, 2], ["x", "y"]]
    assert all(isinstance(column, pa.Array) for column in columns)


def test_columns_are_found_in_any_case_unless_that_is_ambiguous() -> None:
    fields = [("Id", pa.int64(), True), ("note", pa.large_string(), True)]
    (numbers, notes) = conform(pa.table({"NOTE": ["a"], "id": [1]}), fields, where="source 's'")
    assert (numbers.to_pylist(), notes.to_pylist()) == ([1], ["a"])
    for table in (pa.table({"id": [1], "ID": [2], "note": ["a"]}), pa.table({"idd": [1], "note": ["a"]})):
        with pytest.raises(DataError) as caught:
            conform(table, fields, where="source 's'")
        assert caught.value.code == "DATA_UNKNOWN_COLUMN"


@pytest.mark.parametrize(
    ("kind", "wanted", "advice"),
    [
        (pa.timestamp("us"), UTC_MICROS, "tzinfo=timezone.utc"),
        (UTC_MICROS, pa.timestamp("us"), "declare the column as TIMESTAMP,"),
    ],
)
def test_times_with_and_without_a_zone_are_not_mixed(
    kind: pa.DataType, wanted: pa.DataType, advice: str
) -> None:
    with pytest.raises(DataError) as caught:
        _conform([datetime(2026, 1, 1)], kind, wanted)
    assert advice in (caught.value.hint or "")
