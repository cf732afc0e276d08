"""The rows of an epoch merged into a table by their key: newest rows replace, deleted ones go.

The rows are copied into a table of the transaction, in their order. Of each key only the last one counts, or they are applied in
rounds, each with the next row of each key, where it matters what every row finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.data.operation import DELETE
from penstock.sinks.postgres import table
from penstock.sinks.postgres.client import column_list, statement
from penstock.sinks.postgres.options import TARGET, UpsertOptions

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from psycopg import sql

STAGE, CHANGES = "penstock_stage", "penstock_changes"
ORDER, OPERATION, ROUND = "penstock_order", "penstock_operation", "penstock_round"
IS_DELETE = f"{OPERATION} IS NOT DISTINCT FROM '{DELETE}'"


@dataclass(frozen=True, slots=True)
class TableMerge:
    """How rows get into a table."""

    table: str
    columns: tuple[str, ...]
    """Of the rows, without their operation."""
    keys: tuple[str, ...]
    options: UpsertOptions

    def upsert(self, source: sql.Composable) -> sql.Composed:
        """The statement that inserts rows of distinct keys, or updates the rows that are there."""
        from psycopg import sql

        return (
            statement(f"INSERT INTO {{}} AS {TARGET} (", self.table)
            + column_list(self.columns)
            + sql.SQL(") SELECT ")
            + column_list(self.columns)
            + sql.SQL(" FROM ")
            + source
            + sql.SQL(" ON CONFLICT (")
            + column_list(self.keys)
            + sql.SQL(") DO ")
            + self._change()
        )

    def delete(self, source: sql.Composable) -> sql.Composed:
        """The statement that deletes the rows of these keys."""
        from psycopg import sql

        return (
            statement(f"DELETE FROM {{}} AS {TARGET} USING ", self.table)
            + source
            + sql.SQL(" WHERE ")
            + same(self.keys, TARGET, "gone")
        )

    def _change(self) -> sql.Composable:
        from psycopg import sql

        values = [name for name in self.columns if name not in self.keys]
        if self.options.on_conflict == "nothing" or not values:
            return sql.SQL("NOTHING")
        change = sql.SQL("UPDATE SET ") + sql.SQL(", ").join(
            statement("{} = EXCLUDED.{}", sql.Identifier(name), sql.Identifier(name)) for name in values
        )
        if self.options.update_where is None:
            return change
        return change + sql.SQL(" WHERE (") + sql.SQL(self.options.update_where) + sql.SQL(")")


def same(names: Iterable[str], left: str, right: str) -> sql.Composed:
    """A condition: columns of two tables are equal."""
    from psycopg import sql

    return sql.SQL(" AND ").join(
        statement(f"{left}.{{}} = {right}.{{}}", sql.Identifier(name), sql.Identifier(name)) for name in names
    )


def stage_rows(
    connection: psycopg.Connection,
    like: str,
    columns: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    *,
    operation: str | None,
) -> int:
    """Copy encoded rows into a table of the transaction, with their operation and their order; return how many they are."""
    from psycopg import sql

    connection.execute(
        statement("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT ", STAGE)
        + column_list(name for name in columns if name != operation)
        + statement(", NULL::text AS {} FROM {} WITH NO DATA", sql.Identifier(OPERATION), like)
    )
    connection.execute(
        statement("ALTER TABLE {} ADD COLUMN {} BIGINT GENERATED ALWAYS AS IDENTITY", STAGE, ORDER)
    )
    names = [OPERATION if name == operation else name for name in columns]
    return table.copy_rows(connection, STAGE, names, batches)


def last_of_stage(columns: Iterable[str], keys: Sequence[str]) -> sql.Composed:
    """The query of the last row of each key that was staged."""
    from psycopg import sql

    return (
        sql.SQL("SELECT DISTINCT ON (")
        + column_list(keys)
        + sql.SQL(") ")
        + column_list(columns)
        + statement(" FROM {} ORDER BY ", STAGE)
        + column_list(keys)
        + statement(", {} DESC", ORDER)
    )


def merge_stage(connection: psycopg.Connection, merge: TableMerge) -> int:
    """Merge the staged rows into the table; return how many rows of it have changed."""
    from psycopg import sql

    deletes = connection.execute(statement(f"SELECT 1 FROM {{}} WHERE {IS_DELETE} LIMIT 1", STAGE)).fetchone()
    in_rounds = merge.options.on_conflict == "nothing" or not merge.options.takes_last
    if deletes is None and not in_rounds:
        last = sql.SQL("(") + last_of_stage(merge.columns, merge.keys) + sql.SQL(") AS last")
        return connection.execute(merge.upsert(last)).rowcount
    rounds = _number_rounds(connection, merge) if in_rounds else _take_last(connection, merge)
    if rounds > 1:
        # Without it each round reads all rows: a key with many of them would make the epoch quadratic.
        connection.execute(statement("CREATE INDEX ON {} ({})", CHANGES, ROUND))
        connection.execute(statement("ANALYZE {}", CHANGES))
    changed = 0
    for number in range(1, rounds + 1):
        of_round = f"SELECT * FROM {{}} WHERE {ROUND} = {number} AND"
        gone = statement(f"({of_round} {IS_DELETE}) AS gone", CHANGES)
        come = statement(f"({of_round} NOT ({IS_DELETE})) AS come", CHANGES)
        if deletes is not None:
            changed += connection.execute(merge.delete(gone)).rowcount
        changed += connection.execute(merge.upsert(come)).rowcount
    return changed


def _take_last(connection: psycopg.Connection, merge: TableMerge) -> int:
    from psycopg import sql

    connection.execute(
        statement(f"CREATE TEMP TABLE {{}} ON COMMIT DROP AS SELECT *, 1 AS {ROUND} FROM (", CHANGES)
        + last_of_stage((*merge.columns, OPERATION), merge.keys)
        + sql.SQL(") AS last")
    )
    return 1


def _number_rounds(connection: psycopg.Connection, merge: TableMerge) -> int:
    """Number the rows of each key, and return the highest number.

    Where a row that is there stays, only the first of several rows that come, and of several that go, does anything.
    """
    from psycopg import sql

    window = sql.SQL("OVER (PARTITION BY ") + column_list(merge.keys) + statement(" ORDER BY {})", ORDER)
    rows: sql.Composable = sql.Identifier(STAGE)
    if merge.options.on_conflict == "nothing":
        rows = (
            sql.SQL("(SELECT * FROM (SELECT *, lag(")
            + sql.SQL(f"{IS_DELETE}) ")
            + window
            + statement(
                f" AS penstock_before FROM {{}}) AS runs WHERE penstock_before IS DISTINCT FROM ({IS_DELETE})",
                STAGE,
            )
            + sql.SQL(") AS firsts")
        )
    connection.execute(
        statement("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT ", CHANGES)
        + column_list((*merge.columns, OPERATION))
        + sql.SQL(", row_number() ")
        + window
        + sql.SQL(f" AS {ROUND} FROM ")
        + rows
    )
    row = connection.execute(statement(f"SELECT max({ROUND}) FROM {{}}", CHANGES)).fetchone()
    return int(row[0] or 0) if row is not None else 0
