"""`type: iceberg`: rows in an Iceberg table."""

from __future__ import annotations

from penstock.config import Settings
from penstock.pipeline.sinks.connector import TableNode, connector_options
from penstock.sinks.iceberg import IcebergOptions, IcebergSink


class IcebergNode(IcebergOptions, TableNode):
    """Merges rows into a lake table by their key, or adds them (`output_mode: append`).

    `_op` is applied and not stored: `d` deletes the row with the key. With `append`, an update or a delete is refused.
    """

    def sink(self, settings: Settings) -> IcebergSink:
        return IcebergSink(connector_options(self, IcebergOptions), settings)
