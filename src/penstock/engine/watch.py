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
    one, so the changes that it reads always add up to the view. The watch of a view that is dropped is closed.

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
        self._error: BaseException | None = None
        self._changed = Condition()
        self._sleepers: list[_Sleeper] = []
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
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Close the watch, because a change could not be handed over; a reader gets the error after what waits."""
        with self._changed:
            self._error = self._error or error
        self.close()

    def recv(self, timeout: float | None = None) -> DeltaBatch | None:
        """Return the next change, or None when `timeout` seconds pass without one or the watch is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.closed, timeout)
            return self._next()

    def __iter__(self) -> Iterator[DeltaBatch]:
        while (delta := self.recv()) is not None:
            yield delta

    async def __aiter__(self) -> AsyncIterator[DeltaBatch]:
        sleeper = _Sleeper(asyncio.get_running_loop())
        with self._changed:
            self._sleepers.append(sleeper)
        try:
            while True:
                sleeper.clear()
                with self._changed:
                    delta, ended = self._next(), self.closed
                if delta is not None:
                    yield delta
                elif ended:
                    return
                else:
                    await sleeper.wait()
        finally:
            with self._changed:
                self._sleepers.remove(sleeper)

    def close(self) -> None:
        """End the watch; a waiting reader gets what is left, then None."""
        with self._changed:
            if self.closed:
                return
            self.closed = True
            self._wake()
        if self._on_close is not None:
            self._on_close(self)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self) -> DeltaBatch | None:
        if self._waiting:
            return self._waiting.popleft()
        if self._error is not None:
            raise self._error
        return None

    def _wake(self) -> None:
        self._changed.notify_all()
        for sleeper in self._sleepers:
            sleeper.wake()


class _Sleeper:
    """A coroutine that waits for a change without a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self) -> None:
        await self._event.wait()

    def wake(self) -> None:
        """Called from any thread."""
        # A loop that was closed has nobody left to wake.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)
