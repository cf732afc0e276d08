"""The kernel in this process: one circuit for all sources and views of a flow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter

import pyarrow as pa

from penstock.circuit import circuit as circuits
from penstock.circuit.circuit import Circuit, Owner
from penstock.circuit.compile import Fragment, Shared, types_of
from penstock.circuit.kernel import Kernel, KernelSource, StaticRows, Stepped, ViewFailure
from penstock.circuit.lookup import Indexes
from penstock.circuit.recompute import recompute
from penstock.circuit.recursive import ViewCompiler
from penstock.circuit.retention import SourcePlace, widened
from penstock.circuit.state_key import Meaning, Names, StateKey, source_digest, view_digest
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.tick import Tick
from penstock.operators.base import Operator
from penstock.operators.output import Output
from penstock.plan import node as plan
from penstock.state.arrangement import Arrangement
from penstock.state.state import Image, State


@dataclass(frozen=True, slots=True)
class ViewPlace:
    """A view in the circuit; a suspended one has its rows, and no operators that make them."""

    view: plan.View
    place: int
    output: Output
    reads: frozenset[str]
    fragment: Fragment
    suspended: bool = False


class LocalKernel(Kernel):
    """Sources and views in one circuit; what views have in common is computed once."""

    def __init__(self) -> None:
        self._circuit = Circuit()
        self._shared = Shared()
        self._indexes = Indexes(self._circuit, self._shared)
        self._sources: dict[str, SourcePlace] = {}
        self._views: dict[str, ViewPlace] = {}
        self._changed_views: dict[
            str, ViewPlace
        ] = {}  # suspended or resumed by the step that is not final yet
        self._recomputing = False
        self._images: Mapping[StateKey, Image] = {}

    # Declaring

    def add_source(self, source: KernelSource) -> None:
        self._sources[source.name] = self._source(source)
        self._load([self._sources[source.name].place])

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
            if suspended:
                entry = self._suspended_view(view, fragment, tick, loaded)
            elif self._recomputing:
                entry = self._recomputed_view(view, fragment, tick, loaded)
            else:
                entry = self._compiled_view(view, fragment, tick, loaded)
            self._views[view.name] = entry

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
            self._circuit.places[view.place].inputs = ()
            self._disown_all_but(name, [view.place])

    def _source(self, source: KernelSource) -> SourcePlace:
        added = SourcePlace(self._circuit, source)
        self._circuit.own([added.place], Owner("source", source.name))
        return added

    @contextmanager
    def _with_statics(self, statics: Sequence[StaticRows]) -> Iterator[dict[int, Delta]]:
        """Add static tables; give where their rows are to be fed. They go again when the body fails."""
        try:
            for static in statics:
                self.add_source(static.source)
            fed = {self._sources[static.source.name].place: static.rows for static in statics}
            # Those that had saved rows are not fed.
            yield {place: rows for place, rows in fed.items() if not self._circuit.places[place].gave}
        except BaseException:
            for static in statics:
                self.drop(static.source.name)
            raise

    def _compiled_view(
        self, view: plan.View, fragment: Fragment, tick: Tick, loaded: Mapping[int, Delta]
    ) -> ViewPlace:
        added = [*loaded]
        try:
            entry = self._compile(view, fragment, self._relations(), added)
            if not self._load(added, view):
                self._circuit.fill(added, loaded, tick)
                self._circuit.commit()
        except BaseException:
            self._circuit.rollback()
            self._disown_all_but(view.name, ())
            raise
        return entry

    def _compile(
        self, view: plan.View, fragment: Fragment, relations: Mapping[str, int], added: list[int]
    ) -> ViewPlace:
        """Put the operators of a view into the circuit, without rows; the new places are appended to `added`."""
        compiler = ViewCompiler(
            self._circuit, relations, self._shared, fragment, added=added, narrowed=self._narrowed()
        )
        below = compiler.compile(view.root)
        output = _output(view, self._circuit.places[below])
        place = compiler.add(
            output,
            (below,),
            view.fields,
            meaning=Meaning(_scan(view.name, view.fields)),
            contents=output.rows,
        )
        needed = self._circuit.reachable(place, until=frozenset(relations.values()))
        self._circuit.own(needed, Owner("view", view.name))
        return ViewPlace(view, place, output, plan.scanned(view.root), fragment)

    def _recomputed_view(
        self, view: plan.View, fragment: Fragment, tick: Tick, loaded: Mapping[int, Delta]
    ) -> ViewPlace:
        """A view whose operators live for one computation only."""
        entry = self._stored_view(view, fragment)
        try:
            outputs = dict(self._circuit.step(loaded, tick, only=[*loaded]).outputs)
            first = self._recompute(entry, outputs, tick)
            self._circuit.step({entry.place: first}, tick, only=[entry.place])
            self._circuit.commit()
        except BaseException:
            self._circuit.rollback()
            self._disown_all_but(view.name, ())
            raise
        return entry

    def _suspended_view(
        self, view: plan.View, fragment: Fragment, tick: Tick, loaded: Mapping[int, Delta]
    ) -> ViewPlace:
        """A view that was suspended when its rows were saved."""
        entry = replace(self._stored_view(view, fragment), suspended=True)
        try:
            self._circuit.step(loaded, tick, only=[*loaded])
            self._circuit.commit()
            self._load([entry.place], view, suspended=True)
        except BaseException:
            self._circuit.rollback()
            self._disown_all_but(view.name, ())
            raise
        return entry

    def _stored_view(self, view: plan.View, fragment: Fragment) -> ViewPlace:
        """A view that keeps its rows and has no operators that make them."""
        output = _output(view, None)
        place = self._circuit.add(
            output,
            (),
            types_of(view.fields),
            meaning=Meaning(_scan(view.name, view.fields)),
            contents=output.rows,
        )
        self._circuit.own([place], Owner("view", view.name))
        return ViewPlace(view, place, output, plan.scanned(view.root), fragment)

    def _disown_all_but(self, view: str, places: Iterable[int]) -> None:
        """Take out what only this view needs, except for some places."""
        needed = frozenset(places)
        others = [place for place in self._circuit.places if place not in needed]
        self._shared.forget(self._circuit.disown(Owner("view", view), others))

    # Ticks

    def step(
        self, changes: Mapping[str, Delta], tick: Tick, *, optional: frozenset[str] = frozenset()
    ) -> Stepped:
        fed = {self._sources[name].place: delta for name, delta in changes.items()}
        step = self._step_recomputing if self._recomputing else self._step_circuit
        stepped, failures = step(fed, tick, optional)
        self._changed_views = {name: replace(self._views[name], suspended=True) for name in failures}
        outputs = {
            name: stepped.outputs[place]
            for name, place in self._relations().items()
            if place in stepped.outputs
        }
        missing = {
            name: self._sources[name].operator.missing
            for name in changes
            if len(self._sources[name].operator.missing)
        }
        return Stepped(outputs, missing, self._seconds(stepped), failures)

    def commit(self) -> None:
        try:
            self._circuit.commit()
        finally:
            if self._changed_views:
                self._put_changed_views()

    def rollback(self) -> None:
        self._circuit.rollback()
        changed, self._changed_views = self._changed_views, {}
        self._disown_new_places(changed)

    def maintain(self, fuel: int) -> None:
        self._circuit.maintain(fuel)

    def _step_circuit(
        self, changes: Mapping[int, Delta], tick: Tick, optional: frozenset[str]
    ) -> tuple[circuits.Stepped, dict[str, ViewFailure]]:
        """Step the circuit, and step it again without the views that failed."""
        failures: dict[str, ViewFailure] = {}
        while True:
            only = None if not failures else self._circuit.needed_without(_owners(failures))
            stepped = self._circuit.step(changes, tick, only=only, optional=_owners(optional))
            if not stepped.failures:
                return stepped, failures
            failures |= _view_failures(stepped)
            for name in failures:
                # What is below goes with the view, so that it must have its rows itself.
                self._views[name].output.keep()

    def _seconds(self, stepped: circuits.Stepped) -> dict[str, float]:
        """The time of every relation: an operator that several views need counts for each of them."""
        seconds: dict[str, float] = {}
        for place, spent in stepped.seconds.items():
            for owner in self._circuit.places[place].owners:
                seconds[owner.name] = seconds.get(owner.name, 0.0) + spent
        return seconds

    def _step_recomputing(
        self, changes: Mapping[int, Delta], tick: Tick, optional: frozenset[str]
    ) -> tuple[circuits.Stepped, dict[str, ViewFailure]]:
        """Step the sources, and every dirty view by computing all of its rows again in a scratch circuit."""
        sources = [entry.place for entry in self._sources.values()]
        first = self._circuit.step(changes, tick, only=self._with_indexes(sources))
        active = [entry for entry in self._views.values() if not entry.suspended]
        stepped, failures = self._recompute_all(active, first.outputs, tick, optional)
        return circuits.Stepped(stepped.outputs, {**first.seconds, **stepped.seconds}), failures

    def _recompute_all(
        self,
        views: Sequence[ViewPlace],
        changed: Mapping[int, Delta],
        tick: Tick,
        optional: frozenset[str],
        *,
        clean: bool = True,
    ) -> tuple[circuits.Stepped, dict[str, ViewFailure]]:
        """Compute views again and step them with the differences; those that are `clean` are left as they are."""
        outputs, seconds = dict(changed), dict[int, float]()
        failures: dict[str, ViewFailure] = {}
        for entry in views:
            failed = min((name for name in entry.reads if name in failures), default=None)
            if failed is not None:
                cause = failures[failed]
                failures[entry.view.name] = ViewFailure(cause.error, cause.because or failed)
                continue
            if clean and not entry.view.uses_time and not self._reads_any(entry, outputs):
                continue
            started = perf_counter()
            try:
                new = self._recompute(entry, outputs, tick)
                difference = consolidate(concat([new, -entry.output.all_rows()]))
            except BaseException as error:
                if not isinstance(error, Exception) or entry.view.name not in optional:
                    self._circuit.rollback()
                    raise
                failures[entry.view.name] = ViewFailure(error)
                continue
            places = self._with_indexes([entry.place])
            outputs |= self._circuit.step({entry.place: difference}, tick, only=places).outputs
            seconds[entry.place] = perf_counter() - started
        return circuits.Stepped(outputs, seconds), failures

    def _recompute(self, entry: ViewPlace, outputs: Mapping[int, Delta], tick: Tick) -> Delta:
        """All rows of a view after this tick."""
        rows = {name: self._after(self._place(name), outputs) for name in entry.reads}
        return recompute(entry.view, rows, entry.fragment, tick, self._narrowed())

    def _reads_any(self, entry: ViewPlace, outputs: Mapping[int, Delta]) -> bool:
        return any(self._place(name) in outputs for name in entry.reads)

    def _with_indexes(self, places: Sequence[int]) -> list[int]:
        """Places, and those that keep their rows by key behind them."""
        behind = [at for at, place in self._circuit.places.items() if place.inputs and at not in places]
        reached = set(places)
        for at in behind:
            if any(index in reached for index in self._circuit.places[at].inputs):
                reached.add(at)
        return [at for at in self._circuit.places if at in reached]

    def _after(self, place: int, outputs: Mapping[int, Delta]) -> Delta:
        """All rows of a source or view with the change of this tick."""
        contents = self._circuit.places[place].contents
        assert contents is not None
        return consolidate(concat([contents(), outputs[place]])) if place in outputs else contents()

    # Suspending and resuming

    def resume(self, views: Sequence[str], tick: Tick) -> Stepped:
        entries = [self._views[name] for name in views]
        resume = self._resume_recomputing if self._recomputing else self._resume_compiled
        return resume(entries, tick)

    def _resume_recomputing(self, entries: Sequence[ViewPlace], tick: Tick) -> Stepped:
        names = frozenset(entry.view.name for entry in entries)
        stepped, failures = self._recompute_all(entries, {}, tick, names, clean=False)
        resumed = [entry for entry in entries if entry.view.name not in failures]
        self._changed_views = {entry.view.name: replace(entry, suspended=False) for entry in resumed}
        outputs = {
            entry.view.name: stepped.outputs[entry.place]
            for entry in resumed
            if entry.place in stepped.outputs
        }
        return Stepped(outputs, {}, self._seconds(stepped), failures)

    def _resume_compiled(self, entries: Sequence[ViewPlace], tick: Tick) -> Stepped:
        """Compile the views again, beside their last rows."""
        new: dict[str, ViewPlace] = {}
        relations = self._relations()
        added: list[int] = []
        try:
            for entry in entries:
                name = entry.view.name
                new[name] = self._compile(entry.view, entry.fragment, relations, added)
                relations[name] = new[name].place
            filled, failures = self._fill_resumed(added, new.keys(), tick)
            outputs = {
                name: self._difference(name, filled.outputs.get(entry.place))
                for name, entry in new.items()
                if name not in failures
            }
        except BaseException:
            self._circuit.rollback()
            self._disown_new_places(new)
            raise
        self._changed_views = {name: entry for name, entry in new.items() if name not in failures}
        changed = {name: change for name, change in outputs.items() if len(change)}
        return Stepped(changed, {}, self._seconds(filled), failures)

    def _fill_resumed(
        self, added: Sequence[int], views: Collection[str], tick: Tick
    ) -> tuple[circuits.Stepped, dict[str, ViewFailure]]:
        failures: dict[str, ViewFailure] = {}
        while True:
            places = [place for place in added if place in self._circuit.places]
            filled = self._circuit.fill(places, {}, tick, optional=_owners(views))
            if not filled.failures:
                return filled, failures
            failures |= _view_failures(filled)
            self._disown_new_places(failures)

    def _difference(self, view: str, rows: Delta | None) -> Delta:
        """The change from the last rows of a suspended view to these."""
        last = self._views[view].output.rows()
        return -last if rows is None else consolidate(concat([rows, -last]))

    def _disown_new_places(self, views: Collection[str]) -> None:
        """Leave suspended views that are not resumed with their rows."""
        for name, entry in reversed(self._views.items()):
            # A view goes before those that it reads.
            if name in views and entry.suspended:
                self._disown_all_but(name, [entry.place])

    def _put_changed_views(self) -> None:
        """Let views be suspended or resumed; an interrupt is raised again when it is done."""
        try:
            self._replace_views(self._changed_views)
        except BaseException:
            self._replace_views(self._changed_views)
            raise
        finally:
            self._changed_views = {}

    def _replace_views(self, changed: Mapping[str, ViewPlace]) -> None:
        """Put these views in the place of those of their names, and take out what nobody needs. Called again, it does the rest."""
        self._views |= changed
        for name, entry in changed.items():
            if entry.suspended:
                self._circuit.places[entry.place].inputs = ()
                self._shared.forget_nodes([entry.place])
            elif not self._recomputing:
                # They are indexes of the last rows.
                self._indexes.drop(name)
            relations = frozenset(self._relations().values()) - {entry.place}
            self._disown_all_but(name, self._circuit.reachable(entry.place, until=relations))
        self._shared.keep(self._circuit.places)

    # Reading

    def columns(self, name: str) -> tuple[int, ...]:
        return self._sources[name].columns

    def rows(self, name: str, *, hidden: bool = False) -> Delta:
        if name in self._views:
            output = self._views[name].output
            return output.all_rows() if hidden else output.rows()
        return self._sources[name].operator.rows()

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
            return self._indexes.find(scan, self._place(name), keys, None)
        own = entry.operator.arrangement
        if entry.source.retain == "all" and own.keys is not None and tuple(sorted(own.keys)) == keys:
            return own
        return self._indexes.find(_scan(name, entry.source.fields), entry.place, keys, entry)

    def memory(self) -> int:
        return self._circuit.memory()

    # Saving

    def save(self) -> Mapping[StateKey, Image]:
        return {key: state.save() for key, state in self.states().items()}

    def load(self, images: Mapping[StateKey, Image]) -> None:
        self._images = images

    def _load(self, places: Sequence[int], view: plan.View | None = None, *, suspended: bool = False) -> bool:
        """Let operators be what was saved; False, and nothing has changed, when some of it is missing."""
        if not self._images:
            return False
        states = list(self._named(places, view, suspended=suspended))
        if not all(key in self._images for key, _ in states):
            return False
        for key, state in states:
            state.load(self._images[key])
        for place in places:
            self._circuit.places[place].gave = True
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
        return self._named(self._circuit.places)

    def _named(
        self, places: Iterable[int], view: plan.View | None = None, *, suspended: bool = False
    ) -> Iterator[tuple[StateKey, State]]:
        digests = self._digests()
        if view is not None:
            digests[view.name] = view_digest(Names(digests), view, suspended=suspended)
        names = Names(digests)
        for index in places:
            place = self._circuit.places[index]
            for role, state in place.operator.states():
                assert place.meaning is not None, (
                    f"{type(place.operator).__name__} has a state without a name"
                )
                yield names.key(place.meaning, role), state

    def _digests(self) -> dict[str, str]:
        """The digest of every relation; views come after what they read."""
        digests = {
            name: source_digest(name, entry.source.fields, entry.source.primary_key)
            for name, entry in self._sources.items()
        }
        for name, entry in self._views.items():
            digests[name] = view_digest(Names(digests), entry.view, suspended=entry.suspended)
        return digests

    def _relations(self) -> dict[str, int]:
        """Where the rows of every source, static table and view come from."""
        places = {name: entry.place for name, entry in self._sources.items()}
        return places | {name: entry.place for name, entry in self._views.items()}

    def _place(self, name: str) -> int:
        return self._views[name].place if name in self._views else self._sources[name].place

    def _narrowed(self) -> dict[str, tuple[int, ...]]:
        """The sources that keep only some columns, and which."""
        return {name: entry.columns for name, entry in self._sources.items() if entry.source.retain == "used"}


def _owners(views: Iterable[str]) -> frozenset[Owner]:
    return frozenset(Owner("view", name) for name in views)


def _view_failures(stepped: circuits.Stepped) -> dict[str, ViewFailure]:
    """The views that failed in a step of the circuit."""
    return {
        owner.name: ViewFailure(failure.error, None if failure.because is None else failure.because.name)
        for owner, failure in stepped.failures.items()
        if owner.kind == "view"
    }


def _scan(name: str, fields: plan.Fields) -> plan.Scan:
    """All rows of a relation with all columns."""
    return plan.Scan(fields, name, tuple(range(len(fields))))


def _output(view: plan.View, below: circuits.Place | None) -> Output:
    """The operator of a view's result; without an operator below that has its rows it keeps them."""
    operator: Operator | None = None if below is None else below.operator
    contents: Callable[[], Delta] | None = None if below is None else below.contents
    return Output(
        view.name,
        [field.name for field in view.root.fields],
        Arrangement(types_of(view.root.fields), None),
        visible=view.visible,
        below=operator,
        contents=contents,
    )
