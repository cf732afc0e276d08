"""A history: counted rows per group in the order of their times, to find the ones at, before, after or between times.

The state stores each distinct row once, by an id; an index of (group, time, id) leads to it. Times are words:
unsigned integers in the order of the times. A tick stages its changes once, reads the rows before and after them, and
commits or rolls back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Ints, Positions, Words
from penstock.data.column_view import gather
from penstock.data.delta import Weights
from penstock.data.ordering import rank_rows
from penstock.errors import InternalError
from penstock.state.cell import Cell
from penstock.state.ordered import Entries, OrderedCounts
from penstock.state.run import Run
from penstock.state.slot_array import SlotArray
from penstock.state.slots import Slots
from penstock.state.state import Composite, State

_PIECE = 65_536  # look-ups at a time: each reads several entries of every run


class History(Composite):
    """Rows of these types by group and time."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._rows = Slots(types, as_rows=True)
        self._copies = SlotArray(np.int64)  # how often each row is there
        self._counts = OrderedCounts(1, ids=True)
        self._total = Cell(0)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "rows", self._rows
        yield "copies", self._copies
        yield "counts", self._counts
        yield "total", self._total

    @property
    def count(self) -> int:
        """The number of committed rows, counting multiplicity."""
        return self._total.value

    def stage(
        self, groups: Positions, times: Words, columns: Sequence[pa.Array], weights: Weights
    ) -> tuple[Ints, Run]:
        """Add rows with weights: the id of each row, and the changed entries (group, time, id) in order."""
        resolved = self._rows.resolve(columns, len(weights))
        self._total.stage(self._total.staged + int(weights.sum()))
        self._copies.reserve(self._rows.size)
        _, copies = self._copies.add(resolved.touched, resolved.groups, weights)
        if (copies < 0).any():
            raise InternalError("a row is retracted more often than it was inserted")
        self._rows.release(resolved.touched[copies == 0])
        return resolved.slots, self._counts.stage((groups, times, resolved.slots), weights)

    def nearest(self, groups: Positions, times: Words, *, later: bool, committed: bool) -> tuple[Ints, Words]:
        """For each group and time the row at that time or, of those before it (`later`: behind it), the nearest; id -1 for none.

        Of several rows of one time it is the first in the order of their columns, NULL first. Cost: the rows of that time.
        """
        if len(groups) > _PIECE:
            cuts = range(0, len(groups), _PIECE)
            pieces = [
                self.nearest(
                    groups[cut : cut + _PIECE], times[cut : cut + _PIECE], later=later, committed=committed
                )
                for cut in cuts
            ]
            return np.concatenate([ids for ids, _ in pieces]), np.concatenate([at for _, at in pieces])
        ids = np.full(len(groups), -1, np.int64)
        at = np.zeros(len(groups), np.uint64)
        if len(groups) == 0:
            return ids, at
        entries = self._counts.scan(
            groups, 1, reverse=not later, starts=[times], committed=committed, seek=True
        )
        if len(entries) == 0:
            return ids, at
        owner, (words, rows) = entries.groups, entries.keys
        first = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
        nearest = np.repeat(words[first], np.diff(first, append=len(owner)))
        tied = np.flatnonzero(words == nearest)
        owner, rows = owner[tied], rows[tied]
        if len(owner) > len(first):
            order, _ = rank_rows(self.columns(rows), (), owner)
            owner, rows = owner[order], rows[order]
            chosen = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
            owner, rows = owner[chosen], rows[chosen]
        ids[owner] = rows
        at[owner] = words[first]
        return ids, at

    def between(self, groups: Positions, low: Words, high: Words) -> Entries:
        """The committed rows of each group with low <= time <= high: (asked group, (time, id), count)."""
        return self._counts.between(groups, [low], [high], committed=True)

    def column(self, index: int, ids: Ints) -> pa.Array:
        """One column of the rows with these ids."""
        return self._rows.key(index, ids)

    def columns(self, ids: Ints) -> tuple[pa.Array, ...]:
        """The rows with these ids; an id of -1 is a row of NULLs."""
        lacking = ids < 0
        if not lacking.any():
            return self._rows.keys(ids)
        present = np.flatnonzero(~lacking)
        position = np.where(lacking, -1, np.cumsum(~lacking) - 1)
        columns = self._rows.keys(ids[present])
        padded = [pa.concat_arrays([column, pa.nulls(1, column.type)]) for column in columns]
        return gather(padded, np.where(position < 0, len(present), position))
