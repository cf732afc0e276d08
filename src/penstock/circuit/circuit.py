"""The circuit: operators in topological order, stepped together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Literal

import pyarrow as pa

from penstock.circuit.state_key import Meaning
from penstock.data.delta import Delta, concat, empty
from penstock.data.tick import Tick
from penstock.errors import PenstockError, StateError
from penstock.operators.base import Operator


@dataclass(frozen=True, slots=True)
class Owner:
    """Who needs an operator: a source, a view, or an index for look-ups in one of them."""

    kind: Literal["source", "view", "index"]
    name: str


@dataclass(slots=True)
class Place:
    """Where an operator stands: what it reads, what its rows look like and mean, and who needs it.

    `owners` are all who need the operator: its time is charged to each of them, an error names all of them, and it goes when
    the last one does.
    """

    operator: Operator
    inputs: tuple[int, ...]
    nothing: Delta  # no rows of its output columns
    meaning: Meaning | None = None  # what the names of its states come from
    owners: tuple[Owner, ...] = ()
    timed: bool = False  # steps in every tick, because its output depends on the time
    contents: Callable[[], Delta] | None = None  # all rows of its output, where it keeps them
    gave: bool = False  # whether it may have given a row; never saved: after a restore every place may have


@dataclass(frozen=True, slots=True)
class Failure:
    """Why somebody cannot have a step: an operator failed that he needs, or one that `because` needs, whose rows he reads."""

    error: Exception
    because: Owner | None = None


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one step did: the output of every place that changed, and the time spent per place.

    When some of the `optional` owners have failed, nothing has been stepped, and `failures` has all of them.
    """

    outputs: Mapping[int, Delta]
    seconds: Mapping[int, float]
    failures: Mapping[Owner, Failure] = field(default_factory=dict)


class Circuit:
    """Places in an order in which inputs come before their readers."""

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        self._next = 0
        self._running: list[int] = []
        self._gave: list[int] = []
        self._torn = False
        self._committed: list[int] = []

    def add(
        self,
        operator: Operator,
        inputs: Sequence[int],
        types: Sequence[pa.DataType],
        *,
        meaning: Meaning | None = None,
        timed: bool = False,
        contents: Callable[[], Delta] | None = None,
    ) -> int:
        """Put an operator behind its inputs and return its place; nobody owns it yet."""
        place = self._next
        self._next += 1
        self.places[place] = Place(
            operator, tuple(inputs), empty(types), meaning, timed=timed, contents=contents
        )
        return place

    def reachable(self, place: int, *, until: frozenset[int]) -> list[int]:
        """A place and everything that it reads, directly or not, without the places in `until` and what those read."""
        seen: dict[int, None] = {}
        waiting = [place]
        while waiting:
            index = waiting.pop()
            if index not in seen and index not in until:
                seen[index] = None
                waiting.extend(self.places[index].inputs)
        return list(seen)

    def own(self, places: Iterable[int], owner: Owner) -> None:
        """Note that somebody needs these places."""
        for index in places:
            place = self.places[index]
            if owner not in place.owners:
                place.owners = (*place.owners, owner)

    def disown(self, owner: Owner, places: Iterable[int] | None = None) -> list[int]:
        """Note that somebody needs these places (default: all) no more; take those out that nobody needs, and return them."""
        for index in self.places if places is None else places:
            place = self.places[index]
            place.owners = tuple(other for other in place.owners if other != owner)
        unowned = [index for index, place in self.places.items() if not place.owners]
        self.remove(unowned)
        return unowned

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
        stay = [place for index, place in self.places.items() if index not in gone]
        assert not any(index in gone for place in stay for index in place.inputs), (
            "a removed operator has readers"
        )
        for place in gone:
            del self.places[place]

    def needed_without(self, owners: frozenset[Owner]) -> list[int]:
        """The places that somebody else than these owners needs."""
        return [index for index, place in self.places.items() if not owners.issuperset(place.owners)]

    def step(
        self,
        changes: Mapping[int, Delta],
        tick: Tick,
        *,
        only: Iterable[int] | None = None,
        optional: frozenset[Owner] = frozenset(),
    ) -> Stepped:
        """Step every dirty place once, or only some of them; `changes` are what places read from outside.

        Call `commit` or `rollback` afterwards. When it raises, it has rolled back already. The failure of a place that only
        `optional` owners need is returned instead, with those of all others: a second step goes on without them.
        """
        if self._torn:
            raise _torn()
        places = self.places if only is None else only
        return self._run(
            places,
            lambda index, outputs: self._changes(index, changes, outputs),
            partial(self._step_place, tick=tick, initial=False),
            optional,
        )

    def fill(
        self,
        places: Sequence[int],
        changes: Mapping[int, Delta],
        tick: Tick,
        *,
        optional: frozenset[Owner] = frozenset(),
    ) -> Stepped:
        """Step only new places: they give their initial rows, and read all rows of older places instead of a change."""
        new = frozenset(places)

        def everything(index: int, outputs: Mapping[int, Delta]) -> list[Delta]:
            sources = self.places[index].inputs
            if not sources:
                return [changes.get(index, self.places[index].nothing)]
            return [outputs.get(source) or self._contents(source, new) for source in sources]

        return self._run(places, everything, partial(self._step_place, tick=tick, initial=True), optional)

    def _run(
        self,
        places: Iterable[int],
        inputs_of: Callable[[int, Mapping[int, Delta]], list[Delta] | None],
        step: Callable[[Place, Sequence[Delta]], Delta],
        optional: frozenset[Owner],
    ) -> Stepped:
        outputs: dict[int, Delta] = {}
        seconds: dict[int, float] = {}
        failures: dict[Owner, Failure] = {}
        try:
            for index in places:
                if failures and self._fails_with(index, failures):
                    continue
                inputs = inputs_of(index, outputs)
                if inputs is None:
                    continue
                self._running.append(index)
                started = perf_counter()
                try:
                    output = step(self.places[index], inputs)
                except Exception as error:
                    if not self._may_fail(index, optional.union(failures)):
                        raise
                    for owner in self.places[index].owners:
                        failures.setdefault(owner, Failure(error))
                    continue
                if len(output):
                    outputs[index] = output
                seconds[index] = perf_counter() - started
        except BaseException:
            self.rollback()
            raise
        if failures:
            self.rollback()
            return Stepped({}, {}, failures)
        self._gave.extend(outputs)
        return Stepped(outputs, seconds)

    def _may_fail(self, index: int, optional: frozenset[Owner]) -> bool:
        """Whether nobody else than optional owners needs a place."""
        owners = self.places[index].owners
        return bool(owners) and optional.issuperset(owners)

    def _fails_with(self, index: int, failures: dict[Owner, Failure]) -> bool:
        """Whether all who need a place have failed; whoever reads the rows of one that has failed is added to the failures."""
        place = self.places[index]
        for read in place.inputs:
            if self._may_fail(read, frozenset(failures)):
                cause = self.places[read].owners[0]
                failure = Failure(failures[cause].error, failures[cause].because or cause)
                for owner in place.owners:
                    failures.setdefault(owner, failure)
        return self._may_fail(index, frozenset(failures))

    @staticmethod
    def _step_place(place: Place, inputs: Sequence[Delta], tick: Tick, *, initial: bool) -> Delta:
        try:
            first = place.operator.initial(tick) if initial else None
            output = place.operator.step(inputs, tick)
        except PenstockError as error:
            _locate(error, place)
            raise
        return output if first is None else concat([first, output])

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
        """Make the last step final. All that may fail has happened in `step`.

        An interrupt from outside (a signal) is raised again when the rest is done. StateError when that fails as well: the
        circuit then holds half of a tick, and refuses every further one.
        """
        interrupt: BaseException | None = None
        self._committed = []
        try:
            self._commit_rest()
        except BaseException as error:
            interrupt = error
        if interrupt is None:
            return
        try:
            self._commit_rest()
        except BaseException as error:
            self._torn = True
            raise _torn() from error
        raise interrupt

    def _commit_rest(self) -> None:
        """Commit the operators that have not been, also one that was interrupted in it."""
        while len(self._committed) < len(self._running):
            index = self._running[len(self._committed)]
            self.places[index].operator.commit()
            self._committed.append(index)
        for index in self._gave:
            self.places[index].gave = True
        self._running, self._gave = [], []

    def rollback(self) -> None:
        """Forget the last step."""
        for index in self._running:
            self.places[index].operator.rollback()
        self._running, self._gave = [], []

    def maintain(self, fuel: int) -> None:
        """Let the operators of the last tick merge and compact their state, `fuel` rows for each changed row."""
        for index in self._committed:
            if index in self.places:
                self.places[index].operator.maintain(fuel)

    def memory(self) -> int:
        """Bytes of state in all places."""
        return sum(place.operator.memory() for place in self.places.values())


def _torn() -> StateError:
    return StateError(
        "the end of a tick was interrupted, so that some operators have made it final and others have not",
        code="FLOW_TORN",
        hint="build the flow again from its definition, and feed it again",
    )


def _locate(error: PenstockError, place: Place) -> None:
    """Say which views and operator an error comes from, before the place in its query when it has one."""
    if error.where is not None and error.where.startswith(("view ", "views ", "source ")):
        return
    operator = type(place.operator).__name__.lower()
    parts = [*_named(place.owners), operator, *([error.where] if error.where else [])]
    error.where = ", ".join(parts)


def _named(owners: Sequence[Owner]) -> list[str]:
    """`view 'a'`, or `views 'a' and 'b'` for an operator that both use."""
    if len(owners) < 2:
        return [f"{owner.kind} '{owner.name}'" for owner in owners]
    names = [f"'{owner.name}'" for owner in owners]
    return [f"{owners[0].kind}s {', '.join(names[:-1])} and {names[-1]}"]
