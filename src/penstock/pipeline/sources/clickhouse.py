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
    """The rows that a table has at the first start, in ranges of its sorting key side by side."""

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
