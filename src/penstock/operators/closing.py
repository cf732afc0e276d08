"""GROUP BY and top-k over an event time: groups and partitions behind the watermark keep their rows of the output,
and nothing else.

Rule: that of `penstock.operators.aggregate` and `penstock.operators.topk`. A key of the groups follows the event time
of a source with a lateness, so no change reaches a group behind the bound any more. Groups are in generations by that
key: when the bound has passed all that a generation may have, its rows move to a run, and its accumulators go as a
whole, whatever the functions are. A new generation begins behind the latest key whenever one has closed, so that
there are two open ones, of about the time that lies between the watermark and the latest row.

Cost: that of the operator, and a bounded number of finished rows per tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.data.arrays import Bools
from penstock.data.column_view import gather
from penstock.data.delta import Delta, concat, empty
from penstock.data.event_time import Micros, micros
from penstock.data.tick import Tick
from penstock.errors import InternalError
from penstock.operators.aggregate import Aggregate
from penstock.operators.base import Operator
from penstock.operators.topk import TopK
from penstock.state.scratch import Piece
from penstock.state.spine import Spine
from penstock.state.state import Image, State

_FINISHED_AT_LEAST = 4_096  # rows that a tick may move


Grouped = Aggregate | TopK


class Bound(Protocol):
    """What says which groups are closed: an event time, or an operator below."""

    def bound(self, watermarks: Mapping[str, int]) -> int | None:
        """The time behind which no group changes in this tick or later; None while it is not known."""


class Closing(Operator):
    """Groups that close behind the watermark; `key` is the column of the input that follows the event time."""

    consolidated = True

    def __init__(self, make: Callable[[], Grouped], key: int, time: Bound) -> None:
        self._key = key
        self._time = time
        self._groups = Generations(make)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "generations", self._groups

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        self._groups.pass_bound(self._time.bound(dict(tick.watermarks)))
        return self._groups.step(delta, *micros(delta.columns[self._key]), tick)

    def contents(self) -> Delta:
        """All rows of the operator's output, finished ones too."""
        return self._groups.contents()


@dataclass(slots=True)
class _Generation:
    """Groups whose times are not before `start`, None for the first one, nor in a later generation."""

    number: int
    start: int | None
    groups: Grouped


class Generations:
    """Groups by generation, and the rows of those that are finished."""

    def __init__(self, make: Callable[[], Grouped]) -> None:
        self._make = make
        self._untimed = make()  # groups without a time never close
        self._types = self._untimed.types
        self._open = [_Generation(0, None, make())]
        self._closing: _Generation | None = None
        self._next = 1
        self._finished = Spine(self._types)
        self._finished_before = 0  # rows that were finished before this generation closed
        self._latest: int | None = None
        self._latest_after: int | None = None
        self._changed = 0  # rows of the last tick
        self._bound: int | None = None  # the time behind which no group changes any more
        self._bound_after: int | None = None
        self._floor: int | None = None  # groups before this time are closed

    def pass_bound(self, bound: int | None) -> None:
        """Nothing behind this time changes any more, if there is one; it counts when the tick is final."""
        if bound is not None:
            self._bound_after = bound

    def step(self, delta: Delta, times: Micros, valid: Bools, tick: Tick) -> Delta:
        """The change of the groups."""
        self._changed = len(delta)
        if len(delta) == 0:
            return empty(self._types)
        if not valid.any():
            return self._untimed.step([delta], tick)
        valid_times = times[valid]
        if self._floor is not None and int(valid_times.min()) < self._floor:
            raise InternalError(
                "a row has come for a group that is closed",
                hint="this is a fault of penstock; please report it with the view's SQL and the source's lateness",
            )
        self._latest_after = max(
            int(valid_times.max()), int(valid_times.max()) if self._latest is None else self._latest
        )
        starts = [generation.start for generation in self._open[1:]]
        owner = np.searchsorted(np.array(starts, np.int64), times, "right")
        owner[~valid] = -1
        first = int(owner[0])
        if (owner == first).all():
            return self._of(first).step([delta], tick)
        parts = [
            self._of(number).step([_taken(delta, owner == number)], tick)
            for number in np.unique(owner).tolist()
        ]
        return concat(parts)

    def _of(self, number: int) -> Grouped:
        return self._untimed if number < 0 else self._open[number].groups

    def contents(self) -> Delta:
        """The rows of all groups."""
        parts = [self._finished.before().rows(), self._untimed.contents()]
        if self._closing is not None:
            parts.append(self._closing.groups.contents(self._moved()))
        return concat([*parts, *(generation.groups.contents() for generation in self._open)])

    def _moved(self) -> int:
        """How many rows of the closing generation are finished already."""
        return self._finished.count - self._finished_before

    def _aggregates(self) -> Iterator[Grouped]:
        yield self._untimed
        if self._closing is not None:
            yield self._closing.groups
        for generation in self._open:
            yield generation.groups

    def _states(self) -> Iterator[State]:
        yield from self._aggregates()
        yield self._finished

    def commit(self) -> None:
        for groups in self._aggregates():
            groups.commit()
        self._latest, self._bound = self._latest_after, self._bound_after

    def rollback(self) -> None:
        for groups in self._aggregates():
            groups.rollback()
        self._latest_after, self._bound_after = self._latest, self._bound
        self._changed = 0

    def maintain(self, fuel: int) -> None:
        for groups in self._aggregates():
            groups.maintain(fuel)
        self._close()
        if self._closing is not None:
            self._finish(self._closing, max(_FINISHED_AT_LEAST, fuel * self._changed))
        self._finished.maintain(fuel)
        self._changed = 0

    def _close(self) -> None:
        """Close the oldest generation when the bound has passed all of it, and begin another one behind the latest row."""
        bound = self._bound
        if bound is None or self._latest is None:
            return
        if self._closing is None and len(self._open) > 1:
            end = self._open[1].start
            assert end is not None
            if end <= bound:
                self._finished_before = self._finished.count
                self._floor, self._closing, self._open = end, self._open[0], self._open[1:]
        if len(self._open) == 1:
            self._open = [*self._open, _Generation(self._next, self._latest + 1, self._make())]
            self._next += 1

    def _finish(self, closing: _Generation, most: int) -> None:
        """Move the next groups of a closed generation to the finished rows; the generation goes with the last one."""
        rows = closing.groups.contents(self._moved(), most)
        if len(rows):
            try:
                self._finished.stage(rows)
            except BaseException:
                self._finished.rollback()
                raise
            self._finished.commit()
        if int(rows.weights.sum()) < most:
            self._closing = None

    def memory(self) -> int:
        """Bytes of memory, with those that lie in files."""
        return sum(state.memory() for state in self._states())

    def mapped(self) -> int:
        return sum(state.mapped() for state in self._states())

    def pieces(self) -> Iterator[Piece]:
        for state in self._states():
            yield from state.pieces()

    def save(self) -> Image:
        parts = {"untimed": self._untimed.save(), "finished": self._finished.save()}
        for generation in (*self._open, *(() if self._closing is None else (self._closing,))):
            parts[f"generation {generation.number}"] = generation.groups.save()
        return Image(
            {
                "open": [[generation.number, generation.start] for generation in self._open],
                "closing": None if self._closing is None else self._closing.number,
                "next": self._next,
                "finished": self._finished_before,
                "latest": self._latest,
                "bound": self._bound,
                "floor": self._floor,
            },
            parts=parts,
        )

    def load(self, image: Image) -> None:
        values = image.values
        self._untimed = self._loaded(image, "untimed")
        self._open = [
            _Generation(number, start, self._loaded(image, f"generation {number}"))
            for number, start in values["open"]
        ]
        closing = values["closing"]
        self._closing = None
        if closing is not None:
            self._closing = _Generation(closing, None, self._loaded(image, f"generation {closing}"))
        self._finished = Spine(self._types)
        self._finished.load(image.parts["finished"])
        self._finished_before, self._next = values["finished"], values["next"]
        self._latest = self._latest_after = values["latest"]
        self._bound = self._bound_after = values["bound"]
        self._floor = values["floor"]
        self._changed = 0

    def _loaded(self, image: Image, part: str) -> Grouped:
        groups = self._make()
        groups.load(image.parts[part])
        return groups


def _taken(delta: Delta, chosen: Bools) -> Delta:
    rows = np.flatnonzero(chosen)
    return Delta(gather(delta.columns, rows), delta.weights[rows])
