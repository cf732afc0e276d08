"""Operators whose output depends on the time of the tick, so that they step in every tick.

`Timed` evaluates anything: d(out) = f_now(dA) + f_now(A-) - f_before(A-). Cost: data.

`TemporalFilter` keeps rows for which `key(row) <=> bound(time)` holds, as in `ts > now() - INTERVAL 1 HOUR`. When the bound moves,
only rows between the old and the new bound can change sides: d(out) = [p_now] dA + ([p_now] - [p_before]) A-[old bound .. new
bound]. Cost: delta and the rows that enter or leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.operators.base import Operator, Tick
from penstock.state.spine import Spine
from penstock.state.time_index import TimeIndex

Keys = npt.NDArray[np.int64]


class Timed(Operator):
    """Re-evaluates a stateless function over all rows whenever time has moved."""

    def __init__(self, types: Sequence[pa.DataType], evaluate: Callable[[Delta, Tick], Delta]) -> None:
        self._rows = Spine(types)
        self._evaluate = evaluate
        self._last: Tick | None = None
        self._now: Tick | None = None

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        self._now = tick
        self._rows.stage(delta)
        changed = self._evaluate(delta, tick)
        if self._last is None or self._last.micros == tick.micros:
            return changed
        rows = self._rows.before().rows()
        if not len(rows):
            return changed
        return consolidate(concat([changed, self._evaluate(rows, tick), -self._evaluate(rows, self._last)]))

    def commit(self) -> None:
        self._rows.commit()
        self._last = self._now

    def rollback(self) -> None:
        self._rows.rollback()
        self._now = self._last

    def memory(self) -> int:
        return self._rows.memory()


class TemporalFilter(Operator):
    """Keeps rows on one side of a bound that moves with time.

    `key` gives the indexed value of each row and whether it is there (a NULL never passes); `bound` gives its counterpart at a
    time, None when it is NULL; `passes` is the exact comparison.

    Cost: delta, and the rows that enter or leave.
    """

    def __init__(
        self,
        types: Sequence[pa.DataType],
        *,
        key: Callable[[Sequence[pa.Array], int, Tick], tuple[Keys, npt.NDArray[np.bool_]]],
        bound: Callable[[Tick], int | None],
        passes: Callable[[Sequence[pa.Array], int, Tick], pa.Array],
    ) -> None:
        self._rows = TimeIndex(types)
        self._key = key
        self._bound = bound
        self._passes = passes
        self._last: Tick | None = None
        self._now: Tick | None = None

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        self._now = tick
        keys, there = self._key(delta.columns, len(delta), tick)
        held = np.flatnonzero(there)
        self._rows.stage(keys[held], delta.take(held))
        changed = delta.take(np.flatnonzero(self._mask(delta, tick)))
        moved = self._moved(tick)
        return changed if moved is None else concat([changed, moved])

    def _moved(self, tick: Tick) -> Delta | None:
        """The rows that enter or leave because the bound has moved."""
        if self._last is None or self._last.micros == tick.micros:
            return None
        old, new = self._bound(self._last), self._bound(tick)
        if old == new or old is None or new is None:
            return None
        rows = self._rows.between(min(old, new), max(old, new))
        if not len(rows):
            return None
        sides = self._mask(rows, tick).astype(np.int64) - self._mask(rows, self._last)
        crossing = np.flatnonzero(sides)
        chosen = rows.take(crossing)
        return Delta(chosen.columns, chosen.weights * sides[crossing])

    def _mask(self, rows: Delta, tick: Tick) -> npt.NDArray[np.bool_]:
        passed = self._passes(rows.columns, len(rows), tick)
        mask: npt.NDArray[np.bool_] = pc.fill_null(passed, False).to_numpy(zero_copy_only=False)
        return mask

    def commit(self) -> None:
        self._rows.commit()
        self._last = self._now

    def rollback(self) -> None:
        self._rows.rollback()
        self._now = self._last

    def memory(self) -> int:
        return self._rows.memory()
