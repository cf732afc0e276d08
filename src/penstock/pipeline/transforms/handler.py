"""`type: handler`: rows through an HTTP service."""

from __future__ import annotations

from pydantic import Field

from penstock.config import Settings
from penstock.pipeline.columns import Columns
from penstock.pipeline.node import RowTransformNode
from penstock.pipeline.transforms.options import transform_options
from penstock.transforms.handler.options import HandlerOptions
from penstock.transforms.handler.transform import HandlerTransform


class HandlerNode(HandlerOptions, RowTransformNode):
    """Posts rows to an HTTP service, and goes on with the rows that it answers.

    `_op` is sent with each row; an answer without it has that of the row it answers. An update that the service drops
    becomes a delete. An epoch that comes again asks the service again.
    """

    columns: Columns | None = Field(
        None, validation_alias="schema", description=HandlerOptions.model_fields["columns"].description
    )
    schema_override: Columns | None = Field(
        None, description=HandlerOptions.model_fields["schema_override"].description
    )

    def transform(self, settings: Settings) -> HandlerTransform:
        return HandlerTransform(transform_options(self, HandlerOptions), settings)
