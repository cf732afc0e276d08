"""`type: webhook`: rows as JSON in HTTP requests."""

from __future__ import annotations

from penstock.config import Settings
from penstock.pipeline.node import RowErrors, SinkNode
from penstock.pipeline.sinks.connector import connector_options
from penstock.sinks.webhook import WebhookOptions, WebhookSink


class WebhookNode(WebhookOptions, RowErrors, SinkNode):
    """Posts rows as JSON to an address.

    `_op` is a field. Requests have an `Idempotency-Key`, which is the same when an epoch comes again, so that the
    receiver can tell.
    """

    def sink(self, settings: Settings) -> WebhookSink:
        return WebhookSink(connector_options(self, WebhookOptions), settings)
