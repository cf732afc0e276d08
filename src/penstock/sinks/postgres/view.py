"""A view as a PostgreSQL table: inserts, updates and deletes by key, in one transaction with the mark of the tick.

The mark is a row of `penstock_epochs`, as that of a query is, and its epoch is the tick. A transaction locks it,
copies the changed rows into a temporary table, and applies them strictly: a row that is inserted must not be there,
one that is updated or deleted must. What does not agree is either a key that is none, or a table that someone else
has changed, and the transaction is undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import DataError, PenstockError
from penstock.sinks.base import Guarantee
from penstock.sinks.key_change import KeyChange, by_key, not_unique, summed
from penstock.sinks.postgres import client, table
from penstock.sinks.postgres.client import column_list, statement
from penstock.sinks.postgres.column import check_columns, column_type, encode_arrow
from penstock.sinks.postgres.options import PostgresOptions
from penstock.sinks.require import require_package
from penstock.sinks.view_sink import Change, ViewSink, ViewTarget, fenced, taken

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from psycopg import sql

    from penstock.config import Settings

STAGE = "penstock_view_stage"
OP = "penstock_op"
MANY = 10_000
"""Staged rows from which on the server should know how many they are."""


class PostgresViewSink(ViewSink):
    """A table with the rows of the view."""

    Options = PostgresOptions
    checks_keys: ClassVar[bool] = True

    options: PostgresOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        require_package("psycopg", extra="postgres")
        super().__init__(options, settings)
        self._location = client.location(self.options.url)
        self._connection: psycopg.Connection | None = None
        self._mark: int | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def describe(self) -> str:
        return f"postgres table {self.options.table} in {self._location}"

    def check(self, target: ViewTarget) -> None:
        for field in target.fields:
            column_type(field)
        connection = self._connected()
        existing = table.find_table(connection, self.options.table)
        if existing is not None:
            self._missing_columns(target, existing)
            table.check_upsert(existing, target.keys, where=self._location)
            self._refuse_taken(connection, target)
        elif not self.options.create:
            raise DataError(
                f"there is no table {self.options.table}",
                code="SINK_TABLE_MISSING",
                where=self._location,
                hint="create it, or let penstock do it with create=True",
            )

    def open(self, target: ViewTarget) -> int | None:
        self._target = target
        connection, name = self._connected(), self.options.table
        with connection.transaction():
            table.lock_tables(connection)
            existing = table.find_table(connection, name)
            if existing is None:
                table.create_table(connection, name, target.fields, keys=target.keys)
            else:
                missing = self._missing_columns(target, existing)
                table.add_columns(
                    connection, name, [field for field in target.fields if field.name in missing]
                )
            self._refuse_taken(connection, target)
            table.create_mark(connection, query=target.id, name=f"{target.name}{self._suffix}")
            self._take_over(connection, target)
            # A table that was made anew has nothing of what a mark says.
            mark = table.read_mark(connection, target.id, lock=True)
            if existing is None and mark >= 0:
                table.move_mark(connection, target.id, -1)
                mark = -1
        self._make_stage(connection, target)
        self._mark = mark if mark >= 0 else None
        return self._mark

    def replace(self, rows: pa.Table, tick: int) -> None:
        connection = self._connected()
        with connection.transaction():
            self._require_mark(connection)
            self._copy(connection, rows, "i")
            if rows.num_rows >= MANY:
                connection.execute(statement("ANALYZE {}", STAGE))
            self._delete_others(connection)
            self._update(connection, "i", changed_only=True)
            inserted = self._insert(connection, skip_existing=True)
            self._require_all(connection, rows, inserted)
            table.move_mark(connection, self.target.id, tick)
        self._mark = tick

    def apply(self, changes: Sequence[Change]) -> None:
        target, tick = self.target, changes[-1].tick
        change = by_key(summed(changes), target.keys, where=target.name)
        connection = self._connected()
        with connection.transaction():
            self._require_mark(connection)
            self._write(connection, change)
            table.move_mark(connection, target.id, tick)
        self._mark = tick

    def forget(self, target: ViewTarget) -> None:
        connection = self._connected()
        with connection.transaction():
            connection.execute(statement("DELETE FROM {} WHERE query = %s", table.MARKS), (target.id,))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def transient(self, error: Exception) -> str | None:
        return client.transient(error)

    def translate(self, error: Exception) -> PenstockError | None:
        return client.translate(error, where=self.describe())

    # Who may write

    @property
    def _suffix(self) -> str:
        """What ends the names of the marks of this table."""
        return f" in table {self.options.table}"

    def _refuse_taken(self, connection: psycopg.Connection, target: ViewTarget) -> None:
        """ConfigError when the table has rows that are not the view's."""
        if target.overwrite:
            return
        owner = self._other_owner(connection, target)
        if owner is not None:
            raise taken(f"the table {self.options.table}", owner, where=self._location)
        if self._has_mark(connection, target):
            return
        row = connection.execute(statement("SELECT 1 FROM {} LIMIT 1", self.options.table)).fetchone()
        if row is not None:
            raise taken(f"the table {self.options.table}", None, where=self._location)

    def _other_owner(self, connection: psycopg.Connection, target: ViewTarget) -> str | None:
        if table.find_table(connection, table.MARKS) is None:
            return None
        command = statement(
            "SELECT name FROM {} WHERE right(name, %s) = %s AND query <> %s AND epoch >= 0", table.MARKS
        )
        row = connection.execute(command, (len(self._suffix), self._suffix, target.id)).fetchone()
        return None if row is None else str(row[0]).removesuffix(self._suffix)

    def _has_mark(self, connection: psycopg.Connection, target: ViewTarget) -> bool:
        marks = table.find_table(connection, table.MARKS)
        return marks is not None and table.read_mark(connection, target.id) >= 0

    def _take_over(self, connection: psycopg.Connection, target: ViewTarget) -> None:
        """Fence off whoever wrote to the table before."""
        if target.overwrite:
            command = statement("DELETE FROM {} WHERE right(name, %s) = %s AND query <> %s", table.MARKS)
            connection.execute(command, (len(self._suffix), self._suffix, target.id))

    def _require_mark(self, connection: psycopg.Connection) -> None:
        """ConnectorError when another has moved the mark or taken it out."""
        mark = table.read_mark(connection, self.target.id, lock=True)
        if mark != (-1 if self._mark is None else self._mark):
            raise fenced(f"the table {self.options.table}", where=self._location)

    # Rows

    def _write(self, connection: psycopg.Connection, change: KeyChange) -> None:
        self._copy(connection, change.deleted, "d")
        self._copy(connection, change.updated, "u")
        self._copy(connection, change.inserted, "i")
        if change.rows >= MANY:
            connection.execute(statement("ANALYZE {}", STAGE))
        if change.deleted.num_rows:
            deleted = connection.execute(
                statement(
                    "DELETE FROM {} AS t USING {} AS s WHERE s.{} = 'd' AND ", self.options.table, STAGE, OP
                )
                + self._same_key()
            )
            self._require_count(deleted.rowcount, change.deleted, "deletes")
        if change.updated.num_rows:
            self._require_count(self._update(connection, "u"), change.updated, "updates")
        if change.inserted.num_rows:
            inserted = self._insert(connection)
            if inserted != change.inserted.num_rows:
                raise not_unique(self.target.keys, self._existing_key(connection), where=self.target.name)

    def _make_stage(self, connection: psycopg.Connection, target: ViewTarget) -> None:
        connection.execute(statement("DROP TABLE IF EXISTS pg_temp.{}", STAGE))
        connection.execute(
            statement("CREATE TEMP TABLE {} ON COMMIT DELETE ROWS AS SELECT ", STAGE)
            + column_list(target.names)
            + statement(", 'i'::\"char\" AS {} FROM {} WITH NO DATA", OP, self.options.table)
        )

    def _copy(self, connection: psycopg.Connection, rows: pa.Table, operation: str) -> None:
        import pyarrow as pa

        if rows.num_rows:
            encoded = encode_arrow(rows, self.target.fields)
            marked = encoded.append_column(OP, pa.array([operation] * rows.num_rows, pa.string()))
            table.copy_rows(connection, STAGE, marked.column_names, marked.to_batches())

    def _same_key(self) -> sql.Composed:
        from psycopg import sql

        return sql.SQL(" AND ").join(
            statement("t.{} = s.{}", sql.Identifier(key), sql.Identifier(key)) for key in self.target.keys
        )

    def _delete_others(self, connection: psycopg.Connection) -> None:
        connection.execute(
            statement(
                "DELETE FROM {} AS t WHERE NOT EXISTS (SELECT FROM {} AS s WHERE ", self.options.table, STAGE
            )
            + self._same_key()
            + statement(")")
        )

    def _update(self, connection: psycopg.Connection, operation: str, *, changed_only: bool = False) -> int:
        """Update the rows of staged keys; `changed_only` leaves out those that are the same."""
        from psycopg import sql

        values = [sql.Identifier(name) for name in self.target.names if name not in self.target.keys]
        if not values:
            return self._count(connection, operation)
        command = (
            statement("UPDATE {} AS t SET ", self.options.table)
            + sql.SQL(", ").join(statement("{} = s.{}", name, name) for name in values)
            + statement(" FROM {} AS s WHERE s.{} = %s AND ", STAGE, OP)
            + self._same_key()
        )
        if changed_only:
            # As text, because types such as json have no equality.
            rows = [
                sql.SQL("ROW(")
                + sql.SQL(", ").join(sql.SQL(f"{side}.") + name for name in values)
                + sql.SQL(")::text")
                for side in ("t", "s")
            ]
            command += sql.SQL(" AND ") + rows[0] + sql.SQL(" IS DISTINCT FROM ") + rows[1]
        return connection.execute(command, (operation,)).rowcount

    def _insert(self, connection: psycopg.Connection, *, skip_existing: bool = False) -> int:
        names = column_list(self.target.names)
        where = statement(" FROM {} AS s WHERE s.{} = 'i'", STAGE, OP)
        if skip_existing:
            where += (
                statement(" AND NOT EXISTS (SELECT FROM {} AS t WHERE ", self.options.table)
                + self._same_key()
                + statement(")")
            )
        inserted = connection.execute(
            statement("INSERT INTO {} (", self.options.table)
            + names
            + statement(") SELECT ")
            + names
            + where
            + statement(" ON CONFLICT (")
            + column_list(self.target.keys)
            + statement(") DO NOTHING")
        )
        return inserted.rowcount

    def _count(self, connection: psycopg.Connection, operation: str) -> int:
        """How many staged keys of an operation are in the table."""
        row = connection.execute(
            statement("SELECT count(*) FROM {} AS s JOIN {} AS t ON ", STAGE, self.options.table)
            + self._same_key()
            + statement(" WHERE s.{} = %s", OP),
            (operation,),
        ).fetchone()
        assert row is not None
        return int(row[0])

    def _existing_key(self, connection: psycopg.Connection) -> str:
        """A key that was to be inserted and is there already."""
        # Rows of this transaction are there too; those have the xmin of it.
        row = connection.execute(
            statement("SELECT ")
            + column_list(self.target.keys)
            + statement(
                " FROM {} AS s WHERE s.{} = 'i' AND EXISTS (SELECT FROM {} AS t WHERE ",
                STAGE,
                OP,
                self.options.table,
            )
            + self._same_key()
            + statement(" AND t.xmin <> pg_current_xact_id()::xid) LIMIT 1")
        ).fetchone()
        values = row or ("?",) * len(self.target.keys)
        return ", ".join(f"{key}={value!r}" for key, value in zip(self.target.keys, values, strict=True))

    def _require_all(self, connection: psycopg.Connection, rows: pa.Table, inserted: int) -> None:
        there = self._count(connection, "i")
        if there != rows.num_rows or inserted > there:
            raise self._changed_by_others(f"{there} of {rows.num_rows} rows are there")

    def _require_count(self, count: int, rows: pa.Table, what: str) -> None:
        if count != rows.num_rows:
            raise self._changed_by_others(f"a tick {what} {rows.num_rows} rows, of which {count} are there")

    def _changed_by_others(self, why: str) -> PenstockError:
        return DataError(
            f"the table {self.options.table} is not what the view made of it: {why}",
            code="SINK_TABLE_CHANGED",
            where=self._location,
            hint="let nothing else write to it; drop the sink and register it with overwrite=True to bring it in line",
        )

    def _missing_columns(self, target: ViewTarget, existing: table.Table) -> list[str]:
        return check_columns(target.fields, existing.columns, where=self.describe(), adds=self.options.create)

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = client.connect(self.options.url)
        return self._connection
