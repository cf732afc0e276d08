"""Immutable sorted runs of plain NumPy columns, merged a little at a time (`penstock.state.compaction` says when).

A run is a tuple of arrays of one length, sorted by its first `keys` arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.data.ordering import is_start, sort_places
from penstock.state.compaction import Compaction
from penstock.state.narrow import narrow

Column = npt.NDArray[Any]
Run = tuple[Column, ...]
Places = npt.NDArray[np.int64]
# Merges rows of several runs, given their number of keys; it gets all rows of the keys it sees.
Combine = Callable[[Sequence[Sequence[Column]], int], Run]

_CHUNK = 16_384  # rows of each run per chunk
_NARROW_FROM = 4096  # rows from which it pays to look how many bytes integers need


def range_of(run: Run, keys: int, key: Sequence[Any]) -> tuple[int, int]:
    """Return where the rows with exactly these leading keys begin and end in a run."""
    low, high = 0, len(run[0])
    for column, value in zip(run[:keys], key, strict=False):
        part = column[low:high]
        low, high = (
            low + int(np.searchsorted(part, value, "left")),
            low + int(np.searchsorted(part, value, "right")),
        )
    return low, high


def lower_bounds(
    columns: Sequence[Column], keys: Sequence[Column], low: Places, high: Places, *, after: bool
) -> Places:
    """For each key find the first place in [low, high) that is not before it (or, with `after`, that is behind it)."""
    low, high = low.copy(), high.copy()
    steps = int((high - low).max(initial=0)).bit_length()
    last = len(columns[0]) - 1
    for _ in range(steps):
        middle = (low + high) >> 1
        probe = np.minimum(middle, last)
        before = _precedes(columns, keys, probe, after)
        before &= low < high
        low = np.where(before, middle + 1, low)
        high = np.where(before, high, np.maximum(middle, low))
    return low


def _precedes(
    columns: Sequence[Column], keys: Sequence[Column], places: Places, after: bool
) -> npt.NDArray[np.bool_]:
    here = columns[-1][places]
    before: npt.NDArray[np.bool_] = here <= keys[-1] if after else here < keys[-1]
    for column, key in zip(columns[-2::-1], keys[-2::-1], strict=True):
        here = column[places]
        before = (here < key) | ((here == key) & before)
    return before


def merge_sorted(parts: Sequence[Sequence[Column]], keys: int) -> Run:
    """Merge sorted sequences of rows."""
    columns = tuple(np.concatenate(pieces) for pieces in zip(*parts, strict=True))
    order = sort_places(columns[:keys], merging=True)
    return tuple(column.take(order) for column in columns)


def merge_counts(parts: Sequence[Sequence[Column]], keys: int) -> Run:
    """Merge sorted sequences of keys with counts (the last column), adding up equal keys and dropping zeros."""
    return sum_equal(merge_sorted(parts, keys))


def sum_equal(run: Run) -> Run:
    """Add up the counts (the last column) of equal neighbours and drop zeros."""
    *keys, counts = run
    if len(counts) == 0:
        return run
    fresh = is_start(*keys)
    if not fresh.all():
        counts = np.add.reduceat(counts, fresh.nonzero()[0], dtype=np.int64)
        keys = [key[fresh] for key in keys]
    if not counts.all():
        kept = counts.nonzero()[0]
        keys, counts = [key[kept] for key in keys], counts[kept]
    return (*keys, counts)


def _narrowed(run: Run) -> Run:
    if len(run[0]) < _NARROW_FROM:
        return run
    return tuple(narrow(column) if column.dtype.kind == "i" else column for column in run)


class _Merge:
    """Runs on their way into one."""

    __slots__ = ("_at", "_combine", "_filled", "_keys", "_output", "_runs")

    def __init__(self, runs: Sequence[Run], keys: int, combine: Combine) -> None:
        self._runs = runs
        self._keys = keys
        self._combine = combine
        self._at = [0] * len(runs)
        self._filled = 0
        total = sum(len(run[0]) for run in runs)
        # Integers begin with as few bytes as they can have; the rows that come may ask for more.
        dtypes = [np.dtype(np.int8) if column.dtype.kind == "i" else column.dtype for column in runs[0]]
        self._output: list[Column] = [np.empty(total, dtype) for dtype in dtypes]

    def advance(self, rows: int) -> bool:
        """Merge at least this many more rows if there are as many, and say whether all are done."""
        while rows > 0 and not self._finished:
            rows -= self._chunk(min(rows, _CHUNK))
        return self._finished

    @property
    def _finished(self) -> bool:
        return all(at == len(run[0]) for at, run in zip(self._at, self._runs, strict=True))

    def _chunk(self, size: int) -> int:
        """Merge the rows up to the smallest of the keys a chunk away, so that equal keys are never parted."""
        here = list(zip(self._runs, self._at, strict=True))
        heads = [
            tuple(column[at + size - 1] for column in run[: self._keys])
            for run, at in here
            if at + size <= len(run[0])
        ]
        if heads:
            ends = [range_of(run, self._keys, min(heads))[1] for run in self._runs]
        else:
            ends = [len(run[0]) for run in self._runs]
        parts = [
            [column[at:end] for column in run] for (run, at), end in zip(here, ends, strict=True) if end > at
        ]
        self._write(self._combine(parts, self._keys))
        taken = sum(ends) - sum(self._at)
        self._at = ends
        return taken

    def _write(self, part: Run) -> None:
        """Put merged rows behind those that are there."""
        filled = self._filled + len(part[0])
        for place, values in enumerate(part):
            column = self._output[place]
            if values.dtype != column.dtype:
                values = narrow(values)
                if not np.can_cast(values.dtype, column.dtype):
                    wider = np.empty(len(column), values.dtype)
                    wider[: self._filled] = column[: self._filled]
                    self._output[place] = column = wider
            column[self._filled : filled] = values
        self._filled = filled

    def result(self) -> Run:
        """The merged run; the memory that was reserved for rows that are gone is given back."""
        for column in self._output:
            column.resize(self._filled, refcheck=False)
        return tuple(self._output)

    def memory(self) -> int:
        return sum(column.nbytes for column in self._output)


def _size(run: Run) -> int:
    return len(run[0])


class SortedRuns:
    """A logarithmic number of sorted runs, merged by `combine`."""

    __slots__ = ("_compaction",)

    def __init__(self, keys: int, combine: Combine) -> None:
        self._compaction: Compaction[Run] = Compaction(
            _size, lambda runs: _Merge(runs, keys, combine), lambda runs: _narrowed(combine(runs, keys))
        )

    @property
    def runs(self) -> Sequence[Run]:
        """All runs, the newest last."""
        return self._compaction.runs

    def append(self, run: Run) -> None:
        """Add a sorted run; nothing is merged."""
        if len(run[0]):
            self._compaction.runs.append(_narrowed(run))

    def drop_last(self) -> None:
        """Take back the last appended run."""
        self._compaction.runs.pop()

    def work(self, rows: int) -> None:
        """Merge, as much as `rows` changed rows pay for."""
        self._compaction.work(rows)

    def memory(self) -> int:
        """Bytes held, with half-done merges."""
        return sum(column.nbytes for run in self.runs for column in run) + self._compaction.merge_memory()
