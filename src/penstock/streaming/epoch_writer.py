"""What happens with the epochs of a query, and the runs that it is made of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.sinks.base import Epoch, Sink, Target
from penstock.spark.micro_batch import checkpoint
from penstock.spark.micro_batch.live import Live, RealTime, rows_written, unsplit
from penstock.spark.micro_batch.run import MicroBatches, OneBatch, Run, Settings
from penstock.spark.status import records_read
from penstock.streaming.call_site import told
from penstock.streaming.progress import Progress, from_spark
from penstock.streaming.side_output import Counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.streaming.job import QueryJob
    from penstock.streaming.query import StreamingQuery
    from penstock.streaming.query_sources import QuerySources
    from penstock.streaming.trigger import Trigger

ONE_BATCH = {"once": True}


class Work:
    """What happens with each epoch of one query: fence, write, note, report."""

    def __init__(
        self,
        query: StreamingQuery,
        sink: Sink,
        target: Target,
        trigger: Trigger,
        *,
        job: QueryJob | None,
        sources: QuerySources,
    ) -> None:
        self._query = query
        self._sources = sources
        self._sink = sink
        self._target = target
        self._trigger = trigger
        self._job = job
        self._rows: dict[int, int | None] = {}
        self._aside: dict[int, Counts] = {}
        self._committed = -1
        self._finalized = -1
        self._open = False

    def open(self) -> None:
        """Open the sink; before a second run of the query, close it first."""
        if self._open:
            self._close_sink()
        try:
            self._target.status.stopping.clear()
            self._committed = self._finalized = -1
            self._sink.open(self._target)
            self._open = True
            self._sources.open()
        except PenstockError:
            raise
        except Exception as error:
            raise told(error) from None

    def write(self, batch: DataFrame, number: int) -> None:
        """Write one epoch."""
        self._finalize(number - 1)
        if self._job is not None:
            self._job.begin(number)
        self._rows[number] = self._sink.write(Epoch(number, batch))
        if self._sources.takes_aside:
            self._aside[number] = self._sources.take_aside(
                batch, self._target, number, all_read=self._sink.reads_all_rows
            )
        if self._job is not None:
            self._job.commit(number, self._rows[number])

    def write_only(self, batch: DataFrame, number: int, tag: str) -> None:
        """Write the one epoch of a batch query, and report it, because Spark does not."""
        began, clock = datetime.now(UTC), time.monotonic()
        self.write(batch, number)
        self._committed = number
        self._sources.read_all()
        self._query.report(
            Progress(
                trigger=str(self._trigger),
                batch_id=number,
                input_rows=records_read(batch.sparkSession, tag),
                output_rows=self._rows[number],
                duration_ms=int((time.monotonic() - clock) * 1000),
                timestamp=began.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                dropped_records=self._counts(number).dropped,
                quarantined_records=self._counts(number).quarantined,
            )
        )

    def reported(self, progress: Mapping[str, Any]) -> None:
        """Pass on what Spark tells of an epoch, with the rows that the sink counted."""
        if progress.get("idle"):
            self._query.idle()
            return
        self._sources.committed(progress)
        number = int(progress["batchId"])
        counts = self._counts(number)
        told = from_spark(progress, trigger=str(self._trigger), output_rows=self._rows.get(number, 0))
        if number in self._rows:
            self._committed = number
        self._query.report(
            replace(
                told,
                dropped_records=counts.dropped,
                quarantined_records=counts.quarantined,
                late_rows=told.late_rows + counts.late,
            )
        )
        for old in [each for each in self._rows if each < number]:
            del self._rows[old]
            self._aside.pop(old, None)

    def _counts(self, number: int) -> Counts:
        return self._aside.get(number, Counts())

    def mends(self, error: BaseException) -> bool:
        """Whether the query can go on after an error, because something was learnt from it."""
        return self._sources.mends(error)

    def mended(self, frame: DataFrame) -> DataFrame:
        """The query with all that was learnt."""
        return self._sources.mended(frame)

    def live(self, frame: DataFrame) -> Live:
        """How Spark writes to the sink by itself."""
        return self._sink.live(frame)

    def reported_live(self, progress: Mapping[str, Any]) -> None:
        """Pass on what Spark tells of an epoch that it has written by itself; one without rows is idle time."""
        if progress.get("idle") or not int(progress["numInputRows"]):
            self._query.idle()
            return
        number, rows = int(progress["batchId"]), rows_written(progress)
        self._rows[number] = rows
        if self._job is not None:
            self._job.commit(number, rows)
        self.reported(progress)

    def close(self) -> None:
        """The query has ended: let others know how far it came; raises what the sink raises."""
        self._sources.close()
        self._close_sink()

    def _close_sink(self) -> None:
        opened, self._open = self._open, False
        try:
            if opened:
                self._finalize(self._committed)
        finally:
            self._sink.close()

    def _finalize(self, number: int) -> None:
        """Let the sink know, once, that an epoch does not come again."""
        if number > self._finalized:
            self._finalized = number
            self._sink.finalize(number)


class _Course:
    """What the courses of all queries have: their work, and no run after the first."""

    def __init__(self, frame: DataFrame, work: Work) -> None:
        self._frame = frame
        self._work = work

    def after(self) -> Run | None:
        """Nothing comes after the first run."""
        return None

    def mends(self, error: BaseException) -> bool:
        """Whether another first run can go on after an error."""
        return self._work.mends(error)

    def close(self) -> None:
        """Called once, after the last run; raises what the sink raises."""
        self._work.close()


class OnceCourse(_Course):
    """All rows as one batch."""

    def __init__(self, frame: DataFrame, work: Work, *, tag: str) -> None:
        super().__init__(frame, work)
        self._tag = tag

    def first(self) -> Run:
        """The batch."""
        self._work.open()
        return OneBatch(
            self._work.mended(self._frame),
            lambda batch, number: self._work.write_only(batch, number, self._tag),
            tag=self._tag,
        )


class BatchCourse(_Course):
    """Spark's micro-batches; in the end, if that is wanted, one more that closes all windows.

    The closing batch may be cut short by a crash: then it is done again before anything else.
    """

    def __init__(self, frame: DataFrame, work: Work, settings: Settings, *, close_windows: bool) -> None:
        super().__init__(frame, work)
        self._settings = settings
        self._close_windows = close_windows
        self._closing = False
        self._interrupted = False

    def first(self) -> Run:
        """The batches, or the closing batch of an earlier run."""
        self._work.open()
        self._frame = self._work.mended(self._frame)
        spark, at = self._frame.sparkSession, self._settings.checkpoint
        self._interrupted = checkpoint.is_closing(spark, at)
        if self._interrupted:
            return self._run(replace(self._settings, trigger=ONE_BATCH))
        checkpoint.end_closing(spark, at)
        return self._run(self._settings)

    def after(self) -> Run | None:
        """The closing batch, or the batches after it when it was an earlier run's."""
        spark, at = self._frame.sparkSession, self._settings.checkpoint
        checkpoint.end_closing(spark, at)
        if self._closing:
            return None
        if self._interrupted:
            self._interrupted = False
            return self._run(self._settings)
        self._closing = self._close_windows and checkpoint.begin_closing(spark, at)
        return self._run(replace(self._settings, trigger=ONE_BATCH)) if self._closing else None

    def _run(self, settings: Settings) -> Run:
        return MicroBatches(self._frame, settings, self._work.write, self._work.reported)


class LiveCourse(_Course):
    """Rows as they come."""

    def __init__(self, frame: DataFrame, work: Work, settings: Settings, *, interval_ms: int) -> None:
        super().__init__(frame, work)
        self._settings = settings
        self._interval_ms = interval_ms

    def first(self) -> Run:
        """The only run, or one more after a restart."""
        self._work.open()
        target = self._work.live(unsplit(self._frame))
        return RealTime(target, self._settings, self._interval_ms, self._work.reported_live)
