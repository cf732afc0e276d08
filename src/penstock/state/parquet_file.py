"""Rows in Parquet files that any tool can read, written a row group at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.data.column_view import join_pieces, view

ROWS_AT_ONCE = 1 << 17
_INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])
_INTERVAL_LAYOUT = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])


class _Drained(io.RawIOBase):
    """Takes bytes of a writer, until somebody takes them away."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._pieces.append(bytes(content))
        return len(content)

    def drain(self) -> Iterator[bytes]:
        """What was written since the last time."""
        pieces, self._pieces = self._pieces, []
        yield from pieces


def content(names: Sequence[str], columns: Sequence[pa.Array]) -> Iterator[bytes]:
    """The bytes of a Parquet file with these columns. Two columns may have one name."""
    columns = [_plain(column) for column in columns]
    table = pa.Table.from_arrays(
        columns,
        schema=pa.schema([pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]),
    )
    sink = _Drained()
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            writer.write_table(table.slice(start, ROWS_AT_ONCE))
            yield from sink.drain()
    yield from sink.drain()


def columns_of(file: pa.Buffer, types: Sequence[pa.DataType]) -> list[pa.Array]:
    """The columns of a Parquet file in their order, as the types that they had."""
    table = pq.ParquetFile(pa.BufferReader(file)).read()
    if table.num_columns != len(types):
        raise ValueError(f"it has {table.num_columns} columns, expected {len(types)}")
    return [_typed(column, kind) for column, kind in zip(table.columns, types, strict=True)]


def _typed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    if kind == pa.month_day_nano_interval():
        return _interval(_joined(column, _INTERVAL))
    return _joined(column if column.type == kind else column.cast(kind), kind)


def _joined(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if not chunks:
        return pa.array([], kind)
    return chunks[0] if len(chunks) == 1 else join_pieces([(view(chunk), None) for chunk in chunks])


def _plain(column: pa.Array) -> pa.Array:
    """The column as a type that Parquet has: an interval is its three numbers."""
    if column.type != pa.month_day_nano_interval():
        return column
    parts = np.frombuffer(column.buffers()[1], _INTERVAL_LAYOUT)[column.offset :][: len(column)]
    numbers = [pa.array(np.ascontiguousarray(parts[name])) for name in _INTERVAL_LAYOUT.names or ()]
    return pa.StructArray.from_arrays(
        numbers, fields=list(_INTERVAL), mask=column.is_null() if column.null_count else None
    )


def _interval(column: pa.StructArray) -> pa.Array:
    parts = np.zeros(len(column), _INTERVAL_LAYOUT)
    for name, numbers in zip(_INTERVAL_LAYOUT.names or (), column.flatten(), strict=True):
        parts[name] = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    valid = column.is_valid()
    bitmap = pa.array(valid.to_numpy(zero_copy_only=False)).buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(
        pa.month_day_nano_interval(), len(column), [bitmap, pa.py_buffer(parts.tobytes())]
    )
