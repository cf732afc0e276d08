"""The last row of each key of an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.sinks.column import column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def last_of_each_key(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Of several rows of one key, the one that comes last in the frame; NULL is a key like others."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    row, position = "penstock_row", "penstock_position"
    return (
        frame.withColumn(position, F.monotonically_increasing_id())
        .groupBy(*[column(key) for key in keys])
        .agg(F.max_by(F.struct(*[column(name) for name in frame.columns]), position).alias(row))
        .select(f"{row}.*")
    )
