"""The merge of runs in small steps: a tick pays for a few thousand rows of it, never for all.

Rows whose keys and columns are equal become one, and go when their weights cancel. Fixed-width values, text and lists
of numbers are written into memory, or a scratch file, reserved for the whole result, so that the last step copies
nothing. Other types (booleans, other nested values) stay pieces and are put together at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Numbers, Positions
from penstock.data.column_view import ColumnView, view, views
from penstock.data.equality import equal_rows, group_rows
from penstock.data.ordering import is_start, sort_positions
from penstock.state.column_writer import ColumnWriter, NumberWriter, column_writer
from penstock.state.limits import LIMITS
from penstock.state.narrow import Small, narrow
from penstock.state.run import Run, TableBuilder, has_table, ones, table_of
from penstock.state.scratch import Scratch, with_room

_SPARE = 1 << 12  # bytes for the alignment of arrays
Alive = Callable[[Sequence[Numbers], Sequence[Numbers]], Bools]
"""Which entries of an index still count, given their keys and numbers; entries that do not are left out of the merge."""

Keep = Callable[[Sequence[ColumnView], Positions], Bools]
"""Which rows, by their positions in columns, are still wanted; the others are left out of the merge."""


@dataclass(frozen=True, slots=True)
class _MergedRows:
    """Rows of several runs in order, of which the columns are still to be gathered."""

    keys: Sequence[Numbers]
    numbers: Sequence[Numbers]
    weights: Small
    columns: Sequence[ColumnView]
    order: Positions  # where the rows are in the columns

    def take(self, rows: Positions | Bools, weights: Small) -> _MergedRows:
        """Some of the rows, with their weights."""
        return _MergedRows(
            [key[rows] for key in self.keys],
            [number[rows] for number in self.numbers],
            weights,
            self.columns,
            self.order[rows],
        )

    def __len__(self) -> int:
        return len(self.order)


def merge_runs(
    runs: Sequence[Run], name: int = 0, alive: Alive | None = None, keep: Keep | None = None
) -> Run:
    """Return runs, at least one, as one, at once."""
    filled = [run for run in runs if len(run)] or list(runs[:1])
    total = sum(map(len, filled))
    if total > LIMITS.merge_chunk:
        merge = Merge(filled, alive, keep)
        merge.advance(total)
        return merge.result(name)
    rows = _in_order(filled, [slice(0, len(run)) for run in filled], alive, keep)
    columns = tuple(column.gather(rows.order) for column in rows.columns)
    return Run(
        name,
        tuple(map(_narrowed, rows.keys)),
        narrow(rows.weights) if alive is None else ones(len(rows)),
        columns,
        views(columns),
        tuple(map(_narrowed, rows.numbers)),
        table_of(rows.keys[0]) if has_table(rows.keys) else None,
    )


class Merge:
    """Runs on their way into one; they stay readable until `result` replaces them."""

    __slots__ = (
        "_alive",
        "_columns",
        "_done",
        "_keep",
        "_keys",
        "_numbers",
        "_runs",
        "_scratch",
        "_table",
        "_weights",
        "at",
    )

    def __init__(self, runs: Sequence[Run], alive: Alive | None = None, keep: Keep | None = None) -> None:
        self._runs = tuple(runs)
        self._alive = alive
        self._keep = keep
        capacity = sum(map(len, runs))
        self._done = 0
        self.at = [0] * len(runs)  # rows of each run that are merged
        size = sum(run.memory() for run in runs)
        self._scratch = with_room(size)  # the files that the result is written to; None for memory
        new = np.empty if self._scratch is None else self._scratch.region(size + capacity + _SPARE).empty
        self._keys = [NumberWriter(key.dtype, capacity, new) for key in runs[0].keys]
        self._numbers = [NumberWriter(number.dtype, capacity, new) for number in runs[0].numbers]
        self._weights = NumberWriter(np.dtype(np.int8), capacity, new) if alive is None else None
        self._columns = [
            column_writer(column, capacity, new, self._scratch)
            for column in zip(*(run.views for run in runs), strict=True)
        ]
        # Many runs may become few: the table of the result grows while its rows are written.
        large = capacity >= LIMITS.table_from and len(runs[0].keys) == 1
        self._table = TableBuilder(capacity, None if self._scratch is None else new) if large else None

    def advance(self, rows: int) -> bool:
        """Merge at least this many more rows if there are as many, and say whether all are done."""
        size = max(min(rows, LIMITS.merge_chunk), LIMITS.least_chunk)
        while rows > 0 and not self.finished:
            rows -= self._chunk(size, None)
        return self.finished

    def advance_to(self, at: Sequence[int]) -> None:
        """Merge just the rows before these positions, at which a merge of the same runs has once paused."""
        while self.at != list(at):
            self._chunk(LIMITS.merge_chunk, at)

    @property
    def finished(self) -> bool:
        return all(at == len(run) for at, run in zip(self.at, self._runs, strict=True))

    def result(self, name: int) -> Run:
        """The merged run, once it is finished."""
        done = self._done
        columns = tuple(writer.finish(done) for writer in self._columns)
        weights = ones(done) if self._weights is None else narrow(self._weights.finish(done))
        keys = tuple(writer.finish(done) for writer in self._keys)
        table = self._table.finish(done) if self._table else None
        numbers = tuple(writer.finish(done) for writer in self._numbers)
        mapped = self._scratch is not None
        return Run(name, keys, weights, columns, views(columns), numbers, table, mapped)

    def read_from(self, moved: Mapping[int, Run]) -> None:
        """Read runs that have moved, by their names, from where they are now."""
        self._runs = tuple(moved.get(run.name, run) for run in self._runs)

    def move(self, scratch: Scratch) -> None:
        """Write what is left, and what is written, to scratch files."""
        capacity = sum(map(len, self._runs))
        size = sum(run.memory() for run in self._runs)
        new = scratch.region(size + capacity + _SPARE).empty
        moved = [writer.moved(new, scratch) for writer in self._writers()]
        self._scratch = scratch
        for writer, arrays in zip(self._writers(), moved, strict=True):
            writer.use(arrays)

    @property
    def is_mapped(self) -> bool:
        """Whether it is written to scratch files."""
        return self._scratch is not None

    def _writers(self) -> list[NumberWriter | ColumnWriter]:
        writers: list[NumberWriter | ColumnWriter] = [*self._keys, *self._numbers, *self._columns]
        return writers if self._weights is None else [*writers, self._weights]

    def memory(self) -> int:
        """Bytes written so far."""
        return sum(writer.memory() for writer in self._writers())

    def _chunk(self, size: int, until: Sequence[int] | None) -> int:
        ends = self._ends(size)
        if until is not None:
            ends = [min(end, last) for end, last in zip(ends, until, strict=True)]
        unread = zip(self._runs, self.at, ends, strict=True)
        parts = [(run, slice(at, end)) for run, at, end in unread if end > at]
        rows = _in_order([run for run, _ in parts], [part for _, part in parts], self._alive, self._keep)
        self._write(rows)
        merged = sum(ends) - sum(self.at)
        self.at = ends
        return merged

    def _ends(self, size: int) -> list[int]:
        """Where the next chunk ends: behind the smallest of the keys a chunk away, so that equal keys are never parted."""
        unread = list(zip(self._runs, self.at, strict=True))
        heads = [tuple(key[at + size - 1] for key in run.keys) for run, at in unread if at + size <= len(run)]
        if not heads:
            return [len(run) for run in self._runs]
        bound = min(heads)
        return [behind(run.keys, bound, at) for run, at in unread]

    def _write(self, rows: _MergedRows) -> None:
        start, self._done = self._done, self._done + len(rows)
        for writers, columns in ((self._keys, rows.keys), (self._numbers, rows.numbers)):
            for number_writer, column in zip(writers, columns, strict=True):
                number_writer.write(start, column)
        if self._weights is not None:
            self._weights.write(start, rows.weights)
        if self._table:
            self._table.extend(rows.keys[0], start)
        for writer, view_ in zip(self._columns, rows.columns, strict=True):
            writer.write(start, view_, rows.order)


def behind(keys: Sequence[Numbers], bound: Sequence[Any], start: int = 0) -> int:
    """The first position, from `start` on, whose keys are greater than the bound."""
    low, high = start, len(keys[0])
    for key, value in zip(keys, bound, strict=True):
        part = key[low:high]
        last = low + int(part.searchsorted(value, "right"))
        low, high = low + int(part.searchsorted(value, "left")), last
    return high


def _in_order(
    runs: Sequence[Run], parts: Sequence[slice], alive: Alive | None, keep: Keep | None
) -> _MergedRows:
    """Parts of runs in the order of their keys, equal rows together, without those that cancel."""
    pairs = list(zip(runs, parts, strict=True))
    keys = [
        np.concatenate(pieces) for pieces in zip(*([k[p] for k in r.keys] for r, p in pairs), strict=True)
    ]
    # This sort merges what is in order already.
    order = sort_positions(keys, merging=True)
    keys = [key.take(order) for key in keys]
    numbers = [
        np.concatenate(pieces).take(order)
        for pieces in zip(*([n[p] for n in r.numbers] for r, p in pairs), strict=True)
    ]
    columns = tuple(_joined(column, parts) for column in zip(*(run.views for run in runs), strict=True))
    if alive is not None:
        rows = _MergedRows(keys, numbers, ones(len(order)), columns, order)
        valid = alive(keys, numbers)
        return rows if valid.all() else rows.take(valid, ones(int(valid.sum())))
    weights: Small = np.concatenate([run.weights[part] for run, part in pairs]).take(order)
    rows = _MergedRows(keys, numbers, weights, columns, order)
    rows = _cancelled(rows) if columns else _summed(rows)
    if keep is not None and not (wanted := keep(rows.columns, rows.order)).all():
        rows = rows.take(wanted, rows.weights[wanted])
    return rows


def _summed(rows: _MergedRows) -> _MergedRows:
    """Add up the weights of rows with equal keys, which are all that they have."""
    if len(rows) == 0:
        return rows
    fresh = is_start(*rows.keys)
    if not fresh.all():
        weights = np.add.reduceat(rows.weights, fresh.nonzero()[0], dtype=np.int64)
        rows = rows.take(fresh, weights)
    if not rows.weights.all():
        remaining = rows.weights.nonzero()[0]
        rows = rows.take(remaining, rows.weights[remaining])
    return rows


def _cancelled(rows: _MergedRows) -> _MergedRows:
    """Add up the weights of equal rows."""
    same = rows.keys[0][1:] == rows.keys[0][:-1]
    for key in rows.keys[1:]:
        same &= key[1:] == key[:-1]
    twins = same.nonzero()[0]  # positions whose keys are those of the next one
    if len(twins) == 0:
        return rows
    columns, order = rows.columns, rows.order
    remains = np.ones(len(order), np.bool_)
    sums = rows.weights.astype(np.int64)
    equal = equal_rows(columns, order[twins], columns, order[twins + 1], as_rows=True)
    if not (twins[1:] - twins[:-1] == 1).any():
        first = twins if equal.all() else twins[equal]
        sums[first] += sums[first + 1]
        remains[first + 1] = False
    else:
        near = np.zeros(len(order), np.bool_)
        near[twins] = True
        near[twins + 1] = True
        positions = near.nonzero()[0]
        # The number of keys before a row tells rows of different keys apart.
        block = np.concatenate(([0], np.cumsum(~same))).astype(np.uint64)[positions]
        grouped, starts = group_rows(
            block, [column.gather(order[positions]) for column in columns], as_rows=True
        )
        first = positions[grouped[starts]]
        sums[first] = np.add.reduceat(sums[positions[grouped]], starts)
        remains[positions] = False
        remains[first] = True
    remains[first] = sums[first] != 0
    return rows.take(remains, sums[remains])


def _joined(pieces: Sequence[ColumnView], parts: Sequence[slice]) -> ColumnView:
    """Parts of several columns of one type, end to end."""
    values = [
        piece.values[part]
        for piece, part in zip(pieces, parts, strict=True)
        if piece.values is not None and piece.bits is None
    ]
    if len(values) == len(pieces):
        return ColumnView(pieces[0].array, np.concatenate(values), None, 0)
    return view(pa.concat_arrays([piece.array[part] for piece, part in zip(pieces, parts, strict=True)]))


def _narrowed(numbers: Numbers) -> Numbers:
    return narrow(numbers) if numbers.dtype.kind == "i" else numbers
