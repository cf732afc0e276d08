"""The epochs of a query as others see them in the state backend: a write-behind log.

Spark's checkpoint, the sink's own mark and the lease keep rows from being lost or written twice; this log is for
people. A batch of a few milliseconds does not wait for a database, and after a crash the last entries of the log may
be missing.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from penstock.backend.epoch import MOST_EPOCHS
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.backend import Backend, Lease

LOG = logging.getLogger("penstock.streaming")
PAUSE_SECONDS = 0.2

Entry = tuple[int, bool, int | None]
"""An epoch, whether it is committed, and its rows."""


class EpochLog:
    """Takes entries at once; a thread writes those of a moment in one transaction."""

    def __init__(self, backend: Backend, lease: Lease) -> None:
        self._backend = backend
        self._lease = lease
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._entries: list[Entry] = []
        self._news = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, epoch: int) -> None:
        """Log that an epoch begins."""
        self._add((epoch, False, None))

    def commit(self, epoch: int, rows: int | None) -> None:
        """Log that an epoch is written."""
        self._add((epoch, True, rows))

    def close(self) -> None:
        """Write what is left."""
        self._closed.set()
        self._news.set()
        self._write()

    def _add(self, entry: Entry) -> None:
        with self._lock:
            self._entries = [*self._entries, entry][-2 * MOST_EPOCHS :]
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name=f"penstock-epochs-{self._lease.job}", daemon=True
                )
                self._thread.start()
        self._news.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._news.wait()
            self._news.clear()
            self._write()
            self._closed.wait(PAUSE_SECONDS)

    def _write(self) -> None:
        with self._writing:
            with self._lock:
                entries, self._entries = self._entries, []
            if not entries:
                return
            epochs = self._backend.epochs
            try:
                with self._backend.transaction() as connection:
                    for number, committed, rows in entries:
                        if committed:
                            epochs.commit(self._lease, number, {"rows": rows}, connection=connection)
                        else:
                            epochs.begin(self._lease, number, connection=connection)
            except PenstockError as error:
                # A backend that is away does not stop the query; whether the lease is lost, the heartbeat finds out.
                LOG.debug("epochs of %s are not logged yet: %s", self._lease.job, error)
                with self._lock:
                    self._entries = [*entries, *self._entries][-2 * MOST_EPOCHS :]
