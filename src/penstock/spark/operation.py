"""Rows with operations through a condition: what becomes of those that it does not let pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.data.operation import DELETE, INSERT, OPERATION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def passing(rows: DataFrame, condition: Column) -> DataFrame:
    """Return the rows for which a condition is true, and deletes of those that may be downstream from before.

    Deletes pass whatever the condition, for they may have no values but their key; an update that does not pass becomes one.
    """
    from pyspark.sql import functions as F  # as PySpark's users have it

    if OPERATION not in rows.columns:
        return rows.where(condition)
    met, operation = F.coalesce(condition, F.lit(False)), F.col(OPERATION)
    return rows.where(met | (operation != INSERT)).withColumn(
        OPERATION, F.when(met, operation).otherwise(DELETE)
    )
