"""`type: script`: each row through a function in JavaScript or TypeScript."""

from __future__ import annotations

from pydantic import Field

from penstock.config import Settings
from penstock.pipeline.columns import Columns
from penstock.pipeline.node import RowTransformNode
from penstock.pipeline.transforms.options import transform_options
from penstock.transforms.script.options import ScriptOptions
from penstock.transforms.script.transform import ScriptTransform


class ScriptNode(ScriptOptions, RowTransformNode):
    """Calls a function in JavaScript or TypeScript for each row, where SQL would be awkward: `invoke(row)` returns
    null to drop the row, an object to replace it, or an array of objects for several.

    `_op` is a field like others; an object without it has that of the row it was made of. An update that the script
    drops becomes a delete.
    """

    columns: Columns | None = Field(
        None, validation_alias="schema", description=ScriptOptions.model_fields["columns"].description
    )

    def transform(self, settings: Settings) -> ScriptTransform:
        return ScriptTransform(transform_options(self, ScriptOptions), settings)
