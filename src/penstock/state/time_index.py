"""A timeline: rows sorted by one integer key (a time), so that those in a range are found without looking at the others.

Rows lie in runs whose sizes grow geometrically. A commit merges the newest runs of similar size: O(log rows) amortised per row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty

Keys = npt.NDArray[np.int64]
_RATIO = 2


class TimeIndex:
    """Rows of the given types by key; a tick stages its rows and then commits or rolls back."""

    __slots__ = ("_pending", "_runs", "_types")

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._runs: list[tuple[Keys, Delta]] = []
        self._pending: tuple[Keys, Delta] | None = None

    def stage(self, keys: Keys, rows: Delta) -> None:
        """Hold rows until `commit`."""
        order = np.argsort(keys, kind="stable")
        self._pending = (keys[order], rows.take(order))

    def between(self, low: int, high: int) -> Delta:
        """The committed rows whose key is in [low, high]; the same row may be there several times."""
        parts = []
        for keys, rows in self._runs:
            begin, end = np.searchsorted(keys, low, "left"), np.searchsorted(keys, high, "right")
            if begin < end:
                parts.append(rows.take(np.arange(begin, end)))
        return concat(parts) if parts else empty(self._types)

    def commit(self) -> None:
        """Keep the staged rows."""
        pending, self._pending = self._pending, None
        if pending is None or len(pending[1]) == 0:
            return
        self._runs.append(pending)
        while len(self._runs) > 1 and len(self._runs[-1][0]) * _RATIO >= len(self._runs[-2][0]):
            newer, older = self._runs.pop(), self._runs.pop()
            merged = _merge(older, newer)
            if len(merged[0]):
                self._runs.append(merged)

    def rollback(self) -> None:
        """Forget the staged rows."""
        self._pending = None

    def memory(self) -> int:
        """Bytes held."""
        return sum(
            keys.nbytes + rows.weights.nbytes + sum(column.nbytes for column in rows.columns)
            for keys, rows in self._runs
        )


def _merge(older: tuple[Keys, Delta], newer: tuple[Keys, Delta]) -> tuple[Keys, Delta]:
    """One run out of two, without the rows that cancel."""
    key_column = pa.array(np.concatenate([older[0], newer[0]]))
    both = concat([older[1], newer[1]])
    whole = consolidate(Delta((*both.columns, key_column), both.weights))
    keys = np.asarray(whole.columns[-1])
    order = np.argsort(keys, kind="stable")
    return keys[order], Delta(whole.columns[:-1], whole.weights).take(order)
