"""The types of columns as those know them who read and write values in JSON."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as t

from penstock.data.operation import OPERATION
from penstock.data.schema import is_variant, type_to_ddl
from penstock.errors import ConfigError

_INTEGERS = ((t.is_int8, 8), (t.is_int16, 16), (t.is_int32, 32))


def column_kind(field: pa.Field) -> dict[str, Any]:
    """Return the type of a column; raises ConfigError for one that JSON cannot say."""
    if field.name == OPERATION and is_text(field.type):
        return {"kind": "operation", "name": "STRING"}
    return _kind(field.type, field.name)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are texts."""
    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are bytes."""
    return bool(t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether values are arrays."""
    return bool(t.is_list(kind) or t.is_large_list(kind))


def _kind(kind: pa.DataType, column: str) -> dict[str, Any]:
    name = type_to_ddl(kind, column=column)
    for is_kind, bits in _INTEGERS:
        if is_kind(kind):
            return {"kind": "integer", "name": name, "low": -(1 << bits - 1), "high": (1 << bits - 1) - 1}
    if is_list(kind):
        return {"kind": "array", "name": "ARRAY", "item": _kind(kind.value_type, column)}
    if t.is_map(kind):
        parts = {"key": _kind(kind.key_type, column), "item": _kind(kind.item_type, column)}
        if parts["key"]["kind"] in ("array", "map", "struct"):
            raise _unsupported(column, name)
        return {"kind": "map", "name": "MAP", **parts}
    if t.is_struct(kind) and not is_variant(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return {
            "kind": "struct",
            "name": "STRUCT",
            "fields": [[field.name, _kind(field.type, column)] for field in fields],
        }
    return {"kind": _plain(kind, column, name), "name": name}


def _plain(kind: pa.DataType, column: str, name: str) -> str:
    if t.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    for is_kind, word in (
        (t.is_boolean, "boolean"),
        (t.is_int64, "bigint"),
        (t.is_floating, "float"),
        (t.is_decimal, "decimal"),
        (is_text, "string"),
        (is_bytes, "binary"),
        (t.is_date, "date"),
        (t.is_null, "void"),
    ):
        if is_kind(kind):
            return word
    raise _unsupported(column, name)


def _unsupported(column: str, name: str) -> ConfigError:
    return ConfigError(
        f"the column '{column}' of type {name} cannot go through a script or a handler",
        code="TRANSFORM_TYPE",
        hint="cast it to STRING, or leave it out, in a sql node before it",
    )
