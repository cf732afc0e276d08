"""REFRESH INCREMENTAL VIEW name EVERY '1 minute': a thread of the session, and a job that other processes see, stop
and restart."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING

from penstock.backend import JobState
from penstock.data.duration import milliseconds
from penstock.engine.session import Session
from penstock.engine.summary import StepSummary
from penstock.errors import ConfigError, ConnectorError, InternalError, PenstockError, StateError

if TYPE_CHECKING:
    from penstock.backend.model import Request

STOP_SECONDS = 30.0
Refresh = Callable[[], StepSummary | None]


class RefreshJob:
    """One view that is refreshed again and again; a refresh that fails ends it, unless trying again can help."""

    def __init__(self, session: Session, view: str, every: str, refresh: Refresh) -> None:
        from penstock.streaming.job import JobRecord

        self.view = view
        self.every = milliseconds(every, what="EVERY")
        if not self.every:
            raise ConfigError(
                "EVERY needs a duration above 0", code="CONFIG_DURATION", hint="write '1 minute'"
            )
        self.error: PenstockError | None = None
        self._refresh = refresh
        self._changed = threading.Condition()
        self._stopping = False
        self._asked = False
        self._tick = 0
        self._job = session.queries.job(view, on_lost=self._lose, on_request=self._answer)
        try:
            definition = {
                "statement": f"REFRESH INCREMENTAL VIEW {view} EVERY '{every}'",
                "view": view,
                "durability": session.flow.durability,
            }
            self._job.record(JobRecord(uuid.uuid4().hex, None, None, definition, kind="flow"))
            self._job.running()
        except BaseException:
            self._job.release()
            raise
        self._thread = threading.Thread(target=self._run, name=f"penstock-refresh-{view}", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Let the refresh that runs come to its end, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def wait(self) -> None:
        """Wait for the end, and raise what was the cause of it."""
        self._thread.join()
        if self.error is not None:
            raise self.error

    # In the thread

    def _run(self) -> None:
        error: PenstockError | None = None
        try:
            while self._refreshed() and self._pause():
                pass
        except PenstockError as raised:
            error = raised
        except Exception as raised:
            error = InternalError(f"{type(raised).__name__}: {raised}", where=f"view '{self.view}'")
        self.error = self.error or error
        self._job.end(self.error)

    def _refreshed(self) -> bool:
        from penstock.streaming.progress import QueryProgress

        started = monotonic()
        try:
            self._job.fence()
            summary = self._refresh()
        except ConnectorError as error:
            if not error.retryable:
                raise
            self._job.note(f"tried again later: {error}")
            self._job.state(JobState.RUNNING, str(error))
            return True
        self._tick = self._tick if summary is None else summary.tick
        self._job.progress(
            QueryProgress(
                trigger=f"every {self.every} ms",
                batch_id=self._tick,
                input_rows=0 if summary is None else summary.rows_in,
                output_rows=0 if summary is None else summary.rows_out,
                duration_ms=round((monotonic() - started) * 1000),
                timestamp=datetime.now(UTC).isoformat(),
            )
        )
        return True

    def _pause(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._asked, self.every / 1000)
            self._asked = False
            return not self._stopping

    # By the backend

    def _lose(self, error: StateError) -> None:
        self.error = error
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _answer(self, request: Request) -> None:
        if request == "stop":
            self._job.state(JobState.STOPPING)
            self.stop()
            return
        if request != "restart":
            return
        self._job.state(JobState.STARTING)
        self._job.state(JobState.RUNNING)
        with self._changed:
            self._asked = True
            self._changed.notify_all()
