"""The folder in which Spark keeps how far a query has come."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query that a checkpoint belongs to; a new checkpoint gets one, as Spark would give it."""
    folder = Folder(spark, checkpoint)
    if folder.exists("metadata"):
        known: str = json.loads(folder.read("metadata"))["id"]
        return known
    made = str(uuid.uuid4())
    folder.write("metadata", json.dumps({"id": made}))
    return made


def last_epoch(spark: SparkSession, checkpoint: str) -> int:
    """Return the number of the last batch that Spark has committed, -1 when there is none."""
    names = Folder(spark, checkpoint).names("commits")
    return max((int(name) for name in names if name.isdigit()), default=-1)
