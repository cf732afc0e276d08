"""Values as texts for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.boot import janino

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def texts(frame: DataFrame) -> DataFrame:
    """Return a DataFrame with every value as the text that `show` has for it."""
    from pyspark.sql import DataFrame

    spark = frame.sparkSession
    java = janino.instance(spark, __package__, "Pretty")
    return DataFrame(java.texts(spark._jsparkSession, frame._jdf.queryExecution().analyzed()), spark)
