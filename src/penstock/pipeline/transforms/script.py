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
    """Calls `invoke(row)` for each row: null drops it, an object replaces it, an array of objects stands for several."""

    columns: Columns | None = Field(
        None, validation_alias="schema", description=ScriptOptions.model_fields["columns"].description
    )

    def transform(self, settings: Settings) -> ScriptTransform:
        return ScriptTransform(transform_options(self, ScriptOptions), settings)
