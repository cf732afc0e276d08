"""Operators whose output depends on the time of the tick, so that they step in every tick.

`Timed` evaluates anything: d(out) = f_now(dA) + f_now(A-) - f_before(A-). Cost: data.

`TemporalFilter` keeps rows for which `key(row) <=> bound(time)` holds, as in `ts > now() - INTERVAL 1 HOUR`. When the
bound moves, only rows between the old and the new bound can change sides: d(out) = [p_now] dA + ([p_now] -
[p_before]) A-[old bound .. new bound]. Cost: delta and the rows that enter or leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Bools, Ints
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.tick import Tick
from penstock.operators.base import Operator
from penstock.state.cell import Cell
from penstock.state.spine import Spine
from penstock.state.state import Image, State
from penstock.state.time_index import TimeIndex


class LastTick(Cell[Tick | None]):
    """The last tick in which an operator has stepped."""

    def __init__(self) -> None:
        super().__init__(None)

    def save(self) -> Image:
        last = self.value
        return Image(values={"value": None if last is None else [last.number, last.micros]})

    def load(self, image: Image) -> None:
        last = image.values["value"]
        self.value = self._staged = None if last is None else Tick(*last)


class Timed(Operator):
    """Re-evaluates a stateless function over all rows whenever time has moved."""

    def __init__(self, types: Sequence[pa.DataType], evaluate: Callable[[Delta, Tick], Delta]) -> None:
        self._rows = Spine(types)
        self._evaluate = evaluate
        self._last = LastTick()

    def states(self) -> Iterator[tuple[str, State]]:
        yield "rows", self._rows
        yield "last", self._last

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        self._last.stage(tick)
        self._rows.stage(delta)
        changed = self._evaluate(delta, tick)
        last = self._last.value
        if last is None or last.micros == tick.micros:
            return changed
        rows = self._rows.before().rows()
        if not len(rows):
            return changed
        return consolidate(concat([changed, self._evaluate(rows, tick), -self._evaluate(rows, last)]))


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
        key: Callable[[Sequence[pa.Array], int, Tick], tuple[Ints, Bools]],
        bound: Callable[[Tick], int | None],
        passes: Callable[[Sequence[pa.Array], int, Tick], pa.Array],
    ) -> None:
        self._rows = TimeIndex(types)
        self._key = key
        self._bound = bound
        self._passes = passes
        self._last = LastTick()

    def states(self) -> Iterator[tuple[str, State]]:
        yield "rows", self._rows
        yield "last", self._last

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        self._last.stage(tick)
        keys, has_key = self._key(delta.columns, len(delta), tick)
        keyed = np.flatnonzero(has_key)
        self._rows.stage(keys[keyed], delta.take(keyed))
        changed = delta.take(np.flatnonzero(self._mask(delta, tick)))
        moved = self._moved(tick)
        return changed if moved is None else concat([changed, moved])

    def _moved(self, tick: Tick) -> Delta | None:
        """The rows that enter or leave because the bound has moved."""
        last = self._last.value
        if last is None or last.micros == tick.micros:
            return None
        old, new = self._bound(last), self._bound(tick)
        if old == new or old is None or new is None:
            return None
        rows = self._rows.between(min(old, new), max(old, new))
        if not len(rows):
            return None
        sides = self._mask(rows, tick).astype(np.int64) - self._mask(rows, last)
        crossing = np.flatnonzero(sides)
        chosen = rows.take(crossing)
        return Delta(chosen.columns, chosen.weights * sides[crossing])

    def _mask(self, rows: Delta, tick: Tick) -> Bools:
        passed = self._passes(rows.columns, len(rows), tick)
        mask: Bools = pc.fill_null(passed, False).to_numpy(zero_copy_only=False)
        return mask
