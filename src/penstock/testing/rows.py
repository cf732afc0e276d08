"""Rows of any schema that are made up: many, none, NULLs, and the outermost values of every type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.data.schema import to_arrow_schema

EVERY_TYPE = (
    "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h "
    "DECIMAL(10,2), i DECIMAL(38,18), j STRING, k BINARY, l DATE, "
    "m TIMESTAMP, n TIMESTAMP_NTZ, o ARRAY<INT>, p MAP<STRING, BIGINT>, q STRUCT<x: INT, y: STRING>"
)
MANY = 10_000

Values = Callable[[int], Any]


def generated_batches(schema: Any) -> dict[str, pa.RecordBatch]:
    """Return batches of a schema by what is special about them: empty, one row, nulls, extremes, many.

    >>> {name: batch.num_rows for name, batch in generated_batches("id BIGINT, name STRING").items()}
    {'empty': 0, 'one row': 1, 'nulls': 3, 'extremes': 2, 'many': 10000}
    """
    fields = to_arrow_schema(schema)
    return {
        "empty": _batch(fields, 0, _plain),
        "one row": _batch(fields, 1, _plain),
        "nulls": _batch(fields, 3, _with_nulls),
        "extremes": _batch(fields, 2, _extreme),
        "many": _batch(fields, MANY, _plain),
    }


def _batch(schema: pa.Schema, rows: int, value: Callable[[pa.Field, int], Any]) -> pa.RecordBatch:
    columns = [pa.array([value(field, row) for row in range(rows)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_nulls(field: pa.Field, row: int) -> Any:
    """NULL in the first and the last row."""
    return None if field.nullable and row != 1 else _plain(field, row)


def _plain(field: pa.Field, row: int) -> Any:
    if field.name == "_op":
        return "iud"[row % 3]
    return _value(field.type, row)


def _value(kind: pa.DataType, row: int) -> Any:
    t = pa.types
    if t.is_boolean(kind):
        return row % 2 == 0
    if t.is_integer(kind):
        return row % 100
    if t.is_floating(kind):
        return row / 4
    if t.is_decimal(kind):
        return Decimal(row % 100).scaleb(-min(kind.scale, 1))
    if t.is_string(kind) or t.is_large_string(kind):
        return f"text {row}"
    if t.is_binary(kind) or t.is_large_binary(kind):
        return row.to_bytes(4, "big")
    if t.is_date(kind):
        return date(2026, 1, 1) + timedelta(days=row % 365)
    if t.is_timestamp(kind):
        return datetime(2026, 1, 1, tzinfo=UTC if kind.tz else None) + timedelta(seconds=row)
    if t.is_time(kind):
        return time(row % 24)
    if t.is_duration(kind):
        return timedelta(seconds=row)
    if t.is_map(kind):
        return [(_value(kind.key_type, row), _value(kind.item_type, row))]
    if t.is_struct(kind):
        return {
            kind.field(index).name: _value(kind.field(index).type, row) for index in range(kind.num_fields)
        }
    if t.is_list(kind) or t.is_large_list(kind):
        return [_value(kind.value_type, row + item) for item in range(row % 3)]
    return None


def _extreme(field: pa.Field, row: int) -> Any:
    """The smallest value in the first row, and the largest in the second."""
    t, kind, large = pa.types, field.type, row == 1
    if field.name == "_op":
        return "id"[row]
    if t.is_integer(kind):
        return 2 ** (kind.bit_width - 1) - 1 if large else -(2 ** (kind.bit_width - 1))
    if t.is_floating(kind):
        return float("inf") if large else -0.0
    if t.is_decimal(kind):
        return Decimal((0 if large else 1, (9,) * kind.precision, -kind.scale))
    if t.is_string(kind) or t.is_large_string(kind):
        return 'ä漢😀 "quoted" \\ \n\t' + "x" * 10_000 if large else ""
    if t.is_binary(kind) or t.is_large_binary(kind):
        return bytes(range(256)) if large else b""
    if t.is_date(kind):
        return date(9999, 12, 31) if large else date(1, 1, 1)
    if t.is_timestamp(kind):
        moment = datetime(9999, 12, 31, 23, 59, 59, 999_999) if large else datetime(1900, 1, 1)
        return moment.replace(tzinfo=UTC if kind.tz else None)
    if t.is_list(kind) or t.is_large_list(kind) or t.is_map(kind):
        return [] if not large else _value(kind, 2)
    return _value(kind, row)
