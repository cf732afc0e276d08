"""The sessions of all keys in the order of their ends: which of them are closed, and from when on the others begin.

A session whose end is behind the bound of the rows' starts is closed: no row to come meets it, and none of its own
rows goes. A tick forgets some of those that were closed before it, the first ones first. Sessions that change from
now on begin at the earliest where the first open one began: that is looked for when as many sessions have changed as
there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.data.arrays import Bools, Positions, Words
from penstock.data.tick import Tick
from penstock.errors import InternalError
from penstock.plan.event_time import WatermarkBound
from penstock.state.cell import Cell
from penstock.state.ordered import OrderedCounts
from penstock.state.state import Composite, State

_ZERO = 1 << 63  # the word of time 0
_ONLY = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Times of groups, from start to end."""

    groups: Positions
    starts: Words
    ends: Words

    def __len__(self) -> int:
        return len(self.groups)

    def take(self, positions: Positions | Bools) -> Intervals:
        """The intervals at these positions."""
        return Intervals(self.groups[positions], self.starts[positions], self.ends[positions])


NONE = Intervals(np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.uint64))


class SessionEnds(Composite):
    """Sessions by end, of rows whose starts follow an event time."""

    def __init__(self, time: WatermarkBound) -> None:
        self._time = time
        self._ends = OrderedCounts(2, ids=True)  # end, start, group
        self._count = Cell(0)
        self._changed = Cell(0)  # sessions, since `low` was looked for
        self._bound: Cell[int | None] = Cell(None)  # of the last tick
        self._low: Cell[int | None] = Cell(None)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "ends", self._ends
        yield "count", self._count
        yield "changed", self._changed
        yield "bound", self._bound
        yield "low", self._low

    @property
    def low(self) -> int | None:
        """The time before which no session begins that changes in this tick or later; None when it is not known."""
        return self._low.value

    def move(self, tick: Tick) -> None:
        """Take the bound of a tick, for the next one, and look where open sessions begin when it is time to."""
        bound = self._time.bound(dict(tick.watermarks))
        if bound is None:
            return
        self._bound.stage(bound)
        # Rows that fill a new view are older than any bound.
        if self._bound.value is not None and self._changed.value >= self._count.value:
            self._changed.stage(0)
            ends, starts, _ = self._ends.scan(_ONLY, committed=True).keys
            open_starts = starts[ends >= _word(self._bound.value)]
            begin = int(open_starts.min()) - _ZERO if len(open_starts) else bound
            self._low.stage(min(begin, bound))

    def closed(self, most: int) -> Intervals:
        """The first sessions that were closed before this tick, about so many at most."""
        if self._bound.value is None:
            return NONE
        ends, starts, groups = self._ends.scan(_ONLY, most, committed=True).keys
        closed = ends < _word(self._bound.value)
        return Intervals(groups[closed].astype(np.int64), starts[closed], ends[closed])

    def is_open(self, starts: Words) -> Bools:
        """Which starts are not behind the bound of the last tick."""
        if self._bound.value is None:
            return np.ones(len(starts), np.bool_)
        return np.asarray(starts >= _word(self._bound.value), np.bool_)

    def require_open(self, starts: Words) -> None:
        """InternalError when a row is behind the bound."""
        if not self.is_open(starts).all():
            raise InternalError(
                "a row has come for a session that is closed",
                hint="this is a fault of penstock; please report it with the view's SQL and the source's lateness",
            )

    def replace(self, sessions: Intervals, weights: Positions) -> None:
        """Stage sessions that come (+1) or go (-1)."""
        groups = np.zeros(len(sessions), np.int64)
        self._ends.stage((groups, sessions.ends, sessions.starts, sessions.groups), weights)
        self._count.stage(self._count.value + int(weights.sum()))
        self._changed.stage(self._changed.staged + len(sessions))


def _word(micros: int) -> np.uint64:
    return np.uint64(micros + _ZERO)
