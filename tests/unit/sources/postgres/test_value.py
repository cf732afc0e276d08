"""Values as PostgreSQL writes them, in the types of Spark; what a real server writes is in tests/spark."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import ConfigError, DataError
from penstock.sources.postgres.column import TableColumn, chosen_type, spark_type
from penstock.sources.postgres.value import SpecialValues, as_column


def _read(kind: str, *texts: str | None, specials: SpecialValues = "fail") -> list[Any]:
    column = TableColumn("c", kind, 0, -1, kind)
    narrow, wide = (
        as_column(pa.array(texts, width), column, specials=specials, where="t")
        for width in (pa.string(), pa.large_string())
    )
    assert narrow.equals(wide)
    return list((narrow.cast(pa.int64()) if kind.startswith("timestamp") else narrow).to_pylist())


def test_bytes_and_arrays() -> None:
    assert _read("binary", r"\x", r"\x00ff61", None, r"\xdead") == [b"", b"\x00\xffa", None, b"\xde\xad"]
    assert _read("binary") == []
    assert _read("array<int>", "{1,NULL}", "{}", None, "[0:1]={3,4}") == [[1, None], [], None, [3, 4]]
    assert _read("array<int>", "{1,NULL}", "{}", None) == [[1, None], [], None]
    assert _read("array<string>", r'{a,"b c",NULL,"NULL","q\"x\\",""}') == [
        ["a", "b c", None, "NULL", 'q"x\\', ""]
    ]
    assert _read("array<binary>", r'{"\\xdead",NULL}') == [[b"\xde\xad", None]]
    with pytest.raises(DataError, match="several dimensions"):
        _read("array<int>", "{{1,2},{3,4}}")


def test_days_and_moments_far_away() -> None:
    day = 86_400_000_000
    assert _read("timestamp", "1970-01-02 00:00:00+00", "0001-12-31 00:00:00+00 BC") == [day, -719_163 * day]
    assert _read("timestamp_ntz", "20000-01-01 00:00:00.000001") == [6_585_322 * day + 1]
    dates = as_column(
        pa.array(["0001-12-31 BC", "10000-01-01", "2024-02-29"]),
        TableColumn("c", "date", 0, -1, "date"),
        specials="fail",
        where="t",
    )
    assert dates.cast(pa.int32()).to_pylist() == [-719_163, 2_932_897, 19_782]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("decimal(10,2)", "NaN"),
        ("decimal(10,2)", "Infinity"),
        ("date", "infinity"),
        ("timestamp", "-infinity"),
        ("timestamp_ntz", "infinity"),
    ],
)
def test_values_that_spark_does_not_have(kind: str, value: str) -> None:
    with pytest.raises(DataError, match=f"the value '{value}' of column 'c'") as error:
        _read(kind, None, value)
    assert "special_values: null" in str(error.value.hint)
    assert _read(kind, None, value, specials="null") == [None, None]


def test_nothing_is_rounded() -> None:
    assert _read("decimal(10,2)", "1.5", "-0.25") == [Decimal("1.50"), Decimal("-0.25")]
    for value in ("1.555", "123456789.00", "1e20"):
        with pytest.raises(DataError, match="does not fit"):
            _read("decimal(10,2)", "1.5", value)
    with pytest.raises(DataError, match="'40000'"):
        _read("smallint", "1", "40000", "2")


def test_types_and_those_that_users_choose() -> None:
    assert spark_type("numeric", -1) == "decimal(38,18)"
    assert spark_type("numeric", (50 << 16 | 2) + 4) == "string"
    assert chosen_type("c", "decimal(38,18)", "Decimal(20, 4)") == "decimal(20,4)"
    assert chosen_type("c", "decimal(38,18)", "double") == "double"
    assert chosen_type("c", "timestamp", "STRING") == "string"
    for own, chosen in (("int", "bigint"), ("decimal(10,2)", "decimal(40,2)"), ("string", "int")):
        with pytest.raises(ConfigError, match="cannot be read as"):
            chosen_type("c", own, chosen)
