"""`type: print`: rows on standard output."""

from __future__ import annotations

from penstock.config import Settings
from penstock.pipeline.node import SinkNode
from penstock.pipeline.sinks.connector import connector_options
from penstock.sinks.console import ConsoleOptions, ConsoleSink


class PrintNode(ConsoleOptions, SinkNode):
    """Prints rows."""

    def sink(self, settings: Settings) -> ConsoleSink:
        return ConsoleSink(connector_options(self, ConsoleOptions), settings)
