"""Watches: the changes of one view, tick by tick, for a reader that may be slower than the ticks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from threading import Condition

from penstock.data.batch import DeltaBatch

BOUND = 1_024


class Watch:
    """Gives each non-empty change of a view once, in order.

    At most `bound` changes wait. A reader that falls further behind loses nothing: the two oldest are then summed into
    one, so the changes that it reads always add up to the view.

    >>> for delta in flow.watch_output("totals"):            # doctest: +SKIP
    ...     print(delta)
    """

    def __init__(
        self, view: str, *, bound: int = BOUND, on_close: Callable[[Watch], None] | None = None
    ) -> None:
        self.view = view
        self.closed = False
        self._bound = bound
        self._waiting: deque[DeltaBatch] = deque()
        self._changed = Condition()
        self._on_close = on_close

    def publish(self, delta: DeltaBatch) -> None:
        """Called by the flow after each tick that changed the view."""
        with self._changed:
            if self.closed:
                return
            self._waiting.append(delta)
            if len(self._waiting) > self._bound:
                merged = (self._waiting.popleft() + self._waiting.popleft()).consolidate()
                if len(merged):
                    self._waiting.appendleft(merged)
            self._changed.notify_all()

    def recv(self, timeout: float | None = None) -> DeltaBatch | None:
        """Return the next change, or None when `timeout` seconds pass without one or the watch is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.closed, timeout)
            return self._waiting.popleft() if self._waiting else None

    def __iter__(self) -> Iterator[DeltaBatch]:
        while (delta := self.recv()) is not None:
            yield delta

    async def __aiter__(self) -> AsyncIterator[DeltaBatch]:
        while True:
            # Short waits in a thread: closing the event loop never hangs on a watch that stays silent.
            delta = await asyncio.to_thread(self.recv, 0.2)
            if delta is not None:
                yield delta
            elif self.closed:
                return

    def close(self) -> None:
        """End the watch; a waiting reader gets what is left, then None."""
        with self._changed:
            if self.closed:
                return
            self.closed = True
            self._changed.notify_all()
        if self._on_close is not None:
            self._on_close(self)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
