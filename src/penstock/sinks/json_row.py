"""Rows on the driver as JSON text, as Spark writes it, without Spark: NULL is written out, and times are in UTC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.data.types import kernel_type
from penstock.errors import DataError
from penstock.functions.json import structs
from penstock.functions.json.writer import quoted
from penstock.plan.node import Field

if TYPE_CHECKING:
    import pyarrow as pa

STYLE = structs.JsonStyle(skip_nulls=False, java=17, zone="UTC")


def json_texts(values: pa.ChunkedArray, kind: str) -> pa.Array:
    """The values of a column as JSON, NULL for NULL."""
    import pyarrow as pa

    write = structs.writer(kind, STYLE)
    plain = structs.plain(
        pa.concat_arrays(values.chunks or [pa.array([], values.type)]).cast(kernel_type(kind))
    )
    return pa.array([None if value is None else write(value) for value in plain.to_pylist()], pa.string())


def row_texts(rows: pa.Table, fields: Sequence[Field]) -> list[str]:
    """Each row as a JSON object of these fields."""
    labels = [json_name(field.name) for field in fields]
    columns = [
        [text or "null" for text in json_texts(rows.column(field.name), field.type).to_pylist()]
        for field in fields
    ]
    return [
        "{" + ",".join(f"{label}:{text}" for label, text in zip(labels, row, strict=True)) + "}"
        for row in zip(*columns, strict=True)
    ]


def json_name(text: str) -> str:
    """A text in quotes."""
    return quoted(text, wide_escapes=False)


def require_json(fields: Sequence[Field], *, where: str) -> None:
    """DataError when a column cannot be written as JSON."""
    for field in fields:
        why = structs.reason(field.type, STYLE.zone)
        if why is not None:
            raise DataError(
                f"column '{field.name}' cannot be written as JSON: {why}",
                code="SINK_TYPE",
                where=where,
                hint="cast it in the view, to a string for example",
            )
