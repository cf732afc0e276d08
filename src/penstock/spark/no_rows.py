"""DataFrames with columns and without rows.

`createDataFrame([], schema)` of PySpark is the same after half a second: it imports pandas to find out that a list is
none, and has an RDD made of nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.boot import janino

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def no_rows(spark: SparkSession, schema: StructType, *, streams: bool = False) -> DataFrame:
    """Return a DataFrame with these columns and without rows; one that streams is for plans, and cannot be run."""
    from pyspark.sql import DataFrame

    session = spark._jsparkSession
    java = janino.instance(spark, __package__, "NoRows")
    return DataFrame(java.relation(session, session.parseDataType(schema.json()), streams), spark)
