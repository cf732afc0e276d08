"""Semi and anti joins: EXISTS, IN, NOT EXISTS, NOT IN, and what Catalyst makes of INTERSECT and EXCEPT.

The rule and its cost are those of `penstock.operators.presence`. NOT IN has the rules of three-valued logic on top:
`x NOT IN (...)` is TRUE for every x, NULL too, while the right side is empty; it is TRUE for no x while the right side holds a
NULL; otherwise it is TRUE for every x that is not NULL and not there. When a tick changes which of the three holds, all left
rows are read; otherwise it costs what the anti join costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools
from penstock.data.column_view import null_mask, true_mask
from penstock.data.delta import Delta, concat, empty
from penstock.data.equality import equal_rows
from penstock.data.tick import Tick
from penstock.operators.base import Operator
from penstock.operators.matching import Matcher, Residual
from penstock.operators.presence import Presence
from penstock.state.arrangement import Arrangement

SemiKind = Literal["semi", "anti"]
_Regime = Literal["empty", "null", "values"]


class SemiJoin(Operator):
    """Left rows that have a match on the right (semi) or have none (anti).

    Cost: delta, and the left rows of keys that appear or disappear; with a residual condition, delta times the rows per key.
    """

    def __init__(
        self,
        kind: SemiKind,
        left: Arrangement,
        right: Arrangement,
        *,
        null_safe: Sequence[bool] = (),
        residual: Residual | None = None,
        crossing: bool = False,
    ) -> None:
        safe = tuple(null_safe) or (False,) * len(left.key_columns)
        self._left, self._right = left, right
        self._presence = Presence(
            Matcher(left, right, safe, residual, crossing=crossing), wanted=kind == "semi"
        )
        if residual is None:
            right.count_keys()
        self._filling = False

    def initial(self, tick: Tick) -> Delta | None:
        # The arrangements may be older than the join: for the join, all of their rows are new in this tick.
        self._filling = True
        return None

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        left, right = inputs
        filling, self._filling = self._filling, False
        return _sum(self._change(left, right, tick, filling=filling), self._left.types)

    def _change(self, left: Delta, right: Delta, tick: Tick, *, filling: bool) -> list[Delta]:
        return self._presence.change(left, right, tick, filling=filling)


def not_in(left: Arrangement, right: Arrangement, *, residual: Residual | None = None) -> SemiJoin:
    """The null-aware anti join of NOT IN.

    With one key and no residual condition it is `NotIn`. Otherwise a left row goes when for some right row every pair of keys is
    equal or unknown and the residual condition is TRUE: no index helps, and every pair is looked at.
    """
    if len(left.key_columns) == 1 and residual is None:
        return NotIn(left, right)
    keys = list(zip(left.key_columns, right.key_columns, strict=True))
    condition = _equal_or_unknown(keys, len(left.types), residual)
    return SemiJoin("anti", left, right, residual=condition, crossing=True)


class NotIn(SemiJoin):
    """x NOT IN (SELECT y ...) for one column and no further condition.

    Cost: that of the anti join, and all left rows when the right side becomes empty, or gets or loses its NULLs.
    """

    def __init__(self, left: Arrangement, right: Arrangement) -> None:
        super().__init__("anti", left, right)

    def _change(self, left: Delta, right: Delta, tick: Tick, *, filling: bool) -> list[Delta]:
        after = self._regime(after=True)
        if filling:
            return self._alive(left, after, after=True)
        before = self._regime(after=False)
        if before != after:
            rows = self._left.before().rows()
            retracted = [-part for part in self._alive(rows, before, after=False)]
            return retracted + self._alive(concat([rows, left]), after, after=True)
        if after != "values":
            return [left] if after == "empty" else []
        without_nulls = _without_nulls(left, self._left)
        return self._presence.change(without_nulls, right, tick, filling=False)

    def _regime(self, *, after: bool) -> _Regime:
        counts = self._right.count_keys()
        null = [pa.nulls(1, self._right.types[column]) for column in self._right.key_columns]
        nulls = counts.after(null, 1) if after else counts.before(null, 1)
        if nulls[0] > 0:
            return "null"
        return "values" if counts.total(after=after) > 0 else "empty"

    def _alive(self, rows: Delta, regime: _Regime, *, after: bool) -> list[Delta]:
        if regime != "values":
            return [rows] if regime == "empty" else []
        rows = _without_nulls(rows, self._left)
        counts = self._right.count_keys()
        keys = self._left.key_of(rows)
        matches = counts.after(keys, len(rows)) if after else counts.before(keys, len(rows))
        return [rows.take(np.flatnonzero(matches <= 0))]


def _equal_or_unknown(
    keys: Sequence[tuple[int, int]], left_width: int, residual: Residual | None
) -> Residual:
    """The condition under which NOT IN drops a left row for a right row."""

    def condition(columns: Sequence[pa.Array], tick: Tick) -> pa.Array:
        result: Bools = np.ones(len(columns[0]), np.bool_)
        positions = np.arange(len(result))
        for left, right in keys:
            a, b = columns[left], columns[left_width + right]
            pair = equal_rows([a], positions, [b], positions)
            for nulls in (null_mask(a), null_mask(b)):
                if nulls is not None:
                    pair |= nulls
            result &= pair
        if residual is not None:
            result &= true_mask(residual(columns, tick))
        return pa.array(result)

    return condition


def _without_nulls(rows: Delta, side: Arrangement) -> Delta:
    """The rows whose only key column is not NULL."""
    (key,) = side.key_of(rows)
    nulls = null_mask(key)
    return rows if nulls is None else rows.take(np.flatnonzero(~nulls))


def _sum(parts: Sequence[Delta], types: Sequence[pa.DataType]) -> Delta:
    filled = [part for part in parts if len(part)]
    return concat(filled) if filled else empty(types)
