"""Rows of several sources in one streaming query: each row says which source it is of, and a batch is taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

SOURCE = "_source"
_ROW = "_row_{}"


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all sources as one frame; that of a single source stays as it is."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    if len(frames) == 1:
        return frames[0]

    def tagged(place: int, frame: DataFrame) -> DataFrame:
        names = [f"_c{at}" for at in range(len(frame.columns))]
        row = F.struct(*names) if names else F.struct()
        columns = [
            (row if other == place else F.lit(None).cast(_numbered(frames[other]))).alias(_ROW.format(other))
            for other in range(len(frames))
        ]
        return frame.toDF(*names).select(F.lit(place).alias(SOURCE), *columns)

    return reduce(lambda left, right: left.unionAll(right), map(tagged, range(len(frames)), frames))


def split(batch: DataFrame, columns: Sequence[Sequence[str]]) -> list[DataFrame]:
    """Return the rows of each source of a batch, with the columns that it had."""
    from pyspark.sql import functions as F

    if len(columns) == 1:
        return [batch]
    return [
        batch.where(F.col(SOURCE) == place).select(f"{_ROW.format(place)}.*").toDF(*names)
        for place, names in enumerate(columns)
    ]


def _numbered(frame: DataFrame) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [StructField(f"_c{at}", field.dataType) for at, field in enumerate(frame.schema.fields)]
    )
