"""The source `clickhouse`: the rows of a table, read once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from penstock.pipeline.node import SourceNode
from penstock.sources.clickhouse.options import ClickHouseOptions

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sources.clickhouse.source import ClickHouseSource


class ClickHouseNode(ClickHouseOptions, SourceNode):
    """Reads the rows that a ClickHouse table has at the first start, once, then comes to an end; ranges of its
    sorting key are read side by side.

    Rows have no `_op`: all of them are inserts. To go on with rows that come later, make it the history of a `hybrid` source.
    """

    type: Literal["clickhouse"] = Field("clickhouse", description="`clickhouse`")

    @property
    def is_bounded(self) -> bool:
        return True

    @property
    def reads(self) -> Mapping[str, Any]:
        names = ("table", "columns", "filter", "cursor", "start_at", "until", "final")
        database = self.address().database
        return {**super().reads, "database": database, **{name: getattr(self, name) for name in names}}

    def source(self, settings: Settings) -> ClickHouseSource:
        from penstock.sources.clickhouse.source import ClickHouseSource

        return ClickHouseSource(
            {name: getattr(self, name) for name in ClickHouseOptions.model_fields}, settings
        )
