"""The kernel in this process: one circuit for all sources and views of a flow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.circuit.circuit import VertexOwner
from penstock.circuit.compile import Fragment
from penstock.circuit.contents import PlanContents
from penstock.circuit.kernel import Kernel, KernelSource, StaticRows, Stepped, Traced
from penstock.circuit.provenance import Tracer
from penstock.circuit.recompute import rows_after, step_recomputing, step_views
from penstock.circuit.relations import Relations, ViewVertex, scan
from penstock.circuit.restriction import restriction
from penstock.circuit.retention import SourceVertex, widened
from penstock.circuit.state_key import StateKey
from penstock.circuit.suspend import Resumed, remove_new, replace_views, resume, step_without_failed
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.errors import StateError
from penstock.plan import node as plan
from penstock.state.arrangement import Arrangement
from penstock.state.part import RestoredPart
from penstock.state.scratch import Piece
from penstock.state.state import Image, State


class LocalKernel(Kernel):
    """Sources and views in one circuit; what views have in common is computed once."""

    def __init__(self, relations: Relations | None = None) -> None:
        self._relations = relations or Relations()
        self._circuit = self._relations.circuit
        self._sources, self._views = self._relations.sources, self._relations.views
        # Suspended or resumed by a step that is not final yet.
        self._changed_views: dict[str, ViewVertex] = {}
        self._recomputing = False
        self._images: Mapping[StateKey, Image] = {}
        self._loaded: set[StateKey] = set()

    # Declaring

    def add_source(self, source: KernelSource) -> None:
        added = SourceVertex(self._circuit, source)
        self._circuit.own([added.vertex_id], VertexOwner("source", source.name))
        self._sources[source.name] = added
        self._load([added.vertex_id])

    def register(
        self,
        view: plan.View,
        fragment: Fragment,
        tick: Tick,
        *,
        statics: Sequence[StaticRows] = (),
        suspended: bool = False,
    ) -> None:
        fresh = [static for static in statics if static.source.name not in self._sources]
        with widened(self._sources, view), self._with_statics(fresh) as loaded:
            try:
                if suspended:
                    entry = self._suspended_view(view, fragment, tick, loaded)
                elif self._recomputing:
                    entry = self._recomputed_view(view, fragment, tick, loaded)
                else:
                    entry = self._compiled_view(view, fragment, tick, loaded)
            except BaseException:
                self._circuit.rollback()
                self._relations.remove(view.name)
                raise
            self._views[view.name] = entry

    def drop(self, name: str) -> None:
        readers = [view.name for view in self._views.values() if name in view.reads]
        assert not readers, f"{name} is read by {readers}"
        self._relations.indexes.drop(name)
        if self._views.pop(name, None) is not None:
            owner = VertexOwner("view", name)
        else:
            del self._sources[name]
            owner = VertexOwner("source", name)
        self._relations.shared.forget(self._circuit.disown(owner))

    def recompute_always(self) -> None:
        if self._recomputing:
            return
        for view in self._views.values():
            view.output.keep()
        self._recomputing = True
        # Only sources, results and their indexes are stepped from now on.
        for name, view in self._views.items():
            self._circuit.vertices[view.vertex_id].inputs = ()
            self._relations.remove(name, but=[view.vertex_id])

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
        added = [*loaded]
        vertex_ids = self._relations.vertex_ids()
        entry = self._relations.compiled(view, fragment, vertex_ids=vertex_ids, added=added)
        if not self._load(added, entry):
            self._require_rows(view)
            self._circuit.fill(added, loaded, tick)
            self._circuit.commit()
        return entry

    def _require_rows(self, view: plan.View) -> None:
        """StateError when a view that was saved is to be made again from rows of which some have left their source."""
        reads = sorted(plan.scanned(view.root) & self._sources.keys()) if self._images else []
        for name in reads:
            if self._sources[name].source.frees:
                raise StateError(
                    f"view '{view.name}' has a state that is not in the checkpoint, and source '{name}' "
                    "has not all rows to make it again",
                    code="FLOW_NOT_RETAINED",
                    hint="load the checkpoint with the version of penstock that has written it",
                    where=f"view '{view.name}'",
                )

    def _recomputed_view(
        self, view: plan.View, fragment: Fragment, tick: Tick, loaded: Mapping[int, Delta]
    ) -> ViewVertex:
        """A view whose operators live for one computation only."""
        entry = self._relations.stored(view, fragment)
        outputs = self._circuit.step(loaded, tick, only=[*loaded]).outputs
        first = rows_after(self._relations, entry, outputs, tick)
        self._circuit.step({entry.vertex_id: first}, tick, only=[entry.vertex_id])
        self._circuit.commit()
        return entry

    def _suspended_view(
        self, view: plan.View, fragment: Fragment, tick: Tick, loaded: Mapping[int, Delta]
    ) -> ViewVertex:
        """A view that was suspended when its rows were saved."""
        entry = self._relations.stored(view, fragment, suspended=True)
        self._circuit.step(loaded, tick, only=[*loaded])
        self._circuit.commit()
        self._load([entry.vertex_id], entry)
        return entry

    # Ticks

    def step(
        self, changes: Mapping[str, Delta], tick: Tick, *, optional: frozenset[str] = frozenset()
    ) -> Stepped:
        fed = {self._sources[name].vertex_id: delta for name, delta in changes.items()}
        step = step_recomputing if self._recomputing else step_without_failed
        stepped, failures = step(self._relations, fed, tick, optional)
        self._changed_views = {name: replace(self._views[name], suspended=True) for name in failures}
        outputs = {
            name: stepped.outputs[vertex_id]
            for name, vertex_id in self._relations.vertex_ids().items()
            if vertex_id in stepped.outputs
        }
        missing = {
            name: self._sources[name].operator.missing
            for name in changes
            if len(self._sources[name].operator.missing)
        }
        return Stepped(outputs, missing, self._relations.seconds(stepped), failures)

    def resume(self, views: Sequence[str], tick: Tick) -> Stepped:
        entries = [self._views[name] for name in views]
        resume_all = self._recompute_suspended if self._recomputing else partial(resume, self._relations)
        try:
            resumed = resume_all(entries, tick)
            self._changed_views = dict(resumed.views)
            return Stepped(resumed.changes, {}, resumed.seconds, resumed.failures)
        except BaseException:
            self.rollback()
            raise

    def commit(self) -> None:
        try:
            self._circuit.commit()
        finally:
            if self._changed_views:
                self._put_changed_views()

    def rollback(self) -> None:
        self._circuit.rollback()
        self._changed_views = {}
        remove_new(self._relations)

    def maintain(self, fuel: int) -> None:
        self._relations.indexes.maintain()
        self._circuit.maintain(fuel)

    def _recompute_suspended(self, views: Sequence[ViewVertex], tick: Tick) -> Resumed:
        names = frozenset(view.name for view in views)
        stepped, failures = step_views(self._relations, views, {}, tick, optional=names, all_dirty=True)
        resumed = {view.name: replace(view, suspended=False) for view in views if view.name not in failures}
        changes = {
            name: stepped.outputs[view.vertex_id]
            for name, view in resumed.items()
            if view.vertex_id in stepped.outputs
        }
        return Resumed(resumed, changes, self._relations.seconds(stepped), failures)

    def _put_changed_views(self) -> None:
        """Let views be suspended or resumed; an interrupt is raised again when that is done."""
        interrupt: BaseException | None = None
        try:
            replace_views(self._relations, self._changed_views)
        except BaseException as error:
            interrupt = error
            replace_views(self._relations, self._changed_views)
        self._changed_views = {}
        if interrupt is not None:
            raise interrupt

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

    def stored(self, name: str) -> Callable[[], Delta]:
        return self.version(name) if name in self._views else self._sources[name].operator.stored()

    def put(self, name: str, rows: Delta) -> None:
        vertex_id = self._relations.vertex_id(name)
        operator = self._views[name].output if name in self._views else self._sources[name].operator
        operator.put(rows)
        self._circuit.vertices[vertex_id].gave = True

    def lookup(self, name: str, columns: Sequence[int], values: Sequence[pa.Array]) -> Delta:
        index = self._index(name, columns)
        by_column = dict(zip(columns, values, strict=True))
        return index.before().lookup([by_column[key] for key in index.key_columns], len(values[0]))[1]

    def _index(self, name: str, columns: Sequence[int]) -> Arrangement:
        """The rows of a relation by some columns; a source may have them so itself. One index serves all orders of columns."""
        keys = tuple(sorted(set(columns)))
        indexes, entry = self._relations.indexes, self._sources.get(name)
        if entry is None:
            view = self._views[name]
            return indexes.find(scan(name, view.view.fields), view.vertex_id, keys, None)
        own = entry.operator.arrangement
        if entry.source.retain == "all" and own.keys is not None and tuple(sorted(own.keys)) == keys:
            return own
        return indexes.find(scan(name, entry.source.fields), entry.vertex_id, keys, entry)

    def matching(self, name: str, columns: Sequence[int], values: Sequence[pa.Array]) -> tuple[Delta, int]:
        wanted = restriction(columns, Delta(tuple(values), np.ones(len(values[0]), np.int64)))
        # The rows of a relation are there, whatever time it is.
        contents = PlanContents(self._relations, Tick(0, 0))
        return contents.relation(name, wanted), contents.scanned.get(name, 0)

    def trace(self, view: str, rows: Delta, tick: Tick) -> Traced:
        return Tracer(PlanContents(self._relations, tick)).trace(view, rows)

    def memory(self) -> int:
        return self._circuit.memory()

    def mapped(self) -> int:
        return self._circuit.mapped()

    def pieces(self) -> Iterator[Piece]:
        return self._circuit.pieces()

    # Saving

    def save(self) -> Mapping[StateKey, Image]:
        return {key: state.save() for key, state in self.states().items()}

    def load(self, images: Mapping[StateKey, Image]) -> None:
        self._images = images
        if images:
            self._loaded = set()

    def continue_from(self, part: Callable[[Collection[StateKey]], RestoredPart]) -> None:
        """It has no shards."""

    @property
    def loaded(self) -> Collection[StateKey]:
        return self._loaded

    def close(self) -> None:
        """It has nothing outside of this process."""

    def _load(self, vertex_ids: Sequence[int], own: ViewVertex | None = None) -> bool:
        """Let operators be what was saved; False, and nothing has changed, when some of it is missing."""
        if not self._images:
            return False
        states = list(self._relations.states(vertex_ids, own))
        if not all(key in self._images for key, _ in states):
            return False
        for key, state in states:
            state.load(self._images[key])
            self._loaded.add(key)
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
        return self._relations.states(self._circuit.vertices)
