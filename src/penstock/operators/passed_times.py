"""The rows of an ASOF join in the order of their times: which of them no change to come needs.

A change comes at a time that is not behind the bound, so right rows behind it are there for good.

- Backward, a change reaches left rows at or behind its time: left rows behind the bound go.
- Forward and nearest, it reaches the left rows before it, back to the right row before. So left rows go when the
  bound has passed a right row at or behind them: no later one is nearer. With a tolerance they also go when the bound
  is further from them than that.
- Forward, no left row to come has a right row behind the bound: it goes, with the left rows that it ends the wait of.
- Backward and nearest, a right row goes when the bound has passed another one of its key behind it. The last one of
  each key stays for left rows to come; with a tolerance it goes when they, and those that wait (nearest), are further
  from it than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.data.arrays import Bools, Ints, Positions, Words
from penstock.data.tick import Tick
from penstock.errors import InternalError
from penstock.plan.event_time import WatermarkBound
from penstock.state.cell import Cell
from penstock.state.ordered import OrderedCounts
from penstock.state.run import Run
from penstock.state.state import Composite, State

Direction = Literal["backward", "forward", "nearest"]
_ZERO = 1 << 63  # the word of time 0
_ONLY = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class PassedRows:
    """Rows of one side that the bound has passed; of the left side without groups."""

    groups: Positions
    times: Words
    ids: Ints
    counts: Ints

    def last(self) -> tuple[Positions, Words]:
        """Each group, and its last time; times ascend."""
        groups, at = np.unique(self.groups[::-1], return_index=True)
        return groups, self.times[::-1][at]


class PassedTimes(Composite):
    """Rows of both sides by time, as long as the bound has not passed them."""

    def __init__(
        self, left: WatermarkBound, right: WatermarkBound, *, direction: Direction, tolerance: int | None
    ) -> None:
        self._times = (left, right)
        # So far behind the bound rows go whatever others there are; None for never.
        self._left_stays = 0 if direction == "backward" else tolerance
        self._right_stays = (
            None
            if direction == "forward" or tolerance is None
            else tolerance * (2 if direction == "nearest" else 1)
        )
        self._left = OrderedCounts(1, ids=True)  # time, id
        self._right = OrderedCounts(2, ids=True)  # time, group, id
        self._last = OrderedCounts(2, ids=True)  # the same of right rows that the bound has passed
        self._bound: Cell[int | None] = Cell(None)  # of the last tick

    def states(self) -> Iterator[tuple[str, State]]:
        if self._left_stays is not None:
            yield "left", self._left
        yield "right", self._right
        if self._right_stays is not None:
            yield "last", self._last
        yield "bound", self._bound

    def move(self, tick: Tick) -> None:
        """Take the bound of a tick, for the next one: rows that fill a new view are older."""
        watermarks = dict(tick.watermarks)
        bounds = [time.bound(watermarks) for time in self._times]
        known_bounds = [bound for bound in bounds if bound is not None]
        if len(known_bounds) == len(bounds):
            self._bound.stage(min(known_bounds))

    def is_open(self, times: Words, stays: int = 0) -> Bools:
        """Which times are not so far behind the bound of the last tick."""
        if self._bound.value is None:
            return np.ones(len(times), np.bool_)
        return np.asarray(times >= np.uint64(max(0, self._bound.value + _ZERO - stays)), np.bool_)

    def require_open(self, times: Words) -> None:
        """InternalError when a row is behind the bound."""
        if not self.is_open(times).all():
            raise InternalError(
                "a row has come for a time that is closed",
                hint="this is a fault of penstock; please report it with the view and the sources' lateness",
            )

    def passed_left(self, most: int) -> PassedRows:
        """The first left rows that go for the bound alone, about so many at most."""
        if self._left_stays is None:
            return _NOTHING
        entries = self._left.scan(_ONLY, most, committed=True)
        times, ids = entries.keys
        passed = ~self.is_open(times, self._left_stays)
        return PassedRows(
            np.zeros(int(passed.sum()), np.int64),
            times[passed],
            ids[passed].astype(np.int64),
            entries.counts[passed],
        )

    def passed_right(self, most: int) -> PassedRows:
        """The first right rows that the bound has passed since they were last asked for, about so many at most."""
        return self._first(self._right, most, 0)

    def far_right(self, most: int) -> PassedRows:
        """The first right rows that are too far behind the bound for every left row, about so many at most."""
        return _NOTHING if self._right_stays is None else self._first(self._last, most, self._right_stays)

    def stage(self, left: Run, right: Run, passed: PassedRows) -> None:
        """Note the changed rows of both sides, by group, time and id; `passed` are right rows that the bound has passed since."""
        if self._left_stays is not None:
            self._left.stage((_zeros(len(left)), left.keys[1], left.keys[2]), left.weights.astype(np.int64))
        is_open = self.is_open(right.keys[1])
        _stage(self._right, right, is_open, passed, -1)
        if self._right_stays is not None:
            _stage(self._last, right, ~is_open, passed, 1)

    def _first(self, index: OrderedCounts, most: int, stays: int) -> PassedRows:
        entries = index.scan(_ONLY, most, committed=True)
        times, groups, ids = entries.keys
        passed = ~self.is_open(times, stays)
        return PassedRows(
            groups[passed].astype(np.int64),
            times[passed],
            ids[passed].astype(np.int64),
            entries.counts[passed],
        )


def _stage(index: OrderedCounts, changed: Run, chosen: Bools, passed: PassedRows, sign: int) -> None:
    """Put chosen changes into an index of right rows, and those that the bound has passed, or take these out."""
    groups, times, ids = (key[chosen] for key in changed.keys)
    groups = np.concatenate((groups.astype(np.int64), passed.groups))
    index.stage(
        (
            _zeros(len(groups)),
            np.concatenate((times, passed.times)),
            groups.astype(np.uint64),
            np.concatenate((ids.astype(np.int64), passed.ids)),
        ),
        np.concatenate((changed.weights[chosen].astype(np.int64), sign * passed.counts)),
    )


def _zeros(count: int) -> Positions:
    return np.zeros(count, np.int64)


_NOTHING = PassedRows(_zeros(0), np.zeros(0, np.uint64), _zeros(0), _zeros(0))
