"""A named query in the state backend: its lease, its record, its epochs and its log.

Other processes see the query there, ask it to stop or to start again, and cannot start one of the same name meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.backend import Heartbeat, Job, JobState, Lease, Start, this_process
from penstock.backend.address import hidden
from penstock.backend.job_values import JobValues
from penstock.backend.lease import TTL_MS
from penstock.errors import PenstockError, StateError
from penstock.streaming.epoch_log import EpochLog

if TYPE_CHECKING:
    from penstock.backend import Backend
    from penstock.backend.model import Kind, Request
    from penstock.streaming.progress import QueryProgress

LOG_BYTES = 1 << 20
LOG_FILES = 3


SINK = "sink"
"""The namespace of what the sink of a query remembers."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What the backend records about a query when it starts."""

    query: str
    checkpoint: str | None
    call_site: str | None
    definition: Mapping[str, Any]
    kind: Kind = "query"
    keeps_start: bool = False
    """Whether what was recorded of its last start is still how it is started: it runs for one epoch only."""


class QueryJob:
    """A named query as the backend knows it; the lease is active from the constructor to `end` or `release`.

    `on_lost` is called once when the lease is lost: another process may run the query then. `on_request` is called, in a thread
    for each request, with what another process asks for. `hide` takes secrets out of what is logged and recorded.
    """

    def __init__(
        self,
        backend: Backend,
        name: str,
        *,
        session: str,
        logs: Path,
        on_lost: Callable[[StateError], None],
        on_request: Callable[[Request], None],
        ttl_ms: int = TTL_MS,
        hide: Callable[[str], str] = str,
    ) -> None:
        self._backend = backend
        self._hide = hide
        self._lease: Lease = backend.leases.acquire(name, this_process(session), ttl_ms=ttl_ms)
        self._path = logs / f"{name.replace('/', '_')}.log"
        self._log = _logger(name, self._path)
        self._lock = threading.Lock()
        self._last: QueryProgress | None = None
        # Now, and not when the query runs: a sink that waits for its server may take longer than a lease lasts.
        self._heartbeat = Heartbeat(
            backend, self._lease, on_lost=on_lost, on_request=on_request, progress=self._last_progress
        ).start()
        self._epoch_log = EpochLog(backend, self._lease)

    def record(self, record: JobRecord) -> None:
        """Record what is started."""
        before = self._backend.jobs.find(self._lease.job)
        if before is not None and before.id != record.query:
            # Another query had this name: its numbers mean nothing here.
            self._backend.epochs.clear(self._lease)
            self.values().clear()
        start = Start(self._command(), os.getcwd(), record.call_site, again="request")
        if record.keeps_start and before is not None:
            start = before.start or start
        self._backend.jobs.record(
            Job(
                self._lease.job,
                kind=record.kind,
                definition=record.definition,
                checkpoint=record.checkpoint,
                log=str(self._path),
                start=start,
                id=record.query,
            ),
            self._lease,
        )

    def _command(self) -> tuple[str, ...]:
        """The command line, for people: what is written to the state has no secrets."""
        return tuple(self._hide(hidden(word)) for word in sys.orig_argv)

    def running(self) -> None:
        """Record that the query runs; refused when the lease is lost."""
        if self._heartbeat.lost is not None:
            raise self._heartbeat.lost
        self._backend.jobs.update(self._lease, state=JobState.RUNNING)
        self._log.info("started by process %d", os.getpid())

    def values(self) -> JobValues:
        """Return what the sink of the query remembers."""
        return self.values_of(SINK)

    def source_values(self, name: str) -> JobValues:
        """Return what a source of the query remembers."""
        return self.values_of(f"source {name}")

    def values_of(self, namespace: str) -> JobValues:
        """Return what is remembered under a name of one's own."""
        return JobValues(self._backend, self._lease.job, namespace, self._lease)

    def fence(self) -> None:
        """Raise unless the lease is still ours."""
        self._heartbeat.require()

    def begin(self, epoch: int) -> None:
        """Log that an epoch begins."""
        self._epoch_log.begin(epoch)

    def commit(self, epoch: int, rows: int | None) -> None:
        """Log that an epoch is written."""
        self._epoch_log.commit(epoch, rows)

    def progress(self, progress: QueryProgress) -> None:
        """Log what a batch did; the next renewal of the lease records it."""
        sources = (replace(source, description=self._hide(source.description)) for source in progress.sources)
        with self._lock:
            self._last = replace(progress, sources=tuple(sources))
        rows = "?" if progress.output_rows is None else progress.output_rows
        self.note(
            f"epoch {progress.batch_id}: {progress.input_rows} rows in, {rows} out, {progress.duration_ms} ms"
        )

    def note(self, text: str) -> None:
        """Write a line into the log of the query."""
        self._log.info("%s", self._hide(text))

    def state(self, state: JobState, message: str | None = None) -> None:
        """Record a change of state; a backend that is away does not stop the query."""
        with contextlib.suppress(PenstockError):
            self._backend.jobs.update(
                self._lease, state=state, message=None if message is None else self._hide(message)
            )

    def end(self, error: PenstockError | None) -> None:
        """Record how the query ended, and release the lease."""
        self._heartbeat.stop()
        state = JobState.STOPPED if error is None else JobState.FAILED
        text = "" if error is None else self._hide(str(error))
        self._log.log(logging.INFO if error is None else logging.ERROR, "ended: %s", text or "stopped")
        with contextlib.suppress(PenstockError):  # the lease ends by itself
            self._backend.jobs.update(
                self._lease,
                state=state,
                message=text,
                progress=self._last_progress(),
            )
        self.release()

    def release(self) -> None:
        """Release the lease; when the backend is away, it ends by itself."""
        self._heartbeat.stop()
        self._epoch_log.close()
        with contextlib.suppress(PenstockError):
            self._backend.leases.release(self._lease)
        for handler in list(self._log.handlers):
            self._log.removeHandler(handler)
            handler.close()

    def _last_progress(self) -> Mapping[str, Any] | None:
        with self._lock:
            last = self._last
        return None if last is None else asdict(last)


def _logger(name: str, path: Path) -> logging.Logger:
    """Return a logger with a file for the query, which `penstock jobs logs` shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(
        path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8", delay=True
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.Logger(f"penstock.query.{name}", logging.INFO)
    logger.addHandler(handler)
    return logger
