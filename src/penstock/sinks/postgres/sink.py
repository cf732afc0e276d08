"""Rows in a PostgreSQL table, in one transaction with the mark of their epoch: exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.sinks.base import Target
from penstock.sinks.operation import stored_schema
from penstock.sinks.postgres import table
from penstock.sinks.postgres.client import statement
from penstock.sinks.postgres.merge import merge_stage, stage_rows
from penstock.sinks.postgres.options import PostgresTableOptions, UpsertOptions
from penstock.sinks.postgres.table_sink import PostgresTableSink

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa


class PostgresSink(PostgresTableSink):
    """Inserts in append mode, upserts and deletes by key in update mode, replaces all rows in complete mode."""

    Options = PostgresTableOptions

    options: PostgresTableOptions

    @property
    def table_name(self) -> str:
        return self.options.table

    @property
    def upsert(self) -> UpsertOptions:
        return self.options

    def store(self, connection: psycopg.Connection, target: Target, batches: Iterator[pa.RecordBatch]) -> int:
        if target.mode == "update":
            names, operation = target.schema.names, target.operation
            stage_rows(connection, self.table_name, names, batches, operation=operation)
            return merge_stage(connection, self.merge_of(target))
        if target.mode == "complete":
            connection.execute(statement("DELETE FROM {}", self.table_name))
        return table.copy_rows(connection, self.table_name, stored_schema(target).names, batches)
