"""A running query: its state, its progress, and its end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self

from penstock.backend import JobState
from penstock.errors import ConnectorError, PenstockError, StateError
from penstock.sinks.base import QueryStatus, Sink
from penstock.sinks.retry import RetryPolicy
from penstock.streaming.listener import (
    Dispatcher,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)
from penstock.streaming.metrics import Metrics
from penstock.streaming.progress import Progress
from penstock.streaming.trigger import OutputMode, Trigger

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.micro_batch.run import Run
    from penstock.streaming.job import QueryJob


class QueryState(StrEnum):
    """Where a query is in its life."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"

    @property
    def final(self) -> bool:
        """Whether the query has ended."""
        return self in (QueryState.STOPPED, QueryState.FAILED)


@dataclass(frozen=True, slots=True)
class StreamingQueryStatus:
    """A query's state, and what it is doing in words."""

    state: QueryState
    message: str


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """What was decided when a query was started."""

    id: str
    name: str
    mode: OutputMode
    trigger: Trigger
    checkpoint: str | None
    plan: str
    place: str | None = None
    """The line of the user's program that started it."""
    note: str | None = None
    """Why it runs otherwise than asked for, if so."""


PATIENCE = RetryPolicy(seconds=300.0, first=0.5, longest=15.0)
"""How a query waits for a source that is away, before it begins again from its checkpoint."""


@dataclass(slots=True)
class _Trouble:
    """A row of failures without a batch between them."""

    began: float
    progress: Progress | None
    attempts: int = 0


class Course(Protocol):
    """The runs that make up a query."""

    def first(self) -> Run:
        """The first run, also after a restart."""

    def after(self) -> Run | None:
        """What follows a run that came to its end by itself; None: the end of the query."""

    def mends(self, error: BaseException) -> bool:
        """Whether another first run can go on after an error, because something was learnt from it."""

    def close(self) -> None:
        """Called once, after the last run; raises what the sink raises."""


class StreamingQuery:
    """The handle of a query that was started; it goes on when nobody holds the handle."""

    def __init__(
        self,
        info: QueryInfo,
        sink: Sink,
        dispatcher: Dispatcher,
        metrics: Metrics,
        *,
        ended: Callable[[StreamingQuery], None],
        told: Callable[[BaseException], PenstockError],
        save: Callable[[str, str], int],
    ) -> None:
        self._info = info
        self._sink = sink
        self.waits = QueryStatus()
        """What the sink and the sources of the query wait for."""
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._ended = ended
        self._told = told
        self._save = save
        self._lock = threading.Lock()
        self._state = QueryState.STARTING
        self._last: Progress | None = None
        self._error: PenstockError | None = None
        self._done = threading.Event()
        self._run: Run | None = None
        self._course: Course | None = None
        self._job: QueryJob | None = None
        self._again = False
        self._fatal: StateError | None = None
        self._trouble: _Trouble | None = None

    @property
    def id(self) -> str:
        """The query's id; the same after a restart from its checkpoint."""
        return self._info.id

    @property
    def name(self) -> str:
        """The query's name."""
        return self._info.name

    @property
    def checkpoint(self) -> str | None:
        """Where the query keeps how far it has come."""
        return self._info.checkpoint

    @property
    def status(self) -> StreamingQueryStatus:
        """Its state now, and what it is doing in words."""
        with self._lock:
            state, error, run = self._state, self._error, self._run
        if error is not None:
            message = str(error)
        elif state.final or run is None:
            message = "ended" if state.final else "starting"
        else:
            message = self.waits.message or run.spark_status()
        return StreamingQueryStatus(state, f"{message} ({self._info.note})" if self._info.note else message)

    @property
    def last_progress(self) -> Progress | None:
        """What the last batch did; None before the first."""
        with self._lock:
            return self._last

    def exception(self) -> PenstockError | None:
        """The error that ended the query, if one did."""
        with self._lock:
            return self._error

    def await_termination(self) -> None:
        """Wait until the query ends; raises the error that it ended with."""
        self.await_termination_timeout(None)

    def await_termination_timeout(self, timeout: float | None) -> bool:
        """Wait up to `timeout` seconds; True when the query has ended; raises the error that it ended with."""
        if not self._done.wait(timeout):
            return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self, timeout: float | None = None) -> None:
        """End the query after the batch that runs now; after `timeout` seconds that batch is cut short.

        A batch that was cut short is done again after a restart. A second call does nothing.
        """
        run = self.begin_stop()
        if run is None:
            return
        if not run.drain(timeout):
            run.abort()
        self._done.wait()

    def begin_stop(self) -> Run | None:
        """Let no further batch begin, and return at once; None when there is nothing to stop."""
        with self._lock:
            if self._state.final or self._run is None:
                return None
            self._state = QueryState.STOPPING
            run = self._run
        if self._job is not None:
            self._job.state(JobState.STOPPING)
        self.waits.stopping.set()
        run.hold()
        return run

    def memory_batches(self) -> list[pa.RecordBatch]:
        """The rows that the memory sink keeps, as Arrow batches."""
        batches = self._sink.batches()
        if batches is None:
            raise StateError(
                f"the query '{self.name}' does not write to memory but to {self._sink.describe()}",
                code="STREAM_NOT_IN_MEMORY",
                hint='use .format("memory") to keep rows in this process',
            )
        return batches

    def savepoint(self, path: str | os.PathLike[str]) -> int:
        """Copy all that the query has committed to a new folder; return the last epoch in it.

        `.option("savepoint", path)` starts another query, or a changed one, from it.
        """
        if self._info.checkpoint is None:
            raise StateError(
                f"the query '{self.name}' has no checkpoint to copy",
                code="STREAM_SAVEPOINT_EMPTY",
                hint='start it with .option("checkpoint.location", "path/")',
            )
        return self._save(self._info.checkpoint, os.fspath(path))

    def explain(self) -> str:
        """The query's plan, where its rows go, and what is promised about them."""
        info = self._info
        lines = [
            f"query {self.name} ({self.id})",
            f"  trigger     {info.trigger}{f' ({info.note})' if info.note else ''}",
            f"  output mode {info.mode}",
            f"  sink        {self._sink.describe()}",
            f"  guarantee   {self._sink.guarantee}{f' ({reason})' if (reason := self._sink.guarantee_reason) else ''}",
            f"  checkpoint  {info.checkpoint or 'none'}",
            "",
            info.plan,
        ]
        return "\n".join(lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<penstock query {self.name} {self._state}>"

    def launch(
        self, course: Course, job: QueryJob | None, group_failures: Callable[[], int] = lambda: 0
    ) -> None:
        """Start the run and follow it to its end; only the writer calls this."""
        self._job = job
        self._course = course
        self._metrics.started(self.name, lambda: self.waits.retries, group_failures)
        self._dispatcher.tell(QueryStartedEvent(self.id, self.name))
        try:
            run = course.first()
            run.start()
            self._run = run
            if job is not None:
                job.run(on_lost=self._lost, on_request=self._requested, progress=lambda: self.last_progress)
        except BaseException as error:
            if self._run is not None:
                self._run.abort()
            self._finish(error)
            raise self._error or error from None
        with self._lock:
            if self._state is QueryState.STARTING:
                self._state = QueryState.RUNNING
        threading.Thread(
            target=self._follow, args=(run, course), name=f"penstock {self.name}", daemon=True
        ).start()

    def restart(self) -> None:
        """Let the batch that runs now come to its end, and go on from the checkpoint with a fresh start."""
        with self._lock:
            if self._state is not QueryState.RUNNING or self._run is None:
                return
            self._again = True
            run = self._run
        run.drain(None)

    def report(self, progress: Progress) -> None:
        """Take note of a batch that is done; only the writer's run calls this."""
        with self._lock:
            self._last = progress
        if self._job is not None:
            self._job.note(
                f"epoch {progress.batch_id}: {progress.input_rows} rows in, "
                f"{'?' if progress.output_rows is None else progress.output_rows} out, {progress.duration_ms} ms"
            )
        self._metrics.progress(self.name, progress)
        self._dispatcher.tell(QueryProgressEvent(self.id, self.name, progress))

    def idle(self) -> None:
        """Take note that there was nothing to do."""
        self._dispatcher.tell(QueryIdleEvent(self.id, self.name))

    def _follow(self, run: Run, course: Course) -> None:
        """Wait for the end; a restart that was asked for, or the next part of the course, begins another run."""
        while True:
            error = run.wait()
            with self._lock:
                again, self._again = self._again, False
            if error is not None and self._goes_on():
                error = self._mended(error, course)
                again = again or error is None
            if error is not None and self._goes_on() and self._passes(error):
                error, again = None, True
            over = error is not None or not self._goes_on()
            try:
                following = None if over else course.first() if again else course.after()
                if following is None:
                    break
                if again and self._job is not None:
                    self._job.state(JobState.STARTING)
                run = following
                run.start()
                with self._lock:
                    self._run = run
                if not self._goes_on():  # whoever asked for the end knew only the run before
                    run.abort()
                elif again and self._job is not None:
                    self._job.state(JobState.RUNNING)
            except BaseException as raised:
                error = raised
                break
        self._finish(error)

    def _mended(self, error: BaseException, course: Course) -> BaseException | None:
        """Return None when the course has learnt from an error how to go on, and otherwise what the query is to end with."""
        try:
            return None if course.mends(error) else error
        except PenstockError as raised:
            return raised

    def _passes(self, error: BaseException) -> bool:
        """Wait for something that is away, such as a broker; False when the error does not pass, or not in time.

        The wait is over as well when the query is to end, and then there is no error to tell of.
        """
        problem = self._told(error)
        if not isinstance(problem, ConnectorError) or not problem.retryable or self._info.trigger.ends:
            return False
        now = time.monotonic()
        if self._trouble is None or self._trouble.progress is not self._last:
            self._trouble = _Trouble(began=now, progress=self._last)
        self._trouble.attempts += 1
        if now - self._trouble.began > PATIENCE.seconds:
            return False
        pause = PATIENCE.pause(self._trouble.attempts)
        message = f"{problem.message} (attempt {self._trouble.attempts}, next in {pause:.1f} s)"
        self.waits.waiting(message)
        if self._job is not None:
            self._job.note(message)
        self.waits.stopping.wait(pause)
        self.waits.resumed()
        return True

    def _goes_on(self) -> bool:
        """Whether nobody has asked for the end, and the lease is ours."""
        with self._lock:
            return self._state is QueryState.RUNNING and self._fatal is None

    def _lost(self, error: StateError) -> None:
        """Another process may run the query now: stop at once."""
        with self._lock:
            self._fatal = error
            run = self._run
        if run is not None:
            run.abort()

    def _requested(self, what: Literal["stop", "restart"]) -> None:
        if what == "stop":
            self.stop()
        else:
            self.restart()

    def _finish(self, error: BaseException | None) -> None:
        error = self._fatal or error
        problem = None if error is None else self._told(error)
        if problem is not None and problem.where is None:
            problem.where = self._info.place
        try:
            if self._course is not None:
                self._course.close()
        except Exception as raised:
            problem = problem or self._told(raised)
        with self._lock:
            self._error = problem
            self._state = QueryState.STOPPED if problem is None else QueryState.FAILED
            last = self._last
        if self._job is not None:
            self._job.end(problem, last)
        self._ended(self)
        self._metrics.ended(self.name)
        self._dispatcher.tell(QueryTerminatedEvent(self.id, self.name, problem, last))
        self._done.set()
