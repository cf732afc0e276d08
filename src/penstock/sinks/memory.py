"""Rows in this process, as Arrow batches: for tests, notebooks and small results."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.sinks.base import Epoch, Guarantee, Sink, Target

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 1_000_000


class MemorySink(Sink):
    """Keeps the newest rows, up to `max_rows`; in complete mode the last result."""

    taken: ClassVar[tuple[str, ...]] = ("max_rows",)
    needs_checkpoint: ClassVar[bool] = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.only_known()
        self._most = self.positive("max_rows", MOST_ROWS)
        self._lock = threading.Lock()
        self._kept: deque[pa.RecordBatch] = deque()
        self._rows = 0
        self._replaces = False
        self.dropped = 0
        """Rows that had to make room for newer ones."""

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.NOT_KEPT

    def open(self, target: Target) -> None:
        self._replaces = target.mode == "complete"

    def write(self, epoch: Epoch) -> int | None:
        table = epoch.frame.toArrow()
        with self._lock:
            if self._replaces:
                self._kept.clear()
                self._rows = 0
            for batch in table.to_batches():
                if batch.num_rows:
                    self._kept.append(batch)
                    self._rows += batch.num_rows
            self._make_room()
        return int(table.num_rows)

    def batches(self) -> list[pa.RecordBatch]:
        """The batches that are kept, oldest first."""
        with self._lock:
            return list(self._kept)

    def _make_room(self) -> None:
        while self._rows > self._most:
            oldest = self._kept.popleft()
            surplus = min(self._rows - self._most, oldest.num_rows)
            if surplus < oldest.num_rows:
                self._kept.appendleft(oldest.slice(surplus))
            self._rows -= surplus
            self.dropped += surplus
