"""Ranges of the key of a table, of about as many rows each, so that tasks read them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.sources.postgres.client import column_list, relation
from penstock.sources.postgres.table import Table

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

Bound = list[str]
"""The values of the key at which a range begins, as text."""

RANGE_BYTES = 32 << 20
MOST_RANGES = 8
_SAMPLED_ROWS = 20_000


def find_bounds(
    connection: psycopg.Connection, table: Table, *, condition: str | None, partitions: int | None
) -> list[Bound]:
    """Return where ranges begin, without the first; an empty list reads the table as a whole.

    A table without a key, or with NULL in it, has no ranges: a row with NULL would be in none of them.
    """
    from psycopg import sql

    required = {column.name for column in table.columns if column.is_required}
    if not table.key or not required.issuperset(table.key):
        return []
    size, rows = _size(connection, table)
    count = partitions or min(MOST_RANGES, -(-size // RANGE_BYTES))
    if count < 2:
        return []
    key = column_list(table.key)
    where = sql.SQL("WHERE ({})").format(sql.SQL(condition)) if condition else sql.SQL("")
    share = min(100.0, 100.0 * _SAMPLED_ROWS / max(rows, 1))
    sample = (
        sql.SQL("TABLESAMPLE SYSTEM ({})").format(sql.Literal(share))
        if table.is_table and share < 100
        else sql.SQL("")
    )
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in table.key)
    # The first row of every part but the first one.
    query = sql.SQL(
        "SELECT {texts} FROM (SELECT {key}, row_number() OVER (ORDER BY {key}) - 1 AS place, count(*) OVER () AS total "
        "FROM {table} {sample} {where}) AS sampled "
        "WHERE place > 0 AND place * {count} / total <> (place - 1) * {count} / total ORDER BY place"
    ).format(
        texts=texts,
        key=key,
        table=relation(table.schema, table.name),
        sample=sample,
        where=where,
        count=sql.Literal(count),
    )
    bounds = [list(row) for row in connection.execute(query)]
    return [bound for place, bound in enumerate(bounds) if place == 0 or bound != bounds[place - 1]]


def range_condition(table: Table, lower: Bound | None, upper: Bound | None) -> sql.Composable | None:
    """The condition for rows from one bound on and below the next; None when both are open."""
    from psycopg import sql

    parts = [
        sql.SQL("({}) {} ({})").format(column_list(table.key), sql.SQL(sign), _literals(table, bound))
        for sign, bound in ((">=", lower), ("<", upper))
        if bound is not None
    ]
    return sql.SQL(" AND ").join(parts) if parts else None


def _literals(table: Table, bound: Sequence[str]) -> sql.Composed:
    from psycopg import sql

    kinds = {column.name: column.kind for column in table.columns}
    return sql.SQL(", ").join(
        sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(kinds[name]))
        for name, text in zip(table.key, bound, strict=True)
    )


def _size(connection: psycopg.Connection, table: Table) -> tuple[int, int]:
    """The bytes and rows of a table, as the server thinks."""
    row = connection.execute(
        "SELECT coalesce(sum(pg_relation_size(relid)), 0)::int8, coalesce(sum(greatest(reltuples, 0)), 0)::int8 "
        "FROM (SELECT %(oid)s::regclass AS relid WHERE %(plain)s UNION ALL SELECT relid FROM "
        "pg_partition_tree(%(oid)s::regclass) "
        "WHERE isleaf AND NOT %(plain)s) AS leaves JOIN pg_class ON pg_class.oid = relid",
        {"oid": table.oid, "plain": not table.is_partitioned},
    ).fetchone()
    assert row is not None
    size, rows = int(row[0]), int(row[1])
    return size, rows or size // 100  # without statistics, rows of a hundred bytes
