"""Aggregates over the rows of a frame, taken while something else reads them: no job of their own.

Spark reports what it has observed when an action of the frame's own ends. A job over the rows of a frame, as
`PersistedResult` runs, is none: whoever runs it calls `complete`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WAIT_SECONDS = 2.0
"""How long to wait for the report: Spark sends it from a thread of its own, after the action has returned."""
ROWS = "rows"
_COMPLETE = "org$apache$spark$sql$classic$ObservationManager$$tryComplete"


class Observed:
    """A frame that is to be read in the place of another one, and what is aggregated over its rows meanwhile."""

    def __init__(self, frame: DataFrame, aggregates: Mapping[str, Column]) -> None:
        from pyspark.sql import Observation

        self._source = frame
        self._columns = [column.alias(name) for name, column in aggregates.items()]
        self._observation = Observation()
        self._values: Mapping[str, Any] | None = None
        self.frame = frame.observe(self._observation, *self._columns)

    def reported(self, seconds: float = 0.0) -> Mapping[str, Any] | None:
        """The aggregates, after something has read all rows; None when Spark has not reported them in so many
        seconds. Nothing is read again."""
        if self._values is None:
            observation: Any = self._observation._jo
            future = observation.future()
            deadline = time.monotonic() + seconds
            while not future.isCompleted() and time.monotonic() < deadline:
                time.sleep(0.002)
            if future.isCompleted():
                self._values = self._observation.get
        return self._values

    def values(self) -> Mapping[str, Any]:
        """The aggregates; when nobody has read the rows, Spark reads them once more for this alone."""
        values = self.reported(WAIT_SECONDS)
        if values is None:
            [row] = self._source.agg(*self._columns).collect()
            values = self._values = row.asDict()
        return values


def counted(frame: DataFrame) -> Observed:
    """Return a frame whose rows are counted, as `ROWS`."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    return Observed(frame, {ROWS: F.count(F.lit(1))})


def complete(frame: DataFrame) -> None:
    """Report what was observed in a frame whose rows a job has read that is no action of Spark SQL."""
    session: Any = frame.sparkSession._jsparkSession
    getattr(session.observationManager(), _COMPLETE)(frame._jdf.queryExecution())
