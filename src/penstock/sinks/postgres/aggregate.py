"""Rows in a PostgreSQL table by their key, and aggregates of them in another one, in one transaction: exactly once.

The aggregates are kept by the sink, not by a trigger: a delete or an update takes back what the old row of the
landing table gave.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from penstock.errors import ConfigError, DataError
from penstock.sinks.base import Target
from penstock.sinks.postgres import table
from penstock.sinks.postgres.aggregate_options import PostgresAggregateOptions
from penstock.sinks.postgres.aggregation import Aggregation
from penstock.sinks.postgres.client import column_list, statement
from penstock.sinks.postgres.merge import STAGE, merge_stage, stage_rows
from penstock.sinks.postgres.table_sink import PostgresTableSink, fields_of_table

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

NULLS_NOT_DISTINCT = 150000
"""The first version of PostgreSQL whose unique indexes take NULL for a value."""


class PostgresAggregateSink(PostgresTableSink):
    """Upserts and deletes rows by key, and keeps sums, counts, averages and extremes of groups of them."""

    Options = PostgresAggregateOptions
    modes: ClassVar[frozenset[str]] = frozenset({"update"})

    options: PostgresAggregateOptions

    @property
    def kind(self) -> str:
        return "postgres_aggregate"

    @property
    def table_name(self) -> str:
        return self.options.landing_table

    def describe(self) -> str:
        return f"postgres tables {self.options.landing_table} and {self.options.agg_table} in {self.location}"

    def check_query(self, target: Target) -> None:
        super().check_query(target)
        self._aggregation(target)

    def check_server(self, target: Target) -> None:
        super().check_server(target)
        connection = self.connected()
        if connection.info.server_version < NULLS_NOT_DISTINCT:
            raise ConfigError(
                f"aggregates need PostgreSQL 15, and this is {connection.info.server_version // 10_000}",
                code="SINK_REFUSED",
                where=self.location,
                hint="aggregate in a view, and write that with the postgres sink",
            )
        if self._is_made(connection, target) or self.options.create:
            return
        raise DataError(
            f"there is no table {self.options.agg_table}",
            code="SINK_TABLE_MISSING",
            where=self.location,
            hint="let penstock create it: create: true",
        )

    def prepare(self, target: Target) -> None:
        super().prepare(target)
        connection = self.connected()
        with connection.transaction():
            table.lock_tables(connection)
            if not self._is_made(connection, target):
                table.create_schema(connection, self.options.agg_table)
                self._aggregation(target).create(connection)

    def store(self, connection: psycopg.Connection, target: Target, batches: Iterator[pa.RecordBatch]) -> int:
        from psycopg import sql

        aggregation, name = self._aggregation(target), self.options.agg_table
        # Two queries may keep one table of aggregates; what each finds in the landing table must stay until it commits.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (name,))
        stage_rows(connection, self.table_name, target.schema.names, batches, operation=target.operation)
        connection.execute(statement("ANALYZE {}", STAGE))
        keys = column_list(target.keys)
        staged = sql.SQL("(") + keys + sql.SQL(") IN (SELECT ") + keys + statement(" FROM {})", STAGE)
        aggregation.begin(connection)
        aggregation.note(connection, weight=-1, where=staged)
        changed = merge_stage(connection, self.merge_of(target))
        aggregation.note(connection, weight=1, where=staged)
        if not aggregation.apply(connection):
            raise DataError(
                f"the table {name} lacks rows that {self.table_name} had",
                code="SINK_TABLE_CHANGED",
                where=self.describe(),
                hint=f"let nothing else write to it; DROP TABLE {name}, and the next start makes it again from {self.table_name}",
            )
        return changed

    def _aggregation(self, target: Target) -> Aggregation:
        return Aggregation.of(self.options, fields_of_table(target))

    def _is_made(self, connection: psycopg.Connection, target: Target) -> bool:
        """Whether the table of aggregates is there; DataError when it is one of other aggregates."""
        name = self.options.agg_table
        if table.find_table(connection, name) is None:
            return False
        if table.comment_of(connection, name) == self._aggregation(target).definition:
            return True
        raise DataError(
            f"the table {name} is not made of these aggregates",
            code="STREAM_SCHEMA_CHANGED",
            where=self.location,
            hint=f"DROP TABLE {name}, and it is made again from {self.table_name}; or write to another table",
        )
