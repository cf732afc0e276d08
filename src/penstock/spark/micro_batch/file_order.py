"""The order of rows that come from several files in one batch: that in which the files were written.

Spark reads the largest file first. Sinks and views that keep the last row of a key, and whatever takes rows as they
come, would keep those of a small old file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.boot import janino

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FileOrder:
    """Puts the files of the batches of one query in order."""

    def __init__(self, spark: SparkSession) -> None:
        self._java = janino.instance(spark, __package__, "FileOrder")

    def arrange(self, batch: DataFrame) -> None:
        """Let the files of a micro-batch come by their time of modification, then by path and position; none of it
        may have run."""
        self._java.arrange(batch._jdf.queryExecution().analyzed())
