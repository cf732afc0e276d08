from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.data.schema import to_arrow_schema, to_arrow_type, to_ddl
from penstock.errors import ConfigError

UTC = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("boolean", pa.bool_()),
        ("TINYINT", pa.int8()),
        ("short", pa.int16()),
        ("int", pa.int32()),
        ("Integer", pa.int32()),
        ("bigint", pa.int64()),
        ("int64", pa.int64()),
        ("uint32", pa.int64()),
        ("uint64", pa.decimal128(20, 0)),
        ("real", pa.float32()),
        ("float64", pa.float64()),
        ("utf8", pa.string()),
        ("string collate UNICODE_CI", pa.string()),
        ("varchar(10)", pa.string()),
        ("char(3)", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", UTC),
        ("timestamp_ltz", UTC),
        ("timestamp_ntz", pa.timestamp("us")),
        ("timestamp[us]", pa.timestamp("us")),
        ("timestamp[ns, tz=UTC]", UTC),
        ("duration[us]", pa.duration("us")),
        ("decimal", pa.decimal128(10, 0)),
        ("dec(5)", pa.decimal128(5, 0)),
        ("numeric(38, 18)", pa.decimal128(38, 18)),
        ("decimal128(10, 2)", pa.decimal128(10, 2)),
        ("interval day to second", pa.duration("us")),
        ("interval hour", pa.duration("us")),
        ("interval year to month", pa.month_day_nano_interval()),
        ("interval", pa.month_day_nano_interval()),
        ("void", pa.null()),
        ("array<int>", pa.list_(pa.field("element", pa.int32()))),
        ("list<item: int64>", pa.list_(pa.field("element", pa.int64()))),
        ("map<string, array<double>>", pa.map_(pa.string(), pa.list_(pa.field("element", pa.float64())))),
        (
            "struct<a: int, b string NOT NULL>",
            pa.struct([("a", pa.int32()), pa.field("b", pa.string(), False)]),
        ),
        ("struct<>", pa.struct([])),
    ],
)
def test_type_names(name: str, expected: pa.DataType) -> None:
    assert to_arrow_type(name) == expected


def test_ddl_with_everything() -> None:
    schema = to_arrow_schema(
        "id BIGINT NOT NULL COMMENT 'the\\'key', `odd ``name` ARRAY<STRUCT<`x y`: MAP<STRING, INT>>>,\n total decimal(10,2)"
    )
    assert schema.names == ["id", "odd `name", "total"]
    assert not schema.field("id").nullable
    assert schema.field("id").metadata == {b"comment": b"the'key"}
    assert schema.field("odd `name").type.value_type.field(0).name == "x y"
    assert to_arrow_schema(to_ddl(schema)).equals(schema, check_metadata=True)


def test_a_struct_text_and_an_arrow_schema_are_schemas() -> None:
    schema = pa.schema([("id", pa.int64()), ("at", UTC)])
    assert to_arrow_schema(schema) is schema
    assert to_arrow_schema("struct<id: bigint, at: timestamp>") == schema
    assert to_arrow_schema("") == pa.schema([])


def test_a_struct_type_is_read_without_a_jvm() -> None:
    from pyspark.sql import types as t

    struct = t.StructType(
        [
            t.StructField("id", t.LongType(), False),
            t.StructField("amount", t.DecimalType(10, 2), True, {"comment": "in euro"}),
            t.StructField("code", t.VarcharType(3)),
            t.StructField("tags", t.ArrayType(t.StringType(), False)),
            t.StructField(
                "rates", t.MapType(t.StringType(), t.StructType([t.StructField("x", t.ByteType())]))
            ),
            t.StructField("wait", t.DayTimeIntervalType()),
            t.StructField("at", t.TimestampNTZType()),
        ]
    )
    assert (
        to_ddl(to_arrow_schema(struct))
        == "id BIGINT NOT NULL, amount DECIMAL(10,2) COMMENT 'in euro', code STRING, tags ARRAY<STRING>, "
        "rates MAP<STRING, STRUCT<x: TINYINT>>, wait INTERVAL DAY TO SECOND, at TIMESTAMP_NTZ"
    )


def test_arrow_types_that_spark_lacks_are_widened_or_refused() -> None:
    schema = pa.schema(
        [
            ("a", pa.uint8()),
            ("b", pa.dictionary(pa.int32(), pa.string())),
            ("c", pa.large_string()),
            ("d", pa.list_(pa.float16(), 3)),
            ("e", pa.timestamp("ns")),
            ("f", pa.uint64()),
        ]
    )
    assert (
        to_ddl(schema) == "a SMALLINT, b STRING, c STRING, d ARRAY<FLOAT>, e TIMESTAMP_NTZ, f DECIMAL(20,0)"
    )
    with pytest.raises(ConfigError, match="column 't' has the Arrow type decimal256"):
        to_ddl(pa.schema([("t", pa.decimal256(50, 2))]))


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("id BIGNIT", "CONFIG_UNKNOWN_TYPE", "did you mean 'bigint'?"),
        ("id", "CONFIG_SCHEMA_SYNTAX", "expected a type, but the text ends"),
        ("id INT,", "CONFIG_SCHEMA_SYNTAX", "expected a column name"),
        ("id INT name STRING", "CONFIG_SCHEMA_SYNTAX", "got 'name'"),
        ("id ARRAY<INT", "CONFIG_SCHEMA_SYNTAX", "expected '>'"),
        ("id DECIMAL(50, 2)", "CONFIG_SCHEMA_SYNTAX", "out of range"),
        ("id DECIMAL(x)", "CONFIG_SCHEMA_SYNTAX", "a precision"),
        ("id INT COMMENT x", "CONFIG_SCHEMA_SYNTAX", "a comment in quotes"),
        ("id INT; x INT", "CONFIG_SCHEMA_SYNTAX", "unexpected ';'"),
        ("id INT, id INT", "CONFIG_SCHEMA_SYNTAX", "twice"),
        ("id VARCHAR", "CONFIG_SCHEMA_SYNTAX", "expected '('"),
        ("id INTERVAL DAY TO MONTH", "CONFIG_SCHEMA_SYNTAX", "one of hour, minute"),
    ],
)
def test_a_bad_ddl_names_the_place(text: str, code: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        to_arrow_schema(text)
    assert caught.value.code == code
    assert part in str(caught.value)
    assert caught.value.where is not None
    assert text.strip() in caught.value.where


@pytest.mark.parametrize("value", [None, 5, ["id"], {"id": "int"}])
def test_other_things_are_no_schema(value: Any) -> None:
    with pytest.raises(ConfigError, match="a schema cannot be made from"):
        to_arrow_schema(value)
