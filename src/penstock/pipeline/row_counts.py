"""How many rows nodes give, counted while their readers read them, for the live display."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from penstock.spark.observed import ROWS, Observed, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_WAITING = 20
"""Frames per node whose count has not been reported yet: some are never read."""


class RowCounts:
    """Counts rows of frames, from the threads of queries, and gives the counts to another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Observed]] = {}

    def observed(self, node: str, frame: DataFrame) -> DataFrame:
        """Return the frame to read instead of the frame of a node."""
        observed = counted(frame)
        with self._lock:
            self._waiting.setdefault(node, deque(maxlen=MOST_WAITING)).append(observed)
        return observed.frame

    def take(self) -> dict[str, int]:
        """Return how many rows nodes have given since the last call."""
        with self._lock:
            waiting = [(node, observed) for node, several in self._waiting.items() for observed in several]
        rows: dict[str, int] = {}
        for node, observed in waiting:
            if (values := observed.reported()) is not None:
                rows[node] = rows.get(node, 0) + int(values[ROWS])
                with self._lock:
                    if observed in self._waiting[node]:
                        self._waiting[node].remove(observed)
        return rows
