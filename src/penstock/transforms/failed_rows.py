"""Rows that a transform could not take: the error that fails the query, or columns that say why beside the rows that went through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

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
    """Return a row as JSON."""
    import orjson

    values = {name: batch.column(at)[row].as_py() for at, name in enumerate(batch.schema.names)}
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z
    try:
        return orjson.dumps(values, default=_plain, option=options).decode()
    except TypeError:  # a value for which JSON has nothing, as an integer of more than 64 bits
        return orjson.dumps({name: str(value) for name, value in values.items()}).decode()


def shown_row(batch: pa.RecordBatch, row: int) -> str:
    """Return a row as an error shows it, cut where it is long."""
    text = row_text(batch, row)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def with_failed(
    rows: pa.RecordBatch | None, batch: pa.RecordBatch, failed: Mapping[int, str], schema: pa.Schema
) -> pa.RecordBatch:
    """Return the rows that went through, with rows behind them for those of `batch` that did not; `schema` is that of both."""
    import pyarrow as pa

    count = 0 if rows is None else rows.num_rows
    places = sorted(failed)
    columns: list[Any] = []
    for at, field in enumerate(schema):
        if field.name == ERROR:
            told: Sequence[str | None] = [*[None] * count, *(failed[place] for place in places)]
            columns.append(pa.array(told, field.type))
        elif field.name == INPUT:
            told = [*[None] * count, *(row_text(batch, place) for place in places)]
            columns.append(pa.array(told, field.type))
        else:
            nothing = pa.nulls(len(places), field.type)
            columns.append(nothing if rows is None else pa.concat_arrays([rows.column(at), nothing]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_error_columns(fields: Sequence[pa.Field]) -> pa.Schema:
    """Return the columns of a transform whose failed rows come out with the others."""
    import pyarrow as pa

    return pa.schema([*fields, pa.field(ERROR, pa.string()), pa.field(INPUT, pa.string())])


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            import base64

            return base64.b64encode(value).decode()
        case Decimal() | date() | datetime():
            return str(value)
        case list() | tuple():
            return list(value)
    return str(value)
