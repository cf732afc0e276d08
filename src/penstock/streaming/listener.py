"""Listeners of queries: their events, and the threads that deliver them.

Every listener has its own queue and thread, so a listener that is slow, or raises, holds up no query and no other listener.
"""

from __future__ import annotations

import logging
import queue
import threading
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.streaming.progress import QueryProgress

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

    progress: QueryProgress


@dataclass(frozen=True, slots=True)
class QueryIdleEvent(QueryEvent):
    """A query found nothing to do."""


@dataclass(frozen=True, slots=True)
class QueryTerminatedEvent(QueryEvent):
    """A query has ended; comes exactly once for every query that was started."""

    exception: PenstockError | None
    last_progress: QueryProgress | None


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
        self._deliveries: dict[StreamingQueryListener, _Delivery] = {}

    def add(self, listener: StreamingQueryListener) -> None:
        """Send a listener all events from now on; one that is there already is not added again."""
        with self._lock:
            if listener not in self._deliveries:
                self._deliveries[listener] = _Delivery(listener)

    def remove(self, listener: StreamingQueryListener) -> None:
        """Send a listener nothing more."""
        with self._lock:
            delivery = self._deliveries.pop(listener, None)
        if delivery is not None:
            delivery.close()

    def publish(self, event: QueryEvent) -> None:
        """Hand an event to all listeners; returns at once."""
        with self._lock:
            deliveries = list(self._deliveries.values())
        for delivery in deliveries:
            delivery.put(event)

    def failures(self, listener: StreamingQueryListener) -> int:
        """How often a listener has raised."""
        with self._lock:
            delivery = self._deliveries.get(listener)
        return 0 if delivery is None else delivery.failures

    def dropped(self, listener: StreamingQueryListener) -> int:
        """How many events a listener missed because it was too slow."""
        with self._lock:
            delivery = self._deliveries.get(listener)
        return 0 if delivery is None else delivery.dropped

    def close(self, seconds: float = 5.0) -> None:
        """Deliver what is still in the queues, for as long as `seconds`, and end."""
        with self._lock:
            deliveries, self._deliveries = list(self._deliveries.values()), {}
        for delivery in deliveries:
            delivery.close()
        for delivery in deliveries:
            delivery.join(seconds)


class _Delivery:
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
                self._deliver(event)
            except Exception:
                self.failures += 1
                LOG.exception(
                    "the listener %s raised on %s", type(self._listener).__name__, type(event).__name__
                )

    def _deliver(self, event: QueryEvent) -> None:
        match event:
            case QueryStartedEvent():
                self._listener.on_query_started(event)
            case QueryProgressEvent():
                self._listener.on_query_progress(event)
            case QueryIdleEvent():
                self._listener.on_query_idle(event)
            case QueryTerminatedEvent():
                self._listener.on_query_terminated(event)
