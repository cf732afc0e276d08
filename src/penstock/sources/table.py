"""Tables as streams: the rows that are there, then those that are appended."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.errors import ConfigError
from penstock.sources.base import Source, SourceContext, SourceFrame
from penstock.sources.spark_options import SparkOptions


class CatalogTableOptions(SparkOptions):
    """Which table."""

    table: str = Field(description="the name of the table, `catalog.schema.table`")


class TableSource(Source):
    """A table that Spark can read as a stream."""

    Options = CatalogTableOptions
    location: ClassVar[str | None] = "table"

    options: CatalogTableOptions

    def read(self, context: SourceContext) -> SourceFrame:
        reader = context.spark.readStream.options(**self.options.spark)
        return SourceFrame(reader.table(self.options.table))


class IcebergOptions(CatalogTableOptions):
    """Which table, and for how long."""

    ends: bool = Field(
        False,
        description="the rows that are there are all that are wanted; a query that goes on refuses such a source",
    )


class IcebergSource(Source):
    """An Iceberg table, by its name or its path."""

    Options = IcebergOptions
    location: ClassVar[str | None] = "table"

    options: IcebergOptions

    def read(self, context: SourceContext) -> SourceFrame:
        if self.options.ends and context.goes_on:
            raise ConfigError(
                f"the source {self.options.table} is to end, and sources beside it do not",
                code="SOURCE_ENDS",
                hint="Iceberg's stream has no end in a query that goes on: say mode: continuous",
            )
        reader = context.spark.readStream.format("iceberg").options(**self.options.spark)
        return SourceFrame(reader.load(self.options.table))
