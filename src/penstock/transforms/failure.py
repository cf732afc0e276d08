"""Rows that a transform could not take: how it marks them, and how they are split from the others.

A frame in which rows have failed has the columns `_error` (why) and `_input` (the row as it came in, as JSON from
which `parsed` gives the same values again). A failed row that has an operation is also the delete of what it was
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.data.operation import DELETE, INSERT, OPERATION
from penstock.sinks.column import column
from penstock.sinks.failed_row import ERROR, FORMAT, INPUT, NTZ_FORMAT
from penstock.sinks.failed_row import input_of as input_of
from penstock.spark.observed import Observed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_FAILED = "failed"


def parsed(texts: Column, schema: StructType) -> Column:
    """The rows that `input_of` has written; NULL in a column that the text lacks, an error for a text that is no such row."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    return F.from_json(texts, schema, {"mode": "FAILFAST", **FORMAT, **NTZ_FORMAT})


def good_columns(rows: DataFrame, failed: Column, *, keys: Sequence[str]) -> list[Column]:
    """The columns of rows as they leave a transform: NULL in one that failed.

    Of an update that failed the operation is a delete, and the key stays: the row that it was before is gone downstream.
    """
    from pyspark.sql import functions as F  # as PySpark's users have it

    if OPERATION not in rows.columns or not keys:
        return [F.when(~failed, column(name)).alias(name) for name in rows.columns]
    deletes = column(OPERATION) != INSERT
    columns = []
    for name in rows.columns:
        value = F.when(~failed | deletes, column(name)) if name in keys else F.when(~failed, column(name))
        columns.append((value.when(deletes, DELETE) if name == OPERATION else value).alias(name))
    return columns


class Split:
    """The good and the failed rows of a frame, split while the good ones are written.

    A count shows whether any row has failed, so an epoch without failures costs nothing more. When some have, `failed`
    gives a frame that computes them: a second time if the frame is `repeatable`, from what Spark has persisted
    otherwise. A transform that asks other systems is not repeatable: a row that failed may not fail again, and would
    be in neither part.
    """

    def __init__(self, frame: DataFrame, *, repeatable: bool = True) -> None:
        from pyspark.sql import functions as F  # as PySpark's users have it

        self._observed: Observed | None = None
        self._persisted: DataFrame | None = None
        self.good = self._all = frame
        """The rows that did not fail, without the columns of those that did: what sinks write."""
        if ERROR not in frame.columns:
            return
        if not repeatable:
            self._all = self._persisted = frame.persist()
        self._observed = Observed(self._all, {_FAILED: F.count(column(ERROR))})
        good = column(ERROR).isNull()
        if OPERATION in frame.columns:
            good = good | column(OPERATION).isNotNull()  # the delete of what a failed update was before
        self.good = self._observed.frame.where(good).drop(ERROR, INPUT)

    def count(self) -> int:
        """How many rows failed; called after the good ones were written."""
        return 0 if self._observed is None else int(self._observed.values()[_FAILED])

    def failed(self) -> DataFrame | None:
        """The rows that failed, as `_error` and `_input`; None when there is none. Called after the good ones were written."""
        if not self.count():
            return None
        return self._all.where(column(ERROR).isNotNull()).select(column(ERROR), column(INPUT))

    def release(self) -> None:
        """Let Spark forget what it has persisted; called when the epoch is done."""
        if self._persisted is not None:
            self._persisted.unpersist()
            self._persisted = None
