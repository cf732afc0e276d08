"""One tick: validate, step, sum up, commit. The order of things that must happen together is here and nowhere else.

1. Leave out batches that came before, and rows that come too late.
2. Step the kernel, without the views that fail and may be suspended.
3. Sum up what happened, and what the flow must remember of it.
4. Commit the kernel.
5. Remember.

All that may fail is before 4: an error in 1 to 3 leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from penstock.circuit.kernel import Stepped
from penstock.data.delta import Delta, concat
from penstock.data.huge_pages import plain_pages
from penstock.data.tick import Tick
from penstock.engine.graph import Fed, Graph
from penstock.engine.lateness import Sorted, describe_late, sort_out
from penstock.engine.quarantine import QuarantinedRows
from penstock.engine.source import content_digest
from penstock.engine.summary import StepSummary, ViewStep
from penstock.engine.suspension import optional_views, suspensions
from penstock.engine.upsert import replace_by_key
from penstock.errors import StateError
from penstock.plan.suspension import Suspension

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

    batches: list[Fed] = field(default_factory=list)
    digests: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Memory:
    """What the flow remembers of a tick."""

    ordinals: Mapping[str, int]
    epochs: Mapping[tuple[str, str], int]  # by source and streaming query, how many are in
    marks: Mapping[str, int | None]
    late: Mapping[str, int]
    quarantined: Sequence[tuple[str, QuarantinedRows]]
    batches: Sequence[Fed]
    digests: Mapping[int, bytes]  # of batches to know again, by their position


def run_tick(graph: Graph, fed: Sequence[Fed], micros: int) -> Ticked:
    """Run one tick over everything that was fed; on an error nothing has changed."""
    started = perf_counter()
    state = graph.state
    tick = Tick(state.ticks + 1, max(micros, state.micros))
    with plain_pages():
        admitted = _without_replays(graph, fed)
        on_time, late = _without_late(graph, admitted.batches)
        try:
            stepped = graph.kernel.step(_changes(graph, on_time), tick, optional=optional_views(graph))
            suspended = suspensions(stepped.failures, tick.number)
            summary = _summary(graph, stepped, {**state.suspended, **suspended}, on_time, late, tick, started)
            memory = _memory(graph, fed, replace(admitted, batches=on_time), late, stepped)
            views = {name: delta for name, delta in stepped.outputs.items() if name in graph.views}
        except BaseException:
            graph.kernel.rollback()
            raise
        interrupt = commit(graph)
    _remember(graph, memory)
    state.suspended |= suspended
    state.ticks, state.micros = tick.number, tick.micros
    return Ticked(summary, views, interrupt, suspended)


def commit(graph: Graph) -> BaseException | None:
    """Make the step final; an interrupt comes back as a value, because the step is final all the same."""
    try:
        graph.kernel.commit()
    except StateError:
        raise
    except BaseException as interrupt:
        return interrupt
    return None


def _without_replays(graph: Graph, fed: Sequence[Fed]) -> _Admitted:
    admitted = _Admitted()
    for batch in fed:
        once = graph.spec(batch.source).dedup and len(batch.delta) > 0
        if not once or _admit_once(graph, admitted, batch):
            admitted.batches.append(batch)
    return admitted


def _admit_once(graph: Graph, admitted: _Admitted, batch: Fed) -> bool:
    """Whether a batch of a source with dedup is new; if so, its digest is noted."""
    digest = content_digest(batch.delta)
    earlier = [(at, one) for at, one in enumerate(admitted.batches) if one.source == batch.source]
    cleared = any(_retracts(one) for _, one in earlier)
    in_this_tick = any(admitted.digests.get(at) == digest for at, _ in earlier)
    if in_this_tick or (digest in graph.sources[batch.source].state.seen and not cleared):
        return False
    if not _retracts(batch):
        admitted.digests[len(admitted.batches)] = digest
    else:
        for at, _ in earlier:
            admitted.digests.pop(at, None)
    return True


def _retracts(batch: Fed) -> bool:
    return bool((batch.delta.weights < 0).any())


def _without_late(graph: Graph, batches: Sequence[Fed]) -> tuple[list[Fed], list[tuple[str, Sorted]]]:
    """The batches without rows that come too late, and by source what was late; the mark counts from the next tick on."""
    on_time: list[Fed] = []
    late: list[tuple[str, Sorted]] = []
    latest: dict[str, int | None] = {}
    for batch in batches:
        lateness = graph.spec(batch.source).lateness
        if lateness is not None and len(batch.delta):
            mark = graph.sources[batch.source].state.mark
            parts = sort_out(lateness, mark, latest.get(batch.source, mark), batch.delta)
            latest[batch.source] = parts.mark
            late.append((batch.source, parts))
            batch = replace(batch, delta=parts.on_time)
        on_time.append(batch)
    return on_time, late


def _changes(graph: Graph, batches: Sequence[Fed]) -> dict[str, Delta]:
    """The change of every source."""
    deltas: dict[str, list[Delta]] = {}
    for batch in batches:
        if len(batch.delta):
            earlier = deltas.setdefault(batch.source, [])
            earlier.append(_by_key(graph, batch, earlier) if batch.keys else batch.delta)
    return {name: concat(parts) for name, parts in deltas.items()}


def _by_key(graph: Graph, batch: Fed, earlier: Sequence[Delta]) -> Delta:
    return replace_by_key(
        batch.delta,
        batch.keys,
        earlier,
        lambda values: graph.kernel.lookup(batch.source, batch.keys, values),
    )


def _memory(
    graph: Graph,
    fed: Sequence[Fed],
    admitted: _Admitted,
    late: Sequence[tuple[str, Sorted]],
    stepped: Stepped,
) -> _Memory:
    quarantined = [(name, QuarantinedRows(MISSING, rows)) for name, rows in stepped.missing.items()]
    late_rows: dict[str, int] = {}
    for name, parts in late:
        lateness, mark = graph.spec(name).lateness, graph.sources[name].state.mark
        if len(parts.late) and mark is not None and lateness is not None:
            quarantined.append((name, QuarantinedRows(describe_late(lateness, mark), parts.late)))
            late_rows[name] = late_rows.get(name, 0) + _rows(parts.late)
    return _Memory(
        ordinals=last_ordinals(fed),
        epochs={(batch.source, batch.query): batch.epoch + 1 for batch in fed if batch.query is not None},
        marks={name: parts.mark for name, parts in late},
        late=late_rows,
        quarantined=quarantined,
        batches=admitted.batches,
        digests=admitted.digests,
    )


def last_ordinals(fed: Sequence[Fed]) -> dict[str, int]:
    """The highest ordinal of each source."""
    ordinals: dict[str, int] = {}
    for batch in fed:
        if batch.ordinal is not None:
            ordinals[batch.source] = max(batch.ordinal, ordinals.get(batch.source, batch.ordinal))
    return ordinals


def _remember(graph: Graph, memory: _Memory) -> None:
    for position, batch in enumerate(memory.batches):
        if graph.spec(batch.source).dedup:
            seen = graph.sources[batch.source].state.seen
            if _retracts(batch):
                seen.clear()
            elif position in memory.digests:
                seen.add(memory.digests[position])
    for name, part in memory.quarantined:
        graph.sources[name].state.quarantine.add(part.reason, part.rows)
    for name, mark in memory.marks.items():
        graph.sources[name].state.mark = mark
    for name, rows in memory.late.items():
        graph.sources[name].state.late += rows
    remember_ordinals(graph, memory.ordinals)
    for (source, query), epochs in memory.epochs.items():
        graph.sources[source].state.feeders[query] = epochs


def remember_ordinals(graph: Graph, ordinals: Mapping[str, int]) -> None:
    """Note how far sources were fed."""
    for name, ordinal in ordinals.items():
        state = graph.sources[name].state
        state.ordinal = ordinal if state.ordinal is None else max(state.ordinal, ordinal)


def _summary(
    graph: Graph,
    stepped: Stepped,
    suspended: Mapping[str, Suspension],
    batches: Sequence[Fed],
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
