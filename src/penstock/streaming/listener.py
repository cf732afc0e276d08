"""Listeners: what they are told, and the threads in which they are told it.

Every listener has a queue and a thread of its own, so that one that is slow, or raises, holds up nobody else.
"""

from __future__ import annotations

import logging
import queue
import threading
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.streaming.progress import Progress

LOG = logging.getLogger("penstock.streaming")
QUEUE_LENGTH = 10_000


@dataclass(frozen=True, slots=True)
class QueryEvent:
    """Something happened to a query."""

    query_id: str
    name: str


@dataclass(frozen=True, slots=True)
class QueryStartedEvent(QueryEvent):
    """A query was started."""


@dataclass(frozen=True, slots=True)
class QueryProgressEvent(QueryEvent):
    """A query has done a batch."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class QueryIdleEvent(QueryEvent):
    """A query found nothing to do."""


@dataclass(frozen=True, slots=True)
class QueryTerminatedEvent(QueryEvent):
    """A query has ended; told exactly once for every query that was started."""

    exception: PenstockError | None
    last_progress: Progress | None


class StreamingQueryListener:
    """Override what you want to hear of.

    >>> class Alarm(StreamingQueryListener):
    ...     def on_query_terminated(self, event):
    ...         if event.exception:
    ...             print(f"{event.name} failed: {event.exception}")
    """

    def on_query_started(self, event: QueryStartedEvent) -> None:
        """A query was started."""

    def on_query_progress(self, event: QueryProgressEvent) -> None:
        """A query has done a batch."""

    def on_query_idle(self, event: QueryIdleEvent) -> None:
        """A query found nothing to do."""

    def on_query_terminated(self, event: QueryTerminatedEvent) -> None:
        """A query has ended."""


class Dispatcher:
    """The listeners of one session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._posts: dict[StreamingQueryListener, _Post] = {}

    def add(self, listener: StreamingQueryListener) -> None:
        """Tell a listener everything from now on; one that is there already is not added again."""
        with self._lock:
            if listener not in self._posts:
                self._posts[listener] = _Post(listener)

    def remove(self, listener: StreamingQueryListener) -> None:
        """Tell a listener nothing more."""
        with self._lock:
            post = self._posts.pop(listener, None)
        if post is not None:
            post.close()

    def tell(self, event: QueryEvent) -> None:
        """Hand an event to all listeners; returns at once."""
        with self._lock:
            posts = list(self._posts.values())
        for post in posts:
            post.put(event)

    def failures(self, listener: StreamingQueryListener) -> int:
        """How often a listener has raised."""
        with self._lock:
            post = self._posts.get(listener)
        return 0 if post is None else post.failures

    def dropped(self, listener: StreamingQueryListener) -> int:
        """How many events a listener missed because it was too slow."""
        with self._lock:
            post = self._posts.get(listener)
        return 0 if post is None else post.dropped

    def close(self, seconds: float = 5.0) -> None:
        """Let every listener hear what is still to be told, for as long as `seconds`, and end."""
        with self._lock:
            posts, self._posts = list(self._posts.values()), {}
        for post in posts:
            post.close()
        for post in posts:
            post.join(seconds)


class _Post:
    """One listener with its queue and thread; the end of a query is never dropped."""

    def __init__(self, listener: StreamingQueryListener) -> None:
        self.failures = 0
        self.dropped = 0
        self._listener = listener
        self._queue: queue.SimpleQueue[QueryEvent | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, name=f"penstock listener {type(listener).__name__}", daemon=True
        )
        self._thread.start()

    def put(self, event: QueryEvent) -> None:
        if self._queue.qsize() >= QUEUE_LENGTH and not isinstance(event, QueryTerminatedEvent):
            self.dropped += 1
            return
        self._queue.put(event)

    def close(self) -> None:
        self._queue.put(None)

    def join(self, seconds: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self._tell(event)
            except Exception:
                self.failures += 1
                LOG.exception(
                    "the listener %s raised on %s", type(self._listener).__name__, type(event).__name__
                )

    def _tell(self, event: QueryEvent) -> None:
        match event:
            case QueryStartedEvent():
                self._listener.on_query_started(event)
            case QueryProgressEvent():
                self._listener.on_query_progress(event)
            case QueryIdleEvent():
                self._listener.on_query_idle(event)
            case QueryTerminatedEvent():
                self._listener.on_query_terminated(event)
