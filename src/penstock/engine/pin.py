"""Pins on the files of a flow directory: as long as there is one, none of them is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class Pins:
    """Threads that read files, and one that may drop them when nobody does."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._count = 0
        self._dropping = False

    @contextmanager
    def pin(self) -> Iterator[None]:
        """Keep all files while the body runs; waits while some are being dropped."""
        with self._changed:
            self._changed.wait_for(lambda: not self._dropping)
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    @contextmanager
    def unpinned(self, *, wait: bool = True) -> Iterator[bool]:
        """Let nobody begin to read while the body runs. Gives False, at once, when somebody reads and `wait` is not set."""
        with self._changed:
            if not wait and (self._count or self._dropping):
                alone = False
            else:
                self._changed.wait_for(lambda: not self._dropping)
                self._dropping = alone = True
        if not alone:
            yield False
            return
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._count)
            yield True
        finally:
            with self._changed:
                self._dropping = False
                self._changed.notify_all()
