"""The node `expect`: conditions that rows should meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from penstock.options import mistake
from penstock.pipeline.node import OnError, RowTransformNode
from penstock.transforms.expectation import ExpectOptions

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.transforms.base import Transform


class ExpectNode(ExpectOptions, RowTransformNode):
    """Checks conditions that rows should meet: rows that do not are counted, left out, stored elsewhere, or end the pipeline.

    `_op` passes. A delete passes unchecked, since it may have no values but its key; an update that does not pass
    becomes a delete.
    """

    type: Literal["expect"] = Field("expect", description="`expect`")
    on_error: OnError = Field(
        "dead_letter",
        description="what happens to rows in quarantine: `dead_letter` stores them with the reason, `drop` counts them only",
    )

    @field_validator("on_error")
    @classmethod
    def _is_no_failure(cls, on_error: OnError) -> OnError:
        if on_error == "fail":
            raise mistake(
                "says what happens to rows in quarantine, which do not end the pipeline",
                hint="give the expectation `action: fail`",
            )
        return on_error

    def transform(self, settings: Settings) -> Transform:
        from penstock.transforms.expect import ExpectTransform

        return ExpectTransform(self.model_dump(include=set(ExpectOptions.model_fields)), settings)
