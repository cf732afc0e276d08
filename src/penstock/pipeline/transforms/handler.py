"""`type: handler`: rows through an HTTP service."""

from __future__ import annotations

from penstock.config import Settings
from penstock.pipeline.node import RowTransformNode
from penstock.pipeline.transforms.options import transform_options
from penstock.transforms.handler.options import HandlerOptions
from penstock.transforms.handler.transform import HandlerTransform


class HandlerNode(HandlerOptions, RowTransformNode):
    """Posts rows to a service, and goes on with the rows that it answers."""

    def transform(self, settings: Settings) -> HandlerTransform:
        return HandlerTransform(transform_options(self, HandlerOptions), settings)
