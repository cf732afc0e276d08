"""Any source of Spark's that penstock has no class for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from penstock.options import PathText
from penstock.sources.base import Source, SourceContext, SourceFrame
from penstock.sources.spark_options import Schema, SparkOptions

if TYPE_CHECKING:
    from penstock.config import Settings


class FormatOptions(SparkOptions):
    """What every source of Spark's can have."""

    path: PathText | None = Field(None, description="where the rows are, for sources that have a location")
    columns: Schema = Field(
        None, validation_alias="schema", description="the columns, where they are not known"
    )


class SparkSource(Source):
    """A source by its name in Spark."""

    Options = FormatOptions

    options: FormatOptions

    def __init__(self, form: str, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        self._format = form
        super().__init__(options, settings)

    @property
    def kind(self) -> str:
        return self._format

    def read(self, context: SourceContext) -> SourceFrame:
        reader = context.spark.readStream.format(self._format).options(**self.options.spark)
        if self.options.columns is not None:
            reader = reader.schema(self.options.columns)
        path = self.options.path
        return SourceFrame(reader.load() if path is None else reader.load(path))
