"""One tick: validate, step, sum up, commit. The order of things that must happen together is here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from penstock.circuit.circuit import Circuit, Stepped
from penstock.circuit.compile import Fragment, Shared
from penstock.circuit.recompute import recompute
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.huge_pages import plain_pages
from penstock.data.tick import Tick
from penstock.engine.lateness import Sorted, describe_late, sort_out
from penstock.engine.source import SeenBatches, SourceSpec, content_digest
from penstock.engine.summary import StepSummary, ViewStep
from penstock.engine.upsert import replace_by_key
from penstock.operators.output import Output
from penstock.operators.source import Source
from penstock.plan.node import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Aside:
    """Rows that were not applied, and why."""

    reason: str
    rows: Delta


@dataclass(slots=True)
class SourceEntry:
    """A source of the flow: its declaration, its operator, and what a replay must not repeat."""

    spec: SourceSpec
    place: int
    operator: Source
    seen: SeenBatches = field(default_factory=SeenBatches)
    ordinal: int | None = None
    quarantine: list[Aside] = field(default_factory=list)
    mark: int | None = None  # the latest event time that was accepted, for a source with a lateness
    late: int = 0  # rows that came too late


@dataclass(slots=True)
class ViewEntry:
    """A view of the flow: its plan, the place of its materialised result, and the relations that it reads."""

    view: View
    place: int
    operator: Output
    reads: frozenset[str]
    fragment: Fragment


@dataclass(frozen=True, slots=True)
class Fed:
    """One batch that was fed to a source and waits for the step."""

    source: str
    delta: Delta
    ordinal: int | None = None
    keys: tuple[int, ...] = ()  # a change by these columns, on a source that has no primary key


@dataclass(slots=True)
class Graph:
    """Everything that a tick reads and changes."""

    circuit: Circuit = field(default_factory=Circuit)
    sources: dict[str, SourceEntry] = field(default_factory=dict)
    views: dict[str, ViewEntry] = field(default_factory=dict)
    statics: dict[str, SourceEntry] = field(default_factory=dict)  # tables of the session, loaded once
    frames: dict[str, DataFrame] = field(default_factory=dict)  # where they are loaded from
    shared: Shared = field(default_factory=Shared)
    ticks: int = 0
    micros: int = 0

    def source(self, name: str) -> SourceEntry:
        """A source, or a static table, which is one that only `reload_static` feeds."""
        return self.sources.get(name) or self.statics[name]

    def narrowed(self) -> dict[str, tuple[int, ...]]:
        """The sources that keep only some columns, and which."""
        return {
            name: entry.operator.columns
            for name, entry in self.sources.items()
            if entry.spec.retain == "used"
        }

    def place(self, name: str) -> int:
        """Where the rows of a source, a static table or a view come from."""
        return next(
            entries[name].place for entries in (self.sources, self.statics, self.views) if name in entries
        )


@dataclass(frozen=True, slots=True)
class Ticked:
    """The summary, and the consolidated change of every view that changed."""

    summary: StepSummary
    changes: Mapping[str, Delta]


def run_tick(graph: Graph, fed: Sequence[Fed], micros: int, *, diff_based: bool = False) -> Ticked:
    """Run one tick over everything that was fed; on an error nothing has changed."""
    with plain_pages():
        return _run_tick(graph, fed, micros, diff_based=diff_based)


def _run_tick(graph: Graph, fed: Sequence[Fed], micros: int, *, diff_based: bool) -> Ticked:
    started = perf_counter()
    tick = Tick(graph.ticks + 1, max(micros, graph.micros))
    accepted, digests = _without_replays(graph, fed)
    accepted, late = _without_late(graph, accepted)
    changes = {graph.place(name): concat(deltas) for name, deltas in _by_source(graph, accepted).items()}
    stepped = _recomputed(graph, changes, tick) if diff_based else graph.circuit.step(changes, tick)
    summary, emitted = _summary(graph, stepped, accepted, late, tick, started)
    graph.circuit.commit()
    _remember(graph, accepted, fed, digests)
    _remember_late(graph, late)
    graph.ticks, graph.micros = tick.number, tick.micros
    return Ticked(summary, emitted)


def _recomputed(graph: Graph, changes: Mapping[int, Delta], tick: Tick) -> Stepped:
    """Step the sources, and every dirty view by computing all of its rows again in a scratch circuit."""
    for entry in graph.views.values():
        entry.operator.keep()
    inputs = [entry.place for entry in (*graph.sources.values(), *graph.statics.values())]
    first = graph.circuit.step(changes, tick, only=_with_indexes(graph, inputs))
    outputs, seconds = dict(first.outputs), dict(first.seconds)
    for entry in graph.views.values():
        places = {name: graph.place(name) for name in entry.reads}
        if not entry.view.uses_time and not any(place in outputs for place in places.values()):
            continue
        started = perf_counter()
        rows = {name: _after(graph.circuit, place, outputs) for name, place in places.items()}
        try:
            new = recompute(entry.view, rows, entry.fragment, tick, graph.narrowed())
        except BaseException:
            graph.circuit.rollback()
            raise
        difference = consolidate(concat([new, -entry.operator.all_rows()]))
        changed = graph.circuit.step(
            {entry.place: difference}, tick, only=_with_indexes(graph, [entry.place])
        )
        outputs |= changed.outputs
        seconds[entry.place] = perf_counter() - started
    return Stepped(outputs, seconds)


def _with_indexes(graph: Graph, places: Sequence[int]) -> list[int]:
    """Places, and those that keep their rows by key behind them."""
    indexes = [place for (below, _), (place, _) in graph.shared.arrangements.items() if below in places]
    # A source may be its own index.
    return list(dict.fromkeys([*places, *indexes]))


def _after(circuit: Circuit, place: int, outputs: Mapping[int, Delta]) -> Delta:
    """All rows of a source or view with the change of this tick."""
    contents = circuit.places[place].contents
    assert contents is not None
    return consolidate(concat([contents(), outputs[place]])) if place in outputs else contents()


def _without_replays(graph: Graph, fed: Sequence[Fed]) -> tuple[list[Fed], dict[int, bytes]]:
    """The batches that count, and the digests of those to remember, by their position."""
    accepted: list[Fed] = []
    digests: dict[int, bytes] = {}
    for batch in fed:
        entry = graph.source(batch.source)
        if entry.spec.dedup and len(batch.delta):
            digest = content_digest(batch.delta)
            cleared = any(
                earlier.source == batch.source and (earlier.delta.weights < 0).any() for earlier in accepted
            )
            here = any(
                digests.get(position) == digest and earlier.source == batch.source
                for position, earlier in enumerate(accepted)
            )
            if here or (digest in entry.seen and not cleared):
                continue
            if not (batch.delta.weights < 0).any():
                digests[len(accepted)] = digest
            else:
                for position, earlier in enumerate(accepted):
                    if earlier.source == batch.source:
                        digests.pop(position, None)
        accepted.append(batch)
    return accepted, digests


def _without_late(graph: Graph, accepted: Sequence[Fed]) -> tuple[list[Fed], list[tuple[str, Sorted]]]:
    """The batches without rows that come too late, and by source what was found; the mark counts from the next tick on."""
    kept: list[Fed] = []
    found: list[tuple[str, Sorted]] = []
    latest: dict[str, int | None] = {}
    for batch in accepted:
        entry = graph.source(batch.source)
        if entry.spec.lateness is not None and len(batch.delta):
            before = latest.get(batch.source, entry.mark)
            done = sort_out(entry.spec.lateness, entry.mark, before, batch.delta)
            latest[batch.source] = done.mark
            found.append((batch.source, done))
            batch = replace(batch, delta=done.on_time)
        kept.append(batch)
    return kept, found


def _remember_late(graph: Graph, found: Sequence[tuple[str, Sorted]]) -> None:
    before = {name: graph.source(name).mark for name, _ in found}
    for name, done in found:
        entry = graph.source(name)
        mark, allowed = before[name], entry.spec.lateness
        if len(done.late) and mark is not None and allowed is not None:
            entry.quarantine.append(Aside(describe_late(allowed, mark), done.late))
            entry.late += _rows(done.late)
        entry.mark = done.mark


def _by_source(graph: Graph, accepted: Sequence[Fed]) -> dict[str, list[Delta]]:
    deltas: dict[str, list[Delta]] = {}
    for batch in accepted:
        if len(batch.delta):
            earlier = deltas.setdefault(batch.source, [])
            if batch.keys:
                by_key = graph.shared.arrangements[(graph.place(batch.source), batch.keys)][1]
                earlier.append(replace_by_key(by_key, earlier, batch.delta))
            else:
                earlier.append(batch.delta)
    return deltas


def _remember(
    graph: Graph, accepted: Sequence[Fed], fed: Sequence[Fed], digests: Mapping[int, bytes]
) -> None:
    for position, batch in enumerate(accepted):
        entry = graph.source(batch.source)
        if entry.spec.dedup and (batch.delta.weights < 0).any():
            entry.seen.clear()
        elif position in digests:
            entry.seen.add(digests[position])
    for name in {batch.source for batch in accepted if len(batch.delta)}:
        entry = graph.source(name)
        if len(entry.operator.missing):
            entry.quarantine.append(Aside("retracted, but not there", entry.operator.missing))
    for batch in fed:
        if batch.ordinal is not None:
            entry = graph.sources[batch.source]
            entry.ordinal = batch.ordinal if entry.ordinal is None else max(entry.ordinal, batch.ordinal)


def _summary(
    graph: Graph,
    stepped: Stepped,
    accepted: Sequence[Fed],
    late: Sequence[tuple[str, Sorted]],
    tick: Tick,
    started: float,
) -> tuple[StepSummary, dict[str, Delta]]:
    seconds: dict[str, float] = {}
    for place, spent in stepped.seconds.items():
        owner = graph.circuit.places[place].owner
        seconds[owner] = seconds.get(owner, 0.0) + spent
    views: dict[str, ViewStep] = {}
    emitted: dict[str, Delta] = {}
    for name, entry in graph.views.items():
        owner = view_owner(name)
        output = stepped.outputs.get(entry.place)
        changed = [place for place in map(graph.place, entry.reads) if place in stepped.outputs]
        if not changed and not entry.view.uses_time:
            views[name] = ViewStep()
            continue
        rows_in = sum(_rows(stepped.outputs[place]) for place in changed)
        inserted = retracted = 0
        if output is not None:
            emitted[name] = output
            inserted = int(output.weights[output.weights > 0].sum())
            retracted = int(-output.weights[output.weights < 0].sum())
        views[name] = ViewStep(rows_in, inserted, retracted, False, seconds.get(owner, 0.0) * 1000)
    summary = StepSummary(
        tick=tick.number,
        rows_in=sum(_rows(batch.delta) for batch in accepted),
        rows_out=sum(view.inserted + view.retracted for view in views.values()),
        duration_ms=(perf_counter() - started) * 1000,
        views=views,
        late=sum(_rows(done.late) for _, done in late),
    )
    return summary, emitted


def _rows(delta: Delta | None) -> int:
    return 0 if delta is None else int(np.abs(delta.weights).sum())


def source_owner(name: str) -> str:
    """How errors name a source."""
    return f"source '{name}'"


def view_owner(name: str) -> str:
    """How errors name a view."""
    return f"view '{name}'"
