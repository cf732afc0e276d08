"""Rows in this process, as Arrow batches: for tests, notebooks and small results."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from penstock.options import Count, Options
from penstock.sinks.base import Epoch, Guarantee, Sink, Target
from penstock.spark.arrow import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config import Settings


class MemoryOptions(Options):
    """How many rows stay."""

    max_rows: Count = Field(1_000_000, description="rows that are kept; the oldest are dropped first")


class MemorySink(Sink):
    """Keeps the newest rows, up to `max_rows`; in complete mode the last result."""

    Options = MemoryOptions
    takes_operations: ClassVar[bool] = True

    options: MemoryOptions
    needs_checkpoint = False

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        self._lock = threading.Lock()
        self._batches: deque[pa.RecordBatch] = deque()
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
        table = to_arrow(epoch.frame)
        with self._lock:
            if self._replaces:
                self._batches.clear()
                self._rows = 0
            for batch in table.to_batches():
                if batch.num_rows:
                    self._batches.append(batch)
                    self._rows += batch.num_rows
            self._make_room()
        return int(table.num_rows)

    def batches(self) -> list[pa.RecordBatch]:
        """The batches, oldest first."""
        with self._lock:
            return list(self._batches)

    def _make_room(self) -> None:
        while self._rows > self.options.max_rows:
            oldest = self._batches.popleft()
            surplus = min(self._rows - self.options.max_rows, oldest.num_rows)
            if surplus < oldest.num_rows:
                self._batches.appendleft(oldest.slice(surplus))
            self._rows -= surplus
            self.dropped += surplus
