"""Answers as plain values, which are equal only when every bit is, whatever Arrow types hold them."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa


def values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values of a column."""
    return [_exact(value, column.type) for value in column.cast(_storage(column.type)).to_pylist()]


def _storage(kind: pa.DataType) -> pa.DataType:
    """The type with numbers in place of times: Python's own cannot hold all of Spark's."""
    t = pa.types
    if t.is_timestamp(kind) or t.is_duration(kind) or t.is_time64(kind):
        return pa.int64()
    if t.is_date32(kind):
        return pa.int32()
    if t.is_large_list(kind) or t.is_list(kind):
        return pa.list_(_storage(kind.value_type))
    if t.is_map(kind):
        return pa.map_(_storage(kind.key_type), _storage(kind.item_type))
    if t.is_struct(kind):
        return pa.struct([(item.name, _storage(item.type)) for item in kind])
    return kind


def _exact(value: Any, kind: pa.DataType) -> Any:
    t = pa.types
    if value is None:
        return None
    if t.is_floating(kind):
        return "nan" if value != value else struct.pack(">d", value).hex()
    if t.is_map(kind):
        pairs = [(_exact(key, kind.key_type), _exact(item, kind.item_type)) for key, item in value]
        return sorted(pairs, key=repr)
    if t.is_list(kind) or t.is_large_list(kind):
        return [_exact(item, kind.value_type) for item in value]
    if t.is_struct(kind):
        return [_exact(value[item.name], item.type) for item in kind]
    return value
