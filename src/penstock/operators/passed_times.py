"""The rows of an ASOF join, backward, in the order of their times: which of them no change to come needs.

A change comes at a time that is not behind the bound, and reaches left rows from there on. So left rows behind it go. A right row goes when the bound has passed
another one of its key behind it: a left row to come takes that one, or a later one. The last right row of each key stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.data.arrays import Bools, Ints, Positions, Words
from penstock.data.tick import Tick
from penstock.errors import InternalError
from penstock.plan.event_time import EventTime
from penstock.state.cell import Cell
from penstock.state.ordered import OrderedCounts
from penstock.state.run import Run
from penstock.state.state import Composite, State

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

    def __init__(self, left: EventTime, right: EventTime) -> None:
        self._times = (left, right)
        self._left = OrderedCounts(1, ids=True)  # time, id
        self._right = OrderedCounts(2, ids=True)  # time, group, id
        self._bound: Cell[int | None] = Cell(None)  # of the last tick

    def states(self) -> Iterator[tuple[str, State]]:
        yield "left", self._left
        yield "right", self._right
        yield "bound", self._bound

    def move(self, tick: Tick) -> None:
        """Take the bound of a tick, for the next one: rows that fill a new view are older."""
        watermarks = dict(tick.watermarks)
        bounds = [time.bound(watermarks) for time in self._times]
        known = [bound for bound in bounds if bound is not None]
        if len(known) == len(bounds):
            self._bound.stage(min(known))

    def is_open(self, times: Words) -> Bools:
        """Which times are not behind the bound of the last tick."""
        if self._bound.value is None:
            return np.ones(len(times), np.bool_)
        return np.asarray(times >= np.uint64(self._bound.value + _ZERO), np.bool_)

    def require_open(self, times: Words) -> None:
        """InternalError when a row is behind the bound."""
        if not self.is_open(times).all():
            raise InternalError(
                "a row has come for a time that is closed",
                hint="this is a fault of penstock; please report it with the view and the sources' lateness",
            )

    def passed_left(self, most: int) -> PassedRows:
        """The first left rows that the bound has passed, about so many at most."""
        entries = self._left.scan(_ONLY, most, committed=True)
        times, ids = entries.keys
        passed = ~self.is_open(times)
        return PassedRows(
            np.zeros(int(passed.sum()), np.int64),
            times[passed],
            ids[passed].astype(np.int64),
            entries.counts[passed],
        )

    def passed_right(self, most: int) -> PassedRows:
        """The same of the right side."""
        entries = self._right.scan(_ONLY, most, committed=True)
        times, groups, ids = entries.keys
        passed = ~self.is_open(times)
        return PassedRows(
            groups[passed].astype(np.int64),
            times[passed],
            ids[passed].astype(np.int64),
            entries.counts[passed],
        )

    def stage(self, left: Run, right: Run, passed: PassedRows) -> None:
        """Note the changed rows of both sides, by group, time and id; `passed` are right rows that are noted no more."""
        self._left.stage((_zeros(len(left)), left.keys[1], left.keys[2]), left.weights.astype(np.int64))
        is_open = self.is_open(right.keys[1])
        groups, times, ids = (key[is_open] for key in right.keys)
        groups = np.concatenate((groups.astype(np.int64), passed.groups))
        weights = np.concatenate((right.weights[is_open].astype(np.int64), -passed.counts))
        self._right.stage(
            (
                _zeros(len(groups)),
                np.concatenate((times, passed.times)),
                groups.astype(np.uint64),
                np.concatenate((ids.astype(np.int64), passed.ids)),
            ),
            weights,
        )


def _zeros(count: int) -> Positions:
    return np.zeros(count, np.int64)
