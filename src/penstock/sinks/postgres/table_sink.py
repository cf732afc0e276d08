"""What the sinks of PostgreSQL have in common: rows in a table, in one transaction with the mark of their epoch.

The table `penstock_epochs` has a row per query with the last epoch that is stored. A transaction locks that row, ends
at once when its epoch is stored already, copies the rows (streamed, a few partitions at a time), and moves the mark.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import DataError, PenstockError
from penstock.plan.node import Field
from penstock.sinks.base import Epoch, Guarantee, Target
from penstock.sinks.column import fields_of
from penstock.sinks.epoch_rows import EpochRows
from penstock.sinks.errors import ROW_REFUSED
from penstock.sinks.failed_row import INPUT, input_of
from penstock.sinks.last_by_key import last_of_each_key
from penstock.sinks.operation import inserts_alone, inserts_of, require_rows_by_key, stored_schema
from penstock.sinks.postgres import client, table
from penstock.sinks.postgres.client import statement
from penstock.sinks.postgres.column import check_columns, column_type, encode
from penstock.sinks.postgres.merge import TableMerge
from penstock.sinks.postgres.options import PostgresServerOptions, UpsertOptions
from penstock.sinks.require import require_package
from penstock.sinks.server import ServerSink

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.config import Settings
    from penstock.sinks.refused import RefusedRows


class PostgresTableSink(ServerSink):
    """A sink whose rows go into one table, and perhaps from there into others."""

    Options: ClassVar[type[PostgresServerOptions]] = PostgresServerOptions
    takes_operations: ClassVar[bool] = True

    options: PostgresServerOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        require_package("psycopg", extra="postgres")
        super().__init__(options, settings)
        self.location = client.location(self.options.url)
        self._connection: psycopg.Connection | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    @property
    @abstractmethod
    def table_name(self) -> str:
        """The table of the rows."""

    @property
    def upsert(self) -> UpsertOptions:
        """What happens to a row whose key is there."""
        return UpsertOptions.model_validate({})

    @abstractmethod
    def store(self, connection: psycopg.Connection, target: Target, batches: Iterator[pa.RecordBatch]) -> int:
        """Called in the transaction of an epoch: store its rows, and return how many have changed."""

    def describe(self) -> str:
        return f"postgres table {self.table_name} in {self.location}"

    def check_query(self, target: Target) -> None:
        require_rows_by_key(target)
        for field in fields_of_table(target):
            column_type(field)

    def check_server(self, target: Target) -> None:
        existing = table.find_table(self.connected(), self.table_name)
        if existing is not None:
            self._missing_columns(target, existing)
            if target.mode == "update":
                table.check_upsert(existing, target.keys, where=self.location)
        else:
            self._refuse_missing()

    def check_reachable(self, target: Target) -> None:
        if table.find_table(self.connected(), self.table_name) is None:
            self._refuse_missing()

    def prepare(self, target: Target) -> None:
        connection, name = self.connected(), self.table_name
        with connection.transaction():
            table.lock_tables(connection)
            existing = table.find_table(connection, name)
            if existing is None:
                keys = target.keys if target.mode == "update" else ()
                table.create_schema(connection, name)
                table.create_table(connection, name, fields_of_table(target), keys=keys)
            else:
                missing = self._missing_columns(target, existing)
                table.add_columns(
                    connection, name, [field for field in fields_of_table(target) if field.name in missing]
                )
            self._try_merge(connection, target)
            table.create_mark(connection, query=target.query, name=target.name)

    def write(self, epoch: Epoch) -> int | None:
        query = self.target.query
        if self.retry(lambda: table.read_mark(self.connected(), query)) >= epoch.number:
            return 0
        frame, target = epoch.frame, self.target
        if target.mode != "update":
            frame = inserts_of(frame, target.operation)
        with inserts_alone(self.describe()):
            try:
                with EpochRows(encode(frame)) as rows:
                    return self.retry(lambda: self._store(epoch.number, rows))
            except DataError as error:
                if error.code != ROW_REFUSED or target.refused is None:
                    raise
            with_inputs = self._with_inputs(epoch.frame)
            with EpochRows(encode(with_inputs)) as rows:
                return self.retry(lambda: self._store_parts(epoch.number, rows))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def transient(self, error: Exception) -> str | None:
        return client.transient(error)

    def translate(self, error: Exception) -> PenstockError | None:
        return client.translate(error, where=self.describe())

    def _refuse_missing(self) -> None:
        if not self.options.create:
            raise DataError(
                f"there is no table {self.table_name}",
                code="SINK_TABLE_MISSING",
                where=self.location,
                hint='create it, or let penstock do it with .option("create", True)',
            )

    def _missing_columns(self, target: Target, existing: table.Table) -> list[str]:
        return check_columns(
            fields_of_table(target), existing.columns, where=self.describe(), adds=self.options.create
        )

    def _store(self, number: int, rows: EpochRows) -> int:
        connection, target = self.connected(), self.target
        with connection.transaction():
            if table.read_mark(connection, target.query, lock=True) >= number:
                return 0
            count = self.store(connection, target, rows.batches())
            table.move_mark(connection, target.query, number)
        return count

    def _with_inputs(self, frame: DataFrame) -> DataFrame:
        """The rows that count, each with what a dead letter has of it; of a key of which only the last row is
        written, only that."""
        target = self.target
        named = frame.withColumn(INPUT, input_of(frame.columns))
        if target.mode != "update":
            return inserts_of(named, target.operation)
        last = self.upsert.takes_last and self.upsert.on_conflict != "nothing"
        return last_of_each_key(named, target.keys) if last else named

    def _store_parts(self, number: int, rows: EpochRows) -> int:
        """Store the rows of an epoch that the server takes, in one transaction with its mark, and note the others
        before it commits."""
        connection, target = self.connected(), self.target
        refused = target.refused
        assert refused is not None
        with connection.transaction():
            if table.read_mark(connection, target.query, lock=True) >= number:
                return 0
            refused.restart()
            # What would be refused at the commit is refused with its rows.
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            count = sum(self._store_part(connection, target, refused, batch) for batch in rows.batches())
            table.move_mark(connection, target.query, number)
            refused.keep()
        return count

    def _store_part(
        self, connection: psycopg.Connection, target: Target, refused: RefusedRows, batch: pa.RecordBatch
    ) -> int:
        """Store the rows of a batch, in their order: all at once, and in ever smaller parts where the server refuses one."""
        import psycopg

        inputs = batch.column(INPUT)
        encoded = batch.drop_columns([INPUT])
        count, parts = 0, [(0, batch.num_rows)]
        while parts:
            begin, end = parts.pop()
            rows = encoded.slice(begin, end - begin)
            try:
                with connection.transaction():
                    count += self.store(connection, target, iter([rows]))
                    connection.execute("DISCARD TEMP")
            except psycopg.Error as error:
                if not client.is_of_row(error):
                    raise
                if end - begin == 1:
                    refused.add(f"PostgreSQL refuses a row: {client.said(error)}", inputs[begin].as_py())
                    continue
                cuts = client.cuts(error, end - begin)
                bounds = [begin, *(begin + cut for cut in cuts), end]
                parts += reversed(list(pairwise(bounds)))
        return count

    def merge_of(self, target: Target) -> TableMerge:
        """How the rows of a query get into the table in update mode."""
        return TableMerge(self.table_name, tuple(stored_schema(target).names), target.keys, self.upsert)

    def _try_merge(self, connection: psycopg.Connection, target: Target) -> None:
        """Let the server refuse a condition of the user's now, and not with the first rows."""
        if target.mode == "update" and self.upsert.update_where is not None:
            from psycopg import sql

            rows = statement("{} AS rows", self.table_name)
            connection.execute(sql.SQL("EXPLAIN ") + self.merge_of(target).upsert(rows))

    def connected(self) -> psycopg.Connection:
        """The connection, which is opened when it is needed."""
        if self._connection is None or self._connection.closed:
            self._connection = client.connect(self.options.url)
        return self._connection


def fields_of_table(target: Target) -> tuple[Field, ...]:
    """The columns of the table."""
    return fields_of(stored_schema(target))
