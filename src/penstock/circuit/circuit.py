"""The circuit: operators in topological order, stepped together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import pyarrow as pa

from penstock.data.delta import Delta, concat, empty
from penstock.errors import PenstockError
from penstock.operators.base import Operator, Tick


@dataclass(slots=True)
class Place:
    """Where an operator stands: what it reads, what its rows look like, and to which view it belongs."""

    operator: Operator
    inputs: tuple[int, ...]
    nothing: Delta  # no rows of its output columns
    owner: str
    timed: bool = False  # steps in every tick, because its output depends on the time
    contents: Callable[[], Delta] | None = None  # all rows of its output, where it keeps them


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one step did: the output of every place that changed, and the time spent per place."""

    outputs: Mapping[int, Delta]
    seconds: Mapping[int, float]
    places: tuple[int, ...]


class Circuit:
    """Places in an order in which inputs come before their readers."""

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        self._next = 0
        self._running: tuple[int, ...] = ()

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

    def remove(self, places: Sequence[int]) -> None:
        """Take places out; nothing that stays may read them."""
        gone = set(places)
        for place in gone:
            del self.places[place]
        readers = {index for entry in self.places.values() for index in entry.inputs}
        assert not readers & gone, "a removed operator still has readers"

    def step(self, changes: Mapping[int, Delta], tick: Tick, *, fill: Sequence[int] = ()) -> Stepped:
        """Step every dirty place once; call `commit` or `rollback` afterwards. An error has rolled back already.

        `changes` go into source places. Places in `fill` are new: they also give their initial rows, and read all rows
        of older places instead of their change.
        """
        new = set(fill)
        outputs: dict[int, Delta] = {}
        seconds: dict[int, float] = {}
        stepped: list[int] = []
        for index, place in self.places.items():
            started = perf_counter()
            try:
                if index in new:
                    stepped.append(index)
                    output = self._fill(place, outputs, new, tick)
                else:
                    inputs = self._inputs(index, place, changes, outputs)
                    if inputs is None:
                        continue
                    stepped.append(index)
                    output = place.operator.step(inputs, tick)
            except BaseException as error:
                self._running = tuple(stepped)
                self.rollback()
                if isinstance(error, PenstockError) and error.where is None:
                    error.where = f"{place.owner}, {type(place.operator).__name__.lower()}"
                raise
            if len(output):
                outputs[index] = output
            seconds[index] = perf_counter() - started
        self._running = tuple(stepped)
        return Stepped(outputs, seconds, self._running)

    def _inputs(
        self, index: int, place: Place, changes: Mapping[int, Delta], outputs: Mapping[int, Delta]
    ) -> list[Delta] | None:
        """The changes that a place reads, or None when it is clean."""
        if not place.inputs:
            if index in changes:
                return [changes[index]]
            return [] if place.timed else None
        if not place.timed and not any(source in outputs for source in place.inputs):
            return None
        return [outputs.get(source, self.places[source].nothing) for source in place.inputs]

    def _fill(self, place: Place, outputs: Mapping[int, Delta], new: set[int], tick: Tick) -> Delta:
        first = place.operator.initial(tick)
        inputs = [
            outputs.get(source, self.places[source].nothing) if source in new else self._contents(source)
            for source in place.inputs
        ]
        output = place.operator.step(inputs, tick)
        return output if first is None else concat([first, output])

    def _contents(self, place: int) -> Delta:
        contents = self.places[place].contents
        assert contents is not None, "a new operator reads one that keeps no rows"
        return contents()

    def commit(self) -> None:
        """Make the last step final."""
        for index in self._running:
            self.places[index].operator.commit()
        self._running = ()

    def rollback(self) -> None:
        """Forget the last step."""
        for index in self._running:
            self.places[index].operator.rollback()
        self._running = ()

    def memory(self) -> int:
        """Bytes of state in all places."""
        return sum(place.operator.memory() for place in self.places.values())
