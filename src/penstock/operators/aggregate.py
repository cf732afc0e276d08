"""GROUP BY: one row per group that has rows, the keys and then the aggregates; without calls it is DISTINCT.

Rule: for the groups of the delta, d(out) = -old +new, where they differ. A group exists while the sum of its weights is positive; without
keys there is always exactly one group. Keys compare as Spark groups them: NULL equals NULL, NaN equals NaN, -0.0 is 0.0.

Cost: delta, and the touched groups for functions that read all values of a group (`penstock.functions.aggregates.cost`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.delta import Delta, concat, empty
from penstock.data.equality import equal_rows
from penstock.data.hashing import normalized
from penstock.data.view import Positions, gather, null_mask
from penstock.errors import DataError
from penstock.functions.aggregates import AGGREGATES
from penstock.functions.aggregates.base import Function, Parts, Rows, Selection, is_true
from penstock.functions.aggregates.distinct import DistinctRows
from penstock.operators.base import Operator, Tick
from penstock.operators.sample import sample
from penstock.plan.node import AggregateCall
from penstock.state.dense import Dense
from penstock.state.slots import Resolved, Slots

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
        self._weights = Dense(np.int64)
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
        none = np.zeros(0, np.int64)
        self.types = (*self._key_types, *(function.result(none).type for function in self._functions))

    def initial(self, tick: Tick) -> Delta | None:
        """The one row of a global aggregate over nothing."""
        return None if self._index is not None else Delta(self._rows((), _ONLY), np.ones(1, np.int64))

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        if len(delta) == 0:
            return empty(self.types)
        groups = self._resolve(delta)
        touched = groups.touched
        had = self._exists(touched)
        old = self._results(touched[had])
        self._weights.touch(touched)
        np.add.at(self._weights.data, groups.slots, delta.weights)
        left = self._weights.data[touched]
        if (left < 0).any():
            raise DataError(
                "rows are retracted that were never inserted",
                code="DATA_NEGATIVE_COUNT",
                hint="the input of an aggregate has a negative multiplicity",
            )
        self._update(delta, groups)
        has = self._exists(touched)
        try:
            new = self._results(touched[has])
        except DataError as error:
            raise self._blamed(error, delta, groups, touched[has]) from None
        if self._index is not None:
            self._index.release(touched[left == 0])
        return self._change(self._shown_keys(delta, groups), had, old, has, new)

    def _blamed(self, error: DataError, delta: Delta, groups: Resolved, slots: Positions) -> DataError:
        """The error of an aggregate, with the changed rows of the first group that it concerns."""
        group = next(slot for slot in slots if self._fails(slot))
        rows = sample(delta.take(np.flatnonzero(groups.slots == group)), self._names)
        message = f"{error.message}; changed rows of the group: {rows}"
        return DataError(message, code=error.code, hint=error.hint, where=error.where)

    def _fails(self, slot: int) -> bool:
        try:
            self._results(np.array([slot]))
        except DataError:
            return True
        return False

    def contents(self) -> Delta:
        """All rows that the operator has given and not taken back."""
        slots = _ONLY if self._index is None else self._index.live()
        keys = () if self._index is None else self._index.keys(slots)
        return Delta(self._rows(keys, slots), np.ones(len(slots), np.int64))

    def commit(self) -> None:
        self._weights.commit()
        if self._index is not None:
            self._index.commit()
        for _, part in self._parts.all():
            part.commit()
        for distinct in self._distinct.values():
            distinct.commit()

    def rollback(self) -> None:
        self._weights.rollback()
        if self._index is not None:
            self._index.rollback()
        for _, part in self._parts.all():
            part.rollback()
        for distinct in self._distinct.values():
            distinct.rollback()

    def memory(self) -> int:
        index = 0 if self._index is None else self._index.memory()
        parts = sum(part.memory() for _, part in self._parts.all())
        return index + self._weights.memory() + parts + sum(rows.memory() for rows in self._distinct.values())

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

    def _exists(self, slots: Positions) -> npt.NDArray[np.bool_]:
        if self._index is None:
            return np.ones(len(slots), np.bool_)
        return np.asarray(self._weights.data[slots] > 0, np.bool_)

    def _update(self, delta: Delta, groups: Resolved) -> None:
        rows: dict[Selection, Rows] = {}
        slots = groups.slots
        for chosen, part in self._parts.all():
            if chosen not in rows:
                rows[chosen] = self._select(chosen, delta, slots, groups.touched)
            part.update(rows[chosen])

    def _select(self, chosen: Selection, delta: Delta, slots: Positions, touched: Positions) -> Rows:
        """The rows of a delta that pass a selection."""
        columns = tuple(delta.columns[index] for index in chosen.args)
        passes = None if chosen.filter is None else is_true(delta.columns[chosen.filter])
        for index in chosen.required:
            nulls = null_mask(columns[index])
            if nulls is not None:
                passes = ~nulls if passes is None else passes & ~nulls
        if passes is None or passes.all():
            rows = Rows(slots, touched, delta.weights, columns)
        else:
            places = passes.nonzero()[0]
            rows = Rows(slots[places], touched, delta.weights[places], gather(columns, places))
        return self._distinct[chosen].change(rows) if chosen.distinct else rows

    def _results(self, slots: Positions) -> tuple[pa.Array, ...]:
        return tuple(function.result(slots) for function in self._functions)

    def _rows(self, keys: tuple[pa.Array, ...], slots: Positions) -> tuple[pa.Array, ...]:
        return (*keys, *self._results(slots))

    def _shown_keys(self, delta: Delta, groups: Resolved) -> tuple[pa.Array, ...]:
        """The keys of the touched groups, the same bits each time a group is shown."""
        if self._index is None:
            return ()
        if any(pa.types.is_nested(kind) for kind in self._key_types):
            return self._index.keys(groups.touched)
        return tuple(
            normalized(column)
            for column in gather([delta.columns[key] for key in self._keys], groups.leaders)
        )

    def _change(
        self,
        keys: tuple[pa.Array, ...],
        had: npt.NDArray[np.bool_],
        old: tuple[pa.Array, ...],
        has: npt.NDArray[np.bool_],
        new: tuple[pa.Array, ...],
    ) -> Delta:
        """-old +new for the groups that differ."""
        gone, come = had.copy(), has.copy()
        both = (had & has).nonzero()[0]
        old_place, new_place = had.cumsum() - 1, has.cumsum() - 1
        # Most groups differ in the first columns already, and the others need not be looked at.
        for before, after in zip(old, new, strict=True):
            if len(both) == 0:
                break
            same = equal_rows([before], old_place[both], [after], new_place[both], as_rows=True)
            both = both[same]
        gone[both] = False
        come[both] = False
        sides = ((gone, old, old_place, -1), (come, new, new_place, 1))
        return concat([_shown(chosen, keys, values, place, sign) for chosen, values, place, sign in sides])


def _shown(
    chosen: npt.NDArray[np.bool_],
    keys: tuple[pa.Array, ...],
    values: tuple[pa.Array, ...],
    place: Positions,
    sign: int,
) -> Delta:
    """The rows of the chosen groups; without copying when it is all of them."""
    rows = chosen.nonzero()[0]
    if len(rows) < len(chosen):
        keys = gather(keys, rows)
    if len(values) and len(rows) < len(values[0]):
        values = gather(values, place[rows])
    return Delta((*keys, *values), np.full(len(rows), sign, np.int64))
