"""`type: print`: rows on standard output."""

from __future__ import annotations

from pydantic import Field

from penstock.config import Settings
from penstock.options import Count
from penstock.pipeline.node import SinkNode
from penstock.pipeline.sinks.connector import connector_options
from penstock.sinks.console import ConsoleOptions, ConsoleSink


class PrintNode(ConsoleOptions, SinkNode):
    """Prints rows on standard output, to look at them: a table per epoch, or a line of JSON per row.

    `_op` stands before the other columns.
    """

    rows: Count = Field(
        1_000, description="how many rows of an epoch are shown; further ones are counted, not shown"
    )

    def sink(self, settings: Settings) -> ConsoleSink:
        return ConsoleSink(connector_options(self, ConsoleOptions), settings)
