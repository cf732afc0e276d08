"""The commit protocol of a query: what happens with each epoch, in this order.

1. Fence: the lease of the query must still be ours, otherwise the query ends.
2. Log the epoch's beginning in the state backend (write-behind, for people).
3. `sink.write`: the rows and the mark of the epoch, together where the sink can do that.
4. Side outputs: the bad and late rows of the epoch. The markers of source plugins.
5. Log the commit in the state backend.
6. Spark commits the epoch's offsets in the checkpoint: the epoch does not come again.
7. Progress: Spark's report, with what the sink counted, goes to the job, the metrics and the listeners.
8. Consumer groups get the offsets of the epoch.
9. Finalizer: `sink.finalize` and that of source plugins, before the next epoch is written or before the sink is closed.

After a crash before 6 the epoch comes again with the same number and the same rows; a sink that is exactly once finds its mark
and skips it. Steps 1 to 5 run in the thread of Spark's batch, 7 and 8 in that of Spark's listener. Step 9 runs in the thread of
the next batch, or in the one that closes the sink: all methods of a sink are called from one thread at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.sinks.base import Epoch, Sink, Target
from penstock.spark.errors.query import translated
from penstock.spark.micro_batch.live import Live, rows_written
from penstock.spark.micro_batch.tap import EpochPlan
from penstock.spark.status import records_read
from penstock.streaming.progress import QueryProgress, from_spark
from penstock.streaming.side_output import SideCounts, TapOutputs
from penstock.streaming.source_feeds import SourceFeeds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.streaming.consumer_groups import ConsumerGroups
    from penstock.streaming.job import QueryJob
    from penstock.streaming.query_events import QueryEvents


@dataclass(frozen=True, slots=True)
class WrittenEpoch:
    """What the sink and the side outputs took of one epoch."""

    rows: int | None
    """Rows that are new in the sink; None when nobody knows."""
    side: SideCounts = field(default_factory=SideCounts)


class WrittenEpochs:
    """Hands epochs from the thread that writes them to the thread in which Spark reports them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: dict[int, WrittenEpoch] = {}
        self._committed = -1

    @property
    def committed(self) -> int:
        """The last epoch since the sink was opened that Spark has committed; -1 when there is none."""
        with self._lock:
            return self._committed

    def clear(self) -> None:
        """Forget all, because the sink is opened again."""
        with self._lock:
            self._epochs = {}
            self._committed = -1

    def add(self, number: int, epoch: WrittenEpoch) -> None:
        """An epoch is written."""
        with self._lock:
            self._epochs[number] = epoch

    def commit(self, number: int) -> WrittenEpoch | None:
        """Spark has committed an epoch; return what was written, and forget the epochs before it."""
        with self._lock:
            self._epochs = {key: epoch for key, epoch in self._epochs.items() if key >= number}
            if number in self._epochs:
                self._committed = number
            return self._epochs.get(number)


class EpochWriter:
    """Writes and reports the epochs of one query; `trigger` is for its progress, `ends` says whether it reads what is
    there and ends."""

    def __init__(
        self,
        sink: Sink,
        target: Target,
        *,
        trigger: str,
        job: QueryJob | None,
        side_outputs: TapOutputs,
        groups: ConsumerGroups,
        events: QueryEvents,
        feeds: SourceFeeds | None = None,
        ends: bool = False,
        done: Callable[[], None] | None = None,
    ) -> None:
        self._sink = sink
        self._target = target
        self._trigger = trigger
        self._job = job
        self._side_outputs = side_outputs
        self._groups = groups
        self._events = events
        self._feeds = feeds or SourceFeeds()
        self._ends = ends
        self._done = done
        """Called behind an epoch after which the sink wants no more rows."""
        self._written = WrittenEpochs()
        self._finalized = -1
        self._open = False

    @property
    def wants_epoch(self) -> bool:
        """Whether the open sink has something to write although no row may come."""
        return self._sink.wants_epoch

    def open(self, *, committed: int | None = None, begun: int | None = None) -> None:
        """Open the sink and the side outputs; before a second run of the query, close them first.

        `committed` and `begun` are what the checkpoint has now; without them, what it had when the query was made.
        """
        if self._open:
            self._close_sink()
        if committed is not None and begun is not None:
            self._target = replace(self._target, committed=committed, begun=begun)
        with translated():
            self._target.status.stopping.clear()
            self._written.clear()
            self._finalized = -1
            self._sink.open(self._target)
            self._open = True
            self._side_outputs.open(self._target)
            state = None if self._job is None else self._job.source_values
            self._feeds.open(self._target, ends=self._ends, state=state)

    def write(self, batch: DataFrame, number: int) -> None:
        """Write one micro-batch: steps 1 to 5."""
        self._write(batch, number, lambda: EpochPlan.of_query(batch, self._target.spark, self._target.query))

    def write_batch(self, batch: DataFrame, number: int, *, tag: str, ends: Mapping[str, Any]) -> None:
        """Write the one epoch of a batch query, and report it, because Spark does not.

        `tag` is that of Spark's jobs, `ends` are the offsets for the consumer groups.
        """
        began, clock = datetime.now(UTC), time.monotonic()
        self._write(batch, number, lambda: EpochPlan.of_batch(batch))
        epoch = self._written.commit(number)
        assert epoch is not None
        self._events.progress(
            QueryProgress(
                trigger=self._trigger,
                batch_id=number,
                input_rows=records_read(batch.sparkSession, tag),
                output_rows=epoch.rows,
                duration_ms=int((time.monotonic() - clock) * 1000),
                timestamp=began.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                dropped_records=epoch.side.dropped,
                quarantined_records=epoch.side.quarantined,
            )
        )
        self._groups.commit_ends(ends)

    def report(self, progress: Mapping[str, Any]) -> None:
        """Report an epoch that Spark has committed, steps 7 and 8; {"idle": True}: there was nothing to do."""
        if progress.get("idle"):
            self._events.idle()
            return
        epoch = self._written.commit(int(progress["batchId"])) or WrittenEpoch(rows=0)
        report = from_spark(progress, trigger=self._trigger, output_rows=epoch.rows)
        self._events.progress(
            replace(
                report,
                dropped_records=epoch.side.dropped,
                quarantined_records=epoch.side.quarantined,
                late_rows=report.late_rows + epoch.side.late,
            )
        )
        self._groups.commit(progress)
        if self._done is not None and self._sink.is_done:
            self._done()

    def report_live(self, progress: Mapping[str, Any]) -> None:
        """Report an epoch that Spark has written to the sink by itself; one without rows is idle time."""
        if progress.get("idle") or not int(progress["numInputRows"]):
            self._events.idle()
            return
        number, rows = int(progress["batchId"]), rows_written(progress)
        self._written.add(number, WrittenEpoch(rows))
        if self._job is not None:
            self._job.commit(number, rows)
        self.report(progress)

    def live(self, frame: DataFrame) -> Live:
        """Return how Spark writes to the sink by itself."""
        return self._sink.live(frame)

    def close(self) -> None:
        """Close everything after the last epoch, also when some of it cannot be closed; raises what was raised last."""
        with ExitStack() as closing:
            closing.callback(self._feeds.close)
            closing.callback(self._close_sink)
            closing.callback(self._side_outputs.close)
            closing.callback(self._groups.close)

    def _write(self, batch: DataFrame, number: int, plan: Callable[[], EpochPlan]) -> None:
        if self._job is not None:
            self._job.fence()
        self._finalize(number - 1)
        if self._job is not None:
            self._job.begin(number)
        rows = self._sink.write(Epoch(number, batch))
        side = SideCounts()
        if self._side_outputs:
            side = self._side_outputs.write(
                plan(), number, query=self._target.name, all_read=self._sink.reads_all_rows
            )
        self._feeds.marker(number)
        self._written.add(number, WrittenEpoch(rows, side))
        if self._job is not None:
            self._job.commit(number, rows)

    def _finalize(self, number: int) -> None:
        """Let the sink know, once, that an epoch does not come again."""
        if number > self._finalized:
            self._finalized = number
            self._sink.finalize(number)
            self._feeds.finalize(number)

    def _close_sink(self) -> None:
        was_open, self._open = self._open, False
        try:
            if was_open:
                self._finalize(self._written.committed)
        finally:
            self._sink.close()
