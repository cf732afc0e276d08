"""`type: memory`: the newest rows, in the process of the pipeline."""

from __future__ import annotations

from penstock.config import Settings
from penstock.pipeline.node import SinkNode
from penstock.pipeline.sinks.connector import connector_options
from penstock.sinks.memory import MemoryOptions, MemorySink


class MemoryNode(MemoryOptions, SinkNode):
    """Keeps the newest rows in the process of the pipeline, for programs and tests.

    `_op` is a column.
    """

    def sink(self, settings: Settings) -> MemorySink:
        return MemorySink(connector_options(self, MemoryOptions), settings)
