"""Rows that a transform could not take: the error that fails the query, or columns that say why beside the rows that
went through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.transforms.base import ERROR, INPUT

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 500


class TaskFailed(Exception):
    """An error of ours on its way out of a Spark task; on the driver it is that error again."""

    def __init__(self, error: PenstockError) -> None:
        from penstock.spark.errors.flow_table import encoded

        super().__init__(encoded(error))


def row_text(batch: pa.RecordBatch, row: int) -> str:
    """Return a row as JSON from which Spark's `from_json` reads the same values: exactly, with NULL written out and
    times in UTC."""
    import orjson

    from penstock.transforms.json_columns.encoding import EncodingStyle, encode_column

    style = EncodingStyle(micros=True)
    values = {
        name: encode_column(column.slice(row, 1), style).values[0]
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return orjson.dumps(values).decode()


def shown_row(batch: pa.RecordBatch, row: int) -> str:
    """Return a row as an error shows it, cut where it is long."""
    text = row_text(batch, row)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def beside_failed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows that went through, with the columns of rows that did not."""
    import pyarrow as pa

    nothing = pa.nulls(rows.num_rows, pa.string())
    return pa.RecordBatch.from_arrays([*rows.columns, nothing, nothing], schema=schema)


def failed_rows(batch: pa.RecordBatch, failed: Mapping[int, str], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows for those of `batch` that did not go through, each with what is wrong with it."""
    import pyarrow as pa

    columns = [pa.nulls(len(failed), field.type) for field in schema]
    columns[-2] = pa.array([failed[row] for row in sorted(failed)], pa.string())
    columns[-1] = pa.array([row_text(batch, row) for row in sorted(failed)], pa.string())
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_error_columns(fields: Sequence[pa.Field]) -> pa.Schema:
    """Return the columns of a transform whose failed rows come out with the others: two more behind its own."""
    import pyarrow as pa

    return pa.schema([*fields, pa.field(ERROR, pa.string()), pa.field(INPUT, pa.string())])
