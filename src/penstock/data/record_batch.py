"""Record batches that others made, as the schema says that they are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.data.conform import conform
from penstock.errors import DataError


def conformed(batch: Any, schema: pa.Schema, *, where: str) -> pa.RecordBatch:
    """Return a batch with the columns of a schema, in its order and types; `where` names who made it, for the error
    if it does not fit.

    >>> conformed(pa.record_batch({"n": pa.array([1], pa.int32())}), pa.schema([("n", pa.int64())]), where="the plugin").schema.types
    [DataType(int64)]
    """
    if not isinstance(batch, pa.RecordBatch):
        raise DataError(
            f"{where} gave {type(batch).__name__}, and a batch is a pyarrow.RecordBatch",
            code="PLUGIN_BATCH",
            where=where,
            hint="make one with pyarrow.RecordBatch.from_pylist(rows, schema=...)",
        )
    if (
        batch.schema.names == schema.names
        and batch.schema.types == schema.types
        and not _has_missing(batch, schema)
    ):
        return batch
    fields = [(field.name, field.type, field.nullable) for field in schema]
    columns = conform(pa.Table.from_batches([batch]), fields, where=where)
    return pa.RecordBatch.from_arrays(list(columns), schema=schema)


def _has_missing(batch: pa.RecordBatch, schema: pa.Schema) -> bool:
    return any(
        column.null_count and not field.nullable for column, field in zip(batch.columns, schema, strict=True)
    )
