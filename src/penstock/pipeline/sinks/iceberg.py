"""`type: iceberg`: rows in an Iceberg table."""

from __future__ import annotations

from penstock.config import Settings
from penstock.pipeline.sinks.connector import TableNode, connector_options
from penstock.sinks.iceberg import IcebergOptions, IcebergSink


class IcebergNode(IcebergOptions, TableNode):
    """Merges rows into a table by the key, or appends them, exactly once."""

    def sink(self, settings: Settings) -> IcebergSink:
        return IcebergSink(connector_options(self, IcebergOptions), settings)
