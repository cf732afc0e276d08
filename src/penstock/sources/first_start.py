"""What a source of files fixes at its first start, and keeps in the state of the query."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.sources.base import SourceContext

COLUMNS, STARTED_AT = "columns", "started_at_ms"


def columns(context: SourceContext, declared: Any, infer: Callable[[], StructType]) -> Any:
    """Return the columns that the user declared, or else those that were inferred at the first start."""
    if declared is not None or context.state is None:
        return declared
    from pyspark.sql.types import StructType

    noted = context.state.get(COLUMNS)
    if noted is None:
        noted = infer().jsonValue()
        context.state.put(COLUMNS, noted)
    return StructType.fromJson(noted)


def only_earlier(context: SourceContext, files: DataFrame) -> DataFrame:
    """Return files without those that were written after the first start of a query that goes on when they are read."""
    from pyspark.sql import functions as F

    if not context.goes_on or context.state is None:
        return files
    started_at = context.state.get(STARTED_AT)
    if started_at is None:
        started_at = time.time_ns() // 1_000_000
        context.state.put(STARTED_AT, started_at)
    return files.where(F.col("_metadata.file_modification_time") <= F.timestamp_millis(F.lit(started_at)))
