"""The operation of rows that a transform made of others: it keeps what came in, unless it says otherwise."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.operation import OPERATION


def with_operation(rows: pa.RecordBatch, batch: pa.RecordBatch, origins: pa.Array) -> pa.RecordBatch:
    """Return rows with the operation of the row of `batch` that each was made of (`origins`), where they have none of their own."""
    if OPERATION not in rows.schema.names or OPERATION not in batch.schema.names:
        return rows
    at = rows.schema.get_field_index(OPERATION)
    own = batch.column(batch.schema.get_field_index(OPERATION)).take(origins)
    return rows.set_column(
        at, rows.schema.field(at), pc.coalesce(rows.column(at), own.cast(rows.column(at).type))
    )


def with_operation_column(fields: list[pa.Field], taken: pa.Schema) -> list[pa.Field]:
    """Return the columns that leave a transform, with the operation behind them when that comes in."""
    if OPERATION not in taken.names or OPERATION in (field.name for field in fields):
        return fields
    return [*fields, pa.field(OPERATION, pa.string())]
