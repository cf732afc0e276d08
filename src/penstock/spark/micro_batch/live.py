"""Rows as they come: Spark's real-time mode, which plans and sinks it can run, and a run of it.

A batch of real-time mode lasts as long as the trigger's interval, and its tasks hand on every record when they read
it; in the end of it Spark notes how far it has come, in the same form as for micro-batches, so that a checkpoint
serves both. Spark's older continuous processing has no progress, no retries and a checkpoint of its own, and is not
used.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.boot import janino
from penstock.spark.micro_batch import plan
from penstock.spark.micro_batch.query_run import POLL_SECONDS, OnReport, RunSettings, SparkRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ROWS = "penstock_rows"
MINIMUM = "spark.sql.streaming.realTimeMode.minBatchDuration"
SHORTEST_MS = 100
BOUNDS = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "maxrecordsperpartition")
END_SECONDS = 5.0
"""How much longer than its interval a batch may take before a stop does not wait for it any more."""


@dataclass(frozen=True, slots=True)
class Live:
    """How Spark writes rows to a sink by itself, as they come: a frame, and the format and options of its writer."""

    frame: DataFrame
    form: str
    options: Mapping[str, Any]


def obstacle(frame: DataFrame) -> str | None:
    """Why real-time mode cannot run a plan; None when it can."""
    readings = plan.readings(frame)
    if len(readings) != 1 or readings[0].source != "kafka":
        return "only one source of Kafka can be read so"
    bounds = [name for name in readings[0].options if name.lower() in BOUNDS]
    if bounds:
        return f"the source has {bounds[0]}, which is about batches"
    spark = frame.sparkSession
    beyond = janino.instance(spark, __package__, "Live").beyond(frame._jdf.queryExecution().analyzed())
    if beyond is not None:
        return f"the query does more than look at one row after the other ({beyond})"
    partitions, cores = _partitions(spark, readings[0].relation), spark.sparkContext.defaultParallelism
    if partitions >= cores:
        return f"every partition would keep a core busy, and there are {partitions} for {cores} cores"
    return None


def _partitions(spark: SparkSession, relation: Any) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="penstock-stream-") as folder,
        plan.opened(spark, relation, folder) as stream,
    ):
        offsets = json.loads(stream.initialOffset().json())
    return sum(len(partitions) for partitions in offsets.values())


def unsplit(frame: DataFrame) -> DataFrame:
    """The query with every partition read by one task."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    spark = frame.sparkSession
    query = janino.instance(spark, __package__, "Live").unsplit(
        spark._jsparkSession, frame._jdf.queryExecution().analyzed()
    )
    return ClassicDataFrame(query, spark)


def rows_written(progress: Mapping[str, Any]) -> int | None:
    """How many rows a batch gave to its sink."""
    seen = progress.get("observedMetrics", {}).get(ROWS)
    return None if seen is None else int(seen["rows"])


class RealTime(SparkRun):
    """A run in real-time mode; Spark writes to the sink by itself."""

    def __init__(
        self,
        target: Live,
        settings: RunSettings,
        interval_ms: int,
        on_report: OnReport,
    ) -> None:
        super().__init__(target.frame, settings, on_report)
        self._target = target
        self._interval_ms = max(interval_ms, SHORTEST_MS)

    def drain(self, seconds: float | None) -> bool:
        """End with the batch that runs now; what the next one has read meanwhile comes again after a restart."""
        self.hold()
        query = self._started()
        allowed = self._interval_ms / 1000 + END_SECONDS
        begin, first = time.monotonic(), self._committed()
        while not self._ended.is_set():
            gone = time.monotonic() - begin
            if self._committed() != first or gone > allowed:
                break
            if seconds is not None and gone > seconds:
                return False
            self._ended.wait(POLL_SECONDS)
        with contextlib.suppress(Exception):  # a query that has failed, or a Spark that is gone
            query.stop()
        return True

    def _writer(self) -> DataStreamWriter:
        from pyspark.sql import functions as F  # as PySpark's users have it

        jvm: Any = self._frame.sparkSession._jvm
        watched = self._frame.observe(ROWS, F.count(F.lit(1)).alias("rows"))
        writer = watched.writeStream.format(self._target.form).options(**self._target.options)
        trigger = jvm.org.apache.spark.sql.streaming.Trigger.RealTime(f"{self._interval_ms} milliseconds")
        writer._jwrite = writer._jwrite.trigger(trigger)
        return writer.outputMode("update")  # rows that are handed on one by one are the same in append

    def _more_conf(self) -> dict[str, str]:
        return {MINIMUM: str(self._interval_ms)}

    def _committed(self) -> int | None:
        with contextlib.suppress(Exception):  # a Spark that is gone
            latest = self._started()._jsq.streamingQuery().commitLog().getLatestBatchId()
            return int(latest.get()) if latest.isDefined() else -1
        return None
