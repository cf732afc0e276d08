"""Rows that Spark makes up, so many per second: a timestamp and a value."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.options import Count
from penstock.sources.base import Source, SourceContext, SourceFrame
from penstock.sources.spark_options import SparkOptions


class RateOptions(SparkOptions):
    """How many rows."""

    rows_per_second: Count = Field(1, description="how many rows are made in a second")


class RateSource(Source):
    """Counts up from 0."""

    Options = RateOptions
    location: ClassVar[str | None] = None

    options: RateOptions

    def read(self, context: SourceContext) -> SourceFrame:
        options = {"rowsPerSecond": self.options.rows_per_second, **self.options.spark}
        return SourceFrame(context.spark.readStream.format("rate").options(**options).load())
