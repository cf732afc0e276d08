"""`type: kafka`: rows as records of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field

from penstock.pipeline.node import SinkNode
from penstock.pipeline.sinks.connector import connector_options
from penstock.sinks.kafka.options import KafkaOptions

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sinks.kafka.sink import KafkaSink


class KafkaNode(KafkaOptions, SinkNode):
    """Sends a record per row, in a transaction per epoch."""

    model_config = ConfigDict(extra="allow")

    exactly_once: bool = Field(
        True,
        description="write in transactions: a reader with `isolation.level=read_committed` has every row once; false: at least once, "
        "and faster for small batches",
    )

    def sink(self, settings: Settings) -> KafkaSink:
        from penstock.sinks.kafka.sink import KafkaSink

        return KafkaSink(connector_options(self, KafkaOptions), settings)
