"""What Spark expects of a query before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def expected_bytes(frame: DataFrame) -> int:
    """The size of a query's result as Catalyst estimates it from the sizes of files and tables; an upper guess."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())
