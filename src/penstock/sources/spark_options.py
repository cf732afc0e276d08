"""Options that all sources share: columns, and names that go to Spark as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from penstock.options import Options, Others, PathText, mistake

if TYPE_CHECKING:
    from typing import Self

Schema = Annotated[
    Any,
    WithJsonSchema({"type": ["string", "object"], "examples": ["id BIGINT, amount DECIMAL(10,2)"]}),
]
"""Columns: a DDL string, a `pyarrow.Schema` or a PySpark StructType."""
FilePath = Annotated[
    PathText,
    Field(description="a folder, a pattern or one file, local or in an object store (`s3://...`)"),
]
FileColumns = Annotated[
    Schema,
    Field(
        validation_alias="schema",
        description="the columns; default: the source infers them once from the files that are there",
    ),
]


class SparkOptions(Options):
    """Options of a source that hands all others on to Spark."""

    model_config = ConfigDict(extra="allow")
    other_options: ClassVar[Others | None] = Others("", "options of Spark's source of this format")
    foreign: ClassVar[Mapping[str, str]] = {}
    """Options of other sources of penstock, which Spark would ignore, with what the source says instead."""

    @model_validator(mode="after")
    def _refuse_foreign(self) -> Self:
        for name in self.model_extra or {}:
            if name in self.foreign:
                raise mistake(f"{name} {self.foreign[name]}", hint="leave it out")
        return self

    @property
    def spark(self) -> dict[str, Any]:
        """The options that go to Spark as they are."""
        return dict(self.model_extra or {})

    def spark_option(self, name: str) -> Any:
        """Return an option of Spark's, whose names ignore case; None when the user has not set it."""
        return next((value for key, value in self.spark.items() if key.lower() == name), None)
