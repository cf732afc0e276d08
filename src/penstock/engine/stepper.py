"""Background stepping of a flow: at an interval, or earlier when many rows wait."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from time import monotonic

from penstock.data.duration import milliseconds

POLL_SECONDS = 0.005


class Stepper:
    """A thread that calls `step`; an error ends it, is there in `error`, and is raised by `stop()`."""

    def __init__(
        self,
        step: Callable[[], object],
        waiting_rows: Callable[[], int],
        *,
        every: int | str,
        max_rows: int,
    ) -> None:
        self._step = step
        self._waiting_rows = waiting_rows
        self._seconds = milliseconds(every, what="every") / 1000
        self._max_rows = max_rows
        self._ending = Event()
        self._thread = Thread(target=self._loop, name="penstock-flow", daemon=True)
        self.error: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Step once more when rows wait, end the thread, and raise the error that ended it, if any."""
        self._ending.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _loop(self) -> None:
        try:
            while not self._ending.is_set():
                self._wait()
                self._step()
            if self._waiting_rows():
                self._step()
        except BaseException as error:
            self.error = error

    def _wait(self) -> None:
        deadline = monotonic() + self._seconds
        while not self._ending.is_set():
            left = deadline - monotonic()
            if left <= 0 or self._waiting_rows() >= self._max_rows:
                return
            self._ending.wait(min(left, max(POLL_SECONDS, self._seconds / 20)))
