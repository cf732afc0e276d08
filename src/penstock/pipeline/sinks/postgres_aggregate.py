"""`type: postgres_aggregate`: rows in one PostgreSQL table, and aggregates of them in another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from penstock.pipeline.node import RowErrors, SinkNode
from penstock.pipeline.sinks.connector import connector_options
from penstock.sinks.postgres.aggregate_options import PostgresAggregateOptions

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sinks.postgres.aggregate import PostgresAggregateSink


class PostgresAggregateNode(PostgresAggregateOptions, RowErrors, SinkNode):
    """Keeps rows by their key in one PostgreSQL table, and sums, counts, averages, least and greatest values of
    groups of them in another.

    `_op` is applied and not stored: an update or a delete is taken back from the aggregates.
    """

    schema_: str | None = Field(
        None,
        validation_alias="schema",
        description="the schema of both tables, where their names do not say it; it is created when it is missing",
    )

    @property
    def is_keyed(self) -> bool:
        return True

    def sink(self, settings: Settings) -> PostgresAggregateSink:
        from penstock.sinks.postgres.aggregate import PostgresAggregateSink

        options = connector_options(self, PostgresAggregateOptions)
        if self.schema_ is not None:
            tables = ("landing_table", "agg_table")
            options |= {
                name: f"{self.schema_}.{options[name]}" for name in tables if "." not in options[name]
            }
        return PostgresAggregateSink(options, settings)
