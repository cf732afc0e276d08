"""Bring sources and views into a flow's circuit, whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.circuit.compile import Compiler, types_of
from penstock.data.conform import conform
from penstock.data.delta import Delta
from penstock.engine.session import Session
from penstock.engine.source import SourceSpec
from penstock.engine.tick import Graph, SourceEntry, ViewEntry, source_owner, view_owner
from penstock.operators.arrange import Arrange
from penstock.operators.base import Tick
from penstock.operators.output import Output
from penstock.operators.source import Source
from penstock.plan import node as plan
from penstock.spark import catalyst
from penstock.spark.catalyst import Relation
from penstock.spark.operator import operator_maker
from penstock.state.arrangement import Arrangement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def add_source(graph: Graph, spec: SourceSpec) -> None:
    """Give a source its place."""
    graph.sources[spec.name] = _source(graph, spec)


def _source(graph: Graph, spec: SourceSpec) -> SourceEntry:
    operator = Source(
        spec.name,
        [field.name for field in spec.fields],
        spec.types,
        primary_key=spec.positions(spec.primary_key) or None,
        on_missing=spec.on_missing_delete,
    )
    place = graph.circuit.add(operator, (), spec.types, owner=source_owner(spec.name), contents=operator.rows)
    return SourceEntry(spec, place, operator)


def relations(graph: Graph) -> dict[str, Relation]:
    """What a query may name: the flow's sources and views."""
    return {
        **{name: Relation(name, entry.spec.fields) for name, entry in graph.sources.items()},
        **{name: Relation(name, entry.view.fields) for name, entry in graph.views.items()},
    }


def add_view(graph: Graph, session: Session, name: str, query: str | DataFrame, micros: int) -> None:
    """Plan a view, compile it and fill it from the rows that are there."""
    planned = catalyst.plan_view(session.spark, name, query, relations(graph))
    view = planned.view
    statics = {
        static.name: graph.statics.get(static.name) or _source(graph, SourceSpec(static.name, static.fields))
        for static in planned.statics
    }
    fresh = {static: entry for static, entry in statics.items() if static not in graph.statics}
    fragment = operator_maker(session.spark, planned)
    compiler = Compiler(
        graph.circuit,
        {**places(graph), **{static: entry.place for static, entry in statics.items()}},
        graph.shared,
        view_owner(name),
        fragment,
        added=[entry.place for entry in fresh.values()],
    )
    try:
        loaded = {
            fresh[static.name].place: load(static.frame, fresh[static.name].spec)
            for static in planned.statics
            if static.name in fresh
        }
        below = compiler.compile(view.root)
        arrangement = Arrangement(types_of(view.root.fields), None)
        output = Output(name, [field.name for field in view.root.fields], arrangement, visible=view.visible)
        place = compiler.add(output, (below,), view.fields, contents=output.rows)
        graph.circuit.fill(compiler.added, loaded, Tick(graph.ticks, micros))
    except BaseException:
        compiler.forget()
        raise
    graph.circuit.commit()
    graph.statics.update(fresh)
    graph.frames.update({static.name: static.frame for static in planned.statics})
    graph.views[name] = ViewEntry(view, place, output, _reads(view.root), fragment)


def index(graph: Graph, name: str, keys: tuple[int, ...], micros: int) -> Arrangement:
    """Return the rows of a source or view by some columns, kept up to date from now on."""
    place = graph.place(name)
    known = graph.shared.arrangements.get((place, keys))
    if known is not None:
        return known[1]
    arrangement = Arrangement([column.type for column in graph.circuit.places[place].nothing.columns], keys)
    added = graph.circuit.add(
        Arrange(arrangement), (place,), arrangement.types, owner=graph.circuit.places[place].owner
    )
    graph.circuit.fill([added], {}, Tick(graph.ticks, micros))
    graph.circuit.commit()
    graph.shared.arrangements[(place, keys)] = (added, arrangement)
    return arrangement


def places(graph: Graph) -> dict[str, int]:
    """Where the rows of every source and view come from."""
    return {
        **{name: entry.place for name, entry in graph.sources.items()},
        **{name: entry.place for name, entry in graph.views.items()},
    }


def load(frame: DataFrame, spec: SourceSpec) -> Delta:
    """All rows of a table of the session, for a static side."""
    fields = [(field.name, kind, field.nullable) for field, kind in zip(spec.fields, spec.types, strict=True)]
    table = frame.select(*(f"`{field.name}`" for field in spec.fields)).toArrow()
    return Delta(conform(table, fields, where=source_owner(spec.name)), np.ones(table.num_rows, np.int64))


def reloaded(session: Session, name: str, planned: DataFrame) -> DataFrame:
    """The table that a name stands for now; a file or a DataFrame has no name and stays what it was."""
    return session.spark.table(name) if session.spark.catalog.tableExists(name) else planned


def _reads(root: plan.Node) -> frozenset[str]:
    """The relations that a plan scans, without its own recursion."""
    found: set[str] = set()

    def visit(node: plan.Node, recursions: frozenset[str]) -> None:
        if isinstance(node, plan.Scan) and node.name not in recursions:
            found.add(node.name)
        inner = recursions | {node.name} if isinstance(node, plan.Recursive) else recursions
        for child in plan.children(node):
            visit(child, inner)

    visit(root, frozenset())
    return frozenset(found)
