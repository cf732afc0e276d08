"""Taps: named points of a streaming plan, and the rows that come to one in an epoch, beside what the query makes of them.

A tap is one of Spark's observations: it counts while the query runs, and it cannot be moved by the optimizer. The plan of an
epoch has its sources bound to what the epoch reads; the part below a tap, run on its own as a batch, gives the same
rows once more. So the query itself is left as it is, with every sink and with every operator that keeps state, and an
epoch costs more only when there is something to take out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.boot import janino

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PREFIX = "penstock_side_"
CHECK = "spark.sql.streaming.unsupportedOperationCheck"


def named(frame: DataFrame, name: str, counts: Sequence[Column]) -> DataFrame:
    """Return a frame with a tap of that name at its end; `counts` are aggregates over the rows that come to it."""
    return frame.observe(f"{PREFIX}{name}", *counts)


def mark(name: str) -> str:
    """Return the text that, as a literal, makes the filter in which it stands a tap of that name, without counts."""
    return f"{PREFIX}{name}"


def marked(literal: str) -> str:
    """Return the name in such a literal."""
    return literal.removeprefix(PREFIX)


def named_rows(frame: DataFrame, name: str, time: str) -> DataFrame:
    """Return a frame with a tap that counts its rows; `time` is one of its columns."""
    from pyspark.sql import functions

    counts = [functions.count(functions.lit(1)).alias("rows")]
    if not keeps(frame):
        return named(frame, name, counts)
    # Rows that were made from what is kept have only the columns that somebody asks for: this asks for all, in no row's case.
    never = functions.col(f"`{time}`") < functions.expr("TIMESTAMP '-9999-01-01'")
    return named(
        frame, name, [*counts, functions.count(functions.when(never, functions.struct("*"))).alias("none")]
    )


def keeps(frame: DataFrame) -> bool:
    """Whether a plan keeps something between epochs."""
    return bool(_taps(frame.sparkSession).keeps(frame._jdf.queryExecution().analyzed()))


def names(frame: DataFrame) -> list[str]:
    """Return the names of a plan's taps, in its order."""
    marked_names = _taps(frame.sparkSession).names(frame._jdf.queryExecution().analyzed(), PREFIX)
    return [str(name).removeprefix(PREFIX) for name in marked_names]


@dataclass(frozen=True, slots=True)
class Late:
    """What an epoch tells about rows that came too late for the operator behind a tap."""

    watermark_ms: int
    dropped: int
    """What the operator has dropped: rows of all its inputs, or groups of rows that were put together before."""
    operator: int
    inputs: int
    """How many inputs of the operator can have late rows."""


class EpochPlan:
    """The plan of one epoch: Spark's execution of it, in a micro-batch or as one batch."""

    def __init__(self, spark: SparkSession, execution: Any, *, streams: bool) -> None:
        self._spark = spark
        self._execution = execution
        self._streams = streams
        self._taps = _taps(spark)

    @classmethod
    def of_query(cls, batch: DataFrame, owner: SparkSession, query: str) -> EpochPlan:
        """The plan of the epoch that a running query of a session writes."""
        running = owner._jsparkSession.streams().get(query).streamingQuery()
        return cls(batch.sparkSession, running.lastExecution(), streams=True)

    @classmethod
    def of_batch(cls, batch: DataFrame) -> EpochPlan:
        """The plan of a query that is one batch."""
        return cls(batch.sparkSession, batch._jdf.queryExecution(), streams=False)

    @property
    def reads_all(self) -> bool:
        """Whether a sink that reads all rows of the query lets it read all rows of its sources: it has no limit."""
        return not self._taps.limits(self._execution.logical())

    def counted(self, name: str) -> tuple[Any, ...] | None:
        """What was counted at a tap while a micro-batch ran; None when nobody knows."""
        if not self._streams:
            return None
        row = self._taps.counted(self._execution, f"{PREFIX}{name}")
        return None if row is None else tuple(row.get(position) for position in range(row.length()))

    def late(self, name: str) -> Late | None:
        """What became of late rows behind a tap; None when nothing drops them."""
        if not self._streams:
            return None
        late = self._taps.late(self._execution, f"{PREFIX}{name}")
        return None if late is None else Late(*(int(value) for value in late))

    def arriving(self, name: str) -> DataFrame:
        """The rows that come from a tap to the operator behind it, without those that are filtered out in between.

        Operators before the tap that keep state do their work once more from where the epoch began, with the same result,
        as they do when a task is repeated.
        """
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

        session = self._spark
        rows = self._taps.arriving(session._jsparkSession, self._execution, f"{PREFIX}{name}")
        return ClassicDataFrame(rows, session)

    def rows(self, name: str) -> DataFrame | None:
        """The rows that come to a tap; None when the plan does not have it."""
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

        session = self._spark
        rows = self._taps.rows(session._jsparkSession, self._execution.analyzed(), f"{PREFIX}{name}")
        return None if rows is None else ClassicDataFrame(rows, session)

    def detached(self, rows: DataFrame) -> DataFrame:
        """Return rows of the epoch as an ordinary batch; what is to be pushed down to sources must be in them already."""
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

        if not self._streams:
            return rows
        conf = self._spark.conf  # of the query's own session
        before = str(conf.get(CHECK))
        conf.set(CHECK, "false")  # Spark refuses to plan a stream otherwise
        try:
            return ClassicDataFrame(self._taps.detached(rows._jdf), self._spark)
        finally:
            conf.set(CHECK, before)


def _taps(spark: SparkSession) -> Any:
    return janino.instance(spark, __package__, "Taps")
