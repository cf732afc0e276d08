"""Aggregates over the rows of a frame, taken while something else reads them: no job of their own.

Spark reports what it has observed when an action of the frame's own ends. A job over the rows of a frame, as `PersistedResult` runs, is none:
whoever runs it calls `complete`.
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

    def values(self) -> Mapping[str, Any]:
        """The aggregates, after something has read all rows; when nobody has, Spark reads them once more for this alone."""
        if self._values is None:
            observation: Any = self._observation._jo
            future = observation.future()
            deadline = time.monotonic() + WAIT_SECONDS
            while not future.isCompleted() and time.monotonic() < deadline:
                time.sleep(0.002)
            if future.isCompleted():
                self._values = self._observation.get
            else:
                [row] = self._source.agg(*self._columns).collect()
                self._values = row.asDict()
        return self._values

    def reported(self) -> Mapping[str, Any] | None:
        """The aggregates once Spark has reported them, None before that; nothing waits for it, and nothing is read again."""
        if self._values is None:
            observation: Any = self._observation._jo
            if not observation.future().isCompleted():
                return None
            self._values = self._observation.get
        return self._values


def counted(frame: DataFrame) -> Observed:
    """Return a frame whose rows are counted, as `ROWS`."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    return Observed(frame, {ROWS: F.count(F.lit(1))})


def complete(frame: DataFrame) -> None:
    """Report what was observed in a frame whose rows a job has read that is no action of Spark SQL."""
    session: Any = frame.sparkSession._jsparkSession
    getattr(session.observationManager(), _COMPLETE)(frame._jdf.queryExecution())
