"""`type: clickhouse`: rows in a ClickHouse table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.sinks.connector import TableNode, connector_options
from penstock.sinks.clickhouse.options import ClickHouseTableOptions

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sinks.clickhouse.sink import ClickHouseSink


class ClickHouseNode(ClickHouseTableOptions, TableNode):
    """Inserts newer versions of rows, of which the last per key is read with `FINAL`."""

    def sink(self, settings: Settings) -> ClickHouseSink:
        from penstock.sinks.clickhouse.sink import ClickHouseSink

        return ClickHouseSink(connector_options(self, ClickHouseTableOptions), settings)
