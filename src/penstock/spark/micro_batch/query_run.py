"""One run of a query by Spark: its batches go through a function of ours, and its end can be asked for in two ways."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from penstock.spark.boot import gateway
from penstock.spark.micro_batch import checkpoint, checkpoint_lock, local_files
from penstock.spark.micro_batch.file_order import FileOrder
from penstock.spark.micro_batch.gate import Gate
from penstock.spark.tagged_call import TaggedCall

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Body = Callable[["DataFrame", int], None]
OnReport = Callable[[Mapping[str, Any]], None]
"""Gets Spark's progress of one batch, or {"idle": True}, in the thread of Spark's listener."""
POLL_SECONDS = 0.02
EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
QUICK_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
CHECKSUMS = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
LAST_REPORT_SECONDS = 5.0
_starting = threading.Lock()


class Drained(Exception):  # not an error: the way a run ends between two batches
    """Raised in front of a batch that shall not begin, because the run is to end."""


class QueryRun(Protocol):
    """What the runtime of a query needs of the run below it."""

    def start(self) -> None:
        """Start the run; raises what Spark refuses at once."""

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
class RunSettings:
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
    """A query of Spark's own: its start, its end, and Spark's progress reports, which `on_report` gets."""

    def __init__(self, frame: DataFrame, settings: RunSettings, on_report: OnReport) -> None:
        self._frame = frame
        self._settings = settings
        self._on_report = on_report
        self._draining = threading.Event()
        self._aborted = False
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._last_report: threading.Event | None = None
        self._checkpoint_lock: checkpoint_lock.CheckpointLock | None = None

    def start(self) -> None:
        """Start Spark's query; raises what Spark refuses at once."""
        writer = self._writer().option("checkpointLocation", self._settings.checkpoint)
        if self._settings.name:
            writer = writer.queryName(self._settings.name)
        spark = self._frame.sparkSession
        local_files.quicken(spark)
        reports = _Reports.of(spark)
        self._checkpoint_lock = checkpoint_lock.acquire(self._settings.checkpoint)
        quick = self._settings.alone and self._checkpoint_lock is not None
        conf = _checkpoint_conf(spark, quick=quick, checksums=self._settings.checksums)
        try:
            with _session_conf(spark, {**conf, **self._more_conf()}):
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
        self._last_report = reports.add(str(self._query.runId), self._on_report)

    def wait(self) -> BaseException | None:
        """Wait for the end, from one thread only; return the error that it ended with."""
        query = self._started()
        error: BaseException | None = None
        try:
            query.awaitTermination()
        except Exception as raised:
            error = raised
        self._ended.set()
        with contextlib.suppress(Exception):  # the query has ended, and its next run does such a batch
            self._forget_unstarted()
        self._release()
        assert self._last_report is not None
        if error is None or not gateway.is_lost(error):  # a JVM that is gone reports no more
            self._last_report.wait(LAST_REPORT_SECONDS)
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

    def _more_conf(self) -> dict[str, str]:
        """Settings of Spark that the query shall start with."""
        return {}

    def _forget_unstarted(self) -> None:  # noqa: B027  # only micro-batches are laid down before they begin
        """Called at the end, while the checkpoint is still ours: take out of it what was laid down of a batch that
        did not begin."""

    def _release(self) -> None:
        lock, self._checkpoint_lock = self._checkpoint_lock, None
        if lock is not None:
            lock.release()

    def _started(self) -> StreamingQuery:
        assert self._query is not None, "the run has not been started"
        return self._query


class MicroBatches(SparkRun):
    """Spark's micro-batches; `body` gets each batch."""

    def __init__(
        self,
        frame: DataFrame,
        settings: RunSettings,
        body: Body,
        on_report: OnReport,
        *,
        gate: Gate,
    ) -> None:
        super().__init__(frame, settings, on_report)
        self._body = body
        self._gate = gate
        self._file_order: FileOrder | None = None
        self._begun_before = -1
        """The last batch that was laid down before this run: others may have rows of it already."""
        self._unstarted: int | None = None

    def start(self) -> None:
        self._begun_before = checkpoint.last_epochs(self._frame.sparkSession, self._settings.checkpoint)[1]
        super().start()

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

    def _more_conf(self) -> dict[str, str]:
        conf = {EMPTY_BATCHES: "false"} if self._settings.rows_only else {}
        if self._settings.evolves and self._frame.sparkSession.conf.get(ENCODING, None) is None:
            conf[ENCODING] = "avro"
        return conf

    def _batch(self, frame: DataFrame, number: int) -> None:
        try:
            with self._gate.passing(self._draining):
                if self._draining.is_set():
                    self._unstarted = number
                    raise Drained
                if self._file_order is None:
                    self._file_order = FileOrder(frame.sparkSession)
                self._file_order.arrange(frame)
                self._body(frame, number)
        except BaseException as error:
            self._failure = error
            raise

    def _forget_unstarted(self) -> None:
        """Take the offsets of a batch that did not begin out of the checkpoint: the query has ended behind the batch
        before it."""
        number = self._unstarted
        if number is not None and number > self._begun_before:
            checkpoint.forget_offsets(self._frame.sparkSession, self._settings.checkpoint, number)


class OneBatch:
    """A batch query that runs as a stream does: all rows are epoch 0."""

    def __init__(self, frame: DataFrame, body: Body, *, tag: str) -> None:
        self._run = TaggedCall(frame.sparkSession, lambda: body(frame, 0), tag=tag)

    def start(self) -> None:
        """Start the batch in a thread."""
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


def _checkpoint_conf(spark: SparkSession, *, quick: bool, checksums: bool) -> dict[str, str]:
    """Return how Spark shall write the files of a checkpoint; what the user has set stays.

    Spark writes the files of its logs through Hadoop's newer interface, which starts a program of the system for every rename:
    half of the time of a small batch. The older interface is quick, but looks and then renames, so that of two processes that
    write the same file none would notice: it is only for a run that is alone with its checkpoint.
    """
    conf = {FILE_MANAGER: QUICK_FILE_MANAGER} if quick else {}
    if not checksums:
        conf[CHECKSUMS] = "false"
    return {key: value for key, value in conf.items() if spark.conf.get(key, None) in (None, "true")}


@contextlib.contextmanager
def _session_conf(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session while a query takes its copy of them; one query at a time."""
    with _starting:
        before = {key: spark.conf.get(key, None) for key in conf}
        for key, value in conf.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, old in before.items():
                if old is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, old)


class _Reports:
    """Spark's listener of one session, which hands each run its progress reports."""

    # Spark has one list of listeners per session, and all runs of a session share one entry. PySpark has no place for
    # it, so it is here; the key is the session object itself and not its id(), which another session may have later.
    _by_session: WeakKeyDictionary[SparkSession, _Reports] = WeakKeyDictionary()
    _guard = threading.Lock()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._receivers: dict[str, tuple[OnReport, threading.Event]] = {}

    @classmethod
    def of(cls, spark: SparkSession) -> _Reports:
        with cls._guard:
            reports = cls._by_session.get(spark)
            if reports is None:
                reports = cls()
                _listen(spark, reports)
                cls._by_session[spark] = reports
            return reports

    def add(self, run: str, receiver: OnReport) -> threading.Event:
        """Hand a run its reports; the event is set after the last one."""
        last = threading.Event()
        with self._lock:
            self._receivers[run] = (receiver, last)
        return last

    def report(self, run: str, progress: Mapping[str, Any]) -> None:
        with self._lock:
            receiver, _ = self._receivers.get(run, (None, None))
        if receiver is not None:
            receiver(progress)

    def end(self, run: str) -> None:
        with self._lock:
            _, last = self._receivers.pop(run, (None, None))
        if last is not None:
            last.set()


class _Listener:
    """The Python side of Spark's listener: PySpark's own converts every event into Python objects, and this one only JSON."""

    def __init__(self, reports: _Reports) -> None:
        self._reports = reports

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's names
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress()
        self._reports.report(progress.runId().toString(), json.loads(progress.json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        self._reports.report(event.runId().toString(), {"idle": True})

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
