"""Types that Arrow or Python has in another way: in from users, out to users, at any depth."""

from __future__ import annotations

from datetime import time, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from penstock.data.conform import conform_to
from penstock.data.schema import declared_type, to_arrow_field, to_arrow_schema
from penstock.data.types import kernel_type
from penstock.data.user_types import to_user
from penstock.errors import DataError

MONTHS = pa.month_day_nano_interval()


def _in(column: pa.Array, kind: str) -> list[Any]:
    (column,) = conform_to(pa.table({"c": column}), [("c", kind, True)], where="source 's'")
    assert column.type == kernel_type(kind)
    values: list[Any] = column.to_pylist()
    return values


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        (pa.array([(14, 0, 0), None], MONTHS), "interval year to month", [14, None]),
        (pa.array([(14, 0, 0)], MONTHS), "interval year", [12]),
        (pa.array([pd.DateOffset(months=3)]), "interval month", [3]),
        (pa.array(["-1-2", "INTERVAL '3-0' YEAR TO MONTH"]), "interval year to month", [-14, 36]),
        (pa.array(["interval -'-5' month"]), "interval month", [5]),
        (pa.array([timedelta(hours=26)]), "interval day", [timedelta(1)]),
        (pa.array([-timedelta(seconds=61)]), "interval hour to minute", [-timedelta(seconds=60)]),
        (pa.array(["1 02:03:04.5"]), "interval day to second", [timedelta(1, 7384, 500_000)]),
        (pa.array(["90"]), "interval second", [timedelta(seconds=90)]),
        (pa.array([time(1, 2, 3, 456789)]), "time(3)", [time(1, 2, 3, 456000)]),
        (pa.array(["01:02"]), "time(6)", [time(1, 2)]),
        (pa.array([None], pa.null()), "time(6)", [None]),
        (pa.array(["ab", None]), "char(3)", ["ab ", None]),
        (pa.array([["ab", None], None]), "array<char(3)>", [["ab ", None], None]),
        (
            pa.array([{"x": "1-1", "y": 1}, None]),
            "struct<x:interval year to month,y:int>",
            [{"x": 13, "y": 1}, None],
        ),
        (
            pa.array([[("a", "1-1")], None, []], pa.map_(pa.string(), pa.string())),
            "map<varchar(2),interval year to month>",
            [[("a", 13)], None, []],
        ),
        (pa.array([["00:00", "x"], [None, "12:00"]])[1:], "array<time(0)>", [[None, time(12)]]),
    ],
)
def test_users_values_become_those_of_the_kernel(column: pa.Array, kind: str, expected: list[Any]) -> None:
    assert _in(column, kind) == expected


@pytest.mark.parametrize(
    ("column", "kind", "part"),
    [
        (pa.array([(1, 2, 0)], MONTHS), "interval year to month", "years and months"),
        (pa.array([5]), "interval year to month", "int64 values"),
        (pa.array(["1-12"]), "interval year to month", "'1-12'"),
        (pa.array(["999999999-0"]), "interval year to month", "999999999-0"),
        (pa.array(["1 24:00:00"]), "interval day to second", "1 24:00:00"),
        (pa.array([1.5]), "interval day to second", "double values"),
        (pa.array(["25:00"]), "time(6)", "25:00"),
        (pa.array(["12:00+01:00"]), "time(6)", "12:00"),
        (pa.array([1]), "time(6)", "int64 values"),
        (pa.array([{"a": 1}]), "variant", "struct"),
        (pa.array([["abcd"]]), "array<char(3)>", "CHAR(3)"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_column(column: pa.Array, kind: str, part: str) -> None:
    with pytest.raises(DataError, match="column 'c'") as caught:
        _in(column, kind)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "kind",
    [
        "interval year to month",
        "interval month",
        "interval day to second",
        "interval hour",
        "interval",
        "time(3)",
        "variant",
        "string collate UTF8_LCASE",
        "char(3)",
        "array<interval year>",
        "struct<x:variant,y:array<string collate UNICODE>>",
        "map<string,interval year to month>",
    ],
)
def test_what_users_get_can_be_fed_again(kind: str) -> None:
    column = pa.nulls(2, kernel_type(kind))
    shown = to_user(column, kind)
    assert shown.to_pylist() == [None, None]
    field = to_arrow_field("c", kind)
    assert shown.type == field.type
    assert declared_type(field) == kind
    assert _in(shown, kind) == [None, None]


def test_values_go_out_and_in_at_any_depth() -> None:
    kind = "struct<a:array<interval year to month>,m:map<string,variant>>"
    part = {"value": b"\x00", "metadata": b"\x01"}
    rows: list[Any] = [{"a": [14, None], "m": [("k", part), ("n", None)]}, None, {"a": None, "m": []}]
    column = pa.array(rows, kernel_type(kind))
    shown = to_user(column, kind)
    assert shown[0].as_py()["a"] == [pa.MonthDayNano([14, 0, 0]), None]
    assert _in(shown, kind) == rows
    assert _in(shown.slice(1), kind) == rows[1:]


def test_a_declared_type_survives_ddl_and_struct_types() -> None:
    from pyspark.sql.types import ArrayType, CharType, StringType, StructField, StructType, VariantType
    from pyspark.sql.types import YearMonthIntervalType as Months

    ddl = "a INTERVAL YEAR TO MONTH, b ARRAY<STRING COLLATE UTF8_LCASE>, c STRUCT<x: TIME(3), y: CHAR(2)>, d VARIANT, e TIME"
    assert [declared_type(field) for field in to_arrow_schema(ddl)] == [
        "interval year to month",
        "array<string collate UTF8_LCASE>",
        "struct<x:time(3),y:char(2)>",
        "variant",
        "time(6)",
    ]
    struct = StructType(
        [
            StructField("a", Months(1, 1)),
            StructField("b", ArrayType(StringType("UNICODE_CI"))),
            StructField(
                "c", StructType([StructField("x", StringType("UTF8_LCASE")), StructField("y", CharType(2))])
            ),
            StructField("d", VariantType()),
        ]
    )
    assert [declared_type(field) for field in to_arrow_schema(struct)] == [
        "interval month",
        "array<string collate UNICODE_CI>",
        "struct<x:string collate UTF8_LCASE,y:char(2)>",
        "variant",
    ]
