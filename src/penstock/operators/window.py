"""Window functions: the input columns, then one column per call.

Rule: d(out) = the touched partitions after the tick minus before, where rows differ. Rows of a partition are sorted
by the window's order, the whole row breaking ties. Old and new partitions are sorted once, together.

Cost: the touched partitions: a partition of a million rows is a million rows per tick that touches it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Ints, Positions
from penstock.data.column_view import gather
from penstock.data.delta import Delta, concat, concat_columns, empty
from penstock.data.equality import equal_rows
from penstock.data.hashing import expand, hash_rows
from penstock.data.ordering import Key, rank_classes, rank_rows, run_starts
from penstock.data.tick import Tick
from penstock.errors import DataError
from penstock.functions.windows import RANKING, WINDOWS
from penstock.functions.windows.layout import lay_out
from penstock.operators.base import Operator
from penstock.operators.contents import Contents
from penstock.operators.sample import with_sample
from penstock.plan.node import WindowCall
from penstock.state.arrangement import Arrangement
from penstock.state.slots import group_keys
from penstock.state.spine import SpineVersion
from penstock.state.state import State


class Window(Operator):
    """Rows with what window functions say about them.

    `arrangement` holds the input by partition when another operator keeps it up to date; otherwise this one does.
    """

    def __init__(
        self,
        types: Sequence[pa.DataType],
        partition: Sequence[int],
        order: Sequence[Key],
        calls: Sequence[WindowCall],
        arrangement: Arrangement | None = None,
        *,
        names: Sequence[str] = (),
    ) -> None:
        self._names = tuple(names) or tuple(f"_{at}" for at in range(len(types)))
        self._partition = tuple(partition)
        self._order = tuple(order)
        self._calls = [(call, WINDOWS.load(call.function)) for call in calls]
        self._reads_columns = not all(call.function in RANKING for call in calls)
        self._owned = arrangement is None
        self._filling = False
        self._rows = Arrangement(types, partition) if arrangement is None else arrangement
        nothing = empty(types).columns
        none = np.zeros(0, np.int64)
        self.types = (*types, *(column.type for column in self._computed(nothing, none, none)))

    def states(self) -> Iterator[tuple[str, State]]:
        if self._owned:
            yield "rows", self._rows

    def initial(self, tick: Tick) -> Delta | None:
        # The arrangement may be older than the operator: for the operator, all of its rows are new in this tick.
        self._filling = True
        return None

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        filling, self._filling = self._filling, False
        if len(delta) == 0:
            return empty(self.types)
        keys = [delta.columns[index] for index in self._partition]
        leaders, groups = group_keys(keys, hash_rows(keys, len(delta)), as_rows=False)
        owners, before = np.zeros(0, np.int64), empty(self._rows.types)
        if not filling:
            owners, before = self._rows.before().lookup(gather(keys, leaders), len(leaders))
        if self._owned:
            self._rows.apply(delta)
        columns, partitions, peers, old, new = self._together(before, owners, delta, groups)
        try:
            return self._difference(columns, partitions, peers, old, new)
        except DataError as error:
            first = self._first_failing(columns, partitions, peers, new)
            raise with_sample(
                error, delta.take(np.flatnonzero(groups == first)), self._names, of="partition"
            ) from None

    def _first_failing(
        self, columns: Sequence[pa.Array], partitions: Positions, peers: Positions, new: Ints
    ) -> int:
        """The first partition whose rows after the tick a function refuses."""
        copies = np.repeat(np.arange(len(new)), new)
        ends = np.flatnonzero(np.diff(partitions[copies], append=-1)) + 1
        # The rows up to a partition fail when it or one before it does, so halving finds the first one.
        low, high = 0, len(ends) - 1
        while low < high:
            middle = (low + high) // 2
            rows = copies[: ends[middle]]
            try:
                self._computed(gather(columns, rows), partitions[rows], peers[rows])
            except DataError:
                high = middle
            else:
                low = middle + 1
        return int(partitions[copies[ends[low] - 1]])

    def contents(self) -> Contents:
        """All rows of the operator's output. Cost: data, sorted."""
        return Contents(
            lambda: self._all_rows(self._rows.before()),
            lambda: partial(self._all_rows, self._rows.before()),
        )

    def _all_rows(self, version: SpineVersion) -> Delta:
        rows = version.rows()
        if len(rows) == 0:
            return empty(self.types)
        keys = [rows.columns[index] for index in self._partition]
        _, partitions = group_keys(keys, hash_rows(keys, len(rows)), as_rows=False)
        order, peers = rank_rows(rows.columns, self._order, partitions)
        # Rows of weight n lie n times in a row.
        copies = np.repeat(np.arange(len(order)), rows.weights[order])
        columns = gather(rows.columns, order[copies])
        results = self._computed(columns, partitions[order][copies], peers[copies])
        return Delta((*columns, *results), np.ones(len(copies), np.int64))

    def _together(
        self, before: Delta, owners: Positions, delta: Delta, groups: Positions
    ) -> tuple[tuple[pa.Array, ...], Positions, Positions, Ints, Ints]:
        """Every different row of the touched partitions in order: its partition, its peers, and how often it was and is there."""
        both = concat([before, delta])
        partitions = np.concatenate([owners, groups])
        order, peers, classes = rank_classes(both.columns, self._order, partitions)
        was = both.weights.copy()
        was[len(before) :] = 0
        starts = run_starts(classes)
        old = np.add.reduceat(was.take(order), starts)
        new = np.add.reduceat(both.weights.take(order), starts)
        if (new < 0).any() or (old < 0).any():
            raise DataError("rows are retracted that were never inserted", code="DATA_NEGATIVE_COUNT")
        present = ((old > 0) | (new > 0)).nonzero()[0]
        first = starts[present]
        rows = order[first]
        return gather(both.columns, rows), partitions[rows], peers[first], old[present], new[present]

    def _computed(
        self, columns: Sequence[pa.Array], partitions: Positions, peers: Positions
    ) -> tuple[pa.Array, ...]:
        """The result columns of all calls over rows in order."""
        rows = lay_out(columns, self._order, partitions, peers)
        return tuple(function(call, rows) for call, function in self._calls)

    def _difference(
        self, columns: tuple[pa.Array, ...], partitions: Positions, peers: Positions, old: Ints, new: Ints
    ) -> Delta:
        sides = []
        for counts in (old, new):
            # Rows of weight n lie n times in a row.
            copies = np.repeat(np.arange(len(counts)), counts)
            copied = gather(columns, copies) if self._reads_columns else columns
            results = self._computed(copied, partitions[copies], peers[copies])
            sides.append((copies, results, np.cumsum(counts) - counts))
        (old_copies, old_results, old_first), (new_copies, new_results, new_first) = sides
        # Only copies of one row can be in the output twice.
        self.consolidated = bool(old.max(initial=0) <= 1 and new.max(initial=0) <= 1)
        # The n-th copy before meets the n-th copy after; where their results are the same nothing has changed.
        shared = np.minimum(old, new)
        copy, _ = expand(shared)
        row = np.repeat(np.arange(len(shared)), shared)
        old_positions, new_positions = old_first[row] + copy, new_first[row] + copy
        same = equal_rows(old_results, old_positions, new_results, new_positions, as_rows=True)
        retracted, inserted = (
            _others(len(old_copies), old_positions[same]),
            _others(len(new_copies), new_positions[same]),
        )
        shown = gather(columns, np.concatenate((old_copies[retracted], new_copies[inserted])))
        values = (
            concat_columns((*gather([before], retracted), *gather([after], inserted)))
            for before, after in zip(old_results, new_results, strict=True)
        )
        weights = np.ones(len(retracted) + len(inserted), np.int64)
        weights[: len(retracted)] = -1
        return Delta((*shown, *values), weights)


def _others(count: int, positions: Positions) -> Positions:
    """The positions below `count` that are not among these."""
    mask = np.ones(count, np.bool_)
    mask[positions] = False
    return mask.nonzero()[0]
