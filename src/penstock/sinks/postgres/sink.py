"""Rows in a PostgreSQL table, in one transaction with the mark of their epoch: exactly once.

The table `penstock_epochs` has a row per query with the last epoch that is stored. A transaction locks that row, ends at once when its
epoch is stored already, copies the rows (streamed, a few partitions at a time), and moves the mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import DataError, PenstockError
from penstock.sinks.base import Epoch, Guarantee, Target, require_key
from penstock.sinks.column import fields_of
from penstock.sinks.epoch_rows import EpochRows
from penstock.sinks.package import require_package
from penstock.sinks.postgres import client, table
from penstock.sinks.postgres.client import column_list, statement
from penstock.sinks.postgres.column import check_columns, column_type, encode
from penstock.sinks.postgres.options import PostgresOptions
from penstock.sinks.server import ServerSink

if TYPE_CHECKING:
    import psycopg

    from penstock.config import Settings

STAGE = "penstock_stage"
ORDER = "penstock_order"


class PostgresSink(ServerSink):
    """Inserts in append mode, upserts by key in update mode, replaces all rows in complete mode."""

    Options = PostgresOptions

    options: PostgresOptions

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
        require_key(target)
        for field in fields_of(target.schema):
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
                table.create_table(connection, name, fields_of(target.schema), keys=keys)
            else:
                missing = self._missing_columns(target, existing)
                table.add_columns(
                    connection, name, [field for field in fields_of(target.schema) if field.name in missing]
                )
            table.create_mark(connection, query=target.query, name=target.name)

    def write(self, epoch: Epoch) -> int | None:
        query = self.target.query
        if self.retry(lambda: table.read_mark(self._connected(), query)) >= epoch.number:
            return 0
        with EpochRows(encode(epoch.frame)) as rows:
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
            fields_of(target.schema), existing.columns, where=self.describe(), adds=self.options.create
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
        if target.mode == "update":
            return self._upsert(connection, target, rows)
        if target.mode == "complete":
            connection.execute(statement("DELETE FROM {}", self.options.table))
        return table.copy_rows(connection, self.options.table, target.schema.names, rows.batches())

    def _upsert(self, connection: psycopg.Connection, target: Target, rows: EpochRows) -> int:
        """Copy into a table of this transaction, then merge; of several rows of one key the last one stays."""
        from psycopg import sql

        names, keys = target.schema.names, column_list(target.keys)
        connection.execute(
            statement("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT ", STAGE)
            + column_list(names)
            + statement(" FROM {} WITH NO DATA", self.options.table)
        )
        connection.execute(
            statement("ALTER TABLE {} ADD COLUMN {} BIGINT GENERATED ALWAYS AS IDENTITY", STAGE, ORDER)
        )
        table.copy_rows(connection, STAGE, names, rows.batches())
        values = [name for name in names if name not in target.keys]
        changes = (
            sql.SQL("UPDATE SET ")
            + sql.SQL(", ").join(
                statement("{} = EXCLUDED.{}", sql.Identifier(name), sql.Identifier(name)) for name in values
            )
            if values
            else sql.SQL("NOTHING")
        )
        merged = connection.execute(
            statement("INSERT INTO {} (", self.options.table)
            + column_list(names)
            + sql.SQL(") SELECT DISTINCT ON (")
            + keys
            + sql.SQL(") ")
            + column_list(names)
            + statement(" FROM {} ORDER BY ", STAGE)
            + keys
            + statement(", {} DESC ON CONFLICT (", ORDER)
            + keys
            + sql.SQL(") DO ")
            + changes
        )
        return merged.rowcount

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = client.connect(self.options.url)
        return self._connection
