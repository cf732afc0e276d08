"""The definition of a flow as JSON text: its sources, and its views with the plans that Spark made for them.

A flow that is rebuilt from its definition ticks on the saved plans, so it starts no JVM, unless a view has a part that only
Spark can compute. The definition holds no rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.engine.graph import Graph, OnError
from penstock.engine.lateness import Lateness
from penstock.engine.source import SourceSpec, SourceTable
from penstock.errors import StateError
from penstock.plan import codec
from penstock.plan import node as plan
from penstock.plan.node import Field

VERSION = 1


@dataclass(frozen=True, slots=True)
class Definition:
    """What was registered, in its order."""

    name: str | None
    sources: tuple[SourceSpec, ...]
    views: tuple[plan.View, ...]
    on_error: Mapping[str, OnError]  # of each view


def dumps(graph: Graph, name: str | None) -> str:
    """Return the definition of a flow; StateError when a view cannot be made again without its Python code."""
    views = [entry.view for entry in graph.views.values()]
    for view in views:
        require_savable(view)
    saved = {
        "version": VERSION,
        "name": name,
        "sources": [source_to_json(entry.spec) for entry in graph.sources.values()],
        "views": [json.loads(codec.dumps(view)) for view in views],
        "on_error": {name: entry.on_error for name, entry in graph.views.items()},
    }
    return json.dumps(saved, allow_nan=False, separators=(",", ":"))


def require_savable(view: plan.View) -> None:
    """StateError when a view cannot be made again without its Python code."""
    if not view.sql and (view.statics or any(spark_parts(view.root))):
        raise StateError(
            f"view '{view.name}' was made of a DataFrame and needs Spark in its ticks; no text says how to ask for it again",
            code="FLOW_NOT_SAVABLE",
            hint="register it by SQL",
        )


def loads(text: str) -> Definition:
    """Return the definition of a JSON text; what is not one, or not of this version, is a StateError."""
    try:
        saved = json.loads(text)
        version = saved["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise StateError(
            f"this is not the definition of a flow: {error}",
            code="STATE_DEFINITION",
            hint="flow.definition() gives one",
        ) from None
    if version != VERSION:
        raise StateError(
            f"the definition has version {version!r}; this penstock reads version {VERSION}",
            code="STATE_DEFINITION_VERSION",
            hint="open it with the version that wrote it, or register the views again",
        )
    return Definition(
        saved["name"],
        tuple(source_from_json(source) for source in saved["sources"]),
        tuple(codec.loads(json.dumps(view)) for view in saved["views"]),
        saved.get("on_error", {}),
    )


def needs_spark(view: plan.View) -> bool:
    """Whether a view must ask Spark before its first tick: for a static table, or for what an operator gives of no rows."""
    return bool(view.statics) or any(not part.stateless for part in spark_parts(view.root))


def spark_parts(node: plan.Node) -> Iterator[plan.Spark]:
    """Yield the parts of a plan that Spark computes."""
    if isinstance(node, plan.Spark):
        yield node
    for child in plan.children(node):
        yield from spark_parts(child)


def source_to_json(spec: SourceSpec) -> dict[str, Any]:
    """A source as a JSON value."""
    fields = [[field.name, field.type, field.nullable] for field in spec.fields]
    return {**asdict(spec), "fields": fields}


def source_from_json(saved: Mapping[str, Any]) -> SourceSpec:
    """The source of a JSON value."""
    fields = tuple(Field(*field) for field in saved["fields"])
    late = saved["lateness"]
    table = saved.get("table")
    typed = {
        "table": None if table is None else SourceTable(**{**table, "ids": tuple(table["ids"])}),
        "fields": fields,
        "primary_key": tuple(saved["primary_key"]),
        "lateness": None if late is None else Lateness(**late),
    }
    return SourceSpec(**{**saved, **typed})
