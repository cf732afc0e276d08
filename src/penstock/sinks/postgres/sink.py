"""Rows in a PostgreSQL table, in one transaction with the mark of their epoch: exactly once.

The table `penstock_epochs` has a row per query with the last epoch that is stored. A transaction locks that row, ends at once when its
epoch is stored already, copies the rows (streamed, a few partitions at a time), and moves the mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import DataError, PenstockError
from penstock.plan.node import Field
from penstock.sinks.base import Epoch, Guarantee, Target
from penstock.sinks.column import fields_of
from penstock.sinks.epoch_rows import EpochRows
from penstock.sinks.operation import inserts_alone, inserts_of, require_rows_by_key, stored_schema
from penstock.sinks.package import require_package
from penstock.sinks.postgres import client, table
from penstock.sinks.postgres.client import statement
from penstock.sinks.postgres.column import check_columns, column_type, encode
from penstock.sinks.postgres.merge import Merge, merge_stage, stage_rows
from penstock.sinks.postgres.options import PostgresTableOptions
from penstock.sinks.server import ServerSink

if TYPE_CHECKING:
    import psycopg

    from penstock.config import Settings


class PostgresSink(ServerSink):
    """Inserts in append mode, upserts and deletes by key in update mode, replaces all rows in complete mode."""

    Options = PostgresTableOptions
    takes_operations: ClassVar[bool] = True

    options: PostgresTableOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        require_package("psycopg", extra="postgres")
        super().__init__(options, settings)
        self._location = client.location(self.options.url)
        self._connection: psycopg.Connection | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def describe(self) -> str:
        return f"postgres table {self.options.table} in {self._location}"

    def check_query(self, target: Target) -> None:
        require_rows_by_key(target)
        for field in _fields(target):
            column_type(field)

    def check_server(self, target: Target) -> None:
        existing = table.find_table(self._connected(), self.options.table)
        if existing is not None:
            self._missing_columns(target, existing)
            if target.mode == "update":
                table.check_upsert(existing, target.keys, where=self._location)
        elif not self.options.create:
            raise DataError(
                f"there is no table {self.options.table}",
                code="SINK_TABLE_MISSING",
                where=self._location,
                hint='create it, or let penstock do it with .option("create", True)',
            )

    def prepare(self, target: Target) -> None:
        connection, name = self._connected(), self.options.table
        with connection.transaction():
            table.lock_tables(connection)
            existing = table.find_table(connection, name)
            if existing is None:
                keys = target.keys if target.mode == "update" else ()
                table.create_schema(connection, name)
                table.create_table(connection, name, _fields(target), keys=keys)
            else:
                missing = self._missing_columns(target, existing)
                table.add_columns(
                    connection, name, [field for field in _fields(target) if field.name in missing]
                )
            self._try_merge(connection, target)
            table.create_mark(connection, query=target.query, name=target.name)

    def write(self, epoch: Epoch) -> int | None:
        query = self.target.query
        if self.retry(lambda: table.read_mark(self._connected(), query)) >= epoch.number:
            return 0
        frame, target = epoch.frame, self.target
        if target.mode != "update":
            frame = inserts_of(frame, target.operation)
        with inserts_alone(self.describe()), EpochRows(encode(frame)) as rows:
            return self.retry(lambda: self._store(epoch.number, rows))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def transient(self, error: Exception) -> str | None:
        return client.transient(error)

    def translate(self, error: Exception) -> PenstockError | None:
        return client.translate(error, where=self.describe())

    def _missing_columns(self, target: Target, existing: table.Table) -> list[str]:
        return check_columns(
            _fields(target), existing.columns, where=self.describe(), adds=self.options.create
        )

    def _store(self, number: int, rows: EpochRows) -> int:
        connection, target = self._connected(), self.target
        with connection.transaction():
            if table.read_mark(connection, target.query, lock=True) >= number:
                return 0
            count = self._write_rows(connection, target, rows)
            table.move_mark(connection, target.query, number)
        return count

    def _write_rows(self, connection: psycopg.Connection, target: Target, rows: EpochRows) -> int:
        name = self.options.table
        if target.mode == "update":
            columns, operation = target.schema.names, target.operation
            stage_rows(connection, name, columns, rows.batches(), operation=operation)
            return merge_stage(connection, self._merge(target))
        if target.mode == "complete":
            connection.execute(statement("DELETE FROM {}", name))
        return table.copy_rows(connection, name, stored_schema(target).names, rows.batches())

    def _merge(self, target: Target) -> Merge:
        return Merge(self.options.table, tuple(stored_schema(target).names), target.keys, self.options)

    def _try_merge(self, connection: psycopg.Connection, target: Target) -> None:
        """Let the server refuse a condition of the user's now, and not with the first rows."""
        if target.mode == "update" and self.options.update_where is not None:
            rows = statement("{} AS rows", self.options.table)
            from psycopg import sql

            connection.execute(sql.SQL("EXPLAIN ") + self._merge(target).upsert(rows))

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = client.connect(self.options.url)
        return self._connection


def _fields(target: Target) -> tuple[Field, ...]:
    """The columns of the table."""
    return fields_of(stored_schema(target))
