"""The node `lookup`: values by key from another system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from penstock.options import mistake
from penstock.pipeline.node import RowErrors, TransformNode
from penstock.transforms.lookup.options import LookupOptions

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.transforms.base import Transform
    from penstock.transforms.lookup.relation import LookupRelation


class LookupNode(LookupOptions, RowErrors, TransformNode):
    """Looks values up by key in PostgreSQL, an HTTP service or a file: with `from`, it adds them as columns to the
    rows of that node; without `from`, it is a table that `sql` nodes join.

    `_op` passes; an update that is left out becomes a delete. The values are those of the moment of the look-up: rows
    that passed before do not change with them.
    """

    type: Literal["lookup"] = Field("lookup", description="`lookup`")
    from_: str | None = Field(
        None,
        validation_alias="from",
        description="the node whose rows get the columns; without it, the look-up is a table for `sql` nodes",
    )

    @model_validator(mode="after")
    def _is_of_use(self) -> Self:
        if self.from_ is not None and not self.on:
            raise mistake("from needs `on`: the columns by which rows are looked up")
        if self.from_ is None and self.on_error != "fail":
            raise mistake(
                "on_error has no use without `from`: a table has no rows that fail",
                hint="remove on_error, or add `from: NODE`",
            )
        if self.from_ is None and self.backend == "http":
            raise mistake(
                "backend http needs `from`: the rows of a service cannot be listed as those of a table",
                hint="add `from: NODE`, so that it adds its columns to the rows of that node",
            )
        return self

    @property
    def is_table(self) -> bool:
        return self.from_ is None

    def inputs(self, names: Mapping[str, str]) -> tuple[str, ...]:
        return () if self.from_ is None else (self.from_,)

    def transform(self, settings: Settings) -> Transform:
        """Return the transform that this node is; only with `from`."""
        from penstock.transforms.lookup.transform import LookupTransform

        return LookupTransform(self._own(), settings)

    def relation(self, settings: Settings, *, name: str) -> LookupRelation:
        """Return the table that this node is; only without `from`."""
        from penstock.transforms.lookup.relation import LookupRelation

        return LookupRelation(LookupOptions.model_validate(self._own()), settings, name=name)

    def _own(self) -> dict[str, object]:
        """The options of the look-up, by the names under which users write them."""
        fields = self.model_fields_set & set(LookupOptions.model_fields)
        return (
            self.model_dump(include=fields, by_alias=False)
            if "schema_" not in fields
            else {
                **self.model_dump(include=fields - {"schema_"}),
                "schema": self.schema_,
            }
        )
