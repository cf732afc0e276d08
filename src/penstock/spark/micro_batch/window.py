"""Windows over event time, as columns that Spark groups by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAME = "window"


def fixed(column: str, size_ms: int, slide_ms: int | None = None) -> Column:
    """Windows of one size, one after the other or overlapping."""
    from pyspark.sql import functions

    slide = None if slide_ms is None else f"{slide_ms} milliseconds"
    return functions.window(column, f"{size_ms} milliseconds", slide).alias(NAME)


def session(column: str, gap_ms: int) -> Column:
    """Windows that last until nothing came for as long as the gap."""
    from pyspark.sql import functions

    return functions.session_window(column, f"{gap_ms} milliseconds").alias(NAME)


def bounds(frame: DataFrame) -> DataFrame:
    """Replace the window by its two ends, window_start and window_end, in front of everything else."""
    from pyspark.sql import functions

    window = functions.col(NAME)
    rest = [name for name in frame.columns if name != NAME]
    return frame.select(
        window.getField("start").alias("window_start"),
        window.getField("end").alias("window_end"),
        *[functions.col(f"`{name}`") for name in rest],
    )


def last_end(column: str, size_ms: int, slide_ms: int) -> Column:
    """The end of the last window that a row belongs to."""
    from pyspark.sql import functions

    micros = functions.unix_micros(column)
    start = micros - functions.pmod(micros, functions.lit(slide_ms * 1000))
    return functions.timestamp_micros(start + functions.lit(size_ms * 1000))


def session_end(column: str, gap_ms: int) -> Column:
    """The end of a session that a row begins."""
    from pyspark.sql import functions

    return functions.timestamp_micros(functions.unix_micros(column) + functions.lit(gap_ms * 1000))


def moment(column: str) -> Column:
    """The time of a row itself."""
    from pyspark.sql import functions

    return functions.col(f"`{column}`")
