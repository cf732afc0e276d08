"""Background stepping of a flow: at an interval, or earlier when many rows wait."""

from __future__ import annotations

from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

from penstock.data.duration import milliseconds

if TYPE_CHECKING:
    from penstock.engine.flow import IncrementalFlow

POLL_SECONDS = 0.005


class Stepper:
    """A thread that steps a flow; an error ends it and is raised by `stop()`."""

    def __init__(self, flow: IncrementalFlow, *, every: int | str, max_rows: int) -> None:
        self._flow = flow
        self._seconds = milliseconds(every, what="every") / 1000
        self._max_rows = max_rows
        self._ending = Event()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._loop, name="penstock-flow", daemon=True)

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to step."""
        self._thread.start()

    def stop(self) -> None:
        """Step once more when rows wait, end the thread, and raise the error that ended it, if any."""
        self._ending.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _loop(self) -> None:
        try:
            while not self._ending.is_set():
                self._wait()
                self._flow.step()
        except BaseException as error:
            self._error = error

    def _wait(self) -> None:
        deadline = monotonic() + self._seconds
        while not self._ending.is_set():
            left = deadline - monotonic()
            if left <= 0 or self._flow.waiting_rows() >= self._max_rows:
                return
            self._ending.wait(min(left, max(POLL_SECONDS, self._seconds / 20)))
