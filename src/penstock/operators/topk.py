"""ORDER BY ... LIMIT ... OFFSET: the rows of the ranks `offset` .. `offset + limit` of each partition.

Rule: d(out) = the ranked rows after the tick minus those before, for partitions in which a changed row lies at or
before the last rank. The whole row breaks ties, in ascending order of its columns with NULL first; a LIMIT without
ORDER BY takes the smallest rows in that order. A row of weight n takes n ranks. With `rank_field` the rank
(row_number, from 1) is the last column.

Cost: delta, and offset + limit rows of each partition whose ranked rows change. When these are few, the state caches
the first rows of each partition and some more: the operator then reads a partition in order only when so many of them
are gone that others move up. It does not read again what is deleted at the top.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Ints, Positions, Words
from penstock.data.delta import Delta, empty
from penstock.data.hashing import expand
from penstock.data.ordering import Key, compare_words, run_lengths, run_starts, sort_positions
from penstock.data.tick import Tick
from penstock.errors import DataError
from penstock.operators.base import Operator
from penstock.state.multiset import Ordered, OrderedRows
from penstock.state.run import Run
from penstock.state.slot_array import SlotArray
from penstock.state.slots import Resolved, Slots
from penstock.state.state import State
from penstock.state.top_ids import TopIds

_MOST_CACHED = 32  # ranks up to which the first rows of each partition are cached
_SPARE = 2  # rows that are cached beyond the last rank, at least
_ONLY = np.zeros(1, np.int64)
_LARGE = 50_000  # changed rows from which reading partitions in order is cheaper than arranging them anew


def _not_after(left: Sequence[Words], right: Sequence[Words]) -> Bools:
    """Where rows of words come before others or equal them."""
    less, equal = compare_words(left, right)
    return less | equal


class TopK(Operator):
    """The first rows of each partition."""

    consolidated = True

    def __init__(
        self,
        types: Sequence[pa.DataType],
        partition: Sequence[int],
        order: Sequence[Key],
        limit: int | None,
        *,
        offset: int = 0,
        rank_field: bool = False,
    ) -> None:
        self._partition = tuple(partition)
        self._offset = offset
        self._end = None if limit is None else offset + limit
        self._rank = rank_field
        self._index = Slots([types[key] for key in partition]) if partition else None
        self._rows = OrderedRows(types, order)
        self._total = SlotArray(np.int64)
        words = self._rows.counts.words
        # Per partition: the words of its first row, those of the last row that was read, and the ranks up to that one.
        self._first = [SlotArray(np.uint64) for _ in range(words)]
        self._last = [SlotArray(np.uint64) for _ in range(words)]
        self._seen = SlotArray(np.int64)
        self._reach, self._top = self._end, None
        if self._end is not None and self._end <= _MOST_CACHED:
            self._reach = self._end + _SPARE + self._end // 4
            self._top = TopIds(self._reach)
        self.types = (*types, pa.int32()) if rank_field else tuple(types)
        self._reserve(1)
        self.commit()

    def states(self) -> Iterator[tuple[str, State]]:
        if self._index is not None:
            yield "partitions", self._index
        yield "rows", self._rows
        yield "total", self._total
        yield "seen", self._seen
        for at, (first, last) in enumerate(zip(self._first, self._last, strict=True)):
            yield f"first {at}", first
            yield f"last {at}", last
        if self._top is not None:
            yield "top", self._top

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        if len(delta) == 0 or self._end == self._offset:
            return empty(self.types)
        partitions = self._resolve(delta)
        touched = partitions.touched
        run = self._rows.stage(partitions.slots, delta.columns, delta.weights)
        before, after = self._total.add(touched, partitions.groups, delta.weights)
        if (after < 0).any():
            raise DataError("rows are retracted that were never inserted", code="DATA_NEGATIVE_COUNT")
        if self._index is not None:
            self._index.release(touched[after == 0])
        if len(run) == 0:
            return empty(self.types)
        affected, old_counts = self._affected(run, touched, before)
        if len(affected) == 0:
            return empty(self.types)
        old, new = self._before_and_after(run, affected, old_counts)
        self._remember(affected, new)
        return self._difference(old, new)

    def contents(self, first: int = 0, most: int | None = None) -> Delta:
        """All rows of the operator's output, or about so many from one on, in whole partitions; without changes their
        order is the same each time."""
        slots = np.zeros(1, np.int64) if self._index is None else self._index.live()
        if self._end == self._offset:
            return empty(self.types)
        if first or most is not None:
            totals = self._total.data[slots]
            counts = (totals if self._end is None else np.minimum(totals, self._end)) - self._offset
            begins = np.cumsum(counts.clip(0)) - counts.clip(0)
            last = len(begins) if most is None else begins.searchsorted(first + most)
            slots = slots[begins.searchsorted(first) : last]
        return self._difference(_NOTHING, self._rows.ordered(slots, self._end))

    def _reserve(self, size: int) -> None:
        for array in (self._total, self._seen, *self._first, *self._last):
            array.reserve(size)
        if self._top is not None:
            self._top.reserve(size)

    def _resolve(self, delta: Delta) -> Resolved:
        if self._index is None:
            return Resolved(_ONLY, np.zeros(len(delta), np.int64), _ONLY)
        partitions = self._index.resolve([delta.columns[key] for key in self._partition], len(delta))
        self._reserve(self._index.size)
        return partitions

    def _affected(self, run: Run, touched: Positions, before: Ints) -> tuple[Positions, Ints]:
        """The partitions whose ranked rows may change, ascending, and how many rows they had."""
        slots, words = run.keys[0], run.keys[1 : 1 + len(self._last)]
        if len(touched) * 8 > self._total.size:
            totals = np.zeros(self._total.size, np.int64)
            totals[touched] = before
            old = totals[slots]
        else:
            order = np.argsort(touched)
            old = before[order][np.searchsorted(touched[order], slots)]
        concerned = (self._seen.data[slots] == old) | _not_after(
            words, [array.data[slots] for array in self._last]
        )
        slots, old = slots[concerned], old[concerned]
        first = run_starts(slots)
        return slots[first], old[first]

    def _before_and_after(self, run: Run, affected: Positions, old_counts: Ints) -> tuple[Ordered, Ordered]:
        """The first rows of partitions before and after the tick."""
        first = [array.data[affected] for array in self._first]
        starts = self._starts(run, affected, first, old_counts == 0)
        if self._top is None:
            old = self._rows.ordered(affected, self._reach, starts=first, committed=True)
            return old, self._rows.ordered(affected, self._reach, starts=starts)
        changed = _changed(run, affected)
        groups, ids = self._top.read(affected)
        at, hit = changed.find(ids)
        copies = self._rows.copies(ids)
        old = Ordered(groups, ids, copies - np.where(hit, changed.weights.take(at, mode="clip"), 0), ())
        if len(run) > _LARGE:
            return old, self._rows.ordered(affected, self._reach, starts=starts)
        fresh = changed.weights > 0
        fresh[at[hit]] = False
        alive = copies > 0
        new = self._rows.arranged(
            np.concatenate((groups[alive], changed.groups[fresh])),
            np.concatenate((ids[alive], changed.ids[fresh])),
        )
        return old, self._completed(
            affected, self._without_gaps(affected, old_counts, new, changed.ids[fresh]), starts
        )

    def _without_gaps(self, affected: Positions, old_counts: Ints, new: Ordered, fresh: Ints) -> Ordered:
        """Leave out fresh rows behind the last cached one, unless all rows of the partition are cached: others may
        lie between."""
        at = fresh.searchsorted(new.ids)
        cached = fresh.take(at, mode="clip") != new.ids if len(fresh) else np.ones(len(new), np.bool_)
        last = np.full(len(affected), -1)
        np.maximum.at(last, new.groups[cached], cached.nonzero()[0])
        last[self._seen.data[affected] == old_counts] = len(new)
        inside = (np.arange(len(new)) <= last[new.groups]).nonzero()[0]
        return new if len(inside) == len(new) else new.take(inside)

    def _completed(self, affected: Positions, new: Ordered, starts: Sequence[Words]) -> Ordered:
        """Read those partitions in order whose cached and fresh rows do not fill all ranks."""
        assert self._end is not None
        filled = np.bincount(new.groups, new.counts, len(affected))
        search = filled < np.minimum(self._total.data[affected], self._end)
        unfilled = search.nonzero()[0]
        if len(unfilled) == 0:
            return new
        read = self._rows.ordered(affected[unfilled], self._reach, starts=[word[unfilled] for word in starts])
        complete = new.take((~search[new.groups]).nonzero()[0])
        return _together(complete, Ordered(unfilled[read.groups], read.ids, read.counts, read.words))

    def _starts(self, run: Run, affected: Positions, first: Sequence[Words], was_empty: Bools) -> list[Words]:
        """Words before which nothing is alive after the tick: those of the first row, or of a changed row before it."""
        nearest = np.searchsorted(run.keys[0], affected)
        changed = [word[nearest] for word in run.keys[1 : 1 + len(first)]]
        earlier = _not_after(changed, first) | was_empty
        return [
            np.where(earlier, changed_word, first_word)
            for changed_word, first_word in zip(changed, first, strict=True)
        ]

    def _remember(self, affected: Positions, new: Ordered) -> None:
        """Store the first and the last row that was read of each partition, and those between them."""
        begin, end = self._ranks(new)
        if self._reach is not None:
            near = (begin < self._reach).nonzero()[0]
            new, end = new.take(near), end[near]
        if self._top is not None:
            self._top.put(affected, new.groups, new.ids)
        seen = np.zeros(len(affected), np.int64)
        if len(new) == 0:
            self._seen.put(affected, seen)
            return
        starts = run_starts(new.groups)
        groups = new.groups[starts]
        lasts = starts + run_lengths(starts, len(new)) - 1
        seen[groups] = end[lasts]
        self._seen.put(affected, seen)
        owners = affected[groups]
        for first, last, word in zip(self._first, self._last, new.words, strict=True):
            first.put(owners, word[starts])
            last.put(owners, word[lasts])

    def _ranks(self, read: Ordered) -> tuple[Ints, Ints]:
        """The ranks, from 0, that each row takes in its partition: first, and one behind the last."""
        ends = np.cumsum(read.counts)
        starts = run_starts(read.groups)
        base = (ends - read.counts)[starts]
        end = ends - base.repeat(run_lengths(starts, len(read)))
        return end - read.counts, end

    def _window(self, read: Ordered) -> tuple[Positions, Ints, Ints]:
        """The rows within the window, how many ranks each takes in it, and the first of them."""
        begin, end = self._ranks(read)
        begin = np.maximum(begin, self._offset)
        if self._end is not None:
            end = np.minimum(end, self._end)
        rows = (end > begin).nonzero()[0]
        return rows, (end - begin)[rows], begin[rows]

    def _difference(self, old: Ordered, new: Ordered) -> Delta:
        """The ranked rows of the new reading minus those of the old one."""
        sides = [(old, *self._window(old), -1), (new, *self._window(new), 1)]
        ids = np.concatenate([read.ids[chosen] for read, chosen, _, _, _ in sides])
        counts = np.concatenate([count * sign for _, _, count, _, sign in sides])
        if len(ids) == 0:
            return empty(self.types)
        keys = [ids]
        if self._rank:
            begin = np.concatenate([first for _, _, _, first, _ in sides])
            times = np.abs(counts)
            copy, _ = expand(times)
            keys = [ids.repeat(times), begin.repeat(times) + copy + 1]
            counts = np.sign(counts).repeat(times)
        order = sort_positions(keys)
        starts = run_starts(*(key[order] for key in keys))
        weights = np.add.reduceat(counts[order], starts)
        changed = weights != 0
        chosen = order[starts[changed]]
        columns = self._rows.rows.keys(keys[0][chosen])
        if self._rank:
            columns = (*columns, pa.array(keys[1][chosen].astype(np.int32)))
        return Delta(columns, weights[changed])


@dataclass(frozen=True, slots=True)
class _Changed:
    """The changed rows of some partitions in the order of their ids, each with the index of its partition."""

    groups: Positions
    ids: Ints
    weights: Ints

    def find(self, ids: Ints) -> tuple[Positions, Bools]:
        """Where rows are among the changed ones, and whether they are."""
        at = self.ids.searchsorted(ids)
        return at, self.ids.take(at, mode="clip") == ids


def _changed(run: Run, affected: Positions) -> _Changed:
    """The entries of a change that belong to affected partitions."""
    partitions, ids = run.keys[0], run.keys[-1]
    at = affected.searchsorted(partitions)
    inside = (affected.take(at, mode="clip") == partitions).nonzero()[0]
    inside = inside[np.argsort(ids[inside])]
    return _Changed(at[inside], ids[inside], run.weights[inside])


def _together(first: Ordered, second: Ordered) -> Ordered:
    """The rows of different partitions as one reading."""
    both = Ordered(
        np.concatenate((first.groups, second.groups)),
        np.concatenate((first.ids, second.ids)),
        np.concatenate((first.counts, second.counts)),
        tuple(np.concatenate(pair) for pair in zip(first.words, second.words, strict=True)),
    )
    return both.take(np.argsort(both.groups, kind="stable"))


_NOTHING = Ordered(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), ())
