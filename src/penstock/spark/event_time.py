"""When the rows of a frame happened, by one of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

Unit = Literal["timestamp", "s", "ms", "us", "ns"]

_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def is_event_time(kind: DataType, unit: Unit) -> bool:
    """Whether values of a type are times in that unit."""
    from pyspark.sql.types import DateType, NumericType, TimestampNTZType, TimestampType

    if unit == "timestamp":
        return isinstance(kind, TimestampType | TimestampNTZType | DateType)
    return isinstance(kind, NumericType)


def latest(column: Column, unit: Unit) -> Column:
    """The aggregate that gives the time of the newest row, in seconds since 1970; NULL without rows."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    if unit == "timestamp":
        return F.max(F.unix_micros(column.cast("timestamp"))) / 1e6
    return F.max(column).cast("double") / _PER_SECOND[unit]
