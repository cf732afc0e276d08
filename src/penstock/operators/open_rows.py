"""An arrangement of rows that changes to come may still reach: the others leave it when runs are merged.

Rule: that of `penstock.operators.arrange`. Readers may not ask for a row behind the bounds, so it does not matter
whether it has left. Cost: delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Positions
from penstock.data.column_view import ColumnView
from penstock.data.delta import Delta
from penstock.data.event_time import micros
from penstock.data.tick import Tick
from penstock.operators.base import Operator
from penstock.plan.expiry import Expiry
from penstock.state.arrangement import Arrangement
from penstock.state.state import State


class Bounds:
    """The bounds behind which rows go, by column; they move with the watermarks."""

    def __init__(self, expiry: Expiry) -> None:
        self._expiry = expiry
        self._bounds: list[tuple[int, int]] | None = None

    def move(self, watermarks: Mapping[str, int]) -> None:
        """Take the bounds from watermarks; while a source has none, no row goes."""
        bounds = [(passed, passed.time.bound(watermarks)) for passed in self._expiry]
        self._bounds = [
            (passed.column, bound - passed.micros) for passed, bound in bounds if bound is not None
        ]
        if len(self._bounds) < len(bounds):
            self._bounds = None

    def open_rows(self, columns: Mapping[int, ColumnView], rows: Positions) -> Bools:
        """Which rows are not behind all bounds."""
        if self._bounds is None:
            return np.ones(len(rows), np.bool_)
        is_open = np.zeros(len(rows), np.bool_)
        for column, bound in self._bounds:
            times, valid = micros(columns[column].gather(rows))
            is_open |= ~valid | (times >= bound)
        return is_open

    def __str__(self) -> str:
        """What tells the states of two arrangements of the same rows apart that forget differently."""
        return " and ".join(
            f"{passed.column} {passed.micros:+} {list(passed.time.lows)}" for passed in self._expiry
        )


class ArrangeOpen(Operator):
    """Steps an arrangement of open rows; joins and windows that read it come behind."""

    def __init__(self, types: Sequence[pa.DataType], keys: Sequence[int], expiry: Expiry) -> None:
        self._bounds = Bounds(expiry)
        in_keys = {passed.column for passed in expiry} <= set(keys)
        self.arrangement = Arrangement(
            types,
            keys,
            lambda columns, rows: self._bounds.open_rows(dict(enumerate(columns)), rows),
            (lambda columns, rows: self._bounds.open_rows(dict(zip(keys, columns, strict=True)), rows))
            if in_keys
            else None,
        )

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        self._bounds.move(dict(tick.watermarks))
        self.arrangement.apply(delta)
        return delta

    def states(self) -> Iterator[tuple[str, State]]:
        yield f"open rows: {self._bounds}", self.arrangement
