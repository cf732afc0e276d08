"""The circuit: operators in topological order, stepped together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Literal

import pyarrow as pa

from penstock.circuit.state_key import Meaning
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty
from penstock.data.tick import Tick
from penstock.errors import DataError, PenstockError, StateError, unexpected
from penstock.operators.base import Operator
from penstock.operators.contents import Contents
from penstock.plan import node as plan
from penstock.state.scratch import Piece


@dataclass(frozen=True, slots=True)
class VertexOwner:
    """Who needs an operator: a source, a view, or an index for look-ups in one of them."""

    kind: Literal["source", "view", "index"]
    name: str


@dataclass(slots=True)
class Vertex:
    """An operator in a circuit: what it reads, what its rows look like and mean, and who needs it.

    `owners` are all who need the operator: its time is charged to each of them, an error names all of them, and it goes when
    the last one does.
    """

    operator: Operator
    inputs: tuple[int, ...]
    nothing: Delta  # no rows of its output columns
    meaning: Meaning | None = None  # what the names of its states come from
    owners: tuple[VertexOwner, ...] = ()
    timed: bool = False  # steps in every tick, because its output depends on the time
    contents: Contents | None = None  # all rows of its output, where it keeps them
    gave: bool = False  # whether it may have given a row; never saved: after a restore every vertex may have
    exchange: plan.Exchange | None = None  # that brings its rows from the shards that its input runs on


@dataclass(frozen=True, slots=True)
class Failure:
    """Why somebody cannot have a step: an operator that he needs has failed, or one of `because`, whose rows he reads."""

    error: Exception
    because: VertexOwner | None = None


@dataclass(frozen=True, slots=True)
class SteppedCircuit:
    """What one step did: the output of every vertex that changed, and the time spent per vertex.

    When some of the `optional` owners have failed, nothing has been stepped, and `failures` has all of them.
    """

    outputs: Mapping[int, Delta]
    seconds: Mapping[int, float]
    failures: Mapping[VertexOwner, Failure] = field(default_factory=dict)


class Circuit:
    """Vertices in an order in which inputs come before their readers."""

    def __init__(self) -> None:
        self.vertices: dict[int, Vertex] = {}
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
        contents: Contents | None = None,
    ) -> int:
        """Put an operator behind its inputs and return the id of its vertex; nobody owns it yet."""
        vertex_id = self._next
        self._next += 1
        self.vertices[vertex_id] = Vertex(
            operator, tuple(inputs), empty(types), meaning, timed=timed, contents=contents
        )
        return vertex_id

    def reachable(self, vertex_id: int, *, until: frozenset[int]) -> list[int]:
        """A vertex and everything that it reads, directly or not, without the vertices in `until` and what those read."""
        seen: dict[int, None] = {}
        waiting = [vertex_id]
        while waiting:
            below = waiting.pop()
            if below not in seen and below not in until:
                seen[below] = None
                waiting.extend(self.vertices[below].inputs)
        return list(seen)

    def own(self, vertex_ids: Iterable[int], owner: VertexOwner) -> None:
        """Note that somebody needs these vertices."""
        for vertex_id in vertex_ids:
            vertex = self.vertices[vertex_id]
            if owner not in vertex.owners:
                vertex.owners = (*vertex.owners, owner)

    def disown(self, owner: VertexOwner, vertex_ids: Iterable[int] | None = None) -> list[int]:
        """Note that somebody needs these vertices (default: all) no more; take those out that nobody needs, and return them."""
        for vertex_id in self.vertices if vertex_ids is None else vertex_ids:
            vertex = self.vertices[vertex_id]
            vertex.owners = tuple(other for other in vertex.owners if other != owner)
        unowned = [vertex_id for vertex_id, vertex in self.vertices.items() if not vertex.owners]
        self.remove(unowned)
        return unowned

    def replace(
        self,
        vertex_id: int,
        operator: Operator,
        types: Sequence[pa.DataType],
        *,
        contents: Contents | None = None,
    ) -> None:
        """Put another operator into a vertex whose output is empty; its readers stay."""
        vertex = self.vertices[vertex_id]
        vertex.operator, vertex.nothing, vertex.contents = operator, empty(types), contents

    def remove(self, vertex_ids: Sequence[int]) -> None:
        """Take vertices out; nothing that stays may read them."""
        gone = set(vertex_ids)
        stay = [vertex for vertex_id, vertex in self.vertices.items() if vertex_id not in gone]
        assert not any(vertex_id in gone for vertex in stay for vertex_id in vertex.inputs), (
            "a removed operator has readers"
        )
        for vertex_id in gone:
            del self.vertices[vertex_id]

    def needed_without(self, owners: frozenset[VertexOwner]) -> list[int]:
        """The vertices that somebody else than these owners needs."""
        return [
            vertex_id for vertex_id, vertex in self.vertices.items() if not owners.issuperset(vertex.owners)
        ]

    def step(
        self,
        changes: Mapping[int, Delta],
        tick: Tick,
        *,
        only: Iterable[int] | None = None,
        optional: frozenset[VertexOwner] = frozenset(),
        outputs: dict[int, Delta] | None = None,
    ) -> SteppedCircuit:
        """Step every dirty vertex once, or only some of them; `changes` are what vertices read from outside.

        `outputs` are those of vertices that this tick has stepped before, to which the new ones are added. Call
        `commit` or `rollback` afterwards. When it raises, it has rolled back already. The failure of a vertex that
        only `optional` owners need is returned instead, with those of all others: a second step goes on without them.
        """
        if self._torn:
            raise _torn()
        return self._run(
            self.vertices if only is None else only,
            lambda vertex_id, outputs: self._changes(vertex_id, changes, outputs),
            partial(self._step_vertex, tick=tick, initial=False),
            optional,
            {} if outputs is None else outputs,
        )

    def fill(
        self,
        vertex_ids: Sequence[int],
        changes: Mapping[int, Delta],
        tick: Tick,
        *,
        optional: frozenset[VertexOwner] = frozenset(),
        new: frozenset[int] | None = None,
        outputs: dict[int, Delta] | None = None,
    ) -> SteppedCircuit:
        """Step only new vertices: they give their initial rows, and read all rows of older ones instead of a change.

        `new` are all that are new, when they are not filled at once, and `outputs` those of the ones that have been.
        """
        all_new = frozenset(vertex_ids) if new is None else new

        def everything(vertex_id: int, outputs: Mapping[int, Delta]) -> list[Delta]:
            vertex = self.vertices[vertex_id]
            if not vertex.inputs or vertex.exchange is not None:
                return [changes.get(vertex_id, vertex.nothing)]
            return [outputs.get(below) or self.rows_so_far(below, all_new) for below in vertex.inputs]

        step = partial(self._step_vertex, tick=tick, initial=True)
        return self._run(vertex_ids, everything, step, optional, {} if outputs is None else outputs)

    def _run(
        self,
        vertex_ids: Iterable[int],
        inputs_of: Callable[[int, Mapping[int, Delta]], list[Delta] | None],
        step: Callable[[Vertex, Sequence[Delta]], Delta],
        optional: frozenset[VertexOwner],
        outputs: dict[int, Delta],
    ) -> SteppedCircuit:
        seconds: dict[int, float] = {}
        failures: dict[VertexOwner, Failure] = {}
        try:
            for vertex_id in vertex_ids:
                if failures and self._fails_with(vertex_id, failures):
                    continue
                inputs = inputs_of(vertex_id, outputs)
                if inputs is None:
                    continue
                self._running.append(vertex_id)
                started = perf_counter()
                try:
                    output = step(self.vertices[vertex_id], inputs)
                except Exception as error:
                    if not self._serves_only(vertex_id, optional.union(failures)):
                        raise
                    for owner in self.vertices[vertex_id].owners:
                        failures.setdefault(owner, Failure(error))
                    continue
                if len(output):
                    outputs[vertex_id] = output
                seconds[vertex_id] = perf_counter() - started
        except BaseException:
            self.rollback()
            raise
        if failures:
            self.rollback()
            return SteppedCircuit({}, {}, failures)
        self._gave.extend(outputs)
        return SteppedCircuit(outputs, seconds)

    def _serves_only(self, vertex_id: int, owners: frozenset[VertexOwner]) -> bool:
        """Whether nobody else than these owners needs a vertex."""
        return bool(self.vertices[vertex_id].owners) and owners.issuperset(self.vertices[vertex_id].owners)

    def _fails_with(self, vertex_id: int, failures: dict[VertexOwner, Failure]) -> bool:
        """Whether all who need a vertex have failed; whoever reads the rows of one that has failed is added to the failures."""
        vertex = self.vertices[vertex_id]
        for below in vertex.inputs:
            if self._serves_only(below, frozenset(failures)):
                cause = self.vertices[below].owners[0]
                failure = Failure(failures[cause].error, failures[cause].because or cause)
                for owner in vertex.owners:
                    failures.setdefault(owner, failure)
        return self._serves_only(vertex_id, frozenset(failures))

    @staticmethod
    def _step_vertex(vertex: Vertex, inputs: Sequence[Delta], tick: Tick, *, initial: bool) -> Delta:
        try:
            try:
                return _step(vertex.operator, inputs, tick, initial=initial)
            except DataError:
                # A join may give a pair and take it back in the same step: what is not there must not make an expression fail.
                net = [consolidate(delta) for delta in inputs]
                if not vertex.inputs or sum(map(len, net)) == sum(map(len, inputs)):
                    raise
                vertex.operator.rollback()
                return _step(vertex.operator, net, tick, initial=initial)
        except PenstockError as error:
            _locate(error, vertex)
            raise
        except Exception as error:
            raised = unexpected(error, f"tick {tick.number}")
            _locate(raised, vertex)
            raise raised from error

    def _changes(
        self, vertex_id: int, changes: Mapping[int, Delta], outputs: Mapping[int, Delta]
    ) -> list[Delta] | None:
        """The changes that a vertex reads, or None when it is clean."""
        vertex = self.vertices[vertex_id]
        if vertex_id in changes:
            return [changes[vertex_id]]
        if not vertex.inputs or vertex.exchange is not None:
            return None
        if not vertex.timed and not any(below in outputs for below in vertex.inputs):
            return None
        return [outputs.get(below) or self.vertices[below].nothing for below in vertex.inputs]

    def rows_so_far(self, vertex_id: int, new: frozenset[int]) -> Delta:
        """All rows that a vertex has given so far; those that are new have given none."""
        vertex = self.vertices[vertex_id]
        if vertex_id in new or not vertex.gave:
            return vertex.nothing
        assert vertex.contents is not None, "a new operator reads one that keeps no rows"
        return vertex.contents.now()

    def has_given(self) -> bool:
        """Whether any vertex has given a row, the last step included."""
        return bool(self._gave) or any(vertex.gave for vertex in self.vertices.values())

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
            vertex_id = self._running[len(self._committed)]
            self.vertices[vertex_id].operator.commit()
            self._committed.append(vertex_id)
        for vertex_id in self._gave:
            self.vertices[vertex_id].gave = True
        self._running, self._gave = [], []

    def rollback(self) -> None:
        """Forget the last step."""
        for vertex_id in self._running:
            self.vertices[vertex_id].operator.rollback()
        self._running, self._gave = [], []

    def maintain(self, fuel: int) -> None:
        """Let the operators of the last tick merge and compact their state, `fuel` rows for each changed row."""
        for vertex_id in self._committed:
            if vertex_id in self.vertices:
                self.vertices[vertex_id].operator.maintain(fuel)

    def memory(self) -> int:
        """Bytes of state in all vertices."""
        return sum(vertex.operator.memory() for vertex in self.vertices.values())

    def mapped(self) -> int:
        """Bytes of them that lie in files."""
        return sum(vertex.operator.mapped() for vertex in self.vertices.values())

    def pieces(self) -> Iterator[Piece]:
        """The state that lies in memory and may move to scratch files."""
        for vertex in self.vertices.values():
            yield from vertex.operator.pieces()


def _step(operator: Operator, inputs: Sequence[Delta], tick: Tick, *, initial: bool) -> Delta:
    first = operator.initial(tick) if initial else None
    output = operator.step(inputs, tick)
    return output if first is None else concat([first, output])


def _torn() -> StateError:
    return StateError(
        "the end of a tick was interrupted, so that some operators have made it final and others have not",
        code="FLOW_TORN",
        hint="build the flow again from its definition, and feed it again",
    )


def _locate(error: PenstockError, vertex: Vertex) -> None:
    """Say which views and operator an error comes from, before the position in its query when it has one."""
    if error.where is not None and error.where.startswith(("view ", "views ", "source ")):
        return
    operator = type(vertex.operator).__name__.lower()
    parts = [*_named(vertex.owners), operator, *([error.where] if error.where else [])]
    error.where = ", ".join(parts)


def _named(owners: Sequence[VertexOwner]) -> list[str]:
    """`view 'a'`, or `views 'a' and 'b'` for an operator that both use."""
    if len(owners) < 2:
        return [f"{owner.kind} '{owner.name}'" for owner in owners]
    names = [f"'{owner.name}'" for owner in owners]
    return [f"{owners[0].kind}s {', '.join(names[:-1])} and {names[-1]}"]
