"""Rows for which a query fails, separated from the others before it sees them: columns that say why, beside the rows
as they came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.data.operation import DELETE, INSERT, OPERATION
from penstock.sinks.column import column
from penstock.spark.micro_batch.failing_rows import NUMBER, REASON, failing
from penstock.transforms.base import ERROR, INPUT
from penstock.transforms.failure import good_columns, input_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GONE = "penstock_gone"
"""Whether nothing stays of a row that failed, not even the delete of its key."""


def failed_rows(numbered: DataFrame, query: DataFrame, *, keys: Sequence[str]) -> DataFrame | None:
    """Return rows with `_error` and `_input`, which those have for which a query over a leaf fails; None when it fails for none.

    The rows have their numbers in their last column, which is gone behind this. One that is updated or deleted stays
    as the delete of its key, for what it was before is gone downstream; unless the query fails for that, too.
    """
    from pyspark.sql import functions as F  # as PySpark's users have it

    failures = failing(numbered, query)
    if failures is None:
        return None
    names = [name for name in numbered.columns if name != NUMBER]
    failed = F.col(REASON).isNotNull()
    marked = _beside(numbered, failures).withColumn(INPUT, F.when(failed, input_of(names)))
    if OPERATION in names:
        gone = failing(_deletes(marked, names, keys), query) if keys else None
        if gone is not None:
            marked = _beside(marked, gone.select(NUMBER, F.lit(True).alias(_GONE)))
            # Of an insert nothing stays.
            operation = F.when(F.col(_GONE), INSERT).otherwise(column(OPERATION))
            marked = marked.withColumn(OPERATION, operation)
    good = good_columns(marked.select(*map(column, names)), failed, keys=keys)
    return marked.select(*good, F.col(REASON).alias(ERROR), column(INPUT))


def _beside(rows: DataFrame, reasons: DataFrame) -> DataFrame:
    """Rows, in their order, with the reasons of some of them by their numbers."""
    from pyspark.sql import functions as F

    return rows.join(F.broadcast(reasons), NUMBER, "left")


def _deletes(marked: DataFrame, names: Sequence[str], keys: Sequence[str]) -> DataFrame:
    """What stays of updates and deletes that failed: the delete of their key."""
    from pyspark.sql import functions as F

    failed = marked.where(F.col(REASON).isNotNull() & (column(OPERATION) != INSERT))
    kinds = {field.name: field.dataType for field in marked.schema.fields}
    columns = [
        column(name) if name in keys else F.lit(DELETE if name == OPERATION else None).cast(kinds[name])
        for name in names
    ]
    return failed.select(
        *[value.alias(name) for value, name in zip(columns, names, strict=True)], column(NUMBER)
    )
