"""What Spark's status tracker knows about running jobs."""

from __future__ import annotations

from pyspark.sql import SparkSession


def active_jobs(spark: SparkSession, tag: str) -> list[int]:
    """Return the ids of the running jobs of a tag."""
    jobs = spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(tag)
    active = set(spark.sparkContext.statusTracker().getActiveJobsIds())
    return sorted(int(job) for job in jobs if job in active)
