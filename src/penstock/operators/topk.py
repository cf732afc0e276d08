"""ORDER BY ... LIMIT ... OFFSET: the rows at places `offset` .. `offset + limit` of each partition.

Rule: d(out) = the places after the tick minus the places before, for partitions in which a changed row lies at or before the last place.
The whole row breaks ties, in ascending order of its columns with NULL first; so does a LIMIT without ORDER BY, which takes the smallest
rows. A row of weight n takes n places. With `rank_field` the place (row_number, from 1) is the last column.

Cost: delta, and offset + limit rows of each partition whose places change; what is deleted at the top is not read again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.delta import Delta, empty
from penstock.data.hashing import expand
from penstock.data.ordering import Key, Words, run_lengths, run_starts, sort_places
from penstock.data.view import Positions, gather
from penstock.errors import DataError
from penstock.operators.base import Operator, Tick
from penstock.state.dense import Dense
from penstock.state.multiset import OrderedRows, Read
from penstock.state.slots import Slots
from penstock.state.sorted_runs import Run

Ints = npt.NDArray[np.int64]


def _not_after(left: Sequence[Words], right: Sequence[Words]) -> npt.NDArray[np.bool_]:
    """Where rows of words come before others or equal them."""
    less = np.zeros(len(left[0]), np.bool_)
    equal = np.ones(len(left[0]), np.bool_)
    for mine, other in zip(left, right, strict=True):
        less |= equal & (mine < other)
        equal &= mine == other
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
        self._total = Dense(np.int64)
        words = self._rows.counts.words
        # Per partition: the words of its first row, and of the row at its last place when it has that many.
        self._first = [Dense(np.uint64) for _ in range(words)]
        self._last = [Dense(np.uint64) for _ in range(words)]
        self.types = (*types, pa.int32()) if rank_field else tuple(types)

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        if len(delta) == 0 or self._end == self._offset:
            return empty(self.types)
        slots, touched = self._resolve(delta)
        run = self._rows.stage(slots, delta.columns, delta.weights)
        before = self._total.data[touched]
        self._total.touch(touched)
        np.add.at(self._total.data, slots, delta.weights)
        after = self._total.data[touched]
        if (after < 0).any():
            raise DataError("rows are retracted that were never inserted", code="DATA_NEGATIVE_COUNT")
        if self._index is not None:
            self._index.release(touched[after == 0])
        if len(run[0]) == 0:
            return empty(self.types)
        affected, was_empty = self._affected(run, touched, before)
        if len(affected) == 0:
            return empty(self.types)
        old_starts = [dense.data[affected] for dense in self._first]
        new_starts = self._starts(run, affected, old_starts, was_empty)
        old = self._rows.read(affected, self._end, starts=old_starts, committed=True)
        new = self._rows.read(affected, self._end, starts=new_starts)
        self._remember(affected, new)
        return self._difference(old, new)

    def contents(self) -> Delta:
        """All rows that the operator has given and not taken back."""
        slots = np.zeros(1, np.int64) if self._index is None else self._index.live()
        none = Read(
            np.zeros(0, np.int64),
            tuple(pa.array([], kind) for kind in self._rows.kinds),
            np.zeros(0, np.int64),
            (),
            np.zeros(0, np.int64),
        )
        read = none if self._end == self._offset else self._rows.read(slots, self._end)
        return self._difference(none, read)

    def commit(self) -> None:
        if self._index is not None:
            self._index.commit()
        self._rows.commit()
        for dense in (self._total, *self._first, *self._last):
            dense.commit()

    def rollback(self) -> None:
        if self._index is not None:
            self._index.rollback()
        self._rows.rollback()
        for dense in (self._total, *self._first, *self._last):
            dense.rollback()

    def memory(self) -> int:
        index = 0 if self._index is None else self._index.memory()
        dense = sum(dense.memory() for dense in (self._total, *self._first, *self._last))
        return index + self._rows.memory() + dense

    def _resolve(self, delta: Delta) -> tuple[Positions, Positions]:
        if self._index is None:
            return np.zeros(len(delta), np.int64), np.zeros(1, np.int64)
        found = self._index.resolve([delta.columns[key] for key in self._partition], len(delta))
        for dense in (self._total, *self._first, *self._last):
            dense.reserve(self._index.size)
        return found.slots, found.touched

    def _affected(
        self, run: Run, touched: Positions, before: Ints
    ) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """The partitions whose places may change, ascending, and which of them had no row."""
        slots, words = run[0], run[1 : 1 + len(self._last)]
        held = np.zeros(len(self._total.data), np.int64) if len(touched) * 8 > len(self._total.data) else None
        if held is None:
            order = np.argsort(touched)
            old = before[order][np.searchsorted(touched[order], slots)]
        else:
            held[touched] = before
            old = held[slots]
        if self._end is None:
            concerned = np.ones(len(slots), np.bool_)
        else:
            concerned = (old < self._end) | _not_after(words, [dense.data[slots] for dense in self._last])
        slots, old = slots[concerned], old[concerned]
        first = run_starts(slots)
        return slots[first], old[first] == 0

    def _starts(
        self, run: Run, affected: Positions, first: Sequence[Words], was_empty: npt.NDArray[np.bool_]
    ) -> list[Words]:
        """Words before which nothing is alive after the tick: those of the first row, or of a changed row before it."""
        nearest = np.searchsorted(run[0], affected)
        changed = [word[nearest] for word in run[1 : 1 + len(first)]]
        earlier = _not_after(changed, first) | was_empty
        return [np.where(earlier, one, other) for one, other in zip(changed, first, strict=True)]

    def _remember(self, affected: Positions, new: Read) -> None:
        """Note the first and the last place of partitions."""
        for dense in (*self._first, *self._last):
            dense.touch(affected)
        if len(new) == 0:
            return
        starts = run_starts(new.groups)
        owners = affected[new.groups[starts]]
        for dense, word in zip(self._first, new.words, strict=True):
            dense.data[owners] = word[starts]
        if self._end is None:
            return
        begin, end = self._places(new)
        last = ((begin < self._end) & (end >= self._end)).nonzero()[0]
        for dense, word in zip(self._last, new.words, strict=True):
            dense.data[affected[new.groups[last]]] = word[last]

    def _places(self, read: Read) -> tuple[Ints, Ints]:
        """The places, from 0, that each row takes in its partition: first, and one behind the last."""
        ends = np.cumsum(read.counts)
        starts = run_starts(read.groups)
        base = (ends - read.counts)[starts]
        end = ends - base.repeat(run_lengths(starts, len(read)))
        return end - read.counts, end

    def _window(self, read: Read) -> tuple[Positions, Ints, Ints]:
        """The rows within the window, how many places each takes there, and the first of them."""
        begin, end = self._places(read)
        begin = np.maximum(begin, self._offset)
        if self._end is not None:
            end = np.minimum(end, self._end)
        rows = (end > begin).nonzero()[0]
        return rows, (end - begin)[rows], begin[rows]

    def _difference(self, old: Read, new: Read) -> Delta:
        """The places of one reading instead of those of another."""
        sides = [(old, *self._window(old), -1), (new, *self._window(new), 1)]
        rows = np.concatenate([chosen + (len(old) if sign > 0 else 0) for _, chosen, _, _, sign in sides])
        counts = np.concatenate([count * sign for _, _, count, _, sign in sides])
        groups = np.concatenate([read.groups[chosen] for read, chosen, _, _, _ in sides])
        ids = np.concatenate([read.ids[chosen] for read, chosen, _, _, _ in sides])
        keys: list[npt.NDArray[np.int64]] = [groups, ids]
        if self._rank:
            begin = np.concatenate([first for _, _, _, first, _ in sides])
            place, _ = expand(np.abs(counts))
            repeat = np.repeat(np.arange(len(rows)), np.abs(counts))
            ranks = begin[repeat] + place + 1
            rows, keys = rows[repeat], [groups[repeat], ids[repeat], ranks]
            counts = np.sign(counts)[repeat]
        if len(rows) == 0:
            return empty(self.types)
        order = sort_places(keys)
        starts = run_starts(*(key[order] for key in keys))
        weights = np.add.reduceat(counts[order], starts)
        kept = weights != 0
        chosen = order[starts[kept]]
        columns = tuple(
            pa.concat_arrays(pair) if len(pair[0]) else pair[1]
            for pair in zip(old.columns, new.columns, strict=True)
        )
        result = gather(columns, rows[chosen])
        if self._rank:
            result = (*result, pa.array(keys[2][chosen].astype(np.int32)))
        return Delta(result, weights[kept])
