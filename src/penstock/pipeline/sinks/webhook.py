"""`type: webhook`: rows as JSON in HTTP requests."""

from __future__ import annotations

from penstock.config import Settings
from penstock.pipeline.node import SinkNode
from penstock.pipeline.sinks.connector import connector_options
from penstock.sinks.webhook import WebhookOptions, WebhookSink


class WebhookNode(WebhookOptions, SinkNode):
    """Posts rows to an address, at least once."""

    def sink(self, settings: Settings) -> WebhookSink:
        return WebhookSink(connector_options(self, WebhookOptions), settings)
