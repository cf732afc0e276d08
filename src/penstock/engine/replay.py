"""Bring a flow back: its checkpoint, then the events behind it, applied as they were the first time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from penstock.circuit.budget import MemoryBudget
from penstock.circuit.in_process import InProcess
from penstock.circuit.kernel import Kernel
from penstock.circuit.local import LocalKernel
from penstock.circuit.sharded import ShardedKernel, saved_shards
from penstock.data.delta import Delta
from penstock.engine import definition, registration
from penstock.engine.checkpoint import FlowCheckpoints, SavedFlow
from penstock.engine.directory import FlowDirectory, contents, read_only_directory
from penstock.engine.event import (
    ClearEvent,
    DropEvent,
    DropSinkEvent,
    Event,
    RecomputeEvent,
    RejectEvent,
    ResumeEvent,
    SinkEvent,
    SourceEvent,
    TickEvent,
    ViewEvent,
)
from penstock.engine.flow_state import FlowState
from penstock.engine.followers import add_sink, pass_tick
from penstock.engine.full_checkpoint import SavedFull, SavedView
from penstock.engine.graph import FedBatch, Graph, OnError
from penstock.engine.quarantine import QuarantinedRows
from penstock.engine.resume import run_resume
from penstock.engine.session import Session
from penstock.engine.stretch import replay_all
from penstock.engine.tick import NoJournal, Ticked, maintain, newest, run_tick
from penstock.errors import PenstockError
from penstock.plan import node as plan
from penstock.state.scratch import using

OpenSession = Callable[[], Session]
MakeKernel = Callable[[], Kernel]


def opened(
    directory: FlowDirectory,
    session: OpenSession,
    budget: MemoryBudget | None = None,
    make_kernel: MakeKernel | None = None,
) -> tuple[Graph, str | None]:
    """The flow of a directory, as it was when it was last open, and its name."""
    flow = opened_at_last_epoch(directory, session, budget, make_kernel)
    return flow.graph, flow.name


@dataclass(frozen=True, slots=True)
class Opened:
    """The flow of a directory. `last` is what the last epoch of a streaming query has changed; None when it is behind
    a checkpoint, or nobody asked."""

    graph: Graph
    name: str | None
    last: Ticked | None = None


def opened_at_last_epoch(
    directory: FlowDirectory,
    session: OpenSession,
    budget: MemoryBudget | None = None,
    make_kernel: MakeKernel | None = None,
    *,
    is_epoch: Callable[[TickEvent], bool] = lambda event: False,
) -> Opened:
    """The flow of a directory, as it was when it was last open, with the changes of the last of the ticks that are epochs."""
    saved = directory.checkpoints.newest()
    if saved is None:
        kernel = LocalKernel() if make_kernel is None else make_kernel()
        graph, name, first = Graph(kernel, budget=budget), None, 1
    else:
        graph, name = rebuilt(saved, session, budget, make_kernel)
        first = saved.flow["log"]
    with _closed_on_error(graph.kernel):
        if saved is not None:
            directory.checkpoints.continue_from(saved, graph.kernel)
        last: Ticked | None = None
        tail: list[Event] = []
        events_before = _before_last(directory.events(first), is_epoch, tail)
        for are_ticks, events in groupby(events_before, lambda event: isinstance(event, TickEvent)):
            with graph.kernel.together() if are_ticks else nullcontext():
                replay_all(graph, events, lambda event: apply(graph, event, session))
        for event in tail:
            if last is None and isinstance(event, TickEvent):
                last = run_tick(graph, event.fed, event.micros, NoJournal())
                pass_tick(graph, last.changes)
                maintain(graph)
            else:
                apply(graph, event, session)
    return Opened(graph, name, last)


def _before_last(
    events: Iterator[Event], is_epoch: Callable[[TickEvent], bool], tail: list[Event]
) -> Iterator[Event]:
    """Yield the events before the last one that is an epoch; that one and those behind it are left in `tail`."""
    for event in events:
        if isinstance(event, TickEvent) and is_epoch(event):
            yield from tail
            tail[:] = [event]
        elif tail:
            tail.append(event)
        else:
            yield event


@contextmanager
def _closed_on_error(kernel: Kernel) -> Iterator[None]:
    """Let a kernel leave nothing behind when the body fails."""
    try:
        yield
    except BaseException:
        kernel.close()
        raise


def reading(
    path: Path, session: OpenSession, budget: MemoryBudget | None = None
) -> tuple[FlowDirectory, Graph, str | None]:
    """The flow of a directory as it is now, which another process may have open: directory, graph and name.

    A checkpoint that the other one takes meanwhile may take files away; then the newer ones are read.
    """
    while True:
        before = contents(path)
        directory = read_only_directory(path)
        try:
            graph, name = opened(directory, session, budget)
        except (PenstockError, OSError):
            directory.close()
            if contents(path) == before:
                raise
        else:
            return directory, graph, name


def restored(
    checkpoints: FlowCheckpoints,
    session: OpenSession,
    budget: MemoryBudget | None = None,
    make_kernel: MakeKernel | None = None,
) -> tuple[Graph, str | None]:
    """The flow of the newest checkpoint, without sinks, and its name; the next checkpoint there builds on it."""
    saved = checkpoints.require()
    graph, name = rebuilt(saved, session, budget, make_kernel)
    graph.state.sinks.clear()
    with _closed_on_error(graph.kernel):
        checkpoints.continue_from(saved, graph.kernel)
    return graph, name


def rebuilt_full(
    saved: SavedFull,
    session: OpenSession,
    budget: MemoryBudget | None = None,
    make_kernel: MakeKernel = LocalKernel,
) -> tuple[Graph, str | None]:
    """The graph of a full checkpoint, and the name of the flow: every state but the rows of sources is filled from them.

    Views have the time of the flow, which is that of its last tick or registration.
    """
    graph = Graph(make_kernel(), state=saved.state, budget=budget)
    graph.state.sinks.clear()
    with _closed_on_error(graph.kernel):
        _fill(graph, saved, session)
    return graph, saved.name


def _fill(graph: Graph, saved: SavedFull, session: OpenSession) -> None:
    if graph.state.recomputing:
        graph.kernel.recompute_always()
    for spec in saved.sources:
        registration.add_source(graph, spec)
        graph.kernel.put(spec.name, saved.source_rows(spec))
        maintain(graph)
    for view in saved.views:
        _install(
            graph,
            _planned(graph, view, session),
            view.on_error,
            graph.state.micros,
            session,
            saved.static_rows,
        )
        if view.name in graph.state.suspended:
            graph.kernel.put(view.name, saved.last_rows(graph.views[view.name].view))
        maintain(graph)


def _planned(graph: Graph, view: SavedView, session: OpenSession) -> plan.View:
    """The plan of a view: the one that was saved, or another one of the same SQL when this version cannot read it."""
    if view.plan is not None:
        return view.plan
    names, statics = registration.relations(graph), list(graph.statics)
    return registration.plan_query(
        session(), view.name, view.sql, names, statics, variables=view.variables
    ).view


def rebuilt(
    saved: SavedFlow,
    session: OpenSession,
    budget: MemoryBudget | None = None,
    make_kernel: MakeKernel | None = None,
) -> tuple[Graph, str | None]:
    """The graph of a checkpoint, with its rows, and the name of the flow; without `make_kernel` in this process, in
    shards if it was."""
    flow = definition.loads(saved.flow["definition"])
    kernel = _kernel_of(saved, budget) if make_kernel is None else make_kernel()
    graph = Graph(kernel, state=FlowState.from_dict(saved.flow["state"]), budget=budget)
    with _closed_on_error(kernel):
        kernel.load(saved.images)
        if graph.state.recomputing:
            kernel.recompute_always()
        with nullcontext() if budget is None else using(budget.scratch):
            for spec in flow.sources:
                registration.add_source(graph, spec)
            for view in flow.views:
                _install(graph, view, flow.on_error.get(view.name, "reject"), graph.state.micros, session)
        kernel.load({})
        if budget is not None:
            budget.relieve(kernel)
    return graph, flow.name


def _kernel_of(saved: SavedFlow, budget: MemoryBudget | None) -> Kernel:
    """A kernel in this process that can load the states of a checkpoint as they are."""
    shards = saved_shards(saved.images)
    if shards is None:
        return LocalKernel()
    return ShardedKernel(InProcess(shards, memory=None if budget is None else budget.size))


def apply(graph: Graph, event: Event, session: OpenSession) -> None:
    """Let an event happen again."""
    match event:
        case TickEvent():
            ticked = run_tick(graph, event.fed, event.micros, NoJournal())
            pass_tick(graph, ticked.changes)
        case SourceEvent():
            registration.add_source(graph, event.spec)
        case ViewEvent():
            _install(graph, event.view, event.on_error, event.micros, session, lambda _: dict(event.statics))
        case DropEvent():
            drop = registration.drop_view if event.is_view else registration.drop_source
            drop(graph, event.name)
        case ResumeEvent():
            pass_tick(graph, run_resume(graph, event.name, NoJournal()).changes)
        case RejectEvent():
            reject(graph, event.batch, event.reason)
        case ClearEvent():
            graph.sources[event.source].state.quarantine.clear()
        case RecomputeEvent():
            recompute_always(graph)
        case SinkEvent():
            add_sink(graph, event.spec)
        case DropSinkEvent():
            del graph.state.sinks[event.name]
    if isinstance(event, TickEvent | ResumeEvent | ViewEvent):
        maintain(graph)


def reject(graph: Graph, batch: FedBatch, reason: str) -> None:
    """Quarantine a batch; its ordinal counts as done."""
    state = graph.sources[batch.source].state
    quarantine = state.quarantine.extended([QuarantinedRows(reason, batch.delta)])
    ordinal = newest(state.ordinal, batch.ordinal)
    # Assignments only, so that an interrupt cannot come in between.
    state.quarantine, state.ordinal = quarantine, ordinal
    state.rejected += 1


def recompute_always(graph: Graph) -> None:
    """From now on recompute every dirty view from all rows and diff."""
    graph.kernel.recompute_always()
    graph.state.recomputing = True


def _install(
    graph: Graph,
    view: plan.View,
    on_error: OnError,
    micros: int,
    session: OpenSession,
    statics: Callable[[Sequence[str]], Mapping[str, Delta]] | None = None,
) -> None:
    """Register a view by its saved plan; static tables have the rows of then."""
    names, static_names = registration.relations(graph), list(graph.statics)
    prepared = registration.saved_view(session, view, names, static_names)
    rows = {} if statics is None else statics([entry.spec.name for entry, _ in prepared.statics])
    loaded = tuple((entry, rows.get(entry.spec.name, current)) for entry, current in prepared.statics)
    registration.install(graph, replace(prepared, statics=loaded, on_error=on_error), micros)
