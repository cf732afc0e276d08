"""The kernel in shards: one coordinator, and shards that an executor runs somewhere.

The coordinator knows where the rows of every relation are. It sends each shard its part of a change; rows that an
operator must see together travel between shards inside the change. A change that fails on one shard is made on none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.circuit.compile import Fragment
from penstock.circuit.executor import ChangeFailed, Executor, Parts
from penstock.circuit.in_process import InProcess
from penstock.circuit.kernel import Kernel, KernelSource, Staging, StaticRows, Stepped, Traced, ViewFailure
from penstock.circuit.local import LocalKernel
from penstock.circuit.operation import (
    AddSource,
    Change,
    Changed,
    DropRelation,
    Lookup,
    Put,
    Question,
    ReadRows,
    Register,
    Resume,
    Size,
    StepCircuit,
    ViewsFailed,
)
from penstock.circuit.retention import first_columns
from penstock.circuit.shard import HOME, routed
from penstock.circuit.state_key import StateKey
from penstock.circuit.suspend import with_readers
from penstock.data.collation import normaliser
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.hashing import hash_rows, shard_of
from penstock.data.tick import Tick
from penstock.errors import StateError
from penstock.plan import node as plan
from penstock.plan.distribution import (
    ANY,
    EVERYWHERE,
    Distribution,
    source_distribution,
    view_distribution,
)
from penstock.plan.exchange import exchanged
from penstock.state.part import CheckpointOrder, RestoredPart
from penstock.state.scratch import Piece
from penstock.state.state import Image

_LAYOUT = StateKey("shards", None, "layout")


@dataclass(frozen=True, slots=True)
class _View:
    """A view of the flow, and how it is made again elsewhere."""

    view: plan.View
    fragment: Fragment
    reads: frozenset[str]
    suspended: bool = False


class ShardedKernel(Kernel):
    """Sources and views in shards."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._shards = executor.shards
        self._sources: dict[str, KernelSource] = {}
        self._statics: set[str] = set()
        self._views: dict[str, _View] = {}
        self._distributions: dict[str, Distribution] = {}
        self._columns: dict[str, tuple[int, ...]] = {}
        self._gave = False
        self._saved: frozenset[str] = frozenset()  # relations whose states were loaded
        self._loaded_keys: list[
            list[StateKey]
        ] = []  # of each shard the states that it was given, and of the driver
        self._former: Kernel | None = None  # in another layout, from which rows are taken over
        self._is_pending = False
        self._pending_views: dict[str, _View] = {}

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return self._shards

    # Declaring

    def add_source(self, source: KernelSource) -> None:
        self._refuse_freed(source)
        self._executor.note(AddSource(source, restored=source.name in self._saved))
        self._declare(source)
        self._gave |= source.name in self._saved
        if self._former is not None:
            self._former.add_source(source)
            self.put(source.name, self._former.stored(source.name)())

    def _declare(self, source: KernelSource) -> None:
        self._sources[source.name] = source
        self._distributions[source.name] = (
            ANY if _normalisers(source) else source_distribution(len(source.fields), source.primary_key)
        )
        self._columns[source.name] = first_columns(source)

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
        rows = {static.source.name: static.rows for static in fresh}
        last: Delta | None = None
        if self._former is not None:
            self._former.register(view, fragment, tick, statics=statics, suspended=suspended)
            rows = {name: self._former.rows(name) for name in rows}
            last = self._former.stored(view.name)() if suspended else None
        distributions = self._distributions | dict.fromkeys(rows, EVERYWHERE)
        change = Register(
            exchanged(view, distributions),
            tick,
            tuple(static.source for static in fresh),
            suspended=suspended,
            restored=view.name in self._saved,
            quiet=not self._gave,
        )
        parts: list[Mapping[str, Delta]] = [rows] * self._shards
        results = self._change(change, parts, fragment)
        self._executor.settle(final=True)
        for static in fresh:
            self._declare(static.source)
            self._distributions[static.source.name] = EVERYWHERE
            self._statics.add(static.source.name)
        self._views[view.name] = _View(view, fragment, plan.scanned(view.root), suspended)
        self._distributions[view.name] = view_distribution(view, self._distributions)
        self._note(results)
        if last is not None:
            self.put(view.name, last)

    def drop(self, name: str) -> None:
        readers = [view.view.name for view in self._views.values() if name in view.reads]
        assert not readers, f"{name} is read by {readers}"
        self._executor.note(DropRelation(name))
        self._views.pop(name, None)
        self._sources.pop(name, None)
        self._statics.discard(name)
        self._distributions.pop(name)
        self._columns.pop(name, None)

    def recompute_always(self) -> None:
        raise StateError(
            "a flow in shards does not recompute its views",
            code="FLOW_SHARDED",
            hint="force_diff_based() is a check of the incremental answers: make it in an "
            "IncrementalFlow with the same views and rows",
        )

    # Ticks

    def together(self) -> AbstractContextManager[None]:
        return self._executor.together()

    def step(
        self, changes: Mapping[str, Delta], tick: Tick, *, optional: frozenset[str] = frozenset()
    ) -> Stepped:
        parts = self._parts(changes)
        failures: dict[str, ViewFailure] = {}
        while True:
            try:
                results = self._change(StepCircuit(tick, optional, frozenset(failures)), parts)
            except ViewsFailed as failed:
                active = {name: view.reads for name, view in self._views.items() if not view.suspended}
                failures = with_readers({**failures, **failed.failures}, active)
            else:
                break
        self._is_pending = True
        self._pending_views = {name: replace(self._views[name], suspended=True) for name in failures}
        missing = self._merged(result.missing for result in results)
        return Stepped(self._outputs(results), missing, _seconds(results), failures)

    def resume(self, views: Sequence[str], tick: Tick) -> Stepped:
        failures: dict[str, ViewFailure] = {}
        while True:
            resumed = tuple(name for name in views if name not in failures)
            try:
                results = self._change(Resume(resumed, tick), [{}] * self._shards)
            except ViewsFailed as failed:
                reads = {name: self._views[name].reads for name in views}
                failures = with_readers({**failures, **failed.failures}, reads)
            else:
                break
        self._is_pending = True
        self._pending_views = {name: replace(self._views[name], suspended=False) for name in resumed}
        # The last rows of a view may have been on other shards.
        outputs = {name: consolidate(delta) for name, delta in self._outputs(results).items()}
        changed = {name: delta for name, delta in outputs.items() if len(delta)}
        return Stepped(changed, {}, _seconds(results), failures)

    def commit(self) -> None:
        if not self._is_pending:
            return
        self._executor.settle(final=True)
        self._views |= self._pending_views
        self._is_pending, self._pending_views = False, {}

    def rollback(self) -> None:
        if self._is_pending:
            self._is_pending, self._pending_views = False, {}
            self._executor.settle(final=False)

    def maintain(self, fuel: int) -> None:
        """Every shard does so behind its own change."""

    def _change(self, change: Change, parts: Parts, fragment: Fragment | None = None) -> Sequence[Changed]:
        """Make a change; ViewsFailed when only views have failed that may, else the error of the first shard that has
        another one."""
        try:
            results = self._executor.change(change, parts, fragment)
        except ChangeFailed as failed:
            failures: dict[str, ViewFailure] = {}
            for number in sorted(failed.errors):
                error = failed.errors[number]
                if not isinstance(error, ViewsFailed):
                    raise error from None
                for name, failure in error.failures.items():
                    failures.setdefault(name, failure)
            raise ViewsFailed(failures) from None
        self._gave |= any(result.gave for result in results)
        return results

    def _note(self, results: Sequence[Changed]) -> None:
        self._columns |= results[HOME].columns

    # Rows

    def _parts(self, changes: Mapping[str, Delta]) -> list[dict[str, Delta]]:
        parts: list[dict[str, Delta]] = [{} for _ in range(self._shards)]
        for name, delta in changes.items():
            for shard, rows in self._routed(name, delta):
                parts[shard][name] = rows
        return parts

    def _routed(self, name: str, delta: Delta) -> Iterable[tuple[int, Delta]]:
        source, distribution = self._sources[name], self._distributions[name]
        if distribution == EVERYWHERE:
            return [(shard, delta) for shard in range(self._shards)]
        normalise = _normalisers(source)
        if not normalise:
            return routed(delta, distribution.columns, self._shards)
        keys = [
            normalise[column](delta.columns[column]) if column in normalise else delta.columns[column]
            for column in source.primary_key
        ]
        return routed(delta, (), self._shards, shard_of(hash_rows(keys, len(delta)), self._shards))

    def _outputs(self, results: Sequence[Changed]) -> dict[str, Delta]:
        """The changes of sources, of which only the numbers of rows are told, and of views."""
        outputs: dict[str, Delta] = {}
        for name in self._sources:
            counts = [result.sources[name] for result in results if name in result.sources]
            if counts:
                inserted, retracted = (sum(column) for column in zip(*counts, strict=True))
                weights = np.array([weight for weight in (inserted, -retracted) if weight], np.int64)
                outputs[name] = Delta((), weights)
        merged = self._merged(result.outputs for result in results)
        for name in self._views:
            if name in merged and len(merged[name]):
                outputs[name] = merged[name]
        return outputs

    def _merged(self, parts: Iterable[Mapping[str, Delta]]) -> dict[str, Delta]:
        """Rows of several shards by relation."""
        by_name: dict[str, list[Delta]] = {}
        for part in parts:
            for name, delta in part.items():
                by_name.setdefault(name, []).append(delta)
        return {name: self._joined(name, deltas) for name, deltas in by_name.items()}

    def _joined(self, name: str, deltas: Sequence[Delta]) -> Delta:
        rows = concat(deltas)
        return consolidate(rows) if len(deltas) > 1 and self._distributions[name] == ANY else rows

    # Reading

    def columns(self, name: str) -> tuple[int, ...]:
        return self._columns[name]

    def rows(self, name: str, *, hidden: bool = False) -> Delta:
        return self._ask(name, ReadRows(name, "hidden" if hidden else "shown"))

    def version(self, name: str) -> Callable[[], Delta]:
        rows = self.rows(name, hidden=True)
        return lambda: rows

    def stored(self, name: str) -> Callable[[], Delta]:
        rows = self._ask(name, ReadRows(name, "hidden" if name in self._views else "stored"))
        return lambda: rows

    def put(self, name: str, rows: Delta) -> None:
        parts: list[dict[str, Delta]] = [{name: rows.take(np.arange(0))} for _ in range(self._shards)]
        if name in self._views:
            parts[HOME][name] = rows
        else:
            for shard, part in self._routed_stored(name, rows):
                parts[shard][name] = part
        self._change(Put(name), parts)
        self._executor.settle(final=True)
        self._gave = True

    def _routed_stored(self, name: str, rows: Delta) -> Iterable[tuple[int, Delta]]:
        """Rows as a source keeps them: by the columns of its key among those that it keeps, or by the hash beside them."""
        source = self._sources[name]
        if source.retain == "all":
            return self._routed(name, rows)
        at = {column: position for position, column in enumerate(self._columns[name])}
        if not source.primary_key:
            hashes = rows.columns[len(at)].to_numpy()
            return routed(rows, (), self._shards, shard_of(hashes, self._shards))
        normalise = _normalisers(source)
        by_key = [
            normalise[column](rows.columns[at[column]]) if column in normalise else rows.columns[at[column]]
            for column in (source.primary_key if normalise else sorted(source.primary_key))
        ]
        return routed(rows, (), self._shards, shard_of(hash_rows(by_key, len(rows)), self._shards))

    def lookup(self, name: str, columns: Sequence[int], values: Sequence[pa.Array]) -> Delta:
        return self._ask(name, Lookup(name, tuple(columns), tuple(values)))

    def matching(self, name: str, columns: Sequence[int], values: Sequence[pa.Array]) -> tuple[Delta, int]:
        question = Lookup(name, tuple(columns), tuple(values), hidden=True)
        answers = [answer for answer in self._executor.ask(question) if answer is not None]
        rows = self._joined(name, [rows for rows, _ in answers])
        return rows, sum(scanned for _, scanned in answers)

    def _ask(self, name: str, question: Question) -> Delta:
        answers = [answer for answer in self._executor.ask(question) if answer is not None]
        return self._joined(name, answers)

    def trace(self, view: str, rows: Delta, tick: Tick) -> Traced:
        """The rows of everything below the view are brought together. Cost: data."""
        return self._gathered(view, tick).trace(view, rows, tick)

    def _gathered(self, view: str, tick: Tick) -> LocalKernel:
        """A kernel in this process with a view and everything that it reads."""
        needed = {view}
        for name in reversed(self._views):
            if name in needed:
                needed |= self._views[name].reads
        kernel = LocalKernel()
        for name, source in self._sources.items():
            if name in needed and name not in self._statics:
                kernel.add_source(replace(source, retained=self._columns[name]))
                kernel.put(name, self.stored(name)())
        statics = [
            StaticRows(self._sources[name], self.rows(name)) for name in self._statics if name in needed
        ]
        for name, entry in self._views.items():
            if name in needed:
                own = [static for static in statics if static.source.name in entry.reads]
                kernel.register(entry.view, entry.fragment, tick, statics=own, suspended=entry.suspended)
                if entry.suspended:
                    kernel.put(name, self.stored(name)())
        return kernel

    def memory(self) -> int:
        return sum(total for total, _ in self._executor.ask(Size()))

    def mapped(self) -> int:
        return sum(mapped for _, mapped in self._executor.ask(Size()))

    def pieces(self) -> Iterable[Piece]:
        return ()

    # Saving

    def save(self) -> Mapping[StateKey, Image]:
        images = {_LAYOUT: self._layout()}
        for number, states in enumerate(self._executor.save()):
            for key, image in states.items():
                images[key.of_shard(number)] = image
        return images

    def _layout(self) -> Image:
        return Image(values={"shards": self._shards, "relations": [*self._sources, *self._views]})

    def stage(self, order: CheckpointOrder) -> Staging:
        return Staging({_LAYOUT: self._layout()}, self._executor.stage(order))

    def continue_from(self, part: Callable[[Collection[StateKey]], RestoredPart]) -> None:
        if self._loaded_keys:
            self._executor.continue_from([part(keys) for keys in self._loaded_keys])

    def load(self, images: Mapping[StateKey, Image]) -> None:
        self._former, self._saved = None, frozenset()
        if not images:
            self._executor.load([{}] * (self._shards + 1))
            return
        self._loaded_keys = []
        layout = images.get(_LAYOUT)
        if layout is None:
            self._former = LocalKernel()
            self._former.load(images)
            return
        if layout.values["shards"] != self._shards:
            self._former = ShardedKernel(InProcess(layout.values["shards"]))
            self._former.load(images)
            return
        self._saved = frozenset(layout.values["relations"])
        states: list[dict[StateKey, Image]] = [{} for _ in range(self._shards + 1)]
        for key, image in images.items():
            if key != _LAYOUT:
                number, own = key.on_shard()
                states[number][own] = image
        self._loaded_keys = [[key.of_shard(at) for key in own] for at, own in enumerate(states)]
        self._executor.load(states)

    @property
    def loaded(self) -> Collection[StateKey]:
        return ()

    def _refuse_freed(self, source: KernelSource) -> None:
        if self._former is not None and source.frees:
            raise StateError(
                f"source '{source.name}' lets rows go behind its watermark, so that views cannot be "
                "filled again on another number of shards",
                code="FLOW_NOT_RETAINED",
                hint="open the flow with the number of shards that it was saved with",
                where=f"source '{source.name}'",
            )

    def close(self) -> None:
        self._executor.close()


def saved_shards(images: Mapping[StateKey, Image]) -> int | None:
    """The number of shards of a kernel that was saved; None for one without."""
    layout = images.get(_LAYOUT)
    return None if layout is None else int(layout.values["shards"])


def _normalisers(source: KernelSource) -> dict[int, Callable[[pa.Array], pa.Array]]:
    """What makes keys of the texts of key columns that are compared by a collation."""
    normalisers = {column: normaliser(source.fields[column].type) for column in source.primary_key}
    return {column: of_text for column, of_text in normalisers.items() if of_text is not None}


def _seconds(results: Sequence[Changed]) -> dict[str, float]:
    """The time of the slowest shard."""
    seconds: dict[str, float] = {}
    for result in results:
        for name, spent in result.seconds.items():
            seconds[name] = max(spent, seconds.get(name, 0.0))
    return seconds
