"""Files on a local disk without a process for each.

Where Hadoop's native code is missing, as in PySpark, its local files start `chmod` for every file and folder that is made:
two for each note of a checkpoint, because of its checksum, and dozens for the first batch of a query with state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.boot import janino

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def quicken(spark: SparkSession) -> bool:
    """Let the local files of this JVM set permissions by themselves; False when somebody has chosen other local files."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    return bool(janino.instance(spark, __package__, "LocalFiles").install(conf))
