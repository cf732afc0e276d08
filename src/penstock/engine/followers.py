"""The sinks of a flow: registered, started again with the flow, shown, and closed."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock import config
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, empty
from penstock.data.types import kernel_type
from penstock.engine import read
from penstock.engine.backlog import Backlog
from penstock.engine.event import DropSinkEvent, SinkEvent
from penstock.engine.follow import Follower
from penstock.engine.graph import Graph
from penstock.engine.names import position, registered, require_comparable, require_name
from penstock.engine.result import to_table
from penstock.engine.session import Session
from penstock.engine.sink_spec import SinkSpec, SinkState, savable_options
from penstock.engine.tick import Journal
from penstock.errors import ConfigError, PenstockError, StateError, suggest
from penstock.plan.unique import unique_columns
from penstock.sinks.base import QueryStatus
from penstock.sinks.key_change import require_unique
from penstock.sinks.retry import RetryPolicy, retry
from penstock.sinks.view_sink import ViewSink, ViewTarget, view_sink

LOG = logging.getLogger("penstock.flow")


@dataclass(frozen=True, slots=True)
class FlowAccess:
    """What the sinks of a flow need of it. The graph is read and changed under the lock."""

    lock: AbstractContextManager[Any]
    graph: Callable[[], Graph]
    journal: Callable[[], Journal]
    name: Callable[[], str | None]
    settings: config.Settings
    session: Callable[[], Session]


def pass_tick(graph: Graph, changes: Mapping[str, Delta]) -> None:
    """Note what the last tick did for the sinks that follow a view; doing it twice does no harm."""
    for sink in graph.state.sinks.values():
        spec, tick = sink.spec, graph.state.ticks
        moved = _note_sources(graph, sink) and spec.notes_sources
        change = changes.get(spec.view)
        if moved and change is None:
            change = empty([kernel_type(field.type) for field in graph.views[spec.view].fields])
        sink.backlog.pass_tick(tick, change, notable=moved)


def add_sink(graph: Graph, spec: SinkSpec) -> SinkState:
    """Have a sink, which lacks everything."""
    state = SinkState(spec, Backlog(graph.state.ticks, replaceable=spec.replaces))
    _note_sources(graph, state)
    graph.state.sinks[spec.name] = state
    return state


def _note_sources(graph: Graph, sink: SinkState) -> bool:
    """Remember what the view of a sink stands for now; False when that is what it was before. One that is suspended
    stands for what it stood for."""
    view = sink.spec.view
    if view in graph.state.suspended:
        return False
    return sink.note_sources(graph.state.ticks, graph.positions(view))


def refuse_followed(graph: Graph, view: str | None = None) -> None:
    """StateError when sinks follow a view, or any."""
    names = [name for name, sink in graph.state.sinks.items() if view in (None, sink.spec.view)]
    if names:
        listed = ", ".join(f"'{name}'" for name in names)
        raise StateError(
            f"{'the flow has' if view is None else f'view {view!r} is followed by'} the "
            f"sink{'s' if len(names) > 1 else ''} {listed}",
            code="FLOW_IN_USE",
            hint="drop what follows it first: " + "; ".join(f"flow.drop_sink({name!r})" for name in names),
        )


class Followers:
    """The sinks of one flow that run, by their names; which ones they are is read and changed under the lock of the flow."""

    def __init__(self, flow: FlowAccess) -> None:
        self._flow = flow
        self._running: dict[str, Follower] = {}
        self._stopped: dict[str, str] = {}  # why sinks of a flow that was opened do not run

    def register(
        self,
        view: str,
        kind: str,
        *,
        key: str | Sequence[str] | None,
        name: str | None,
        overwrite: bool,
        options: Mapping[str, Any],
    ) -> None:
        """Let a sink follow a view; it has all rows of the view when this returns. One that is there already goes on."""
        spec, sink = self._declared(view, kind, key=key, name=name, overwrite=overwrite, options=options)
        with self._flow.lock:
            sinks = self._flow.graph().state.sinks
            spelled = registered(spec.name, sinks)
            before = None if spelled is None else sinks[spelled]
        if before is not None:
            self._go_on(before, spec, sink)
        else:
            self._begin(spec, sink)

    def adopt(
        self, view: str, kind: str, *, name: str, options: Mapping[str, Any], take: Callable[[str, int], None]
    ) -> None:
        """Let a sink follow a view whose rows of now its place has already; `take` is given the id of the sink and
        the tick, and marks the place."""
        spec, sink = self._declared(view, kind, key=None, name=name, overwrite=False, options=options)
        with self._flow.lock:
            graph = self._flow.graph()
            take(spec.id, graph.state.ticks)
            self._flow.journal().append(SinkEvent(spec))
            state = add_sink(graph, spec)
        self._start(state, sink)

    def flush_one(self, name: str) -> None:
        """Wait until a sink has the ticks of now; raises what has ended it, or why it does not run."""
        with self._flow.lock:
            follower, stopped = self._running.get(name), self._stopped.get(name, "closed")
        if follower is None:
            raise StateError(f"sink '{name}' does not run: {stopped}", code="FLOW_SINK_STOPPED")
        follower.flush(None)

    def _declared(
        self,
        view: str,
        kind: str,
        *,
        key: str | Sequence[str] | None,
        name: str | None,
        overwrite: bool,
        options: Mapping[str, Any],
    ) -> tuple[SinkSpec, ViewSink]:
        flow = self._flow
        with flow.lock:
            entry = flow.graph().find_view(view)
            sink = view_sink(kind, options, flow.settings)
            names = [field.name for field in entry.fields]
            key_columns = [key] if isinstance(key, str) else list(key or ())
            positions = [position(column, names, of=f"view '{entry.name}'") for column in key_columns]
            if sink.needs_key and not positions:
                raise _no_key(kind, entry.name, names)
            require_comparable([entry.fields[at] for at in positions], of="the key of a sink")
            saved, withheld = savable_options(options)
            spec = SinkSpec(
                name=name or f"{entry.name}_{kind}",
                view=entry.name,
                kind=kind,
                key=tuple(names[at] for at in positions),
                id=uuid.uuid4().hex,
                options=saved,
                withheld=withheld,
                overwrite=overwrite,
                replaces=sink.replaces,
                notes_sources=sink.notes_sources,
            )
            require_name(spec.name)
            return spec, sink

    def _go_on(self, before: SinkState, spec: SinkSpec, sink: ViewSink) -> None:
        """Start a sink of a flow that was opened, or one that has ended; one that runs is left alone."""
        differences = before.spec.differences(spec)
        if differences:
            raise ConfigError(
                f"there is a sink '{before.spec.name}' already, and it is another one: {'; '.join(differences)}",
                code="FLOW_SINK_TAKEN",
                hint=f"choose another one with name=..., or flow.drop_sink({before.spec.name!r}) first",
            )
        with self._flow.lock:
            running = self._running.get(before.spec.name)
        if running is not None and running.error is None:
            return
        self._check(sink, self._target(before))
        self._start(before, sink)

    def _begin(self, spec: SinkSpec, sink: ViewSink) -> None:
        flow = self._flow
        target = self._target(SinkState(spec, Backlog(0, replaceable=True)))
        self._check(sink, target)
        with flow.lock:
            graph = flow.graph()
            rows = read.snapshot(graph, spec.view)
        if spec.key:
            require_unique(rows(), spec.key, where=f"view '{spec.view}'")
        with flow.lock:
            flow.journal().append(SinkEvent(spec))
            state = add_sink(graph, spec)
        follower = self._start(state, sink)
        try:
            follower.flush(None)
        except BaseException:
            self.drop(spec.name)
            raise

    def _check(self, sink: ViewSink, target: ViewTarget) -> None:
        try:
            retry(
                lambda: sink.check(target),
                status=QueryStatus(),
                description=sink.describe(),
                policy=RetryPolicy(sink.options.retry_for / 1000).at_start(),
                transient=lambda error: None if isinstance(error, PenstockError) else _closed(sink, error),
            )
        except PenstockError:
            raise
        except Exception as error:
            translated = sink.translate(error)
            if translated is None:
                raise
            raise translated from error
        finally:
            sink.close()

    def _start(self, state: SinkState, sink: ViewSink) -> Follower:
        state.backlog.begin()
        follower = Follower(
            state,
            sink,
            self._target(state),
            snapshot=lambda restart: self._snapshot(state, restart=restart),
            sync=lambda: self._flow.journal().sync(),
            rows_of_keys=lambda coming: self._rows_of_keys(state, coming),
        )
        with self._flow.lock:
            self._running[state.spec.name] = follower
            self._stopped.pop(state.spec.name, None)
        follower.start()
        return follower

    def _target(self, state: SinkState) -> ViewTarget:
        spec, name = state.spec, self._flow.name()
        with self._flow.lock:
            view = self._flow.graph().find_view(spec.view).view
        fields, unique = view.fields, unique_columns(view.root)
        if unique is not None and any(at >= len(fields) for at in unique):
            unique = None
        return ViewTarget(
            id=spec.id,
            name=f"view {spec.view}" + ("" if name is None else f" of flow {name}"),
            fields=tuple(fields),
            keys=spec.key,
            overwrite=spec.overwrite and state.backlog.mark is None,
            unique=None if unique is None else tuple(fields[at].name for at in unique),
            spark=lambda: self._flow.session().spark,
            # The table of a lake view is made before its sink, whose mark may be lost with the process.
            is_begun=lambda: spec.name == spec.view == spec.options.get("table"),
            sources=state.sources_at,
        )

    def _snapshot(self, state: SinkState, *, restart: bool) -> tuple[int, Callable[[], pa.Table]]:
        with self._flow.lock:
            graph = self._flow.graph()
            rows, tick = read.snapshot(graph, state.spec.view), graph.state.ticks
            if restart:
                state.backlog.restart(tick)
            return tick, rows

    def _rows_of_keys(self, state: SinkState, coming: Delta) -> pa.Table:
        with self._flow.lock:
            graph = self._flow.graph()
            entry = graph.find_view(state.spec.view)
            names = [field.name for field in entry.fields]
            positions = tuple(names.index(key) for key in state.spec.key)
            keys = consolidate(
                coming.select(positions)
            )  # a look-up of a key that is named twice gives its rows twice
            rows = graph.kernel.lookup(entry.name, positions, keys.columns)
        return to_table(consolidate(rows), entry.fields)

    def start_all(self) -> None:
        """Start the sinks of a flow that was opened; those with secrets wait until they are given again."""
        with self._flow.lock:
            states = list(self._flow.graph().state.sinks.values())
        for state in states:
            spec = state.spec
            state.backlog.begin()
            if spec.withheld:
                self._stop(
                    spec, f"its {' and '.join(spec.withheld)} has a secret, which the flow does not keep"
                )
                continue
            try:
                self._start(state, view_sink(spec.kind, spec.options, self._flow.settings))
            except PenstockError as error:
                self._stop(spec, str(error))

    def _stop(self, spec: SinkSpec, why: str) -> None:
        with self._flow.lock:
            self._stopped[spec.name] = why
        LOG.warning(
            "sink '%s' of view '%s' waits until flow.sink(%r, %r, ...) is called again: %s",
            spec.name,
            spec.view,
            spec.view,
            spec.kind,
            why,
        )

    def drop(self, name: str) -> None:
        """Take a sink out, with its mark; the rows that it has stored stay."""
        flow = self._flow
        with flow.lock:
            sinks = flow.graph().state.sinks
            spelled = registered(name, sinks)
            if spelled is None:
                raise ConfigError(
                    f"there is no sink '{name}'",
                    code="FLOW_UNKNOWN_SINK",
                    hint=suggest(name, list(sinks), what="sink"),
                )
            flow.journal().append(DropSinkEvent(spelled))
            del sinks[spelled]
            follower = self._running.pop(spelled, None)
            self._stopped.pop(spelled, None)
        if follower is not None:
            follower.cancel()
            follower.forget()

    def flush(self, timeout: float | None) -> bool:
        """Wait until all sinks have the ticks of now; False when the time is over. Raises what has ended one."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._flow.lock:
            running = list(self._running.values())
        return all(
            follower.flush(None if deadline is None else max(0.0, deadline - time.monotonic()))
            for follower in running
        )

    def describe(self, view: str) -> tuple[str, ...]:
        """The sinks of a view, a line each."""
        with self._flow.lock:
            sinks = [
                (state.spec, self._running.get(name), self._stopped.get(name, "closed"))
                for name, state in self._flow.graph().state.sinks.items()
                if state.spec.view == view
            ]
        return tuple(
            f"sink {spec.name}: {spec.kind}, not started: {stopped}"
            if follower is None
            else follower.describe()
            for spec, follower, stopped in sinks
        )

    def metrics(self) -> dict[str, float]:
        """How far each sink is, by Prometheus names."""
        values: dict[str, float] = {}
        with self._flow.lock:
            sinks = [
                (name, state, self._running.get(name))
                for name, state in self._flow.graph().state.sinks.items()
            ]
        for name, state, follower in sinks:
            backlog = state.backlog
            labels = f'{{sink="{read.label(name)}",view="{read.label(state.spec.view)}"}}'
            is_running = follower is not None and follower.error is None
            values[f"penstock_flow_sink_running{labels}"] = float(is_running)
            values[f"penstock_flow_sink_lag_ticks{labels}"] = backlog.lag
            values[f"penstock_flow_sink_tick{labels}"] = -1 if backlog.mark is None else backlog.mark
            values[f"penstock_flow_sink_waiting_bytes{labels}"] = backlog.bytes
            values[f"penstock_flow_sink_retries_total{labels}"] = (
                0 if follower is None else follower.status.retries
            )
        return values

    def close(self) -> None:
        """Wait until the sinks have everything, and end them; raises the first error behind all."""
        with self._flow.lock:
            running = list(self._running.values())
            self._running.clear()
        errors: list[BaseException] = []
        for follower in running:
            try:
                follower.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _closed(sink: ViewSink, error: Exception) -> str | None:
    sink.close()
    return sink.transient(error)


def _no_key(kind: str, view: str, names: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"the {kind} sink stores rows by their key, and view '{view}' was given none",
        code="FLOW_SINK_KEY",
        hint=f"name the columns that tell its rows apart: key=[{names[0]!r}]; columns are {', '.join(names)}",
    )
