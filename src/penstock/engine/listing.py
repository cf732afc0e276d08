"""What there is in a flow: its sources and its views, as values for lists and descriptions."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.graph import Graph, OnError, SourceEntry, ViewEntry
from penstock.functions import aggregates
from penstock.plan.explain import Explanation, Tier, explain
from penstock.plan.node import Fields, View
from penstock.plan.suspension import Suspension


@dataclass(frozen=True, slots=True)
class SourceListing:
    """A source: how it was declared, and how many rows it holds."""

    name: str
    fields: Fields
    primary_key: tuple[str, ...]
    options: dict[str, object]
    """Those that differ from the defaults, by the names that SQL has for them."""
    rows: int
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ViewListing:
    """A view: its query, what it reads, who computes it, and how many rows it has."""

    name: str
    fields: Fields
    tier: Tier
    reads: tuple[str, ...]
    statics: tuple[str, ...]
    rows: int
    on_error: OnError
    suspended: Suspension | None
    query: str


def list_sources(graph: Graph) -> list[SourceListing]:
    """The sources in the order of their registration."""
    return [_source(graph, entry) for entry in graph.sources.values()]


def list_views(graph: Graph) -> list[ViewListing]:
    """The views in the order of their registration."""
    return [_view(graph, entry) for entry in graph.views.values()]


def explain_view(graph: Graph, view: View) -> Explanation:
    """The operators of a view that is registered, or could be."""
    suspended = graph.state.suspended.get(view.name)
    return explain(
        view,
        cost=aggregates.cost,
        relations=graph.distributions(),
        times=graph.event_times(),
        suspended=suspended,
    )


def _source(graph: Graph, entry: SourceEntry) -> SourceListing:
    spec = entry.spec
    options: dict[str, object] = {}
    if spec.table is not None:
        options["table"] = spec.table.name
        options["version"] = entry.state.position or None
    if spec.dedup:
        options["dedup"] = True
    if spec.retain != "all":
        options["retain"] = spec.retain
    if spec.on_missing_delete != "reject":
        options["on_missing_delete"] = spec.on_missing_delete
    if spec.lateness is not None:
        options["lateness"] = f"{spec.lateness.delay / 1_000_000:g} seconds"
        options["event_time"] = spec.fields[spec.lateness.column].name
    readers = tuple(graph.readers(spec.name))
    return SourceListing(spec.name, spec.fields, spec.primary_key, options, _count(graph, spec.name), readers)


def _view(graph: Graph, entry: ViewEntry) -> ViewListing:
    view = entry.view
    return ViewListing(
        view.name,
        view.fields,
        explain_view(graph, view).tier,
        tuple(sorted(entry.reads - set(view.statics))),
        view.statics,
        _count(graph, view.name),
        entry.on_error,
        graph.state.suspended.get(view.name),
        " ".join(view.sql.split()),
    )


def _count(graph: Graph, name: str) -> int:
    """How many rows there are. Cost: data."""
    return int(graph.kernel.rows(name).weights.sum())
