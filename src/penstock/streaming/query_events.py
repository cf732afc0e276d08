"""What happens to one query, published to its job, to the metrics and to the listeners of its session."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.streaming.listener import (
    Dispatcher,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.sinks.base import QueryStatus
    from penstock.streaming.consumer_groups import ConsumerGroups
    from penstock.streaming.job import QueryJob
    from penstock.streaming.metrics import Metrics
    from penstock.streaming.progress import QueryProgress


class QueryEvents:
    """Publishes the events of one query, in the thread of the caller; `last_progress` is safe in every thread."""

    def __init__(
        self, query_id: str, name: str, *, job: QueryJob | None, metrics: Metrics, dispatcher: Dispatcher
    ) -> None:
        self._query_id = query_id
        self._name = name
        self._job = job
        self._metrics = metrics
        self._dispatcher = dispatcher
        self._lock = threading.Lock()
        self._last: QueryProgress | None = None

    @property
    def last_progress(self) -> QueryProgress | None:
        """What the last batch did; None before the first."""
        with self._lock:
            return self._last

    def started(self, status: QueryStatus, groups: ConsumerGroups) -> None:
        """The query starts; the metrics read the counters of its status and of its consumer groups from now on."""
        self._metrics.started(self._name, named=self._job is not None, status=status, groups=groups)
        self._dispatcher.publish(QueryStartedEvent(self._query_id, self._name))

    def progress(self, progress: QueryProgress) -> None:
        """A batch is done."""
        with self._lock:
            self._last = progress
        if self._job is not None:
            self._job.progress(progress)
        self._metrics.progress(self._name, progress)
        self._dispatcher.publish(QueryProgressEvent(self._query_id, self._name, progress))

    def idle(self) -> None:
        """There was nothing to do."""
        self._dispatcher.publish(QueryIdleEvent(self._query_id, self._name))

    def terminated(self, error: PenstockError | None) -> None:
        """The query has ended; published once."""
        self._metrics.ended(self._name)
        self._dispatcher.publish(QueryTerminatedEvent(self._query_id, self._name, error, self.last_progress))
