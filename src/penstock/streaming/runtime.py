"""One running query: the object that owns its sink, its sources, its job, its schedule and its status."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.backend import JobState
from penstock.errors import ConnectorError, PenstockError, StateError
from penstock.sinks.base import QueryStatus, Target
from penstock.sinks.retry import RetryPolicy
from penstock.spark.errors.query import translated
from penstock.spark.micro_batch import checkpoint
from penstock.spark.micro_batch.checkpoint import CheckpointState
from penstock.spark.micro_batch.gate import Gate
from penstock.spark.micro_batch.query_run import QueryRun, RunSettings
from penstock.spark.reader import absolute
from penstock.streaming.epoch_writer import EpochWriter
from penstock.streaming.job import JobRecord
from penstock.streaming.query import QueryState, StreamingQuery
from penstock.streaming.query_events import QueryEvents
from penstock.streaming.schedule import BatchSchedule, MicroBatchSchedule, RealTimeSchedule, RunSchedule
from penstock.streaming.trigger import Trigger, TriggerKind

if TYPE_CHECKING:
    from penstock.backend.model import Request
    from penstock.streaming.progress import QueryProgress
    from penstock.streaming.queries import Queries
    from penstock.streaming.query_plan import QueryPlan

SOURCE_RETRY = RetryPolicy(seconds=300.0, first=0.5, longest=15.0)
"""How a query waits for a source that is away, before it begins again from its checkpoint."""


@dataclass(slots=True)
class _Outage:
    """Failures that follow each other without a batch in between."""

    began: float
    progress: QueryProgress | None
    attempts: int = 0


class QueryRuntime:
    """Runs one query from its start to its end.

    Data and events go one way: the schedule starts runs of Spark; a run gives epochs and reports to the epoch writer; the epoch
    writer publishes progress to the job, the metrics and the listeners. What others ask for (stop, restart, a lost lease) comes
    in through methods of this class, in any thread.
    """

    def __init__(self, plan: QueryPlan, queries: Queries) -> None:
        """Take the lease of a named query and prepare the checkpoint; what fails leaves no lease behind."""
        self.plan = plan
        self.handle = StreamingQuery(self)
        self.status = QueryStatus()
        self._queries = queries
        self._lock = threading.Lock()
        self._state = QueryState.STARTING
        self._error: PenstockError | None = None
        self._lease_error: StateError | None = None
        self._outage: _Outage | None = None
        self._run: QueryRun | None = None
        self._restarting = False
        self._gate = Gate()
        self._pausing = threading.Lock()
        """Locked while it is recorded whether the query is paused, and while the gate opens: so that what is recorded
        last is true."""
        self._was_stopped = False
        self._started = threading.Event()
        """Set when the first run has started, or will not."""
        self._ended = threading.Event()
        self._job = (
            queries.job(plan.name, on_lost=self._lease_lost, on_request=self._request, hide=plan.hide)
            if plan.named
            else None
        )
        try:
            with translated():
                location, state = self._prepare_checkpoint()
                plan = self.plan = replace(plan, target=self._target(state))
                self._groups = plan.sources.consumer_groups(self.note)
                self._events = QueryEvents(
                    plan.id, plan.name, job=self._job, metrics=queries.metrics, dispatcher=queries.dispatcher
                )
                self._writer = self._new_writer()
                self._schedule = self._new_schedule(location, state)
                if self._job is not None:
                    record = JobRecord(plan.id, plan.location, plan.call_site, plan.definition(), plan.kind)
                    self._job.record(replace(record, keeps_start=plan.wanted_only))
        except BaseException:
            self._started.set()
            if self._job is not None:
                self._job.release()
            raise

    def _prepare_checkpoint(self) -> tuple[str | None, CheckpointState]:
        """Prepare the checkpoint: not before the lease is ours, because another process may have changed it since the plan."""
        plan = self.plan
        if plan.is_batch:
            return None, CheckpointState(plan.id, -1, checksums=False)
        location = plan.location or self._queries.temporary_folder()
        spark = plan.frame.sparkSession
        if plan.prepare is not None:
            plan.prepare(location, self._job)
        state = checkpoint.prepare(spark, location, plan.shape, query=plan.id, savepoint=plan.savepoint)
        return location, state

    def _target(self, state: CheckpointState) -> Target:
        return replace(
            self.plan.target,
            query=state.query,
            committed=state.committed,
            begun=state.begun,
            state=None if self._job is None else self._job.values(),
            status=self.status,
        )

    def _new_writer(self) -> EpochWriter:
        plan = self.plan
        return EpochWriter(
            plan.sink,
            plan.target,
            trigger=str(plan.trigger),
            job=self._job,
            side_outputs=plan.sources.side_outputs,
            groups=self._groups,
            events=self._events,
            feeds=plan.sources.feeds,
            ends=plan.trigger.ends,
            done=self._end_soon,
        )

    def _new_schedule(self, location: str | None, state: CheckpointState) -> RunSchedule:
        plan, writer, sources = self.plan, self._writer, self.plan.sources
        if location is None:
            batch = sources.as_batch(plan.frame, self._queries.temporary_folder)
            tag = f"penstock-stream-{plan.id}"
            return BatchSchedule(batch.frame, writer, sources=sources, tag=tag, ends=batch.ends)
        settings = RunSettings(
            plan.mode.value,
            _spark_trigger(plan.trigger),
            location,
            plan.name,
            rows_only=plan.rows_only,
            alone=plan.named or plan.location is None,
            checksums=state.checksums,
            evolves=checkpoint.evolves(plan.shape),
        )
        if plan.is_live:
            interval_ms = plan.trigger.interval_ms
            return RealTimeSchedule(plan.frame, writer, settings=settings, interval_ms=interval_ms)
        return MicroBatchSchedule(
            plan.frame,
            writer,
            sources=sources,
            settings=settings,
            close_windows=plan.close_windows,
            wanted_only=plan.wanted_only,
            gate=self._gate,
        )

    @property
    def state(self) -> QueryState:
        """Where the query is in its life."""
        with self._lock:
            return self._state

    @property
    def error(self) -> PenstockError | None:
        """The error that ended the query, if one did."""
        with self._lock:
            return self._error

    @property
    def was_stopped(self) -> bool:
        """Whether somebody asked for its end."""
        with self._lock:
            return self._was_stopped

    @property
    def last_progress(self) -> QueryProgress | None:
        """What the last batch did; None before the first."""
        return self._events.last_progress

    def state_and_message(self) -> tuple[QueryState, str]:
        """Return the state, and what the query is doing in words."""
        with self._lock:
            state, error, run = self._state, self._error, self._run
        if error is not None:
            message = str(error)
        elif state.final or run is None:
            message = "ended" if state.final else "starting"
        elif self._gate.is_closed:
            message = "paused"
        else:
            message = self.status.message or run.spark_status()
        return state, f"{message} ({self.plan.note})" if self.plan.note else message

    def savepoint(self, path: str) -> int:
        """Copy what the checkpoint has committed to a new folder; return the last epoch in it."""
        assert self.plan.location is not None
        return checkpoint.save(self.plan.frame.sparkSession, self.plan.location, absolute(path))

    def start(self) -> None:
        """Start the first run, and a thread that follows the query to its end; raises what is refused at once."""
        self._queries.add(self)
        self._events.started(self.status, self._groups)
        try:
            run = self._schedule.first()
            run.start()
            with self._lock:
                self._run = run
            if self._job is not None:
                self._job.running()
        except BaseException as error:
            if self._run is not None:
                self._run.abort()
            self._finish(error)
            self._started.set()
            raise self._error or error from None
        with self._lock:
            if self._state is QueryState.STARTING:
                self._state = QueryState.RUNNING
        threading.Thread(
            target=self._follow, args=(run,), name=f"penstock {self.plan.name}", daemon=True
        ).start()
        self._started.set()

    def wait(self, seconds: float | None) -> bool:
        """Wait for the end; False when it takes longer."""
        return self._ended.wait(seconds)

    def stop(self, seconds: float | None = None) -> None:
        """End after the batch that runs now; after so many seconds that batch is cut short."""
        run = self.begin_stop()
        if run is None:
            return
        if not run.drain(seconds):
            run.abort()
        self._ended.wait()

    def begin_stop(self) -> QueryRun | None:
        """Let no further batch begin, and return at once; None when there is nothing to stop."""
        with self._lock:
            if self._state.final or self._run is None:
                return None
            self._state = QueryState.STOPPING
            self._was_stopped = True
            run = self._run
        if self._job is not None:
            self._job.state(JobState.STOPPING)
        self.status.stopping.set()
        run.hold()
        return run

    def _end_soon(self) -> None:
        """End in order, without waiting for it: the thread that asks may be the one that reports the end."""
        threading.Thread(target=self.stop, name=f"penstock stop {self.plan.name}", daemon=True).start()

    def restart(self) -> None:
        """Let the batch that runs now come to its end, and begin again from the checkpoint."""
        with self._lock:
            if self._state is not QueryState.RUNNING or self._run is None:
                return
            self._restarting = True
            run = self._run
        run.drain(None)

    def pause(self) -> None:
        """Hold the query between two batches, once the one that runs is done; it keeps its lease and its place."""
        if not self.plan.is_pausable:
            self.note("it has no batches between which it could be paused")
            return
        self._gate.close()
        with self._pausing:
            if self._goes_on() and self._gate.is_closed:
                self.note("paused")
                self._record_running()

    def resume(self) -> None:
        """Go on after a pause; a query that is not paused says that it runs."""
        with self._pausing:
            if self._gate.is_closed:
                self.note("resumed")
            self._gate.open()
            if self._goes_on():
                self._record_running()

    def _record_running(self) -> None:
        """Record that the query runs, or that it is paused."""
        if self._job is not None:
            self._job.state(JobState.PAUSED if self._gate.is_closed else JobState.RUNNING)

    def _follow(self, run: QueryRun) -> None:
        """Follow the runs of the query, one after the other, to its end."""
        error: BaseException | None = None
        following: QueryRun | None = run
        try:
            while following is not None:
                following = self._next(following.wait())
        except BaseException as raised:
            error = raised
        self._finish(error)

    def _next(self, error: BaseException | None) -> QueryRun | None:
        """Start the run after one that has ended; None at the end of the query. Raises the error that ends the query."""
        with self._lock:
            again, self._restarting = self._restarting, False
        if error is not None:
            self._recover(error)
            again = True
        if not self._goes_on():
            return None
        run = self._schedule.first() if again else self._schedule.following()
        if run is None:
            return None
        if again and self._job is not None:
            self._job.state(JobState.STARTING)
        run.start()
        with self._lock:
            self._run = run
        if not self._goes_on():  # a stop in between knew only the run before
            run.abort()
        elif again:
            with self._pausing:
                self._record_running()
        return run

    def _recover(self, error: BaseException) -> None:
        """Return when another run can go on after an error, and raise it otherwise.

        It can when the sources have learnt from the error, or when something that was away, such as a broker, may be back.
        """
        if not self._goes_on():
            raise error
        try:
            if self.plan.sources.learn(error):
                return
        except PenstockError as refused:
            error = refused
        if not self._outlasts(error):
            raise error

    def _outlasts(self, error: BaseException) -> bool:
        """Wait for a source that is away; False when the error does not pass, or not in time.

        The wait is over as well when the query is to end, and then it ends without an error.
        """
        problem = self._translated(error)
        if not isinstance(problem, ConnectorError) or not problem.retryable or self.plan.trigger.ends:
            return False
        now, last = time.monotonic(), self.last_progress
        if self._outage is None or self._outage.progress is not last:
            self._outage = _Outage(began=now, progress=last)
        self._outage.attempts += 1
        if now - self._outage.began > SOURCE_RETRY.seconds:
            return False
        pause = SOURCE_RETRY.pause(self._outage.attempts)
        message = f"{problem.message} (attempt {self._outage.attempts}, next in {pause:.1f} s)"
        self.status.waiting(message)
        self.note(message)
        self.status.stopping.wait(pause)
        self.status.resumed()
        return True

    def note(self, text: str) -> None:
        """Write a line into the log of a named query."""
        if self._job is not None:
            self._job.note(text)

    def _goes_on(self) -> bool:
        """Whether nobody has asked for the end, and the lease is ours."""
        with self._lock:
            return self._state is QueryState.RUNNING and self._lease_error is None

    def _lease_lost(self, error: StateError) -> None:
        """Stop at once, because another process may run the query now."""
        with self._lock:
            self._lease_error = error
            run = self._run
        if run is not None:
            run.abort()

    def _request(self, request: Request) -> None:
        """Do what another process asks for, once the query has started."""
        self._started.wait()
        match request:
            case "stop":
                self.stop()
            case "restart":
                self.restart()
            case "pause":
                self.pause()
            case "resume":
                self.resume()

    def _translated(self, error: BaseException) -> PenstockError:
        """An error of Spark's, of a sink or of the user's functions as penstock's, without secrets."""
        problem = self.plan.sources.translate(error)
        problem.hide(self.plan.hide)
        return problem

    def _finish(self, error: BaseException | None) -> None:
        """Close everything, and publish how the query ended."""
        error = self._lease_error or error
        problem = None if error is None else self._translated(error)
        if problem is not None and problem.where is None:
            problem.where = self.plan.call_site
        try:
            self._writer.close()
        except Exception as raised:
            problem = problem or self._translated(raised)
        with self._lock:
            self._error = problem
            self._state = QueryState.STOPPED if problem is None else QueryState.FAILED
        if self._job is not None:
            self._job.end(problem)
        self._queries.remove(self)
        self._events.terminated(problem)
        self._ended.set()


def _spark_trigger(trigger: Trigger) -> dict[str, Any]:
    if trigger.kind is TriggerKind.AVAILABLE_NOW:
        return {"availableNow": True}
    interval = trigger.interval_ms if trigger.kind is TriggerKind.PROCESSING_TIME else 0
    return {"processingTime": f"{interval} milliseconds"}
