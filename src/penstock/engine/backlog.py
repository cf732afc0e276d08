"""The changes of a view that a sink of it may lack, with the ticks that they belong to.

A flow hands over every tick, and a sink takes changes when it can. What a sink has is known from its mark, so that
the backlog of a flow that was opened again, from a checkpoint and the log behind it, begins no later than any mark
that the sink may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition

from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat

MOST_CHANGES = 1_024
MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the ticks from `first` to `last` did to the view together."""

    first: int
    last: int
    change: Delta


class Backlog:
    """Changes behind tick `base`, oldest first, for one sink; safe in every thread.

    A sink that is away for long gets the oldest changes summed into one. One that can be replaced as a whole loses them when even
    their sum is large: it then gets all rows of the view.
    """

    def __init__(
        self,
        seen: int,
        *,
        replaceable: bool,
        base: int | None = None,
        mark: int | None = None,
        waiting: Sequence[Waiting] = (),
    ) -> None:
        self.seen = seen
        """The last tick that was handed over."""
        self.base = seen if base is None else base
        """Changes up to this tick are not here."""
        self.mark = mark
        """The last mark of the sink that is known."""
        self.in_line = False
        """Whether the sink has what is before the first change that waits, as far as is known."""
        self._replaceable = replaceable
        self._waiting = list(waiting)
        self._size = sum(map(_size, self._waiting))
        self._summed = 0  # bytes behind the last sum
        self._taken = 0
        self._unsure: float = math.inf  # the sink may have anything up to this tick
        self._closed = False
        self._changed = Condition()

    # By the flow

    def pass_tick(self, tick: int, change: Delta | None, *, notable: bool = False) -> None:
        """Take the change of a tick; one that came before is left out, and one that is missing leaves the sink out of line.

        A change without rows does not wait for the sink, unless it is `notable`.
        """
        with self._changed:
            if tick <= self.seen:
                return
            if tick > self.seen + 1:
                self._lose(tick)
            elif change is not None and (notable or len(change)):
                self._waiting.append(waiting := Waiting(tick, tick, change))
                self._size += _size(waiting)
            self.seen = tick
            self._bound()
            self._changed.notify_all()

    def begin(self) -> None:
        """The ticks that come from now on are new, so that no mark lies between them."""
        with self._changed:
            self._unsure = self.seen

    def waiting(self) -> tuple[Waiting, ...]:
        """All changes that the sink may lack."""
        with self._changed:
            return tuple(self._waiting)

    @property
    def bytes(self) -> int:
        """The size of what waits."""
        return self._size

    @property
    def lag(self) -> int:
        """How many ticks the sink is behind."""
        with self._changed:
            if not self.in_line:
                return self.seen - (-1 if self.mark is None else self.mark)
            return self.seen - self._waiting[0].first + 1 if self._waiting else 0

    def wait_until_stored(self, timeout: float | None, ended: Callable[[], bool]) -> bool:
        """Wait until the sink has all ticks of now; False when the time is over, or `ended` when `wake` was called."""
        with self._changed:
            tick = self.seen

            def is_stored() -> bool:
                return self.in_line and not any(waiting.first <= tick for waiting in self._waiting)

            self._changed.wait_for(lambda: is_stored() or ended(), timeout)
            return is_stored()

    def wake(self) -> None:
        """Let those who wait look again."""
        with self._changed:
            self._changed.notify_all()

    # By the sink

    def wait_for_work(self) -> bool:
        """Return True when there is something for the sink to do, False when nothing will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self.in_line or self._waiting)
            return not self.in_line or bool(self._waiting)

    def align(self, mark: int) -> bool:
        """Leave out what a sink with this mark has; False when what it lacks is not here."""
        with self._changed:
            self._taken = 0
            self._unsure = -1
            self.mark = mark
            inside = any(waiting.first <= mark < waiting.last for waiting in self._waiting)
            self.in_line = self.base <= mark <= self.seen and not inside
            if self.in_line:
                self._drop_until(mark)
            self._changed.notify_all()
            return self.in_line

    def take(self) -> list[Waiting]:
        """The changes that wait; they stay here until `acknowledge`, and are not summed."""
        with self._changed:
            self._taken = len(self._waiting)
            return list(self._waiting)

    def give_back(self) -> None:
        """What was taken may be stored or not: only the mark says it."""
        with self._changed:
            if self._taken:
                self._unsure = max(self._unsure, self._waiting[self._taken - 1].last)
            self._taken, self.in_line = 0, False

    def restart(self, tick: int) -> None:
        """The sink is about to get all rows of the view after this tick; called when no tick is under way."""
        with self._changed:
            self.in_line = False
            self._unsure = -1
            self.base = tick
            self._drop_until(tick)

    def acknowledge(self, mark: int) -> None:
        """The sink has everything up to this tick."""
        with self._changed:
            # A change that was lost meanwhile is still missing.
            self.mark, self.in_line, self._taken = mark, mark >= self.base, 0
            if self.in_line:
                self._drop_until(mark)
            self._changed.notify_all()

    def stop(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # Inside

    def _drop_until(self, tick: int) -> None:
        self._waiting = [waiting for waiting in self._waiting if waiting.last > tick]
        self._size = sum(map(_size, self._waiting))
        self.base = max(self.base, tick)

    def _lose(self, tick: int) -> None:
        """The changes up to this tick are not here."""
        self._waiting, self._size, self._taken = [], 0, 0
        self.base, self.in_line = tick, False

    def _bound(self) -> None:
        if len(self._waiting) <= MOST_CHANGES and self._size <= max(MOST_BYTES, 2 * self._summed):
            return
        fixed = max(self._taken, sum(waiting.first <= self._unsure for waiting in self._waiting))
        free = self._waiting[fixed:]
        if len(free) > 1:
            change = consolidate(concat([waiting.change for waiting in free]))
            total = [Waiting(free[0].first, free[-1].last, change)] if len(change) else []
            self._waiting = [*self._waiting[:fixed], *total]
            self._size = sum(map(_size, self._waiting))
        self._summed = self._size
        if self._replaceable and self._size > MOST_BYTES and not self._taken:
            self._lose(self.seen)


def _size(waiting: Waiting) -> int:
    change = waiting.change
    return int(change.weights.nbytes + sum(column.nbytes for column in change.columns))
