"""Multisets of values or rows per group, read in Spark's order.

`OrderedValues` holds one column of fixed width: the value is its order words. `OrderedRows` holds any columns: each
distinct row has an id and is stored once; the order words are a prefix of it, and rows whose prefixes tie are
compared in full when they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Ints, Positions, Words
from penstock.data.column_view import gather
from penstock.data.ordering import (
    Key,
    decode,
    encode,
    is_fixed,
    prefix,
    prefix_words,
    rank_rows,
    sort_positions,
    word_count,
)
from penstock.errors import InternalError
from penstock.state.ordered import OrderedCounts
from penstock.state.run import Run
from penstock.state.slot_array import SlotArray
from penstock.state.slots import Slots
from penstock.state.state import Composite, State


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Rows of several groups in order: the index of the group that was asked for, the columns, the multiplicity."""

    groups: Positions
    columns: tuple[pa.Array, ...]
    counts: Ints
    words: tuple[Words, ...]
    ids: Ints  # of rows; empty for plain values

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True, slots=True)
class Ordered:
    """The same by id: rows of several groups in order, without their columns."""

    groups: Positions
    ids: Ints
    counts: Ints
    words: tuple[Words, ...]

    def __len__(self) -> int:
        return len(self.counts)

    def take(self, rows: Positions) -> Ordered:
        """The rows at these positions."""
        words = tuple(word[rows] for word in self.words)
        return Ordered(self.groups[rows], self.ids[rows], self.counts[rows], words)


class Multiset(State, Protocol):
    """Counted rows per group."""

    @property
    def counts(self) -> OrderedCounts: ...

    def stage(self, slots: Positions, columns: Sequence[pa.Array], weights: Ints) -> Run:
        """Add rows with weights; return the changed entries (slot, words..., [id]) in order."""

    def read(
        self,
        slots: Positions,
        count: int | None = None,
        *,
        reverse: bool = False,
        starts: Sequence[Words] | None = None,
        committed: bool = False,
    ) -> GroupRows:
        """Return the first rows of each slot, at least `count` of them, as `OrderedCounts.scan` does."""


def multiset(kinds: Sequence[pa.DataType], keys: Sequence[Key]) -> Multiset:
    """Return the cheapest multiset for columns of these types in the order of the keys, then of the whole row."""
    plain = len(kinds) == 1 and is_fixed(kinds[0]) and not any(key.descending for key in keys)
    return OrderedValues(kinds[0]) if plain else OrderedRows(kinds, keys)


class OrderedValues(Composite):
    """Counted values of one fixed-width column per group, without NULL; -0.0 comes before 0.0."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.counts = OrderedCounts(word_count(kind), ids=False)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "counts", self.counts

    def stage(self, slots: Positions, columns: Sequence[pa.Array], weights: Ints) -> Run:
        return self.counts.stage((slots, *encode(columns[0], merge_zeros=False)), weights)

    def read(
        self,
        slots: Positions,
        count: int | None = None,
        *,
        reverse: bool = False,
        starts: Sequence[Words] | None = None,
        committed: bool = False,
    ) -> GroupRows:
        entries = self.counts.scan(slots, count, reverse=reverse, starts=starts, committed=committed)
        words: tuple[Words, ...] = entries.keys
        return GroupRows(
            entries.groups, (decode(words, self.kind),), entries.counts, words, np.zeros(0, np.int64)
        )


class OrderedRows(Composite):
    """Counted rows per group in the order of some keys, the whole row breaking ties."""

    def __init__(self, kinds: Sequence[pa.DataType], keys: Sequence[Key]) -> None:
        self.kinds = tuple(kinds)
        self._order = tuple(keys)
        self.rows = Slots(kinds, as_rows=True)
        self._copies = SlotArray(np.int64)  # how often each row is there
        self.counts = OrderedCounts(prefix_words(kinds, keys), ids=True)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "rows", self.rows
        yield "copies", self._copies
        yield "counts", self.counts

    def stage(self, slots: Positions, columns: Sequence[pa.Array], weights: Ints) -> Run:
        resolved = self.rows.resolve(columns, len(weights))
        self._copies.reserve(self.rows.size)
        _, copies = self._copies.add(resolved.touched, resolved.groups, weights)
        if (copies < 0).any():
            raise InternalError("a row is retracted more often than it was inserted")
        self.rows.release(resolved.touched[copies == 0])
        words = prefix(gather(columns, resolved.leaders), self._order)
        return self.counts.stage((slots, *(word[resolved.groups] for word in words), resolved.slots), weights)

    def read(
        self,
        slots: Positions,
        count: int | None = None,
        *,
        reverse: bool = False,
        starts: Sequence[Words] | None = None,
        committed: bool = False,
    ) -> GroupRows:
        ordered = self.ordered(slots, count, reverse=reverse, starts=starts, committed=committed)
        return GroupRows(
            ordered.groups, self.rows.keys(ordered.ids), ordered.counts, ordered.words, ordered.ids
        )

    def ordered(
        self,
        slots: Positions,
        count: int | None = None,
        *,
        reverse: bool = False,
        starts: Sequence[Words] | None = None,
        committed: bool = False,
    ) -> Ordered:
        """The same as `read`, by id."""
        entries = self.counts.scan(slots, count, reverse=reverse, starts=starts, committed=committed)
        words_per_row = self.counts.words
        words: tuple[Words, ...] = entries.keys[:words_per_row]
        return self._untied(
            Ordered(entries.groups, entries.keys[words_per_row], entries.counts, words), reverse
        )

    def arranged(self, groups: Positions, ids: Ints) -> Ordered:
        """Put rows of groups in order, as they are in this tick."""
        words = prefix(self.rows.keys(ids), self._order)
        rows = Ordered(groups, ids, self._copies.data[ids], words)
        return self._untied(rows.take(sort_positions((groups, *words))), False)

    def copies(self, ids: Ints) -> Ints:
        """How often rows are there, with the change of this tick."""
        counts: Ints = self._copies.data[ids]
        return counts

    def _untied(self, rows: Ordered, reverse: bool) -> Ordered:
        """Put rows with equal words in their real order."""
        if len(rows) < 2:
            return rows
        fresh = rows.groups[1:] != rows.groups[:-1]
        for word in rows.words:
            fresh |= word[1:] != word[:-1]
        if fresh.all():
            return rows
        tied = np.zeros(len(rows), np.bool_)
        tied[1:] |= ~fresh
        tied[:-1] |= ~fresh
        positions = tied.nonzero()[0]
        block = np.concatenate(([0], np.cumsum(fresh)))[positions]
        columns = self.rows.keys(rows.ids[positions])
        inner, _ = rank_rows(columns, self._order, block.max() - block if reverse else block)
        order = np.arange(len(rows))
        order[positions] = positions[inner[::-1] if reverse else inner]
        return Ordered(rows.groups, rows.ids[order], rows.counts[order], rows.words)
