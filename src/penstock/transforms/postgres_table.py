"""A table or query of PostgreSQL, read as a whole: columns with Spark's types, rows through COPY into Arrow."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import ConnectorError, DataError, PenstockError
from penstock.sinks.require import require_package

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from psycopg import sql
    from pyspark.sql import DataFrame, SparkSession

# PostgreSQL's name of a type, without its arguments -> Spark's, and how COPY writes a value that Arrow reads without loss.
_TYPES = {
    "boolean": ("boolean", "{}"),
    "smallint": ("smallint", "{}"),
    "integer": ("int", "{}"),
    "bigint": ("bigint", "{}"),
    "real": ("float", "{}"),
    "double precision": ("double", "{}"),
    "date": ("date", "({} - DATE '1970-01-01')"),
    "timestamp with time zone": ("timestamp", "(extract(epoch FROM {}) * 1000000)::bigint"),
    "timestamp without time zone": ("timestamp_ntz", "(extract(epoch FROM {}) * 1000000)::bigint"),
    "bytea": ("binary", "encode({}, 'hex')"),
}
_AS_TEXT = "{}::text"
_WIDEST = 38
_CAST = "infinite times and numbers of more digits than the type has are such values: cast the column to text in a query"


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """A column of the result; `kind` is Spark's type, `declared` PostgreSQL's."""

    name: str
    kind: str
    declared: str
    copied: str
    """The expression that COPY writes, with braces for the column."""


class PostgresTable:
    """A table (`table` or `schema.table`) or a query in brackets; each call has a connection of its own."""

    def __init__(self, url: str, table: str | None = None, *, query: str | None = None) -> None:
        from penstock.sinks.postgres.client import location

        require_package("psycopg", extra="postgres")
        self._url = url
        self._table, self._query = table, query
        self.where = f"{f'table {table}' if query is None else 'query'} in {location(url)}"

    def exists(self) -> bool:
        """Whether there is a table of that name."""
        from penstock.sinks.postgres.table import find_table

        assert self._table is not None, "a query is no table"
        with self.connect() as connection:
            return find_table(connection, self._table) is not None

    def columns(self) -> list[PostgresColumn]:
        """The columns, in their order."""
        with self.connect() as connection:
            return self.columns_of(connection)

    def columns_of(self, connection: psycopg.Connection) -> list[PostgresColumn]:
        """The columns, in their order."""
        from psycopg import sql

        with self.refusing():
            cursor = connection.execute(
                sql.SQL("SELECT * FROM ") + self.relation() + sql.SQL(" AS t LIMIT 0")
            )
            described = [
                (column.name, column.type_code, _modifier(cursor, at))
                for at, column in enumerate(cursor.description or ())
            ]
            names = [
                connection.execute("SELECT format_type(%s, %s)", (oid, modifier)).fetchone()
                for _, oid, modifier in described
            ]
        return [_column(name, str(row[0])) for (name, _, _), row in zip(described, names, strict=True) if row]

    def relation(self, *, parameters: bool = False) -> sql.Composable:
        """The text after FROM, in a statement with parameters or without."""
        from psycopg import sql

        if self._query is not None:
            query = self._query.strip().rstrip(";")
            return sql.SQL("(") + sql.SQL(query.replace("%", "%%") if parameters else query) + sql.SQL("\n)")
        assert self._table is not None
        return sql.Identifier(*self._table.split("."))

    def read(self, names: Sequence[str] | None = None) -> pa.Table:
        """All rows of some columns, or of all."""
        with self.connect() as connection:
            return self.read_with(connection, names)

    def read_with(self, connection: psycopg.Connection, names: Sequence[str] | None = None) -> pa.Table:
        """All rows of some columns, or of all."""
        from psycopg import sql

        columns = self.columns_of(connection)
        if names is not None:
            by_name = {column.name: column for column in columns}
            columns = [by_name[name] for name in names]
        values = sql.SQL(", ").join(
            sql.SQL(column.copied).format(sql.Identifier(column.name)) for column in columns
        )
        command = (
            sql.SQL("COPY (SELECT ")
            + values
            + sql.SQL(" FROM ")
            + self.relation()
            + sql.SQL(" AS t) TO STDOUT (FORMAT csv)")
        )
        buffer = io.BytesIO()
        with self.refusing(), connection.cursor() as cursor, cursor.copy(command) as copy:
            for block in copy:
                buffer.write(block)
        return _parsed(buffer, columns, where=self.where)

    def frame(self, spark: SparkSession, names: Sequence[str] | None = None) -> DataFrame:
        """All rows as they are now, as a frame that does not change."""
        from penstock.spark.reader import frame_of_arrow

        return frame_of_arrow(spark, self.read(names))

    def connect(self) -> psycopg.Connection:
        """Return a new connection."""
        from penstock.sinks.postgres import client

        with self.refusing():
            return client.connect(self._url)

    def refusing(self) -> _Refusing:
        """A block in which errors of PostgreSQL become errors for the user."""
        return _Refusing(self.where)


class _Refusing:
    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and (refusal := refusal_of(error, self._where)) is not None:
            raise refusal from error


def refusal_of(error: Exception, where: str) -> PenstockError | None:
    """Return the error for the user, for one of PostgreSQL's."""
    import psycopg

    from penstock.sinks.postgres import client

    if not isinstance(error, psycopg.Error):
        return None
    reason = client.transient(error)
    if reason is not None:
        return ConnectorError(
            f"PostgreSQL does not answer: {reason}", code="POSTGRES_UNREACHABLE", where=where, retryable=True
        )
    if (error.sqlstate or "").startswith(("22", "0A")):  # infinity has no number: "not supported"
        return DataError(
            f"a value has no place in Spark's type: {str(error).strip().splitlines()[0]}",
            code="POSTGRES_VALUE",
            where=where,
            hint=_CAST,
        )
    return ConnectorError(
        f"PostgreSQL refuses: {str(error).strip().splitlines()[0]}",
        code="POSTGRES_REFUSED",
        where=where,
        hint="check the address, the user and its rights, the table and its columns",
    )


def _modifier(cursor: Any, at: int) -> int:
    """The arguments of a column's type, as PostgreSQL numbers them."""
    return int(cursor.pgresult.fmod(at))


def _column(name: str, declared: str) -> PostgresColumn:
    base = re.sub(r"\(.*?\)", "", declared)
    if base == "numeric":
        match = re.search(r"\((\d+),(-?\d+)\)", declared)
        precision, scale = (int(match[1]), int(match[2])) if match else (_WIDEST, 18)
        fits = 0 <= scale <= precision <= _WIDEST
        return PostgresColumn(name, f"decimal({precision},{scale})" if fits else "string", declared, _AS_TEXT)
    kind, copied = _TYPES.get(base, ("string", _AS_TEXT))
    return PostgresColumn(name, kind, declared, copied)


def _parsed(buffer: io.BytesIO, columns: Sequence[PostgresColumn], *, where: str) -> pa.Table:
    """What COPY wrote, as Arrow; a name may be there twice."""
    import pyarrow as pa
    from pyarrow import csv

    from penstock.data.schema import to_arrow_type

    if not columns:
        return pa.table({})
    kinds = [to_arrow_type(column.kind) for column in columns]
    labels = [str(at) for at in range(len(columns))]
    if not buffer.tell():
        return pa.table([pa.array([], kind) for kind in kinds], names=[column.name for column in columns])
    wire = {label: _wire(kind) for label, kind in zip(labels, kinds, strict=True)}
    buffer.seek(0)
    try:
        text = csv.read_csv(
            buffer,
            csv.ReadOptions(column_names=labels),
            csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            csv.ConvertOptions(
                column_types=wire,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
            ),
        )
        values = [_value(text.column(label), kind) for label, kind in zip(labels, kinds, strict=True)]
    except pa.ArrowInvalid as error:
        raise DataError(
            f"a value has no place in Spark's type: {error}",
            code="POSTGRES_VALUE",
            where=where,
            hint=_CAST,
        ) from None
    return pa.table(values, names=[column.name for column in columns])


def _wire(kind: pa.DataType) -> pa.DataType:
    """The type as which Arrow reads what COPY has written."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.string() if pa.types.is_decimal(kind) or pa.types.is_binary(kind) else kind


def _value(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    import pyarrow as pa

    if pa.types.is_binary(kind):
        texts = [None if value is None else bytes.fromhex(value) for value in values.to_pylist()]
        return pa.chunked_array([pa.array(texts, kind)])
    return values.cast(kind)
