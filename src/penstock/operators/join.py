"""Inner and outer joins over two arrangements.

Rules (A- before, A+ after the tick; weights multiply):

    inner: d = dA >< B- + A+ >< dB
    left:  inner + (rows of A without a match, padded with NULLs)
    right: inner + (rows of B without a match, padded with NULLs)
    full:  inner + both

Cost: the delta and its matches; for the padded rows see `penstock.operators.presence`. Without keys every row is a candidate:
the cost is the delta times the data. A self join reads both versions from one arrangement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.data.column_view import true_mask
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty
from penstock.data.tick import Tick
from penstock.errors import DataError
from penstock.operators.base import Operator
from penstock.operators.matching import Matcher, Residual
from penstock.operators.presence import Presence
from penstock.state.arrangement import Arrangement

OuterKind = Literal["inner", "left", "right", "full"]


class Join(Operator):
    """Left rows with their right rows: left columns, then right columns.

    The arrangements are keyed by the join keys, pair by pair in the same order, and have been stepped with the join's inputs
    when the join steps: the inner part reads the changes from them, where they are sorted already.
    `null_safe` says for each pair whether NULL equals NULL.

    Cost: delta and its matches, for outer joins also the rows of keys that appear or disappear; without keys, delta times data.
    """

    def __init__(
        self,
        kind: OuterKind,
        left: Arrangement,
        right: Arrangement,
        *,
        null_safe: Sequence[bool] = (),
        residual: Residual | None = None,
    ) -> None:
        safe = tuple(null_safe) or (False,) * len(left.key_columns)
        self._matcher = Matcher(left, right, safe, residual)
        self._left_unmatched = Presence(self._matcher, wanted=False) if kind in ("left", "full") else None
        self._right_unmatched = (
            Presence(self._matcher.mirrored(), wanted=False) if kind in ("right", "full") else None
        )
        if residual is None and self._left_unmatched:
            right.count_keys()
        if residual is None and self._right_unmatched:
            left.count_keys()
        self._filling = False

    def initial(self, tick: Tick) -> Delta | None:
        # The arrangements may be older than the join: for the join, all of their rows are new in this tick.
        self._filling = True
        return None

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        left, right = inputs
        filling, self._filling = self._filling, False
        parts = self._inner(tick, filling=filling)
        if self._left_unmatched:
            unmatched = self._left_unmatched.change(left, right, tick, filling=filling)
            parts += [_padded(part, self._matcher.other.types, at_end=True) for part in unmatched]
        if self._right_unmatched:
            unmatched = self._right_unmatched.change(right, left, tick, filling=filling)
            parts += [_padded(part, self._matcher.own.types, at_end=False) for part in unmatched]
        parts = [part for part in parts if len(part)]
        return concat(parts) if parts else empty([*self._matcher.own.types, *self._matcher.other.types])

    def _inner(self, tick: Tick, *, filling: bool) -> list[Delta]:
        matcher = self._matcher
        left, right, mirrored = matcher.own, matcher.other, matcher.mirrored()
        if filling and left.after().entries <= right.after().entries:
            return [matcher.joined(run, right.after(), tick) for run in left.changed(filling=True)]
        if filling:
            return [mirrored.joined(run, left.after(), tick) for run in right.changed(filling=True)]
        try:
            return self._changed(matcher, tick)
        except DataError:
            if matcher.residual is None:
                raise
            return [self._changed_alive(matcher.residual, tick)]

    def _changed(self, matcher: Matcher, tick: Tick) -> list[Delta]:
        left, right, mirrored = matcher.own, matcher.other, matcher.mirrored()
        parts = [matcher.joined(run, right.before(), tick) for run in left.changed(filling=False)]
        return parts + [mirrored.joined(run, left.after(), tick) for run in right.changed(filling=False)]

    def _changed_alive(self, residual: Residual, tick: Tick) -> Delta:
        """The same without asking the condition for a pair that comes and goes in the tick."""
        parts = self._changed(replace(self._matcher, residual=None), tick)
        pairs = consolidate(concat(parts))
        return pairs.take(np.flatnonzero(true_mask(residual(pairs.columns, tick))))


def _padded(rows: Delta, types: Sequence[pa.DataType], *, at_end: bool) -> Delta:
    nulls = tuple(pa.nulls(len(rows), kind) for kind in types)
    return Delta((*rows.columns, *nulls) if at_end else (*nulls, *rows.columns), rows.weights)
