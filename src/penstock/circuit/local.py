"""The kernel in this process: one circuit for all sources and views of a flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import pyarrow as pa

from penstock.circuit import circuit as circuits
from penstock.circuit.circuit import Circuit, Owner
from penstock.circuit.compile import Fragment, Shared, types_of
from penstock.circuit.kernel import Kernel, KernelSource, StaticRows, Stepped
from penstock.circuit.lookup import Indexes
from penstock.circuit.recompute import recompute
from penstock.circuit.recursive import ViewCompiler
from penstock.circuit.retention import SourceVertex, widened
from penstock.circuit.state_key import Meaning, Names, StateKey, source_digest, view_digest
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.tick import Tick
from penstock.operators.base import Operator
from penstock.operators.contents import Contents
from penstock.operators.output import Output
from penstock.plan import node as plan
from penstock.state.arrangement import Arrangement
from penstock.state.state import Image, State


@dataclass(frozen=True, slots=True)
class ViewVertex:
    """A view in the circuit."""

    view: plan.View
    vertex_id: int
    output: Output
    reads: frozenset[str]
    fragment: Fragment


class LocalKernel(Kernel):
    """Sources and views in one circuit; what views have in common is computed once."""

    def __init__(self) -> None:
        self._circuit = Circuit()
        self._shared = Shared()
        self._indexes = Indexes(self._circuit, self._shared)
        self._sources: dict[str, SourceVertex] = {}
        self._views: dict[str, ViewVertex] = {}
        self._recomputing = False
        self._images: Mapping[StateKey, Image] = {}

    # Declaring

    def add_source(self, source: KernelSource) -> None:
        self._sources[source.name] = self._source(source)
        self._load([self._sources[source.name].vertex_id])

    def register(
        self, view: plan.View, fragment: Fragment, tick: Tick, *, statics: Sequence[StaticRows] = ()
    ) -> None:
        fresh = [static for static in statics if static.source.name not in self._sources]
        with widened(self._sources, view), self._with_statics(fresh) as loaded:
            if self._recomputing:
                self._views[view.name] = self._recomputed_view(view, fragment, tick, loaded)
            else:
                self._views[view.name] = self._compiled_view(view, fragment, tick, loaded)

    def drop(self, name: str) -> None:
        readers = [view.view.name for view in self._views.values() if name in view.reads]
        assert not readers, f"{name} is read by {readers}"
        self._indexes.drop(name)
        if self._views.pop(name, None) is not None:
            owner = Owner("view", name)
        else:
            del self._sources[name]
            owner = Owner("source", name)
        self._shared.forget(self._circuit.disown(owner))

    def recompute_always(self) -> None:
        if self._recomputing:
            return
        for view in self._views.values():
            view.output.keep()
        self._recomputing = True
        # Only sources, results and their indexes are stepped from now on.
        for name, view in self._views.items():
            self._circuit.vertices[view.vertex_id].inputs = ()
            others = [vertex_id for vertex_id in self._circuit.vertices if vertex_id != view.vertex_id]
            self._shared.forget(self._circuit.disown(Owner("view", name), others))

    def _source(self, source: KernelSource) -> SourceVertex:
        added = SourceVertex(self._circuit, source)
        self._circuit.own([added.vertex_id], Owner("source", source.name))
        return added

    @contextmanager
    def _with_statics(self, statics: Sequence[StaticRows]) -> Iterator[dict[int, Delta]]:
        """Add static tables; give where their rows are to be fed. They go again when the body fails."""
        try:
            for static in statics:
                self.add_source(static.source)
            fed = {self._sources[static.source.name].vertex_id: static.rows for static in statics}
            # Those that had saved rows are not fed.
            yield {
                vertex_id: rows
                for vertex_id, rows in fed.items()
                if not self._circuit.vertices[vertex_id].gave
            }
        except BaseException:
            for static in statics:
                self.drop(static.source.name)
            raise

    def _compiled_view(
        self, view: plan.View, fragment: Fragment, tick: Tick, loaded: Mapping[int, Delta]
    ) -> ViewVertex:
        relations, owner = self._relations(), Owner("view", view.name)
        compiler = ViewCompiler(
            self._circuit, relations, self._shared, fragment, added=[*loaded], narrowed=self._narrowed()
        )
        try:
            below = compiler.compile(view.root)
            output = _output(view, self._circuit.vertices[below])
            vertex_id = compiler.add(
                output,
                (below,),
                view.fields,
                meaning=Meaning(_scan(view.name, view.fields)),
                contents=output.contents(),
            )
            needed = self._circuit.reachable(vertex_id, until=frozenset(relations.values()))
            self._circuit.own(needed, owner)
            if not self._load(compiler.added, view):
                self._circuit.fill(compiler.added, loaded, tick)
                self._circuit.commit()
        except BaseException:
            self._circuit.rollback()
            self._shared.forget(self._circuit.disown(owner))
            raise
        return ViewVertex(view, vertex_id, output, plan.scanned(view.root), fragment)

    def _recomputed_view(
        self, view: plan.View, fragment: Fragment, tick: Tick, loaded: Mapping[int, Delta]
    ) -> ViewVertex:
        """A view whose operators live for one computation only."""
        reads = plan.scanned(view.root)
        output = _output(view, None)
        vertex_id = self._circuit.add(
            output,
            (),
            types_of(view.fields),
            meaning=Meaning(_scan(view.name, view.fields)),
            contents=output.contents(),
        )
        self._circuit.own([vertex_id], Owner("view", view.name))
        try:
            outputs = dict(self._circuit.step(loaded, tick, only=[*loaded]).outputs)
            rows = {name: self._after(self._vertex_id(name), outputs) for name in reads}
            first = recompute(view, rows, fragment, tick, self._narrowed())
            self._circuit.step({vertex_id: first}, tick, only=[vertex_id])
            self._circuit.commit()
        except BaseException:
            self._circuit.rollback()
            self._circuit.disown(Owner("view", view.name))
            raise
        return ViewVertex(view, vertex_id, output, reads, fragment)

    # Ticks

    def step(self, changes: Mapping[str, Delta], tick: Tick) -> Stepped:
        fed = {self._sources[name].vertex_id: delta for name, delta in changes.items()}
        stepped = self._step_recomputing(fed, tick) if self._recomputing else self._circuit.step(fed, tick)
        outputs = {
            name: stepped.outputs[vertex_id]
            for name, vertex_id in self._relations().items()
            if vertex_id in stepped.outputs
        }
        missing = {
            name: self._sources[name].operator.missing
            for name in changes
            if len(self._sources[name].operator.missing)
        }
        return Stepped(outputs, missing, self._seconds(stepped))

    def commit(self) -> None:
        self._circuit.commit()

    def rollback(self) -> None:
        self._circuit.rollback()

    def maintain(self, fuel: int) -> None:
        self._circuit.maintain(fuel)

    def _seconds(self, stepped: circuits.Stepped) -> dict[str, float]:
        """The time of every relation: an operator that several views need counts for each of them."""
        seconds: dict[str, float] = {}
        for vertex_id, spent in stepped.seconds.items():
            for owner in self._circuit.vertices[vertex_id].owners:
                seconds[owner.name] = seconds.get(owner.name, 0.0) + spent
        return seconds

    def _step_recomputing(self, changes: Mapping[int, Delta], tick: Tick) -> circuits.Stepped:
        """Step the sources, and every dirty view by computing all of its rows again in a scratch circuit."""
        sources = [entry.vertex_id for entry in self._sources.values()]
        first = self._circuit.step(changes, tick, only=self._with_indexes(sources))
        outputs, seconds = dict(first.outputs), dict(first.seconds)
        for entry in self._views.values():
            vertex_ids = {name: self._vertex_id(name) for name in entry.reads}
            if not entry.view.uses_time and not any(
                vertex_id in outputs for vertex_id in vertex_ids.values()
            ):
                continue
            started = perf_counter()
            try:
                rows = {name: self._after(vertex_id, outputs) for name, vertex_id in vertex_ids.items()}
                new = recompute(entry.view, rows, entry.fragment, tick, self._narrowed())
                difference = consolidate(concat([new, -entry.output.all_rows()]))
            except BaseException:
                self._circuit.rollback()
                raise
            changed = self._circuit.step(
                {entry.vertex_id: difference}, tick, only=self._with_indexes([entry.vertex_id])
            )
            outputs |= changed.outputs
            seconds[entry.vertex_id] = perf_counter() - started
        return circuits.Stepped(outputs, seconds)

    def _with_indexes(self, vertex_ids: Sequence[int]) -> list[int]:
        """Vertices, and those that keep their rows by key behind them."""
        reached = set(vertex_ids)
        for vertex_id, vertex in self._circuit.vertices.items():
            if any(below in reached for below in vertex.inputs):
                reached.add(vertex_id)
        return [vertex_id for vertex_id in self._circuit.vertices if vertex_id in reached]

    def _after(self, vertex_id: int, outputs: Mapping[int, Delta]) -> Delta:
        """All rows of a source or view with the change of this tick."""
        contents = self._circuit.vertices[vertex_id].contents
        assert contents is not None
        rows = contents.now()
        return consolidate(concat([rows, outputs[vertex_id]])) if vertex_id in outputs else rows

    # Reading

    def columns(self, name: str) -> tuple[int, ...]:
        return self._sources[name].columns

    def rows(self, name: str, *, hidden: bool = False) -> Delta:
        if name in self._views:
            output = self._views[name].output
            return output.all_rows() if hidden else output.rows()
        return self._sources[name].operator.rows()

    def version(self, name: str) -> Callable[[], Delta]:
        if name in self._views:
            return self._views[name].output.version()
        return self._sources[name].operator.contents().version()

    def lookup(self, name: str, columns: Sequence[int], values: Sequence[pa.Array]) -> Delta:
        index = self._index(name, columns)
        by_column = dict(zip(columns, values, strict=True))
        return index.before().lookup([by_column[key] for key in index.key_columns], len(values[0]))[1]

    def _index(self, name: str, columns: Sequence[int]) -> Arrangement:
        """The rows of a relation by some columns; a source may have them so itself. One index serves all orders of columns."""
        keys = tuple(sorted(set(columns)))
        entry = self._sources.get(name)
        if entry is None:
            scan = _scan(name, self._views[name].view.fields)
            return self._indexes.find(scan, self._vertex_id(name), keys, None)
        own = entry.operator.arrangement
        if entry.source.retain == "all" and own.keys is not None and tuple(sorted(own.keys)) == keys:
            return own
        return self._indexes.find(_scan(name, entry.source.fields), entry.vertex_id, keys, entry)

    def memory(self) -> int:
        return self._circuit.memory()

    # Saving

    def save(self) -> Mapping[StateKey, Image]:
        return {key: state.save() for key, state in self.states().items()}

    def load(self, images: Mapping[StateKey, Image]) -> None:
        self._images = images

    def _load(self, vertex_ids: Sequence[int], view: plan.View | None = None) -> bool:
        """Let operators be what was saved; False, and nothing has changed, when some of it is missing."""
        if not self._images:
            return False
        states = list(self._named(vertex_ids, view))
        if not all(key in self._images for key, _ in states):
            return False
        for key, state in states:
            state.load(self._images[key])
        for vertex_id in vertex_ids:
            self._circuit.vertices[vertex_id].gave = True
        return True

    def states(self) -> Mapping[StateKey, State]:
        """All states by their names."""
        states: dict[StateKey, State] = {}
        for key, state in self.named_states():
            # Operators of the same meaning have the same rows: one of them is enough.
            states.setdefault(key, state)
        return states

    def named_states(self) -> Iterator[tuple[StateKey, State]]:
        """Yield every state with its name, also when two have the same one."""
        return self._named(self._circuit.vertices)

    def _named(
        self, vertex_ids: Iterable[int], view: plan.View | None = None
    ) -> Iterator[tuple[StateKey, State]]:
        digests = self._digests()
        if view is not None:
            digests[view.name] = view_digest(Names(digests), view)
        names = Names(digests)
        for vertex_id in vertex_ids:
            vertex = self._circuit.vertices[vertex_id]
            for role, state in vertex.operator.states():
                assert vertex.meaning is not None, (
                    f"{type(vertex.operator).__name__} has a state without a name"
                )
                yield names.key(vertex.meaning, role), state

    def _digests(self) -> dict[str, str]:
        """The digest of every relation; views come after what they read."""
        digests = {
            name: source_digest(name, entry.source.fields, entry.source.primary_key)
            for name, entry in self._sources.items()
        }
        for name, entry in self._views.items():
            digests[name] = view_digest(Names(digests), entry.view)
        return digests

    def _relations(self) -> dict[str, int]:
        """Where the rows of every source, static table and view come from."""
        vertex_ids = {name: entry.vertex_id for name, entry in self._sources.items()}
        return vertex_ids | {name: entry.vertex_id for name, entry in self._views.items()}

    def _vertex_id(self, name: str) -> int:
        return self._views[name].vertex_id if name in self._views else self._sources[name].vertex_id

    def _narrowed(self) -> dict[str, tuple[int, ...]]:
        """The sources that keep only some columns, and which."""
        return {name: entry.columns for name, entry in self._sources.items() if entry.source.retain == "used"}


def _scan(name: str, fields: plan.Fields) -> plan.Scan:
    """All rows of a relation with all columns."""
    return plan.Scan(fields, name, tuple(range(len(fields))))


def _output(view: plan.View, below: circuits.Vertex | None) -> Output:
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
