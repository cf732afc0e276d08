"""Tables as streams: the rows that are there, then those that are appended."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.sources.base import Context, Source, SourceFrame
from penstock.sources.spark_options import SparkOptions


class TableOptions(SparkOptions):
    """Which table."""

    table: str = Field(description="the name of the table, `catalog.schema.table`")


class TableSource(Source):
    """A table that Spark can read as a stream."""

    Options = TableOptions
    location: ClassVar[str | None] = "table"

    options: TableOptions

    def read(self, context: Context) -> SourceFrame:
        reader = context.spark.readStream.options(**self.options.spark)
        return SourceFrame(reader.table(self.options.table))


class IcebergSource(Source):
    """An Iceberg table, by its name or its path."""

    Options = TableOptions
    location: ClassVar[str | None] = "table"

    options: TableOptions

    def read(self, context: Context) -> SourceFrame:
        reader = context.spark.readStream.format("iceberg").options(**self.options.spark)
        return SourceFrame(reader.load(self.options.table))
