"""Columns of a query as columns of a PostgreSQL table: their types, whether they fit a table, and how values are encoded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import DataError
from penstock.plan.node import Field
from penstock.sinks.column import as_json, column, fields_of
from penstock.sinks.errors import require_fit
from penstock.sinks.json_row import json_texts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

# Spark's name of a type -> the type of a column that the sink creates, and other types that hold its values without a loss.
TYPES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "boolean": ("boolean", ()),
    "tinyint": ("smallint", ("integer", "bigint", "numeric", "real", "double precision")),
    "smallint": ("smallint", ("integer", "bigint", "numeric", "real", "double precision")),
    "int": ("integer", ("bigint", "numeric", "double precision")),
    "bigint": ("bigint", ("numeric",)),
    "float": ("real", ("double precision",)),
    "double": ("double precision", ()),
    "string": ("text", ("character varying", "character", "uuid", "json", "jsonb", "citext")),
    "void": ("text", ("character varying", "character")),
    "binary": ("bytea", ()),
    "date": ("date", ()),
    "timestamp": ("timestamp with time zone", ()),
    "timestamp_ntz": ("timestamp without time zone", ()),
    "time": ("time without time zone", ()),
    "nested": ("jsonb", ("json", "text")),
}
_ARGUMENTS = re.compile(r"\((\d+)(?:,(\d+))?\)")


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table in the server."""

    name: str
    kind: str
    """As PostgreSQL writes it: numeric(10,2)."""
    required: bool
    """Without a value of its own, a row cannot be inserted."""


def column_type(field: Field) -> str:
    """The type of the column that holds the values of one of a query or view."""
    family = _family(field.type)
    if family == "decimal":
        precision, scale = _arguments(field.type)
        return f"numeric({precision},{scale})"
    if family not in TYPES:
        raise DataError(
            f"column '{field.name}' is {field.type}, which PostgreSQL has no type for",
            code="SINK_TYPE",
            hint="cast it in the query, to a string for example",
        )
    return TYPES[family][0]


def encode(frame: DataFrame) -> DataFrame:
    """Return the frame with values as COPY takes them: bytes in hexadecimal, nested values as JSON."""
    return frame.select(*[_encoded(field) for field in fields_of(frame.schema)])


def encode_arrow(rows: pa.Table, fields: Iterable[Field]) -> pa.Table:
    """Return rows with values as COPY takes them, as `encode` does."""
    import pyarrow as pa

    columns = {field.name: _encoded_arrow(rows.column(field.name), field.type) for field in fields}
    return pa.table(columns)


def check_columns(
    fields: Iterable[Field], existing: Iterable[TableColumn], *, where: str, adds: bool
) -> list[str]:
    """Return the columns of the query that the table lacks; refuse those that it cannot store, before anything is written."""
    schema = tuple(fields)
    columns = {column.name: column for column in existing}
    misfits = [
        f"'{field.name}' is {field.type} in the query and {columns[field.name].kind} in the table"
        for field in schema
        if field.name in columns and not _fits(field.type, columns[field.name].kind)
    ]
    missing = [field.name for field in schema if field.name not in columns]
    if missing and not adds:
        misfits.append(f"the table has no column {', '.join(map(repr, missing))}")
    names = {field.name for field in schema}
    misfits += [
        f"the table wants a value for '{column.name}', which the query does not have"
        for column in columns.values()
        if column.required and column.name not in names
    ]
    require_fit(misfits, where=where)
    return missing


def _fits(kind: str, stored: str) -> bool:
    base = re.sub(r"\(.*?\)", "", stored)
    family = _family(kind)
    if family == "decimal":
        if base != "numeric":
            return False
        if "(" not in stored:
            return True
        (precision, scale), (has_precision, has_scale) = _arguments(kind), _arguments(stored)
        return has_scale >= scale and has_precision - has_scale >= precision - scale
    if family not in TYPES:
        return False
    ours, wider = TYPES[family]
    if base == "numeric" and "(" in stored:
        return False
    return base == ours or base in wider


def _family(name: str) -> str:
    if name.startswith(("array<", "map<", "struct<", "variant")):
        return "nested"
    if name.startswith("decimal"):
        return "decimal"
    return re.sub(r"[( ].*", "", name) if not name.startswith(("varchar", "char")) else "string"


def _arguments(kind: str) -> tuple[int, int]:
    match = _ARGUMENTS.search(kind)
    assert match is not None, kind
    return int(match[1]), int(match[2] or 0)


def _encoded(field: Field) -> Column:
    from pyspark.sql import functions as F  # as PySpark's users have it

    value = column(field.name)
    match _family(field.type):
        case "binary":
            value = F.concat(F.lit("\\x"), F.hex(value))
        case "nested":
            value = as_json(value)
        case "void" | "time":
            value = value.cast("string")
    return value.alias(field.name)


def _encoded_arrow(values: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    import pyarrow as pa

    match _family(kind):
        case "binary":
            texts = [None if value is None else f"\\x{value.hex()}" for value in values.to_pylist()]
            return pa.chunked_array([pa.array(texts, pa.string())])
        case "nested":
            return pa.chunked_array([json_texts(values, kind)])
        case "void" | "time":
            return values.cast(pa.string())
    return values
