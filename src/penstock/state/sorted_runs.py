"""Immutable sorted runs of plain NumPy columns, merged a little in every tick.

A run is a tuple of arrays of one length, sorted by its first `keys` arrays. A new run that is not much smaller than the one
before it is merged with it: at once while both are small, otherwise in portions paid for by the rows of each commit, while both
stay readable. So no tick pays for the whole state, and there are only a logarithmic number of runs to look into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.data.ordering import is_start
from penstock.state.width import narrow

Column = npt.NDArray[Any]
Run = tuple[Column, ...]
Places = npt.NDArray[np.int64]

_SMALL = 8192  # runs that together are no longer are merged at once
_RATIO = 8
_PORTION = 16  # rows merged per changed row, for each open merge
_LEAST = 4096
_CHUNK = 32768
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


def merge_sorted(older: Sequence[Column], newer: Sequence[Column], keys: int) -> Run:
    """Merge two sorted sequences of rows."""
    if len(newer[0]) > len(older[0]):
        older, newer = newer, older
    if len(newer[0]) == 0:
        return tuple(older)
    return _insert(older, newer, _places(older, newer, keys))


def merge_counts(older: Sequence[Column], newer: Sequence[Column], keys: int) -> Run:
    """Merge two sorted sequences of different keys with counts (the last column), adding up equal keys and dropping zeros."""
    if len(newer[0]) > len(older[0]):
        older, newer = newer, older
    if len(newer[0]) == 0:
        return tuple(older)
    count = len(older[0])
    places = _places(older, newer, keys)
    before = np.maximum(places - 1, 0)
    equal = places > 0
    for old, new in zip(older[:keys], newer[:keys], strict=True):
        equal &= old[before] == new
    met = equal.nonzero()[0]
    if len(met):
        sums = older[-1][before[met]].astype(np.int64) + newer[-1][met]
        counts = older[-1].astype(np.promote_types(older[-1].dtype, narrow(sums).dtype))
        counts[before[met]] = sums
        older = (*older[:-1], counts)
        fresh = (~equal).nonzero()[0]
        newer, places = [column[fresh] for column in newer], places[fresh]
        dead = before[met][counts[before[met]] == 0]
        if len(dead):
            alive = np.ones(count, np.bool_)
            alive[dead] = False
            older = [column[alive] for column in older]
            places = places - np.searchsorted(dead, places)
    return _insert(older, newer, places)


def _places(older: Sequence[Column], newer: Sequence[Column], keys: int) -> Places:
    """Where each newer row belongs among the older ones, behind equal keys; finding places is cheaper than sorting again."""
    places = np.searchsorted(older[0], newer[0], "right")
    if keys > 1:
        low = np.searchsorted(older[0], newer[0], "left")
        places = lower_bounds(older[1:keys], newer[1:keys], low, places, after=True)
    return places


def _insert(older: Sequence[Column], newer: Sequence[Column], places: Places) -> Run:
    total = len(older[0]) + len(places)
    places = places + np.arange(len(places))
    kept = np.ones(total, np.bool_)
    kept[places] = False
    result = []
    for old, new in zip(older, newer, strict=True):
        column = np.empty(total, np.promote_types(old.dtype, new.dtype))
        column[places] = new
        column[kept] = old
        result.append(column)
    return tuple(result)


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


def _narrowed(column: Column) -> Column:
    return narrow(column) if column.dtype.kind == "i" else column


@dataclass(slots=True, eq=False)
class _Merge:
    """Two runs on their way into one."""

    older: Run
    newer: Run
    output: list[Column]
    at: int = 0
    newer_at: int = 0
    filled: int = 0

    def write(self, part: Run) -> None:
        """Put merged rows behind those that are there."""
        filled = self.filled + len(part[0])
        for place, values in enumerate(part):
            column = self.output[place]
            if values.dtype != column.dtype:
                values = narrow(values)
                if not np.can_cast(values.dtype, column.dtype):
                    wider = np.empty(len(column), values.dtype)
                    wider[: self.filled] = column[: self.filled]
                    self.output[place] = column = wider
            column[self.filled : filled] = values
        self.filled = filled


@dataclass(slots=True)
class SortedRuns:
    """A logarithmic number of sorted runs.

    `combine` merges rows of an older and a newer run (and their number of keys); it gets all rows of the keys it sees.
    """

    keys: int
    combine: Callable[[Sequence[Column], Sequence[Column], int], Run]
    runs: list[Run] = field(default_factory=list)
    _merges: list[_Merge] = field(default_factory=list)

    def append(self, run: Run) -> None:
        """Add a sorted run; nothing is merged."""
        if len(run[0]):
            self.runs.append(run if len(run[0]) < _NARROW_FROM else tuple(map(_narrowed, run)))

    def drop_last(self) -> None:
        """Take back the last appended run."""
        self.runs.pop()

    def work(self, rows: int) -> None:
        """Merge, as much as `rows` changed rows pay for."""
        while self._start_merge():
            pass
        for merge in list(self._merges):
            self._advance(merge, max(_LEAST, rows * _PORTION))

    def memory(self) -> int:
        held = sum(column.nbytes for run in self.runs for column in run)
        return held + sum(column.nbytes for merge in self._merges for column in merge.output)

    def _busy(self, run: Run) -> bool:
        return any(run is merge.older or run is merge.newer for merge in self._merges)

    def _start_merge(self) -> bool:
        for place in range(len(self.runs) - 1, 0, -1):
            newer, older = self.runs[place], self.runs[place - 1]
            if len(newer[0]) * _RATIO < len(older[0]) or self._busy(newer) or self._busy(older):
                continue
            total = len(newer[0]) + len(older[0])
            if total <= _SMALL:
                self.runs[place - 1 : place + 1] = [
                    run for run in [self.combine(older, newer, self.keys)] if len(run[0])
                ]
            else:
                # Integers begin with as few bytes as they can have; the rows that come may ask for more.
                dtypes = [np.int8 if column.dtype.kind == "i" else column.dtype for column in older]
                self._merges.append(_Merge(older, newer, [np.empty(total, dtype) for dtype in dtypes]))
            return True
        return False

    def _advance(self, merge: _Merge, fuel: int) -> None:
        end, newer_end = len(merge.older[0]), len(merge.newer[0])
        while fuel > 0 and (merge.at < end or merge.newer_at < newer_end):
            size = min(fuel, _CHUNK)
            stop = min(end, merge.at + size)
            if stop < end:
                key = [column[stop - 1] for column in merge.older[: self.keys]]
                # Rows of one run may share a key (hashes do): all of them go together.
                stop = max(stop, range_of(merge.older, self.keys, key)[1])
                newer_stop = range_of(merge.newer, self.keys, key)[1]
            else:
                newer_stop = min(newer_end, merge.newer_at + size) if merge.at == end else newer_end
            part = self.combine(
                [column[merge.at : stop] for column in merge.older],
                [column[merge.newer_at : newer_stop] for column in merge.newer],
                self.keys,
            )
            merge.write(part)
            fuel -= stop - merge.at + newer_stop - merge.newer_at
            merge.at, merge.newer_at = stop, newer_stop
        if merge.at == end and merge.newer_at == newer_end:
            self._finish(merge)

    def _finish(self, merge: _Merge) -> None:
        self._merges.remove(merge)
        for column in merge.output:
            column.resize(merge.filled, refcheck=False)
        merged: Run = tuple(merge.output)
        place = next(index for index, run in enumerate(self.runs) if run is merge.older)
        self.runs[place : place + 2] = [merged] if merge.filled else []
