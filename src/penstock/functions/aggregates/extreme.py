"""MIN and MAX, and the functions that give the first or last row of a group in some order.

The state has all values of a group in order with their counts, once for all functions over the same arguments; the
current extreme is cached. -0.0 and 0.0 are equal to Spark, which returns either; in the kernel -0.0 is the smaller
one. NaN is the greatest value.

- MIN, MAX (and BOOL_AND, BOOL_OR, which Catalyst turns into them): NULL is ignored.
- MIN_BY(x, y), MAX_BY(x, y): rows where y is NULL are ignored. Among equal y, MIN_BY takes the smallest x and MAX_BY the greatest
  (NULL being the smallest); Spark takes whichever comes last.
- FIRST, LAST, ANY_VALUE: a view has no order of arrival, so values come in ascending order, NULL first unless it is ignored.

Cost: delta; a deleted extreme is searched for in order, from where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Ints, Positions, Words
from penstock.data.ordering import compare_words, decode, decode_values, is_start, run_lengths, run_starts
from penstock.errors import InternalError
from penstock.functions.aggregates.base import Function, Parts, Rows, selection
from penstock.functions.aggregates.parts import MultisetPart, multiset_of
from penstock.functions.aggregates.result import Numbers, Result
from penstock.plan.node import AggregateCall, SortKey
from penstock.state.multiset import OrderedRows, OrderedValues
from penstock.state.ordered import Entries, OrderedCounts
from penstock.state.run import Run
from penstock.state.slot_array import SlotArray
from penstock.state.state import Composite, State

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_MANY = 4_096  # entries from which it pays to look whether all groups are new


class Searches(Composite):
    """Groups whose extreme is gone, until it is asked for: one scan reads both the first and the last values of short groups."""

    def __init__(self, counts: OrderedCounts) -> None:
        self._counts = counts
        self._waiting: list[tuple[ValueExtreme, Positions]] = []

    def ask(self, extreme: ValueExtreme, slots: Positions) -> None:
        """Search the groups at slots before values are read."""
        if len(slots):
            self._waiting.append((extreme, slots))

    def settle(self) -> None:
        """Search what waits."""
        waiting, self._waiting = self._waiting, []
        if len(waiting) == 2:
            groups = np.unique(np.concatenate([slots for _, slots in waiting]))
            entries = self._counts.read_short(groups)
            if entries is not None:
                for extreme, slots in waiting:
                    extreme.choose(slots, groups, entries)
                return
        for extreme, slots in waiting:
            extreme.search(slots)

    def reserve(self, size: int) -> None:
        """Nothing is stored by slot."""

    def update(self, rows: Rows) -> None:
        """Groups are named by the extremes."""

    def merge(self, other: Self, slots: Positions, others: Positions) -> None:
        """Groups are named by the extremes."""

    def commit(self) -> None:
        # A tick reads the results of all groups that it touches, so nothing waits here.
        self._waiting.clear()

    def rollback(self) -> None:
        self._waiting.clear()


class ValueExtreme(Composite):
    """The cached first (or last) value of each group and how often it is there."""

    def __init__(
        self, source: MultisetPart, values: OrderedValues, searches: Searches, *, last: bool
    ) -> None:
        self._source = source
        self._values = values
        self._searches = searches
        self._flip = _ALL if last else np.uint64(0)
        self._last = last
        # Words of the last value are stored complemented, so that better always means smaller.
        self._words = [SlotArray(np.uint64) for _ in range(values.counts.words)]
        self._count = SlotArray(np.int64)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "count", self._count
        for at, words in enumerate(self._words):
            yield f"word {at}", words

    def reserve(self, size: int) -> None:
        for array in (*self._words, self._count):
            array.reserve(size)

    def merge(self, other: Self, slots: Positions, others: Positions) -> None:
        self._follow()

    def update(self, rows: Rows) -> None:
        self._follow()

    def _follow(self) -> None:
        """Take in what has changed in the values."""
        run = self._source.changed
        if run is None or len(run) == 0:
            return
        columns = (*run.keys, run.weights)
        slots, *words, weights = (column[::-1] for column in columns) if self._last else columns
        fresh = is_start(slots)
        starts = fresh.nonzero()[0]
        touched: Positions = slots[starts]
        counts = self._count.data[touched]
        if len(slots) >= _MANY and not counts.any():
            self._begin(touched, [word[starts] for word in words], weights, starts)
            return
        words = [word ^ self._flip for word in words]
        owner = fresh.cumsum() - 1  # the group of each entry, as an index of `touched`
        filled = counts.take(owner) > 0
        less, equal = compare_words(words, [array.data[slots] for array in self._words])
        better, same = less | ~filled, equal & filled
        if (better & (weights < 0)).any():
            raise InternalError("a value is retracted that is not there")
        remaining = counts.copy()
        remaining[owner[same]] += weights[same]
        # Entries are in order: when any entry of a group is better than the cached one, its first entry is the best.
        wins = better[starts]
        chosen = starts[wins]
        if len(chosen):
            winners = touched[wins]
            for array, word in zip(self._words, words, strict=True):
                array.put(winners, word[chosen])
            remaining[wins] = weights[chosen]
        self._count.put(touched, remaining, counts)
        if (remaining < 0).any():
            raise InternalError("a value is retracted more often than it was inserted")
        self._searches.ask(self, touched[remaining == 0])

    def _begin(self, slots: Positions, words: Sequence[Words], weights: Ints, starts: Positions) -> None:
        """Take the first entries of groups that had none."""
        if (weights < 0).any():
            raise InternalError("a value is retracted that is not there")
        for array, word in zip(self._words, words, strict=True):
            array.put(slots, word ^ self._flip)
        self._count.put(slots, weights[starts])

    def choose(self, slots: Positions, groups: Positions, entries: Entries) -> None:
        """Take the extremes of slots from all entries of these groups, which ascend."""
        first = run_starts(entries.groups)
        chosen = np.full(len(groups), -1)
        chosen[entries.groups[first]] = first + run_lengths(first, len(entries)) - 1 if self._last else first
        at = chosen[groups.searchsorted(slots)]
        filled = at >= 0
        self._put(slots[filled], entries, at[filled])

    def search(self, slots: Positions) -> None:
        """Read the groups at slots from where their extreme was."""
        starts = [array.data[slots] ^ self._flip for array in self._words]
        entries = self._values.counts.scan(slots, 1, reverse=self._last, starts=starts)
        first = run_starts(entries.groups)
        self._put(slots[entries.groups[first]], entries, first)

    def _put(self, slots: Positions, entries: Entries, positions: Positions) -> None:
        for array, word in zip(self._words, entries.keys, strict=True):
            array.put(slots, word[positions] ^ self._flip)
        self._count.put(slots, entries.counts[positions])

    def values(self, slots: Positions) -> Result:
        """The extreme of each group, NULL where there is no value."""
        self._searches.settle()
        kind, valid = self._values.kind, self._count.data[slots] > 0
        words = [array.data[slots] ^ self._flip for array in self._words]
        if pa.types.is_boolean(kind):
            return decode(words, kind, valid)
        return Numbers(decode_values(words, kind), valid, kind)


class RowExtreme(Composite):
    """The cached first (or last) row of each group."""

    def __init__(self, source: MultisetPart, rows: OrderedRows, *, last: bool) -> None:
        self._source = source
        self._rows = rows
        self._last = last
        self._words = [SlotArray(np.uint64) for _ in range(rows.counts.words)]
        self._row = SlotArray(np.int64)  # id + 1; 0 where the group is empty

    def states(self) -> Iterator[tuple[str, State]]:
        yield "row", self._row
        for at, words in enumerate(self._words):
            yield f"word {at}", words

    def reserve(self, size: int) -> None:
        for array in (*self._words, self._row):
            array.reserve(size)

    def merge(self, other: Self, slots: Positions, others: Positions) -> None:
        self._follow()

    def update(self, rows: Rows) -> None:
        self._follow()

    def _follow(self) -> None:
        """Take in what has changed in the rows."""
        run = self._source.changed
        if run is None or len(run) == 0:
            return
        slots, words = run.keys[0], run.keys[1 : 1 + len(self._words)]
        cached = [array.data[slots] for array in self._words]
        worse, _ = compare_words(words, cached) if self._last else compare_words(cached, words)
        concerned = ~worse | (self._row.data[slots] == 0)
        if not concerned.any():
            return
        touched = np.unique(slots[concerned])
        read = self._rows.ordered(touched, 1, reverse=self._last, starts=self._starts(run, touched))
        first = run_starts(read.groups)
        groups = read.groups[first]
        extremes = np.zeros(len(touched), np.int64)
        extremes[groups] = read.ids[first] + 1
        self._row.put(touched, extremes)
        for array, word in zip(self._words, read.words, strict=True):
            array.put(touched[groups], word[first])

    def _starts(self, run: Run, touched: Positions) -> list[Words]:
        """Words before which nothing is alive: the cached row, or a new one before it."""
        slots = run.keys[0]
        nearest = slots.searchsorted(touched, "right") - 1 if self._last else slots.searchsorted(touched)
        cached = [array.data[touched] for array in self._words]
        new = [word[nearest] for word in run.keys[1 : 1 + len(self._words)]]
        better, _ = compare_words(cached, new) if self._last else compare_words(new, cached)
        better |= self._row.data[touched] == 0
        return [
            np.where(better, new_word, cached_word) for new_word, cached_word in zip(new, cached, strict=True)
        ]

    def values(self, slots: Positions, column: int) -> pa.Array:
        """One column of the extreme row of each group, NULL where there is no row."""
        rows = self._row.data[slots]
        filled = rows > 0
        values = self._rows.rows.key(column, rows[filled] - 1)
        if filled.all():
            return values
        positions = np.cumsum(filled) - 1
        return values.take(pa.array(positions, mask=~filled))


class _ExtremeValue:
    def __init__(self, cache: ValueExtreme) -> None:
        self._cache = cache

    def result(self, slots: Positions) -> Result:
        return self._cache.values(slots)


class _ExtremeRow:
    def __init__(self, cache: RowExtreme, column: int) -> None:
        self._cache = cache
        self._column = column

    def result(self, slots: Positions) -> pa.Array:
        return self._cache.values(slots, self._column)


def _extreme(
    call: AggregateCall, parts: Parts, *, last: bool, by: bool = False, nulls: bool = False
) -> Function:
    """The first or last row of the arguments; with `by` the second argument orders and the first is the result."""
    chosen = selection(call, required=(1,) if by else () if nulls else None)
    keys = (SortKey(1), SortKey(0)) if by else (SortKey(0),)
    if nulls:
        # NULL needs a position in the order, which plain values do not have.
        source = parts.share(
            chosen, lambda: MultisetPart(OrderedRows(parts.kinds(chosen), keys)), "rows", keys
        )
    else:
        source = multiset_of(parts, chosen, keys)
    values = source.values
    if isinstance(values, OrderedValues):
        searches = parts.share(chosen, lambda: Searches(values.counts), "searches", keys)
        value = parts.share(
            chosen, lambda: ValueExtreme(source, values, searches, last=last), "extreme", keys, last
        )
        return _ExtremeValue(value)
    assert isinstance(values, OrderedRows)
    row = parts.share(chosen, lambda: RowExtreme(source, values, last=last), "extreme", keys, last, nulls)
    return _ExtremeRow(row, 0)


def make_min(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `min`, `bool_and` and `every`."""
    return _extreme(call, parts, last=False)


def make_max(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `max`, `bool_or` and `some`."""
    return _extreme(call, parts, last=True)


def make_min_by(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `min_by`."""
    return _extreme(call, parts, last=False, by=True)


def make_max_by(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `max_by`."""
    return _extreme(call, parts, last=True, by=True)


def make_first(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `first`, `first_value` and `any_value`."""
    return _extreme(call, parts, last=False, nulls=not call.option("ignoreNulls", False))


def make_last(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `last` and `last_value`."""
    return _extreme(call, parts, last=True, nulls=not call.option("ignoreNulls", False))
