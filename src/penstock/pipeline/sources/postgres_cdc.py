"""The node `postgres_cdc`: the rows of a table of PostgreSQL, and then every change of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from penstock.pipeline.node import SourceNode
from penstock.pipeline.sources.postgres import connector_options, table_of
from penstock.sources.postgres.options import PostgresCdcOptions

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sources.postgres.cdc_source import PostgresCdcSource


class PostgresCdcNode(PostgresCdcOptions, SourceNode):
    """Follows a PostgreSQL table: first its rows, then every insert, update and delete, by logical replication.

    `_op` is `i`, `u` or `d`; the rows of the snapshot are inserts. The server must write its log for that (`wal_level
    = logical`).
    """

    stored_fields = frozenset({"primary_key", "slot", "publication"})

    type: Literal["postgres_cdc"] = Field("postgres_cdc", description="`postgres_cdc`")

    @property
    def may_know_its_key(self) -> bool:
        return True

    @property
    def reads(self) -> Mapping[str, Any]:
        return {**super().reads, **table_of(self), "slot": self.slot}

    def source(self, settings: Settings) -> PostgresCdcSource:
        from penstock.sources.postgres.cdc_source import PostgresCdcSource

        return PostgresCdcSource(connector_options(self, PostgresCdcOptions), settings)
