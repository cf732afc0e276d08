"""What is said about records that do not fit."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.sources.csv_record import WhyNotCsv
from penstock.sources.decimal_text import widened
from penstock.sources.json_record import WhyNotJson

ADDRESS = StructType().add("zip", IntegerType())
SCHEMA = (
    StructType()
    .add("id", LongType())
    .add("ok", BooleanType())
    .add("at", TimestampType())
    .add("day", DateType())
    .add("price", DoubleType())
    .add("amount", DecimalType(10, 2))
    .add("address", ADDRESS)
    .add("codes", MapType(StringType(), IntegerType()))
)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "it has no value"),
        (b'{"ok": 1}', "ok is 1, which is not BOOLEAN"),
        (b'{"id": true}', "id is true, which is not BIGINT"),
        (b'{"at": "noon"}', 'at is "noon", which is not TIMESTAMP'),
        (b'{"day": "2026-13-01"}', 'day is "2026-13-01", which is not DATE'),
        (b'{"price": "cheap"}', 'price is "cheap", which is not DOUBLE'),
        (b'{"amount": "x"}', 'amount is "x", which is not DECIMAL(10,2)'),
        (b'{"amount": 1e9}', "amount is 1E+9, which is not DECIMAL(10,2)"),
        (b'{"address": {"zip": "x"}}', 'address.zip is "x", which is not INT'),
        (b'{"address": 7}', "address is 7, which is not STRUCT<ZIP:INT>"),
        (b'{"codes": {"a": 3000000000}}', "codes.a is 3000000000, which is not INT"),
        (b'{"codes": []}', "codes is [], which is not MAP<STRING,INT>"),
        (b"{'id': 1}", "it is not JSON: expecting property name enclosed in double quotes at character 2"),
        (b"null", "it is null, not a JSON object"),
        (b'{"id": 1}', "it does not fit the schema"),
    ],
)
def test_json(raw: bytes | None, reason: str) -> None:
    assert WhyNotJson(SCHEMA.json())(raw) == reason


def test_a_long_value_is_shown_in_part() -> None:
    said = WhyNotJson(SCHEMA.json())(b'{"id": "' + b"x" * 500 + b'"}')
    assert said == 'id is "' + "x" * 59 + "..., which is not BIGINT"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"1;true", "it has 2 columns, not 3"),
        (b"1;yes;2.5", "b is 'yes', which is not BOOLEAN"),
        (b"1.0;true;2.5", "a is '1.0', which is not BIGINT"),
        (b"1;true;2.555", "c is '2.555', which is not DECIMAL(4,2)"),
        (b"\xff;;", "it is not CSV: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b";;", "it does not fit the schema"),
    ],
)
def test_csv(raw: bytes, reason: str) -> None:
    schema = StructType().add("a", LongType()).add("b", BooleanType()).add("c", DecimalType(4, 2))
    assert WhyNotCsv(schema.json(), ";")(raw) == reason


def test_decimals_are_read_with_more_digits_than_they_have() -> None:
    schema = (
        StructType()
        .add("a", ArrayType(DecimalType(10, 2)))
        .add("b", StructType().add("c", DecimalType(30, 5)))
    )
    assert widened(schema).simpleString() == "struct<a:array<decimal(18,10)>,b:struct<c:decimal(38,13)>>"
