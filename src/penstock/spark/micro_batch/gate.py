"""The gate before the batches of a query: closed, it holds them back, and what runs comes to its end first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

LOOK_SECONDS = 0.05


class Gate:
    """Open until somebody closes it; one batch at a time goes through."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._batch = threading.Lock()

    @property
    def is_closed(self) -> bool:
        """Whether batches wait."""
        return self._closed.is_set()

    def close(self) -> None:
        """Hold back all further batches, and wait for the one that runs."""
        self._closed.set()
        with self._batch:
            pass

    def open(self) -> None:
        """Let batches through again."""
        self._closed.clear()

    @contextmanager
    def passing(self, ending: threading.Event) -> Iterator[None]:
        """A batch, once the gate is open, or once the run is to end."""
        while True:
            while self._closed.is_set() and not ending.wait(LOOK_SECONDS):
                pass
            with self._batch:
                if not self._closed.is_set() or ending.is_set():
                    yield
                    return
