"""The circuit: operators in topological order, stepped together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import pyarrow as pa

from penstock.data.delta import Delta, concat, empty
from penstock.data.tick import Tick
from penstock.errors import PenstockError
from penstock.operators.base import Operator
from penstock.state.limits import LIMITS


@dataclass(slots=True)
class Place:
    """Where an operator stands: what it reads, what its rows look like, and to which view it belongs."""

    operator: Operator
    inputs: tuple[int, ...]
    nothing: Delta  # no rows of its output columns
    owner: str
    timed: bool = False  # steps in every tick, because its output depends on the time
    contents: Callable[[], Delta] | None = None  # all rows of its output, where it keeps them
    gave: bool = False  # whether it has ever given a row


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one step did: the output of every place that changed, and the time spent per place."""

    outputs: Mapping[int, Delta]
    seconds: Mapping[int, float]


class Circuit:
    """Places in an order in which inputs come before their readers."""

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        self._next = 0
        self._running: list[int] = []
        self._gave: list[int] = []

    def add(
        self,
        operator: Operator,
        inputs: Sequence[int],
        types: Sequence[pa.DataType],
        *,
        owner: str,
        timed: bool = False,
        contents: Callable[[], Delta] | None = None,
    ) -> int:
        """Put an operator behind its inputs and return its place."""
        place = self._next
        self._next += 1
        self.places[place] = Place(operator, tuple(inputs), empty(types), owner, timed, contents)
        return place

    def replace(
        self,
        place: int,
        operator: Operator,
        types: Sequence[pa.DataType],
        *,
        contents: Callable[[], Delta] | None = None,
    ) -> None:
        """Put another operator in a place whose output is empty; its readers stay."""
        entry = self.places[place]
        entry.operator, entry.nothing, entry.contents = operator, empty(types), contents

    def remove(self, places: Sequence[int]) -> None:
        """Take places out; nothing that stays may read them."""
        gone = set(places)
        for place in gone:
            del self.places[place]
        readers = {index for entry in self.places.values() for index in entry.inputs}
        assert not readers & gone, "a removed operator still has readers"

    def step(self, changes: Mapping[int, Delta], tick: Tick, *, only: Iterable[int] | None = None) -> Stepped:
        """Step every dirty place once, or only some of them; `changes` are what places read from outside.

        Call `commit` or `rollback` afterwards. When it raises, it has rolled back already.
        """
        places = self.places if only is None else only
        return self._run(places, lambda index, outputs: self._changes(index, changes, outputs), tick)

    def fill(self, places: Sequence[int], changes: Mapping[int, Delta], tick: Tick) -> Stepped:
        """Step only new places: they give their initial rows, and read all rows of older places instead of a change."""
        new = frozenset(places)

        def everything(index: int, outputs: Mapping[int, Delta]) -> list[Delta]:
            sources = self.places[index].inputs
            if not sources:
                return [changes.get(index, self.places[index].nothing)]
            return [outputs.get(source) or self._contents(source, new) for source in sources]

        return self._run(places, everything, tick, initial=True)

    def _run(
        self,
        places: Iterable[int],
        inputs_of: Callable[[int, Mapping[int, Delta]], list[Delta] | None],
        tick: Tick,
        *,
        initial: bool = False,
    ) -> Stepped:
        outputs: dict[int, Delta] = {}
        seconds: dict[int, float] = {}
        for index in places:
            inputs = inputs_of(index, outputs)
            if inputs is None:
                continue
            place = self.places[index]
            self._running.append(index)
            started = perf_counter()
            try:
                first = place.operator.initial(tick) if initial else None
                output = place.operator.step(inputs, tick)
            except BaseException as error:
                self.rollback()
                if isinstance(error, PenstockError):
                    _locate(error, place)
                raise
            if first is not None:
                output = concat([first, output])
            if len(output):
                outputs[index] = output
            seconds[index] = perf_counter() - started
        self._gave.extend(outputs)
        return Stepped(outputs, seconds)

    def _changes(
        self, index: int, changes: Mapping[int, Delta], outputs: Mapping[int, Delta]
    ) -> list[Delta] | None:
        """The changes that a place reads, or None when it is clean."""
        place = self.places[index]
        if index in changes:
            return [changes[index]]
        if not place.inputs:
            return None
        if not place.timed and not any(source in outputs for source in place.inputs):
            return None
        return [outputs.get(source) or self.places[source].nothing for source in place.inputs]

    def _contents(self, index: int, new: frozenset[int]) -> Delta:
        """All rows that a place has given so far."""
        place = self.places[index]
        if index in new or not place.gave:
            return place.nothing
        assert place.contents is not None, "a new operator reads one that keeps no rows"
        return place.contents()

    def commit(self) -> None:
        """Make the last step final."""
        for index in self._running:
            self.places[index].operator.commit()
        for index in self._gave:
            self.places[index].gave = True
        for index in self._running:
            self.places[index].operator.maintain(LIMITS.fuel)
        self._running, self._gave = [], []

    def rollback(self) -> None:
        """Forget the last step."""
        for index in self._running:
            self.places[index].operator.rollback()
        self._running, self._gave = [], []

    def memory(self) -> int:
        """Bytes of state in all places."""
        return sum(place.operator.memory() for place in self.places.values())


def _locate(error: PenstockError, place: Place) -> None:
    """Say which view and operator an error comes from, before the place in its query when it has one."""
    if error.where is None:
        error.where = f"{place.owner}, {type(place.operator).__name__.lower()}"
    elif not error.where.startswith(("view ", "source ")):
        error.where = f"{place.owner}, {type(place.operator).__name__.lower()}, {error.where}"
