"""`type: postgres`: rows in a PostgreSQL table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from penstock.pipeline.node import RowErrors
from penstock.pipeline.sinks.connector import TableNode, connector_options
from penstock.sinks.postgres.options import PostgresTableOptions

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sinks.postgres.sink import PostgresSink


class PostgresNode(PostgresTableOptions, RowErrors, TableNode):
    """Keeps a PostgreSQL table right: rows replace each other by their key and are deleted, or are only added
    (`output_mode: append`).

    `_op` is applied and not stored: `d` deletes the row with the key. With `append`, an update or a delete is refused.
    """

    schema_: str | None = Field(
        None,
        validation_alias="schema",
        description="the schema of the table, where `table` does not say it; it is created when it is missing",
    )

    def sink(self, settings: Settings) -> PostgresSink:
        from penstock.sinks.postgres.sink import PostgresSink

        options = connector_options(self, PostgresTableOptions)
        if self.schema_ is not None and "." not in self.table:
            options["table"] = f"{self.schema_}.{self.table}"
        return PostgresSink(options, settings)
