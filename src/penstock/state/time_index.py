"""A time index: rows in the order of one integer (a time), so that a reader of a range does not look at the others.

Rows lie in runs by time, and by a hash of the row, so that equal rows are neighbours; `penstock.state.compaction`
says when runs are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.column_view import gather, views
from penstock.data.delta import Delta, concat, empty
from penstock.data.hashing import hash_rows
from penstock.state.narrow import narrow
from penstock.state.run import Run
from penstock.state.runs import Runs
from penstock.state.state import Composite, State

Times = npt.NDArray[np.int64]
_ZERO = 1 << 63  # the unsigned word of time 0


class TimeIndex(Composite):
    """Rows of these types by time."""

    __slots__ = ("_runs", "_types")

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._runs = Runs()

    def states(self) -> Iterator[tuple[str, State]]:
        yield "runs", self._runs

    def stage(self, times: Times, rows: Delta) -> None:
        """Add rows, until `rollback`."""
        hashes = hash_rows(rows.columns, len(rows))
        words = times.view(np.uint64) ^ np.uint64(_ZERO)
        order = np.lexsort((hashes, words))
        columns = gather(rows.columns, order)
        keys = (words.take(order), hashes.take(order))
        weights = narrow(rows.weights.take(order))
        self._runs.stage(Run(self._runs.next_name, keys, weights, columns, views(columns)))

    def between(self, low: int, high: int) -> Delta:
        """The committed rows whose time is in [low, high]; the same row may be there several times."""
        first, last = np.uint64(low + _ZERO), np.uint64(high + _ZERO)
        parts = []
        for run in self._runs.before:
            begin, end = run.words.searchsorted(first, "left"), run.words.searchsorted(last, "right")
            if begin < end:
                parts.append(run.take(np.arange(begin, end)))
        return concat(parts) if parts else empty(self._types)
