"""The node `postgres`: the rows of a table of PostgreSQL, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from penstock.options import Options
from penstock.pipeline.node import SourceNode
from penstock.sources.postgres.options import PostgresOptions, TableOptions

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sources.postgres.source import PostgresSource


class PostgresNode(PostgresOptions, SourceNode):
    """Reads a PostgreSQL table once, as it was in one moment, then comes to an end; ranges of its key are read side by side.

    Rows have no `_op`: all of them are inserts. To follow the table, take `postgres_cdc`.
    """

    type: Literal["postgres"] = Field("postgres", description="`postgres`")

    @property
    def is_bounded(self) -> bool:
        return True

    @property
    def may_know_its_key(self) -> bool:
        return True

    @property
    def reads(self) -> Mapping[str, Any]:
        return {**super().reads, **table_of(self), "filter": self.filter}

    def source(self, settings: Settings) -> PostgresSource:
        from penstock.sources.postgres.source import PostgresSource

        return PostgresSource(connector_options(self, PostgresOptions), settings)


def table_of(node: TableOptions) -> dict[str, Any]:
    """Return which table is read, and what of it."""
    return {
        "database": node.database,
        "table": node.table,
        "schema": node.namespace,
        "columns": node.columns,
    }


def connector_options(node: SourceNode, model: type[Options]) -> dict[str, Any]:
    """Return what the user wrote of the options of a source, under the names that the source takes."""
    return {
        str(field.validation_alias or name): getattr(node, name)
        for name, field in model.model_fields.items()
        if name in node.model_fields_set
    }
