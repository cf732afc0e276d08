"""`type: clickhouse`: rows in a ClickHouse table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.node import RowErrors
from penstock.pipeline.sinks.connector import TableNode, connector_options
from penstock.sinks.clickhouse.options import ClickHouseTableOptions

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sinks.clickhouse.sink import ClickHouseSink


class ClickHouseNode(ClickHouseTableOptions, RowErrors, TableNode):
    """Inserts rows into a ClickHouse table, as newer versions of rows with the same key, or as rows that are only
    added (`output_mode: append`).

    `_op` is applied: a delete is a row whose column `_deleted` is 1, or a `DELETE` (`append_only_mode: false`). Read
    the table with `FINAL`, which shows the last version of each key and no deleted row. With `append`, an update or a
    delete is refused.
    """

    def sink(self, settings: Settings) -> ClickHouseSink:
        from penstock.sinks.clickhouse.sink import ClickHouseSink

        return ClickHouseSink(connector_options(self, ClickHouseTableOptions), settings)
