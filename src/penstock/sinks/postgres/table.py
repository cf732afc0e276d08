"""A table in PostgreSQL: its columns and unique keys, how it is created, and the marks of epochs beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.plan.node import Field
from penstock.sinks.postgres.client import column_list, statement
from penstock.sinks.postgres.column import TableColumn, column_type

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

MARKS = "penstock_epochs"


@dataclass(frozen=True, slots=True)
class Table:
    """What the server says about a table."""

    name: str
    columns: tuple[TableColumn, ...]
    unique: tuple[frozenset[str], ...]
    """The columns of each unique index that an upsert can use."""


def find_table(connection: psycopg.Connection, name: str) -> Table | None:
    """Return the table of that name, `table` or `schema.table`; None when it does not exist."""
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))
    row = connection.execute("SELECT to_regclass(%s)::oid", (quoted,)).fetchone()
    if row is None or row[0] is None:
        return None
    columns = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), "
        "attnotnull AND NOT atthasdef AND attidentity = '' "
        "FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        row,
    )
    indexes = connection.execute(
        "SELECT array_agg(a.attname::text) FROM pg_index AS i "
        "JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) "
        "WHERE i.indrelid = %s AND i.indisunique AND i.indimmediate AND i.indpred IS NULL "
        "AND i.indexprs IS NULL GROUP BY i.indexrelid",
        row,
    )
    return Table(
        name,
        tuple(TableColumn(*column) for column in columns),
        tuple(frozenset(index[0]) for index in indexes),
    )


def comment_of(connection: psycopg.Connection, name: str) -> str | None:
    """Return what is noted about a table."""
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))
    row = connection.execute("SELECT obj_description(to_regclass(%s)::oid, 'pg_class')", (quoted,)).fetchone()
    return None if row is None else row[0]


def check_upsert(table: Table, keys: Iterable[str], *, where: str) -> None:
    """Refuse a table that has no unique index on the key of the query."""
    names = tuple(keys)
    if frozenset(names) not in table.unique:
        listed = ", ".join(names)
        raise ConfigError(
            f"the table {table.name} has no unique index on ({listed}), which an upsert needs",
            code="STREAM_KEY",
            where=where,
            hint=f"ALTER TABLE {table.name} ADD UNIQUE ({listed})",
        )


def create_schema(connection: psycopg.Connection, name: str) -> None:
    """Create the schema of a table `schema.table` when it is missing; asking first needs no right to create any."""
    schema, dot, _ = name.rpartition(".")
    if dot and connection.execute("SELECT to_regnamespace(quote_ident(%s))", (schema,)).fetchone() == (None,):
        connection.execute(statement("CREATE SCHEMA IF NOT EXISTS {}", schema))


def create_table(
    connection: psycopg.Connection, name: str, fields: Iterable[Field], *, keys: Iterable[str]
) -> None:
    """Create a table with the columns of the query; `keys`, if there are any, are its primary key."""
    from psycopg import sql

    parts = [_declaration(field) for field in fields]
    names = tuple(keys)
    if names:
        parts.append(sql.SQL("PRIMARY KEY (") + column_list(names) + sql.SQL(")"))
    connection.execute(statement("CREATE TABLE {} (", name) + sql.SQL(", ").join(parts) + sql.SQL(")"))


def add_columns(connection: psycopg.Connection, name: str, fields: Iterable[Field]) -> None:
    """Add columns to a table."""
    for field in fields:
        connection.execute(statement("ALTER TABLE {} ADD COLUMN ", name) + _declaration(field))


def copy_rows(
    connection: psycopg.Connection, name: str, columns: Iterable[str], batches: Iterable[pa.RecordBatch]
) -> int:
    """Copy encoded rows into a table, and return how many they are."""
    import pyarrow as pa
    from pyarrow import csv

    plain = csv.WriteOptions(include_header=False)
    count = 0
    command = statement("COPY {} (", name) + column_list(columns) + statement(") FROM STDIN (FORMAT csv)")
    with connection.cursor() as cursor, cursor.copy(command) as copy:
        for batch in batches:
            buffer = pa.BufferOutputStream()
            csv.write_csv(batch, buffer, plain)
            copy.write(memoryview(buffer.getvalue()))
            count += batch.num_rows
    return count


def lock_tables(connection: psycopg.Connection) -> None:
    """Let one session at a time create tables: IF NOT EXISTS alone fails when two create the same one at once."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (MARKS,))


def create_mark(connection: psycopg.Connection, *, query: str, name: str) -> None:
    """Have a row for the mark of a query, which its transactions lock."""
    connection.execute(
        statement(
            "CREATE TABLE IF NOT EXISTS {} (query TEXT PRIMARY KEY, name TEXT NOT NULL, "
            "epoch BIGINT NOT NULL, committed_at TIMESTAMPTZ NOT NULL DEFAULT now())",
            MARKS,
        )
    )
    connection.execute(
        statement("INSERT INTO {} (query, name, epoch) VALUES (%s, %s, -1) ON CONFLICT DO NOTHING", MARKS),
        (query, name),
    )


def read_mark(connection: psycopg.Connection, query: str, *, lock: bool = False) -> int:
    """Return the last epoch of a query that is stored, -1 before the first."""
    command = statement(f"SELECT epoch FROM {{}} WHERE query = %s{' FOR UPDATE' if lock else ''}", MARKS)
    row = connection.execute(command, (query,)).fetchone()
    return -1 if row is None else int(row[0])


def move_mark(connection: psycopg.Connection, query: str, epoch: int) -> None:
    """Note that an epoch is stored, within the transaction of its rows."""
    connection.execute(
        statement("UPDATE {} SET epoch = %s, committed_at = now() WHERE query = %s", MARKS), (epoch, query)
    )


def _declaration(field: Field) -> psycopg.sql.Composed:
    from psycopg import sql

    kind = sql.SQL(column_type(field))
    return statement("{} ", sql.Identifier(field.name)) + kind
