"""The changes of one view for its watches: handed over after each tick, and kept for a while for readers that come back.

It exists from the first watch of the view on, until changes are gone that its last watch, which is closed, has not
had: then nobody can go on from there, and of a view that nobody watches nothing is kept.
"""

from __future__ import annotations

from collections import deque
from threading import Lock

from penstock.data.delta import Delta
from penstock.engine.result import to_batch
from penstock.engine.watch import Watch
from penstock.errors import StateError
from penstock.plan.node import Fields

MOST_CHANGES = 256
MOST_BYTES = 64 * 2**20


class Changelog:
    """The last changes of a view since tick `begun`, within bounds of number and bytes, and the watches that get the
    next ones."""

    def __init__(self, view: str, fields: Fields, begun: int) -> None:
        self._view = view
        self._fields = fields
        self._gone = begun  # changes up to this tick are not here
        self._last = begun  # the last tick that changed the view
        self._closed: int | None = None  # what `_last` was when the last watch was closed
        self._is_new = True
        self._changes: deque[tuple[int, Delta]] = deque()
        self._watches: list[Watch] = []
        self._lock = Lock()  # a watch may be closed at any time
        self.bytes = 0

    def watch(self, *, rows: Delta | None = None, from_tick: int | None = None) -> Watch:
        """A watch that gives these rows first, or the changes since a tick; StateError when those are gone."""
        first = [rows] if rows is not None else [] if from_tick is None else self._since(from_tick)
        watch = Watch(self._view, on_close=self._forget)
        for change in first:
            if len(change):
                watch.publish(to_batch(change, self._fields))
        with self._lock:
            self._watches.append(watch)
            self._is_new, self._closed = False, None
        return watch

    @property
    def is_over(self) -> bool:
        """Whether nobody watches, and whoever did cannot go on where he was."""
        with self._lock:
            return not self._watches and self._closed is not None and self._gone > self._closed

    def publish(self, tick: int, change: Delta) -> None:
        """Hand a change over and keep it. A watch that cannot take it is closed with the error; when this raises, call `lose`."""
        self._keep(tick, change)
        with self._lock:
            watches = tuple(self._watches)
        if not watches:
            return
        try:
            batch = to_batch(change, self._fields)
        except Exception as error:
            for watch in watches:
                watch.fail(error)
            return
        for watch in watches:
            try:
                watch.publish(batch)
            except Exception as error:
                watch.fail(error)

    def lose(self, tick: int, error: BaseException) -> None:
        """Close all watches with an error, and forget the history: the change of a tick may not be there."""
        self._changes.clear()
        self._gone, self.bytes = tick, 0
        with self._lock:
            self._last = tick
            watches = tuple(self._watches)
        for watch in watches:
            watch.fail(error)

    def close(self) -> None:
        """Close all watches."""
        with self._lock:
            watches = tuple(self._watches)
        for watch in watches:
            watch.close()

    def _keep(self, tick: int, change: Delta) -> None:
        with self._lock:
            self._last = tick
        self._changes.append((tick, change))
        self.bytes += _size(change)
        while len(self._changes) > MOST_CHANGES or self.bytes > MOST_BYTES:
            self._gone, oldest = self._changes.popleft()
            self.bytes -= _size(oldest)

    def _since(self, tick: int) -> list[Delta]:
        if self._gone and tick <= self._gone:
            which = (
                "none are kept of a view that nobody watches"
                if self._is_new
                else f"they are kept from tick {self._gone + 1} on"
            )
            raise StateError(
                f"the changes of '{self._view}' since tick {tick} are gone: {which}",
                code="FLOW_HISTORY",
                hint="use watch_output(view, snapshot=True)",
            )
        return [change for number, change in self._changes if number >= tick]

    def _forget(self, watch: Watch) -> None:
        with self._lock:
            self._watches.remove(watch)
            if not self._watches:
                self._closed = self._last


def _size(change: Delta) -> int:
    return int(change.weights.nbytes + sum(column.nbytes for column in change.columns))
