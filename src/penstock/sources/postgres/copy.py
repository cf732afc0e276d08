"""Rows of a table by COPY, as batches of Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.sources.postgres.client import relation
from penstock.sources.postgres.table import Table
from penstock.sources.postgres.value import SpecialValues, as_column

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from psycopg import sql

CHUNK_BYTES = 4 << 20


def read_rows(
    connection: psycopg.Connection,
    table: Table,
    *,
    conditions: list[sql.Composable],
    specials: SpecialValues,
    where: str,
) -> Iterator[pa.RecordBatch]:
    """Give the rows for which all conditions hold."""
    import pyarrow as pa

    for texts in read_texts(connection, table, conditions):
        columns = [
            as_column(texts.column(column.name).combine_chunks(), column, specials=specials, where=where)
            for column in table.columns
        ]
        yield pa.RecordBatch.from_arrays(columns, [column.name for column in table.columns])


def read_texts(
    connection: psycopg.Connection, table: Table, conditions: list[sql.Composable]
) -> Iterator[pa.Table]:
    """Give the rows for which all conditions hold, with values as the types of PostgreSQL write them."""
    from psycopg import sql

    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
    query = sql.SQL("SELECT {} FROM {}").format(columns, relation(table.schema, table.name))
    if conditions:
        query += sql.SQL(" WHERE ") + sql.SQL(" AND ").join(
            sql.SQL("({})").format(condition) for condition in conditions
        )
    chunks: list[bytes] = []
    size = 0
    with (
        connection.cursor() as cursor,
        cursor.copy(sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(query)) as copy,
    ):
        for row in copy:  # the server sends a row at a time
            chunks.append(bytes(row))
            size += len(row)
            if size >= CHUNK_BYTES:
                yield _parsed(chunks, table)
                chunks, size = [], 0
    if chunks:
        yield _parsed(chunks, table)


def _parsed(chunks: list[bytes], table: Table) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    data = b"".join(chunks)
    names = [column.name for column in table.columns]
    return csv.read_csv(
        pa.BufferReader(data),
        # One block, because a row may be longer than any other size.
        read_options=csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
        # An empty line is a row with NULL in its only column.
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
