"""The operation of rows that a transform made of others: it keeps what came in, unless it says otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.operation import DELETE, INSERT, OPERATION


def with_operation(rows: pa.RecordBatch, batch: pa.RecordBatch, origins: pa.Array) -> pa.RecordBatch:
    """Return rows with the operation of the row of `batch` that each was made of (`origins`), where they have none of
    their own."""
    if OPERATION not in rows.schema.names or OPERATION not in batch.schema.names:
        return rows
    at = rows.schema.get_field_index(OPERATION)
    own = batch.column(batch.schema.get_field_index(OPERATION)).take(origins)
    return rows.set_column(
        at, rows.schema.field(at), pc.coalesce(rows.column(at), own.cast(rows.column(at).type))
    )


def with_deletes(
    rows: pa.RecordBatch, batch: pa.RecordBatch, origins: pa.Array, *, keys: Sequence[str]
) -> pa.RecordBatch:
    """Return rows with a delete for each update and delete of `batch` of which there is none, in the order of `batch`.

    What such a row was before may be downstream. `origins` are the rows of `batch` that rows were made of, `keys` the
    columns that both have.
    """
    if not keys or OPERATION not in rows.schema.names or OPERATION not in batch.schema.names:
        return rows
    changes = pc.not_equal(batch.column(OPERATION), INSERT).fill_null(False)
    answered = pc.is_in(pa.array(range(batch.num_rows), pa.int64()), value_set=origins.cast(pa.int64()))
    gone = pc.indices_nonzero(pc.and_not(changes, answered)).cast(pa.int64())
    if not len(gone):
        return rows
    columns = []
    for field in rows.schema:
        if field.name == OPERATION:
            columns.append(pa.repeat(pa.scalar(DELETE, field.type), len(gone)))
        elif field.name in keys:
            columns.append(batch.column(field.name).take(gone).cast(field.type))
        else:
            columns.append(pa.nulls(len(gone), field.type))
    deletes = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
    together = pa.Table.from_batches([rows, deletes]).combine_chunks()
    order = pc.array_sort_indices(pa.concat_arrays([origins.cast(pa.int64()), gone]))
    return together.take(order).combine_chunks().to_batches()[0]


def shared_keys(keys: Sequence[str], in_schema: pa.Schema, out_fields: Sequence[pa.Field]) -> tuple[str, ...]:
    """Return a key when rows have it before and behind a transform, in the same types; empty otherwise."""
    types = {field.name: field.type for field in out_fields}
    same = all(name in in_schema.names and types.get(name) == in_schema.field(name).type for name in keys)
    return tuple(keys) if same else ()


def with_operation_column(fields: list[pa.Field], in_schema: pa.Schema) -> list[pa.Field]:
    """Return the columns that leave a transform, with the operation behind them when that comes in."""
    if OPERATION not in in_schema.names or OPERATION in (field.name for field in fields):
        return fields
    return [*fields, pa.field(OPERATION, pa.string())]
