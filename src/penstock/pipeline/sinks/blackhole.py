"""`type: blackhole`: rows that are computed and then forgotten."""

from __future__ import annotations

from penstock.config import Settings
from penstock.pipeline.node import SinkNode
from penstock.sinks.blackhole import BlackholeSink


class BlackholeNode(SinkNode):
    """Computes every row and stores none, to measure the rest of a pipeline, or to run it dry."""

    def sink(self, settings: Settings) -> BlackholeSink:
        return BlackholeSink({}, settings)
