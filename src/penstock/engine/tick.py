"""One tick: validate, step, sum up, commit. The order of things that must happen together is here and nowhere else.

1. Leave out batches that came before, and rows that come too late.
2. Step the kernel, without the views that fail and may be suspended.
3. Sum up what happened, and what the flow must remember of it.
4. Write the event to the journal.
5. Commit the kernel.
6. Remember.

All that may fail is before 5: an error in 1 to 4 leaves everything as it was. 5 and 6 may be interrupted anywhere and
are then done again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.circuit.kernel import Stepped
from penstock.data.delta import Delta, concat
from penstock.data.huge_pages import plain_pages
from penstock.data.tick import Tick
from penstock.engine.event import Event, TickEvent
from penstock.engine.flow_state import SourceState
from penstock.engine.graph import FedBatch, Graph, SourceEntry
from penstock.engine.lateness import Sorted, describe_late, sort_out
from penstock.engine.quarantine import Quarantine, QuarantinedRows
from penstock.engine.source import content_digest
from penstock.engine.summary import StepSummary, ViewStep
from penstock.engine.suspension import optional_views, suspensions
from penstock.engine.upsert import replace_by_key
from penstock.errors import PenstockError, StateError, unexpected
from penstock.plan.suspension import Suspension
from penstock.state.limits import LIMITS

LOG = logging.getLogger("penstock.flow")
MISSING = "retracted, but not there"


@dataclass(frozen=True, slots=True)
class Ticked:
    """The summary, and the consolidated change of every view that changed.

    `interrupt` came while the tick was made final: it is to be raised when the change has been handed over. `suspended` are the
    views that this tick was the first to go on without.
    """

    summary: StepSummary
    changes: Mapping[str, Delta]
    interrupt: BaseException | None = None
    suspended: Mapping[str, Suspension] = field(default_factory=dict)


@dataclass(slots=True)
class _Admitted:
    """The batches that count, and the digests of those to remember, by their position."""

    batches: list[FedBatch] = field(default_factory=list)
    digests: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a source remembers of a tick: values to assign, so that it may be done twice."""

    state: SourceState
    ordinal: int | None
    feeders: dict[str, int]
    latest_event_time: int | None
    late: int
    quarantine: Quarantine
    cleared: bool  # batches that were seen before count again
    digests: Sequence[bytes]  # of batches to know again
    position: str | None


@dataclass(frozen=True, slots=True)
class StagedTick:
    """A tick that has been stepped and summed up, and may still be undone: what makes it final are assignments."""

    tick: Tick
    ticked: Ticked
    suspended: dict[str, Suspension]
    memory: Sequence[_Memory] = ()


class Journal(Protocol):
    """Where events are written before they are final."""

    @property
    def position(self) -> int:
        """How many events were written."""

    def append(self, event: Event) -> None:
        """Write an event; when it raises, the event is not written."""

    def sync(self) -> None:
        """Return when the events that were written last, whatever happens to this machine or process as far as the
        journal promises."""


class NoJournal:
    """A flow that lasts as long as its process."""

    position = 0

    def append(self, event: Event) -> None:
        self.position += 1

    def sync(self) -> None:
        """Nothing lasts longer than the process."""


def run_tick(graph: Graph, fed: Sequence[FedBatch], micros: int, journal: Journal) -> Ticked:
    """Run one tick over everything that was fed; on an error nothing has changed."""
    return run_atomically(graph, lambda: _stage(graph, fed, micros), TickEvent(micros, tuple(fed)), journal)


def run_atomically(graph: Graph, stage: Callable[[], StagedTick], event: Event, journal: Journal) -> Ticked:
    """Stage a tick, write its event, and make it final; an error before that undoes it, a later one is handed to the caller."""
    staged: StagedTick | None = None
    position = journal.position
    try:
        with plain_pages():
            staged = stage()
            journal.append(event)
            _finish(graph, staged)
    except BaseException as error:
        if staged is None or journal.position == position:
            graph.kernel.rollback()
            if staged is not None or isinstance(error, PenstockError) or not isinstance(error, Exception):
                raise
            raise unexpected(error, f"tick {graph.state.ticks + 1}") from error
        if isinstance(error, StateError):
            raise
        _finish(graph, staged)
        return replace(staged.ticked, interrupt=error)
    return staged.ticked


def maintain(graph: Graph) -> None:
    """Merge and compact state behind a tick or a registration."""
    try:
        with plain_pages():
            if graph.budget is None:
                graph.kernel.maintain(LIMITS.fuel)
            else:
                graph.budget.maintain(graph.kernel)
    except Exception:
        # The tick is final, and what was left undone is done after a later one.
        LOG.warning("state could not be merged after tick %d", graph.state.ticks, exc_info=True)


def _stage(graph: Graph, fed: Sequence[FedBatch], micros: int) -> StagedTick:
    started = perf_counter()
    state = graph.state
    tick = Tick(state.ticks + 1, max(micros, state.micros), watermarks(graph))
    admitted = _without_replays(graph, fed)
    on_time, late = _without_late(graph, admitted.batches)
    stepped = graph.kernel.step(_changes(graph, on_time), tick, optional=optional_views(graph))
    failed = suspensions(stepped.failures, tick.number)
    suspended = {**state.suspended, **failed}
    summary = _summary(graph, stepped, suspended, on_time, late, tick, started)
    memory = _memory(graph, fed, replace(admitted, batches=on_time), late, stepped)
    views = {name: delta for name, delta in stepped.outputs.items() if name in graph.views}
    return StagedTick(tick, Ticked(summary, views, suspended=failed), suspended, memory)


def stage_change(
    graph: Graph, fed: Sequence[FedBatch], changes: Mapping[str, Delta], tick: Tick
) -> StagedTick:
    """Stage what batches have changed together, which may be of several ticks; all of them count, and no view may fail."""
    started = perf_counter()
    stepped = graph.kernel.step(changes, tick)
    memory = _memory(graph, fed, _Admitted(list(fed)), (), stepped)
    return StagedTick(tick, Ticked(summed_up(tick, {}, started), {}), graph.state.suspended, memory)


def _finish(graph: Graph, staged: StagedTick) -> None:
    """Make the step final; after an interrupt it is called again."""
    graph.kernel.commit()
    for source in staged.memory:
        _remember(source)
    state = graph.state
    state.suspended = staged.suspended
    state.ticks, state.micros = staged.tick.number, staged.tick.micros


def _without_replays(graph: Graph, fed: Sequence[FedBatch]) -> _Admitted:
    admitted = _Admitted()
    for batch in fed:
        once = graph.spec(batch.source).dedup and len(batch.delta) > 0
        if not once or _admit_once(graph, admitted, batch):
            admitted.batches.append(batch)
    return admitted


def _admit_once(graph: Graph, admitted: _Admitted, batch: FedBatch) -> bool:
    """Whether a batch of a source with dedup is new; if so, its digest is noted."""
    digest = content_digest(batch.delta)
    earlier = [(at, fed) for at, fed in enumerate(admitted.batches) if fed.source == batch.source]
    cleared = any(_retracts(fed) for _, fed in earlier)
    in_this_tick = any(admitted.digests.get(at) == digest for at, _ in earlier)
    if in_this_tick or (digest in graph.sources[batch.source].state.seen and not cleared):
        return False
    if not _retracts(batch):
        admitted.digests[len(admitted.batches)] = digest
    else:
        for at, _ in earlier:
            admitted.digests.pop(at, None)
    return True


def _retracts(batch: FedBatch) -> bool:
    return bool((batch.delta.weights < 0).any())


def _without_late(
    graph: Graph, batches: Sequence[FedBatch]
) -> tuple[list[FedBatch], list[tuple[str, Sorted]]]:
    """The batches without rows that come too late, and by source what was late; the latest event time counts from the
    next tick on."""
    on_time: list[FedBatch] = []
    late: list[tuple[str, Sorted]] = []
    latest: dict[str, int | None] = {}
    for batch in batches:
        lateness = graph.spec(batch.source).lateness
        if lateness is not None and len(batch.delta):
            accepted_time = graph.sources[batch.source].state.latest_event_time
            parts = sort_out(lateness, accepted_time, latest.get(batch.source, accepted_time), batch.delta)
            latest[batch.source] = parts.latest_event_time
            late.append((batch.source, parts))
            batch = replace(batch, delta=parts.on_time)
        on_time.append(batch)
    return on_time, late


def watermarks(graph: Graph) -> tuple[tuple[str, int], ...]:
    """The event times before which sources accept nothing any more."""
    return tuple(
        (entry.name, entry.state.latest_event_time - lateness.delay)
        for entry in graph.sources.values()
        if (lateness := entry.spec.lateness) is not None and entry.state.latest_event_time is not None
    )


def _changes(graph: Graph, batches: Sequence[FedBatch]) -> dict[str, Delta]:
    """The change of every source."""
    deltas: dict[str, list[Delta]] = {}
    for batch in batches:
        if len(batch.delta):
            earlier = deltas.setdefault(batch.source, [])
            earlier.append(by_key(graph, batch, earlier) if batch.keys else batch.delta)
    return {name: concat(parts) for name, parts in deltas.items()}


def by_key(graph: Graph, batch: FedBatch, earlier: Sequence[Delta]) -> Delta:
    """The rows that a change by key retracts and inserts, behind earlier changes of the same tick."""
    entry = graph.sources[batch.source]
    lateness, accepted_time = entry.spec.lateness, entry.state.latest_event_time

    def changeable(values: Sequence[pa.Array]) -> Delta:
        """The rows with these keys; those behind the watermark are as late as a change of them would be."""
        rows = graph.kernel.lookup(batch.source, batch.keys, values)
        return rows if lateness is None else sort_out(lateness, accepted_time, accepted_time, rows).on_time

    return replace_by_key(batch.delta, batch.keys, earlier, changeable)


def _memory(
    graph: Graph,
    fed: Sequence[FedBatch],
    admitted: _Admitted,
    late: Sequence[tuple[str, Sorted]],
    stepped: Stepped,
) -> list[_Memory]:
    """What every source that was fed is to remember; a static table remembers nothing."""
    names = dict.fromkeys(batch.source for batch in fed if batch.source in graph.sources)
    return [
        _source_memory(
            graph.sources[name],
            [batch for batch in fed if batch.source == name],
            [(at, batch) for at, batch in enumerate(admitted.batches) if batch.source == name],
            digests=admitted.digests,
            late=[parts for source, parts in late if source == name],
            missing=stepped.missing.get(name),
        )
        for name in names
    ]


def _source_memory(
    entry: SourceEntry,
    fed: Sequence[FedBatch],
    admitted: Sequence[tuple[int, FedBatch]],
    *,
    digests: Mapping[int, bytes],
    late: Sequence[Sorted],
    missing: Delta | None,
) -> _Memory:
    state, lateness = entry.state, entry.spec.lateness
    quarantined = [] if missing is None else [QuarantinedRows(MISSING, missing)]
    late_rows = [parts.late for parts in late if len(parts.late)]
    if lateness is not None and state.latest_event_time is not None:
        quarantined += [
            QuarantinedRows(describe_late(lateness, state.latest_event_time), rows) for rows in late_rows
        ]
    epochs = {batch.query: batch.epoch + 1 for batch in fed if batch.query is not None}
    return _Memory(
        state,
        ordinal=newest(state.ordinal, last_ordinals(fed).get(entry.name)),
        feeders={**state.feeders, **epochs},
        latest_event_time=late[-1].latest_event_time if late else state.latest_event_time,
        late=state.late + sum(_rows(rows) for rows in late_rows),
        quarantine=state.quarantine.extended(quarantined),
        cleared=entry.spec.dedup and any(_retracts(batch) for _, batch in admitted),
        digests=[digests[at] for at, _ in admitted if at in digests],
        position=next(
            (batch.position for batch in reversed(fed) if batch.position is not None), state.position
        ),
    )


def _remember(memory: _Memory) -> None:
    state = memory.state
    state.ordinal, state.feeders = memory.ordinal, memory.feeders
    state.latest_event_time = memory.latest_event_time
    state.late, state.quarantine = memory.late, memory.quarantine
    state.position = memory.position
    if memory.cleared:
        state.seen.clear()
    for digest in memory.digests:
        state.seen.add(digest)


def last_ordinals(fed: Sequence[FedBatch]) -> dict[str, int]:
    """The highest ordinal of each source."""
    ordinals: dict[str, int] = {}
    for batch in fed:
        if batch.ordinal is not None:
            ordinals[batch.source] = max(batch.ordinal, ordinals.get(batch.source, batch.ordinal))
    return ordinals


def newest(ordinal: int | None, other: int | None) -> int | None:
    """The higher one of two ordinals."""
    return max((value for value in (ordinal, other) if value is not None), default=None)


def _summary(
    graph: Graph,
    stepped: Stepped,
    suspended: Mapping[str, Suspension],
    batches: Sequence[FedBatch],
    late: Sequence[tuple[str, Sorted]],
    tick: Tick,
    started: float,
) -> StepSummary:
    reached = [
        name
        for name, entry in graph.views.items()
        if entry.view.uses_time or any(relation in stepped.outputs for relation in entry.reads)
    ]
    summary = summed_up(tick, view_steps(graph, stepped, suspended, reached), started)
    return replace(
        summary,
        rows_in=sum(_rows(batch.delta) for batch in batches),
        late=sum(_rows(parts.late) for _, parts in late),
    )


def summed_up(tick: Tick, views: Mapping[str, ViewStep], started: float) -> StepSummary:
    """The summary of a tick to which no rows were fed."""
    return StepSummary(
        tick=tick.number,
        rows_in=0,
        rows_out=sum(view.inserted + view.retracted for view in views.values()),
        duration_ms=(perf_counter() - started) * 1000,
        views=views,
    )


def view_steps(
    graph: Graph, stepped: Stepped, suspended: Mapping[str, Suspension], reached: Collection[str]
) -> dict[str, ViewStep]:
    """What a tick did in every view; those that it did not reach are skipped."""
    steps: dict[str, ViewStep] = {}
    for name, entry in graph.views.items():
        if name not in reached or name in suspended:
            steps[name] = ViewStep(suspended=suspended.get(name))
            continue
        changed = [stepped.outputs[relation] for relation in entry.reads if relation in stepped.outputs]
        weights = stepped.outputs[name].weights if name in stepped.outputs else np.zeros(0, np.int64)
        steps[name] = ViewStep(
            rows_in=sum(map(_rows, changed)),
            inserted=int(weights[weights > 0].sum()),
            retracted=int(-weights[weights < 0].sum()),
            skipped=False,
            duration_ms=stepped.seconds.get(name, 0.0) * 1000,
        )
    return steps


def _rows(delta: Delta) -> int:
    return int(np.abs(delta.weights).sum())
