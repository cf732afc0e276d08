"""The names of a flow's sources and views: found whatever their case, as Spark does, and with a suggestion when they are not.

A name with points is `schema.table`: SQL writes its parts with points between them, or the whole in backquotes.
"""

from __future__ import annotations

from penstock.engine.spelling import registered
from penstock.engine.tick import Graph, SourceEntry, ViewEntry
from penstock.errors import ConfigError, suggest


def find_source(graph: Graph, name: str) -> SourceEntry:
    """A source by its name; ConfigError when there is none."""
    found = registered(name, graph.sources)
    if found is None:
        view = registered(name, graph.views)
        raise ConfigError(
            f"source '{name}' {'is not known' if view is None else 'is a view: only sources are fed'}",
            code="FLOW_UNKNOWN_SOURCE",
            hint=suggest(name, graph.sources, what="source"),
        )
    return graph.sources[found]


def find_view(graph: Graph, name: str) -> ViewEntry:
    """A view by its name; ConfigError when there is none."""
    found = registered(name, graph.views)
    if found is None:
        raise ConfigError(
            f"view '{name}' is not known",
            code="FLOW_UNKNOWN_VIEW",
            hint=suggest(name, graph.views, what="view"),
        )
    return graph.views[found]


def find_relation(graph: Graph, name: str) -> SourceEntry | ViewEntry:
    """A source or a view by its name; ConfigError when there is none."""
    known: dict[str, SourceEntry | ViewEntry] = {**graph.sources, **graph.views}
    found = registered(name, known)
    if found is None:
        raise ConfigError(
            f"there is no source or view '{name}'",
            code="FLOW_UNKNOWN_RELATION",
            hint=suggest(name, known, what="relation"),
        )
    return known[found]


def refuse_taken(graph: Graph, name: str) -> None:
    """Check a name for a new source or view; ConfigError when it is none, or when another one has it."""
    if not isinstance(name, str) or not all(part.strip() for part in name.split(".")):
        raise ConfigError(
            f"{name!r} is not a name",
            code="FLOW_NAME",
            hint="use a name such as orders, or schema.orders",
        )
    for kind, known in (("source", graph.sources), ("view", graph.views)):
        taken = registered(name, known)
        if taken is not None:
            raise ConfigError(
                f"there is a {kind} '{taken}' already",
                code="FLOW_NAME_TAKEN",
                hint="choose another name"
                + ("" if taken == name else "; names that differ only in case are one"),
            )
