"""Tables of the session that incremental views read as static sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark import errors
from penstock.spark.arrow import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(frame: DataFrame, columns: Sequence[str], *, where: str) -> pa.Table:
    """All rows of a table with these columns; what Spark raises is translated."""
    try:
        names = [f"`{column.replace('`', '``')}`" for column in columns]
        table = to_arrow(frame.select(*names))
    except Exception as error:
        raise errors.located(errors.translate(error), where) from None
    return table


def current_frame(spark: SparkSession, name: str, planned: DataFrame) -> DataFrame:
    """The table that a name stands for now; a file or a DataFrame has no name and stays what it was."""
    try:
        return spark.table(name) if spark.catalog.tableExists(name) else planned
    except Exception as error:
        raise errors.located(errors.translate(error), f"static table '{name}'") from None
