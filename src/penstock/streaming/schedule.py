"""The runs of Spark that make up a query, and their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.spark.micro_batch import checkpoint
from penstock.spark.micro_batch.gate import Gate
from penstock.spark.micro_batch.live import RealTime, unsplit
from penstock.spark.micro_batch.query_run import MicroBatches, OneBatch, QueryRun, RunSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.streaming.epoch_writer import EpochWriter
    from penstock.streaming.query_sources import QuerySources

ONE_BATCH = {"once": True}


class RunSchedule(ABC):
    """Makes the runs of one query; their epochs and reports go to the epoch writer."""

    def __init__(self, frame: DataFrame, writer: EpochWriter) -> None:
        self._frame = frame
        self._writer = writer

    @abstractmethod
    def first(self) -> QueryRun:
        """Open the sink and return the first run; called again when the query begins again from its checkpoint."""

    def following(self) -> QueryRun | None:
        """Return the run after one that came to its end by itself; None: the end of the query."""
        return None


class BatchSchedule(RunSchedule):
    """All rows as one batch; `ends` are the offsets at which the sources end."""

    def __init__(
        self,
        frame: DataFrame,
        writer: EpochWriter,
        *,
        sources: QuerySources,
        tag: str,
        ends: Mapping[str, Any],
    ) -> None:
        super().__init__(frame, writer)
        self._sources = sources
        self._tag = tag
        self._write = partial(writer.write_batch, tag=tag, ends=ends)

    def first(self) -> QueryRun:
        """Return the batch."""
        self._writer.open()
        return OneBatch(self._sources.evolved(self._frame), self._write, tag=self._tag)


class MicroBatchSchedule(RunSchedule):
    """Spark's micro-batches; in the end, if that is wanted, one more that closes all windows.

    The closing batch may be cut short by a crash: then it is done again before anything else. So is a batch that has
    begun, when the sink wants one without rows. With `wanted_only` no rows are read beyond such a batch.
    """

    def __init__(
        self,
        frame: DataFrame,
        writer: EpochWriter,
        *,
        sources: QuerySources,
        settings: RunSettings,
        close_windows: bool,
        wanted_only: bool = False,
        gate: Gate | None = None,
    ) -> None:
        super().__init__(frame, writer)
        self._sources = sources
        self._settings = settings
        self._close_windows = close_windows
        self._wanted_only = wanted_only
        self._gate = gate or Gate()
        self._closing = False
        self._interrupted = False
        self._begun = False

    def first(self) -> QueryRun:
        """Return the batches, or the closing batch of an earlier run."""
        spark, location = self._frame.sparkSession, self._settings.checkpoint
        committed, begun = checkpoint.last_epochs(spark, location)
        self._writer.open(committed=committed, begun=begun)
        self._frame = self._sources.evolved(self._frame)
        self._interrupted = checkpoint.is_closing(spark, location)
        if self._interrupted:
            return self._run(replace(self._settings, trigger=ONE_BATCH))
        checkpoint.end_closing(spark, location)
        wanted = self._wanted_only or self._writer.wants_epoch
        self._begun = wanted and begun > committed
        if self._begun:
            return self._run(replace(self._settings, trigger=ONE_BATCH))
        if wanted:
            checkpoint.begin_empty(spark, location)
        return self._run(replace(self._settings, trigger=ONE_BATCH) if self._wanted_only else self._settings)

    def following(self) -> QueryRun | None:
        """Return the closing batch, or the batches after it when it was an earlier run's."""
        spark, location = self._frame.sparkSession, self._settings.checkpoint
        checkpoint.end_closing(spark, location)
        if self._begun:
            return self.first()
        if self._closing or self._wanted_only:
            return None
        if self._interrupted:
            self._interrupted = False
            return self._run(self._settings)
        self._closing = self._close_windows and checkpoint.begin_closing(spark, location)
        return self._run(replace(self._settings, trigger=ONE_BATCH)) if self._closing else None

    def _run(self, settings: RunSettings) -> QueryRun:
        return MicroBatches(self._frame, settings, self._writer.write, self._writer.report, gate=self._gate)


class RealTimeSchedule(RunSchedule):
    """Rows as they come, in Spark's real-time mode."""

    def __init__(
        self, frame: DataFrame, writer: EpochWriter, *, settings: RunSettings, interval_ms: int
    ) -> None:
        super().__init__(frame, writer)
        self._settings = settings
        self._interval_ms = interval_ms

    def first(self) -> QueryRun:
        """Return the only run."""
        committed, begun = checkpoint.last_epochs(self._frame.sparkSession, self._settings.checkpoint)
        self._writer.open(committed=committed, begun=begun)
        target = self._writer.live(unsplit(self._frame))
        return RealTime(target, self._settings, self._interval_ms, self._writer.report_live)
