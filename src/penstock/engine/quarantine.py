"""Rows that a source did not apply, with the reason, for somebody to look at: a bounded number, the latest ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.data.delta import Delta, concat, empty

MOST_ROWS = 100_000
MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class QuarantinedRows:
    """Rows that were not applied, and why."""

    reason: str
    rows: Delta


@dataclass(slots=True)
class Quarantine:
    """The latest rows that one source did not apply; `dropped` counts older ones that made room for them."""

    most_rows: int = MOST_ROWS
    most_bytes: int = MOST_BYTES
    dropped: int = 0
    _parts: deque[QuarantinedRows] = field(default_factory=deque)
    _rows: int = 0
    _bytes: int = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def parts(self) -> tuple[QuarantinedRows, ...]:
        """What is there, the oldest first."""
        return tuple(self._parts)

    @property
    def bytes(self) -> int:
        """Bytes of the rows in it."""
        return self._bytes

    def add(self, reason: str, rows: Delta) -> None:
        """Put rows into the quarantine; the oldest ones go when there are too many."""
        surplus = len(rows) - self.most_rows
        if surplus > 0:
            self.dropped += surplus
            rows = rows.take(np.arange(surplus, len(rows)))
        self._parts.append(QuarantinedRows(reason, rows))
        self._rows += len(rows)
        self._bytes += _size(rows)
        while self._rows > self.most_rows or (self._bytes > self.most_bytes and len(self._parts) > 1):
            oldest = self._parts.popleft().rows
            self._rows -= len(oldest)
            self._bytes -= _size(oldest)
            self.dropped += len(oldest)

    def extended(self, parts: Sequence[QuarantinedRows]) -> Quarantine:
        """One that has these rows, too; this one stays what it is."""
        if not parts:
            return self
        quarantine = replace(self, _parts=self._parts.copy())
        for part in parts:
            quarantine.add(part.reason, part.rows)
        return quarantine

    def clear(self) -> None:
        """Forget the rows; the count of those that were dropped stays."""
        self._parts.clear()
        self._rows = self._bytes = 0

    def rows(self, types: Sequence[pa.DataType]) -> tuple[Delta, list[str]]:
        """All rows, and the reason of each."""
        reasons = [part.reason for part in self._parts for _ in range(len(part.rows))]
        return concat([empty(types), *(part.rows for part in self._parts)]), reasons


def _size(rows: Delta) -> int:
    return int(rows.weights.nbytes + sum(column.nbytes for column in rows.columns))
