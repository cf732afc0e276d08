"""Views that ticks go on without: which may be left out, why one was, and what goes on with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from penstock.circuit.kernel import ViewFailure
from penstock.engine.graph import Graph
from penstock.errors import InternalError, PenstockError, StateError
from penstock.plan.suspension import Suspension


def optional_views(graph: Graph) -> frozenset[str]:
    """The views that a tick may leave out."""
    return frozenset(name for name, entry in graph.views.items() if entry.on_error == "suspend")


def suspensions(failures: Mapping[str, ViewFailure], tick: int) -> dict[str, Suspension]:
    """What is noted of views that failed in a tick."""
    return {name: _suspension(failure, tick) for name, failure in failures.items()}


def refuse_suspended(graph: Graph, view: str, reads: Collection[str]) -> None:
    """StateError when a view would read one that is suspended: its first rows would be of another tick than all others."""
    stopped = [name for name in graph.views if name in reads and name in graph.state.suspended]
    if stopped:
        raise StateError(
            f"view '{stopped[0]}' is {graph.state.suspended[stopped[0]]}",
            code="FLOW_SUSPENDED",
            where=f"view '{view}'",
            hint=f"flow.resume_view({_root(graph, stopped[0])!r}) lets it go on",
        )


def resumed_with(graph: Graph, name: str) -> list[str]:
    """A suspended view, and those that were suspended because of it and read no other suspended view.

    StateError when the view is not suspended, or reads a view that is.
    """
    suspended = graph.state.suspended
    if name not in suspended:
        raise StateError(
            f"view '{name}' is not suspended",
            code="FLOW_NOT_SUSPENDED",
            hint="flow.explain(view).suspended says which views are",
        )
    refuse_suspended(graph, name, graph.views[name].reads)
    views = [name]
    with_it = [view for view in graph.views if view in suspended and suspended[view].because == name]
    for view in with_it:
        if not any(read in suspended and read not in views for read in graph.views[view].reads):
            views.append(view)
    return views


def after_resume(
    graph: Graph, resumed: Collection[str], failures: Mapping[str, ViewFailure]
) -> dict[str, Suspension]:
    """The views that are still suspended, since the tick that they are: with a new error, or because of another view."""
    before = graph.state.suspended
    after: dict[str, Suspension] = {}
    for name in graph.views:
        if name not in before or name in resumed:
            continue
        since, because = before[name].tick, before[name].because
        after[name] = before[name]
        if name in failures:
            after[name] = _suspension(failures[name], since)
        elif because in resumed:
            another = next(read for read in after if read in graph.views[name].reads)
            after[name] = replace(after[another], tick=since, because=after[another].because or another)
        elif because is not None and because in failures:
            after[name] = replace(after[because], tick=since, because=because)
    return after


def _root(graph: Graph, name: str) -> str:
    """The view that must be resumed first."""
    return graph.state.suspended[name].because or name


def _suspension(failure: ViewFailure, tick: int) -> Suspension:
    error = failure.error
    if not isinstance(error, PenstockError):
        message = f"{type(error).__name__}: {error}"
        return Suspension(tick, InternalError.default_code, message, because=failure.because)
    return Suspension(tick, error.code, error.message, error.where, failure.because)
