"""GROUP BY: one row per group that has rows, the keys and then the aggregates; without calls it is DISTINCT.

Rule: for the groups of the delta, d(out) = -old +new, where they differ. A group exists while the sum of its weights
is positive; without keys there is always exactly one group. Keys compare as Spark groups them: NULL equals NULL, NaN
equals NaN, -0.0 is 0.0.

Cost: delta, and the touched groups for functions that read all values of a group (`penstock.functions.aggregates.cost`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Positions
from penstock.data.column_view import gather, null_mask
from penstock.data.delta import Delta, empty
from penstock.data.hashing import normalized
from penstock.data.tick import Tick
from penstock.errors import DataError
from penstock.functions.aggregates import AGGREGATES
from penstock.functions.aggregates.base import Function, Parts, Rows, Selection, is_true
from penstock.functions.aggregates.distinct import DistinctRows
from penstock.functions.aggregates.result import Result, equal, picked, shown
from penstock.operators.base import Operator
from penstock.operators.sample import with_sample
from penstock.plan.node import AggregateCall
from penstock.state.slot_array import SlotArray
from penstock.state.slots import Resolved, Slots
from penstock.state.state import State

_ONLY = np.zeros(1, np.int64)


class Aggregate(Operator):
    """Groups and their aggregates.

    Cost: delta, and the touched groups for functions that read all values of a group.
    """

    consolidated = True

    def __init__(
        self,
        types: Sequence[pa.DataType],
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        *,
        names: Sequence[str] | None = None,
    ) -> None:
        self._keys = tuple(keys)
        self._names = tuple(names) if names else tuple(f"#{index}" for index in range(len(types)))
        self._key_types = tuple(types[key] for key in keys)
        self._index = Slots(self._key_types) if keys else None
        self._weights = SlotArray(np.int64)
        self._parts = Parts(types)
        self._functions: list[Function] = [
            AGGREGATES.load(call.function)(call, self._parts) for call in calls
        ]
        self._distinct = {
            chosen: DistinctRows(self._parts.kinds(chosen))
            for chosen, _ in self._parts.all()
            if chosen.distinct
        }
        self._reserve(1)
        self.commit()
        none = np.zeros(0, np.int64)
        self.types = (*self._key_types, *(function.result(none).type for function in self._functions))

    def states(self) -> Iterator[tuple[str, State]]:
        if self._index is not None:
            yield "groups", self._index
        yield "weights", self._weights
        for chosen, distinct in self._distinct.items():
            yield f"distinct {chosen.text()}", distinct
        yield from self._parts.states()

    def initial(self, tick: Tick) -> Delta | None:
        """The one row of a global aggregate over nothing."""
        return None if self._index is not None else Delta(self._rows((), _ONLY), np.ones(1, np.int64))

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        if len(delta) == 0:
            return empty(self.types)
        groups = self._resolve(delta)
        touched = groups.touched
        existed = self._exists(touched)
        old = self._results(touched)
        _, weights = self._weights.add(touched, groups.groups, delta.weights)
        if (weights < 0).any():
            raise DataError(
                "rows are retracted that were never inserted",
                code="DATA_NEGATIVE_COUNT",
                hint="the input of an aggregate has a negative multiplicity",
            )
        self._update(delta, groups)
        exists = self._exists(touched)
        try:
            new = self._results(touched)
        except DataError as error:
            raise self._with_sample(error, delta, groups) from None
        if self._index is not None:
            self._index.release(touched[weights == 0])
        return self._change(delta, groups, _Groups(existed, old), _Groups(exists, new))

    def _with_sample(self, error: DataError, delta: Delta, groups: Resolved) -> DataError:
        """The error of an aggregate, with the changed rows of the first group that it concerns."""
        group = next(slot for slot in groups.touched if self._fails(slot))
        return with_sample(error, delta.take(np.flatnonzero(groups.slots == group)), self._names, of="group")

    def _fails(self, slot: int) -> bool:
        try:
            self._results(np.array([slot]))
        except DataError:
            return True
        return False

    def contents(self, first: int = 0, most: int | None = None) -> Delta:
        """All rows of the operator's output, or so many from one on; without changes their order is the same each time."""
        slots = _ONLY if self._index is None else self._index.live()
        slots = slots[first:] if most is None else slots[first : first + most]
        keys = () if self._index is None else self._index.keys(slots)
        return Delta(self._rows(keys, slots), np.ones(len(slots), np.int64))

    def _resolve(self, delta: Delta) -> Resolved:
        if self._index is None:
            return Resolved(_ONLY, np.zeros(len(delta), np.int64), _ONLY)
        groups = self._index.resolve([delta.columns[key] for key in self._keys], len(delta))
        self._reserve(self._index.size)
        return groups

    def _reserve(self, size: int) -> None:
        self._weights.reserve(size)
        for _, part in self._parts.all():
            part.reserve(size)

    def _exists(self, slots: Positions) -> Bools:
        if self._index is None:
            return np.ones(len(slots), np.bool_)
        return np.asarray(self._weights.data[slots] > 0, np.bool_)

    def _update(self, delta: Delta, groups: Resolved) -> None:
        rows: dict[Selection, Rows] = {}
        for chosen, part in self._parts.all():
            if chosen not in rows:
                rows[chosen] = self._select(chosen, delta, groups)
            part.update(rows[chosen])

    def _select(self, chosen: Selection, delta: Delta, groups: Resolved) -> Rows:
        """The rows of a delta that pass a selection."""
        columns = tuple(delta.columns[index] for index in chosen.args)
        passes = None if chosen.filter is None else is_true(delta.columns[chosen.filter])
        for index in chosen.required:
            nulls = null_mask(columns[index])
            if nulls is not None:
                passes = ~nulls if passes is None else passes & ~nulls
        if passes is None or passes.all():
            rows = Rows(groups.touched, groups.groups, delta.weights, columns)
        else:
            passing = passes.nonzero()[0]
            rows = Rows(
                groups.touched, groups.groups[passing], delta.weights[passing], gather(columns, passing)
            )
        return self._distinct[chosen].change(rows) if chosen.distinct else rows

    def _results(self, slots: Positions) -> tuple[Result, ...]:
        return tuple(function.result(slots) for function in self._functions)

    def _rows(self, keys: tuple[pa.Array, ...], slots: Positions) -> tuple[pa.Array, ...]:
        return (*keys, *map(shown, self._results(slots)))

    def _shown_keys(self, delta: Delta, groups: Resolved, rows: Positions) -> tuple[pa.Array, ...]:
        """The keys of some of the touched groups, the same bits each time a group is shown."""
        if self._index is None:
            return ()
        if any(pa.types.is_nested(kind) for kind in self._key_types):
            return self._index.keys(groups.touched[rows])
        keys = [delta.columns[key] for key in self._keys]
        return tuple(normalized(column) for column in gather(keys, groups.leaders[rows]))

    def _change(self, delta: Delta, groups: Resolved, before: _Groups, after: _Groups) -> Delta:
        """-old +new for the groups that differ."""
        same = before.exist & after.exist
        # Most groups differ in the first columns already, and the others need not be looked at.
        for old, new in zip(before.results, after.results, strict=True):
            if not same.any():
                break
            same &= equal(old, new)
        retracted, inserted = ((side.exist & ~same).nonzero()[0] for side in (before, after))
        keys = self._shown_keys(delta, groups, np.concatenate((retracted, inserted)))
        values = (
            picked(old, retracted, new, inserted)
            for old, new in zip(before.results, after.results, strict=True)
        )
        weights = np.ones(len(retracted) + len(inserted), np.int64)
        weights[: len(retracted)] = -1
        return Delta((*keys, *values), weights)


@dataclass(frozen=True, slots=True)
class _Groups:
    """The touched groups before or after a tick: which of them exist, and their results."""

    exist: Bools
    results: tuple[Result, ...]
