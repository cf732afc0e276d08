"""The queries of a session, and the manager that users hold."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import StateError
from penstock.streaming.job import QueryJob
from penstock.streaming.listener import Dispatcher, StreamingQueryListener
from penstock.streaming.metrics import Metrics
from penstock.streaming.taps import Taps

if TYPE_CHECKING:
    from penstock.backend import Backend
    from penstock.backend.model import Request
    from penstock.config import Settings
    from penstock.streaming.query import Runtime, StreamingQuery

STOP_SECONDS = 30.0
"""How long the end of a session waits for batches that run."""


class Queries:
    """All queries that one session has started and that have not ended."""

    def __init__(self, settings: Settings, *, session: str) -> None:
        self.settings = settings
        self.dispatcher = Dispatcher()
        self.metrics = Metrics()
        self.taps = Taps()
        self._session = session
        self._backend: Backend | None = None
        self._lock = threading.Lock()
        self._active: dict[str, Runtime] = {}
        self._temporary: list[str] = []
        _ALL.add(self)

    def backend(self) -> Backend:
        """The state backend, open until the session ends."""
        from penstock.backend import open_backend

        with self._lock:
            if self._backend is None:
                self._backend = open_backend(self.settings)
            return self._backend

    def existing_backend(self) -> Backend | None:
        """The state backend for somebody who only looks; None when there is none yet, and none is made."""
        from penstock.backend import open_backend

        with self._lock:
            if self._backend is None:
                try:
                    self._backend = open_backend(self.settings, create=False)
                except StateError as error:
                    if error.code != "STATE_MISSING":
                        raise
            return self._backend

    def job(
        self,
        name: str,
        *,
        on_lost: Callable[[StateError], None],
        on_request: Callable[[Request], None],
        hide: Callable[[str], str] = str,
    ) -> QueryJob:
        """Take the lease of a name; refused when a query of that name runs, here or in another process."""
        with self._lock:
            if name in self._active:
                raise StateError(
                    f"a query '{name}' is running in this session",
                    code="STREAM_NAME_TAKEN",
                    hint="stop it first, or choose another name",
                )
        return QueryJob(
            self.backend(),
            name,
            session=self._session,
            logs=self.settings.home / "logs" / "queries",
            on_lost=on_lost,
            on_request=on_request,
            hide=hide,
        )

    def add(self, query: Runtime) -> None:
        """Own a query from now on."""
        with self._lock:
            self._active[query.plan.name] = query

    def remove(self, query: Runtime) -> None:
        """Forget a query that has ended."""
        with self._lock:
            if self._active.get(query.plan.name) is query:
                del self._active[query.plan.name]

    def active(self) -> list[Runtime]:
        """Return the queries that run now."""
        with self._lock:
            return list(self._active.values())

    def temporary_folder(self) -> str:
        """Make a folder for what ends with the session: checkpoints that nobody named, rows that are streamed once."""
        path = tempfile.mkdtemp(prefix="penstock-stream-")
        with self._lock:
            self._temporary.append(path)
        return path

    def close(self, seconds: float = STOP_SECONDS) -> None:
        """Stop all queries, let listeners hear of it, and delete temporary folders."""
        running = self.active()
        for query in running:
            query.begin_stop()
        for query in running:
            query.stop(seconds)
        self.dispatcher.close()
        self.metrics.close()
        with self._lock:
            temporary, self._temporary = self._temporary, []
            backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()
        for path in temporary:
            shutil.rmtree(path, ignore_errors=True)


# The interpreter ends once for all sessions, so the process must know them; a session that is gone is not kept alive here.
_ALL: weakref.WeakSet[Queries] = weakref.WeakSet()


def _at_exit() -> None:
    """A program that ends stops its queries: no batch is cut short without need."""
    for queries in list(_ALL):
        queries.close(5.0)


# The session of Spark registers its own end when it is imported, which is before this module: so queries end before Spark.
atexit.register(_at_exit)


class OwnsQueries(Protocol):
    """What the manager needs of a session."""

    @property
    def queries(self) -> Queries:
        """The queries of the session."""


class StreamingQueryManager:
    """The queries of a session, for services that own many.

    >>> manager = StreamingQueryManager(session)           # doctest: +SKIP
    >>> manager.add_listener(Alarm())                      # doctest: +SKIP
    """

    def __init__(self, session: OwnsQueries) -> None:
        self._queries = session.queries

    def active(self) -> list[StreamingQuery]:
        """Return the queries that run now."""
        return [query.handle for query in self._queries.active()]

    def get(self, name_or_id: str) -> StreamingQuery | None:
        """Return the running query of that name or id."""
        return next(
            (query for query in self.active() if name_or_id in (query.name, query.id)),
            None,
        )

    def add_listener(self, listener: StreamingQueryListener) -> None:
        """Send a listener the events of all queries of the session from now on."""
        self._queries.dispatcher.add(listener)

    def remove_listener(self, listener: StreamingQueryListener) -> None:
        """Send a listener nothing more."""
        self._queries.dispatcher.remove(listener)

    def serve_metrics(self, port: int, *, host: str = "127.0.0.1") -> int:
        """Answer Prometheus on a port until the session ends (0 takes a free one); return the port."""
        return self._queries.metrics.serve(port, host)

    def stop_all(self, timeout: float | None = None) -> None:
        """Stop all running queries."""
        for query in self.active():
            query.stop(timeout)
