"""Start and stop the PySpark session of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start(settings: Settings, *, app_name: str = "penstock") -> SparkSession:
    """Return a running PySpark session with penstock's defaults and the user's settings on top."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name).master(settings.master or "local[*]")
    for key, value in settings.conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def stop(spark: SparkSession) -> None:
    """Stop the session and the JVM that `start` launched for it."""
    spark.stop()
