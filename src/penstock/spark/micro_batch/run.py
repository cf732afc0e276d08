"""One run of a query by Spark: its batches go through a function of ours, and its end can be asked for in two ways."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.spark.micro_batch import checkpoint_lock, local_files
from penstock.spark.run import TaggedRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Body = Callable[["DataFrame", int], None]
POLL_SECONDS = 0.02
EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
LAST_REPORT_SECONDS = 5.0


class Drained(Exception):  # not an error: the way a run ends between two batches
    """Raised in front of a batch that shall not begin, because the run is to end."""


class Run(Protocol):
    """What a query's handle needs of the run below it."""

    def start(self) -> None:
        """Begin; raises what Spark refuses at once."""

    def wait(self) -> BaseException | None:
        """Wait for the end, from one thread only; return the error that it ended with."""

    def hold(self) -> None:
        """Let no further batch begin; returns at once."""

    def drain(self, seconds: float | None) -> bool:
        """End after the batch that runs now; False when that takes longer than `seconds`."""

    def abort(self) -> None:
        """End the batch that runs now, too."""

    def spark_status(self) -> str:
        """What Spark says that it is doing."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How Spark shall run a query."""

    mode: str
    trigger: Mapping[str, Any]
    checkpoint: str
    name: str | None = None
    rows_only: bool = False
    """Whether no batch is made without new rows; for queries that shall end, and would have such batches for ever."""
    alone: bool = False
    """Whether a lease, or a folder that nobody else knows, keeps other processes away from the checkpoint."""
    checksums: bool = True
    """Whether Spark adds checksums of its own to the files of the checkpoint."""
    evolves: bool = False
    """Whether what a new query keeps is written so that it can get other fields; an older checkpoint stays as it is."""


class SparkRun(ABC):
    """A query of Spark's own: its start, its progress as Spark tells it (`reported`), and its end."""

    def __init__(
        self, frame: DataFrame, settings: Settings, reported: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._frame = frame
        self._settings = settings
        self._reported = reported
        self._draining = threading.Event()
        self._aborted = False
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._all_told: threading.Event | None = None
        self._claim: checkpoint_lock.Claim | None = None

    def start(self) -> None:
        """Begin; raises what Spark refuses at once."""
        writer = self._writer().option("checkpointLocation", self._settings.checkpoint)
        if self._settings.name:
            writer = writer.queryName(self._settings.name)
        spark = self._frame.sparkSession
        local_files.quicken(spark)
        reports = _Reports.of(spark)
        self._claim = checkpoint_lock.claim(self._settings.checkpoint)
        quick = self._settings.alone and self._claim is not None
        manner = checkpoint_lock.manner(spark, quick=quick, checksums=self._settings.checksums)
        try:
            with checkpoint_lock.settings(spark, {**manner, **self._more_settings()}):
                self._query = writer.start()
                # The logs take their settings when they are first used, and that must be now.
                execution = self._query._jsq.streamingQuery()
                for log in (execution.offsetLog, execution.commitLog):
                    log()
        except BaseException:
            if self._query is not None:
                self._query.stop()
            self._release()
            raise
        self._all_told = reports.add(str(self._query.runId), self._reported)

    def wait(self) -> BaseException | None:
        """Wait for the end, from one thread only; return the error that it ended with."""
        query = self._started()
        error: BaseException | None = None
        try:
            query.awaitTermination()
        except Exception as raised:
            error = raised
        self._ended.set()
        self._release()
        assert self._all_told is not None
        self._all_told.wait(LAST_REPORT_SECONDS)
        if self._aborted or isinstance(self._failure, Drained):
            return None
        return self._failure or error

    def hold(self) -> None:
        """Let no further batch begin; returns at once."""
        self._draining.set()

    @abstractmethod
    def drain(self, seconds: float | None) -> bool:
        """End after the batch that runs now; False when that takes longer than `seconds`."""

    def abort(self) -> None:
        """End the batch that runs now, too."""
        self._aborted = True
        self.hold()
        query = self._started()
        with contextlib.suppress(Exception):  # whoever waits for the end gets the error
            self._frame.sparkSession.sparkContext.cancelJobGroup(str(query.runId))
            query.stop()

    def spark_status(self) -> str:
        """What Spark says that it is doing."""
        return str(self._started().status["message"])

    @abstractmethod
    def _writer(self) -> DataStreamWriter:
        """Spark's writer, with its sink, mode and trigger."""

    def _more_settings(self) -> dict[str, str]:
        """Settings that the query shall start with."""
        return {}

    def _release(self) -> None:
        held, self._claim = self._claim, None
        if held is not None:
            held.release()

    def _started(self) -> StreamingQuery:
        assert self._query is not None, "the run has not been started"
        return self._query


class MicroBatches(SparkRun):
    """Spark's micro-batches; `body` gets each batch."""

    def __init__(
        self,
        frame: DataFrame,
        settings: Settings,
        body: Body,
        reported: Callable[[Mapping[str, Any]], None],
    ) -> None:
        super().__init__(frame, settings, reported)
        self._body = body

    def drain(self, seconds: float | None) -> bool:
        """End after the batch that runs now; one that wants to begin meanwhile ends the run by itself.

        It waits in the caller's thread: programs stop their queries at their very end too, where no thread can be started.
        """
        self.hold()
        query = self._started()
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._ended.is_set():
            with contextlib.suppress(Exception):  # a query that has failed, or a Spark that is gone
                if not query.status["isTriggerActive"]:
                    query.stop()
                    break
            if deadline is not None and time.monotonic() > deadline:
                return False
            self._ended.wait(POLL_SECONDS)
        return True

    def _writer(self) -> DataStreamWriter:
        writer = self._frame.writeStream.outputMode(self._settings.mode).trigger(**self._settings.trigger)
        return writer.foreachBatch(self._batch)

    def _more_settings(self) -> dict[str, str]:
        more = {EMPTY_BATCHES: "false"} if self._settings.rows_only else {}
        if self._settings.evolves and self._frame.sparkSession.conf.get(ENCODING, None) is None:
            more[ENCODING] = "avro"
        return more

    def _batch(self, frame: DataFrame, number: int) -> None:
        try:
            if self._draining.is_set():
                raise Drained
            self._body(frame, number)
        except BaseException as error:
            self._failure = error
            raise


class OneBatch:
    """A batch query in the clothes of a stream: all rows as epoch 0."""

    def __init__(self, frame: DataFrame, body: Body, *, tag: str) -> None:
        self._run = TaggedRun(frame.sparkSession, lambda: body(frame, 0), tag=tag)

    def start(self) -> None:
        """Begin."""
        self._run.start()

    def wait(self) -> BaseException | None:
        """Wait for the end; return the error that it ended with."""
        self._run.wait()
        if self._run.cancelled:
            return None
        try:
            self._run.value()
        except Drained:
            return None
        except BaseException as error:
            return error
        return None

    def hold(self) -> None:
        """The one batch is also the last."""

    def drain(self, seconds: float | None) -> bool:
        """Wait for the batch."""
        return self._run.wait(seconds)

    def abort(self) -> None:
        """End the batch."""
        self._run.cancel()

    def spark_status(self) -> str:
        """What Spark is doing."""
        return "Processing all that is there"


class _Reports:
    """Spark's own listener of one session, which tells each run its progress."""

    _by_session: dict[int, _Reports] = {}  # one per PySpark session of this process
    _guard = threading.Lock()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._receivers: dict[str, tuple[Callable[[Mapping[str, Any]], None], threading.Event]] = {}

    @classmethod
    def of(cls, spark: SparkSession) -> _Reports:
        with cls._guard:
            key = id(spark)
            if key not in cls._by_session:
                reports = cls()
                _listen(spark, reports)
                cls._by_session = {key: reports}  # sessions end one after the other
            return cls._by_session[key]

    def add(self, run: str, receiver: Callable[[Mapping[str, Any]], None]) -> threading.Event:
        """Tell a run its progress; the event is set when all was told."""
        end = threading.Event()
        with self._lock:
            self._receivers[run] = (receiver, end)
        return end

    def tell(self, run: str, progress: Mapping[str, Any]) -> None:
        with self._lock:
            found = self._receivers.get(run)
        if found is not None:
            found[0](progress)

    def end(self, run: str) -> None:
        with self._lock:
            found = self._receivers.pop(run, None)
        if found is not None:
            found[1].set()


class _Listener:
    """The Python side of Spark's listener: PySpark's own converts every event into Python objects, and this one only JSON."""

    def __init__(self, reports: _Reports) -> None:
        self._reports = reports

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's names
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress()
        self._reports.tell(progress.runId().toString(), json.loads(progress.json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        self._reports.tell(event.runId().toString(), {"idle": True})

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._reports.end(event.runId().toString())

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def _listen(spark: SparkSession, reports: _Reports) -> None:
    from pyspark import java_gateway

    jvm: Any = spark._jvm
    start: Any = java_gateway.ensure_callback_server_started
    start(spark.sparkContext._gateway)
    wrapper = jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(_Listener(reports))
    spark._jsparkSession.streams().addListener(wrapper)
