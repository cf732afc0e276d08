"""The sources and views of a kernel in one circuit: where each is, what it needs there, and the names of its states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.circuit.circuit import Circuit, SteppedCircuit, Vertex, VertexOwner
from penstock.circuit.compile import Fragment, Shared, types_of
from penstock.circuit.lookup import Indexes
from penstock.circuit.recursive import ViewCompiler
from penstock.circuit.retention import SourceVertex
from penstock.circuit.state_key import Meaning, StateKey, StateNames, source_digest, view_digest
from penstock.functions.scalars import zone_ids
from penstock.operators.base import Operator
from penstock.operators.contents import Contents
from penstock.operators.output import Output
from penstock.plan import node as plan
from penstock.plan.event_time import Times, event_times, of_source
from penstock.state.arrangement import Arrangement
from penstock.state.state import State


@dataclass(frozen=True, slots=True)
class ViewVertex:
    """A view in the circuit; a suspended one has its rows, and no operators that make them."""

    view: plan.View
    vertex_id: int
    output: Output
    reads: frozenset[str]
    fragment: Fragment
    suspended: bool = False

    @property
    def name(self) -> str:
        return self.view.name


class Relations:
    """Sources, static tables and views by name. A view comes after what it reads."""

    def __init__(self, compiler: Callable[..., ViewCompiler] = ViewCompiler) -> None:
        self._compiler = compiler
        self.circuit = Circuit()
        self.shared = Shared()
        self.indexes = Indexes(self.circuit, self.shared)
        self.sources: dict[str, SourceVertex] = {}
        self.views: dict[str, ViewVertex] = {}

    def vertex_ids(self) -> dict[str, int]:
        """Where the rows of every relation come from."""
        vertex_ids = {name: entry.vertex_id for name, entry in self.sources.items()}
        return vertex_ids | {name: entry.vertex_id for name, entry in self.views.items()}

    def vertex_id(self, name: str) -> int:
        """Where the rows of one relation come from."""
        return self.views[name].vertex_id if name in self.views else self.sources[name].vertex_id

    def narrowed(self) -> dict[str, tuple[int, ...]]:
        """The sources that keep only some columns, and which."""
        return {name: entry.columns for name, entry in self.sources.items() if entry.source.retain == "used"}

    def event_times(self) -> dict[str, Times]:
        """The columns of all relations that follow the event time of a source."""
        times = {
            name: of_source(name, len(entry.source.fields), entry.source.event_time)
            for name, entry in self.sources.items()
        }
        for name, entry in self.views.items():
            times[name] = event_times(entry.view.root, times)
        return times

    def compiled(
        self, view: plan.View, fragment: Fragment, *, vertex_ids: Mapping[str, int], added: list[int]
    ) -> ViewVertex:
        """A view with its operators, without rows; it reads relations at `vertex_ids`, and its new vertices are
        appended to `added`."""
        zone_ids.learn(view.zones, view.zone_table)
        compiler = self._compiler(
            self.circuit,
            vertex_ids,
            self.shared,
            fragment,
            added=added,
            narrowed=self.narrowed(),
            times=self.event_times(),
        )
        below = compiler.compile(view.root)
        output = _output(view, self.circuit.vertices[below])
        meaning = Meaning(scan(view.name, view.fields))
        vertex_id = compiler.add(output, (below,), view.fields, meaning=meaning, contents=output.contents())
        needed = self.circuit.reachable(vertex_id, until=frozenset(vertex_ids.values()))
        self.circuit.own(needed, VertexOwner("view", view.name))
        return ViewVertex(view, vertex_id, output, plan.scanned(view.root), fragment)

    def stored(self, view: plan.View, fragment: Fragment, *, suspended: bool = False) -> ViewVertex:
        """A view that keeps its rows and has no operators that make them."""
        zone_ids.learn(view.zones, view.zone_table)
        output = _output(view, None)
        meaning = Meaning(scan(view.name, view.fields))
        vertex_id = self.circuit.add(
            output, (), types_of(view.fields), meaning=meaning, contents=output.contents()
        )
        self.circuit.own([vertex_id], VertexOwner("view", view.name))
        return ViewVertex(view, vertex_id, output, plan.scanned(view.root), fragment, suspended)

    def remove(self, view: str, *, but: Iterable[int] = ()) -> None:
        """Take out the vertices that only this view needs, except for some."""
        needed = frozenset(but)
        others = [vertex_id for vertex_id in self.circuit.vertices if vertex_id not in needed]
        self.shared.forget(self.circuit.disown(VertexOwner("view", view), others))

    def seconds(self, stepped: SteppedCircuit) -> dict[str, float]:
        """The time of every relation: an operator that several views need counts for each of them."""
        seconds: dict[str, float] = {}
        for vertex_id, spent in stepped.seconds.items():
            for owner in self.circuit.vertices[vertex_id].owners:
                seconds[owner.name] = seconds.get(owner.name, 0.0) + spent
        return seconds

    def states(
        self, vertex_ids: Iterable[int], own: ViewVertex | None = None
    ) -> Iterator[tuple[StateKey, State]]:
        """Yield the states of operators with their names, also when two have the same; `own` is a view that is not here yet."""
        digests = self._digests()
        if own is not None:
            digests[own.name] = view_digest(StateNames(digests), own.view, suspended=own.suspended)
        names = StateNames(digests)
        for vertex_id in vertex_ids:
            vertex = self.circuit.vertices[vertex_id]
            for role, state in vertex.operator.states():
                assert vertex.meaning is not None, (
                    f"{type(vertex.operator).__name__} has a state without a name"
                )
                yield names.key(vertex.meaning, role), state

    def _digests(self) -> dict[str, str]:
        """The digest of every relation."""
        digests = {
            name: source_digest(name, entry.source.fields, entry.source.primary_key)
            for name, entry in self.sources.items()
        }
        for name, entry in self.views.items():
            digests[name] = view_digest(StateNames(digests), entry.view, suspended=entry.suspended)
        return digests


def scan(name: str, fields: plan.Fields) -> plan.Scan:
    """All rows of a relation with all columns."""
    return plan.Scan(fields, name, tuple(range(len(fields))))


def _output(view: plan.View, below: Vertex | None) -> Output:
    """The operator of a view's result; without an operator below that has its rows it keeps them."""
    operator: Operator | None = None if below is None else below.operator
    contents: Contents | None = None if below is None else below.contents
    return Output(
        view.name,
        [field.name for field in view.root.fields],
        Arrangement(types_of(view.root.fields), None),
        visible=view.visible,
        below=operator,
        contents=contents,
    )
