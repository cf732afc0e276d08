"""Bring sources and views into a flow's circuit, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from penstock.circuit.compile import Compiler, Fragment, types_of
from penstock.data.conform import conform
from penstock.data.delta import Delta
from penstock.data.huge_pages import plain_pages
from penstock.data.tick import Tick
from penstock.engine.definition import needs_spark
from penstock.engine.retention import first_retained, source_operator, whole_rows, widened
from penstock.engine.session import Session
from penstock.engine.source import SourceSpec
from penstock.engine.tick import Graph, SourceEntry, ViewEntry, source_owner, view_owner
from penstock.errors import StateError
from penstock.functions.scalars import zones
from penstock.operators.arrange import Arrange
from penstock.operators.linear import Select
from penstock.operators.output import Output
from penstock.plan import node as plan
from penstock.spark import catalyst
from penstock.spark.catalyst import Relation, Static
from penstock.spark.fragment import Fragments
from penstock.spark.operator import operator_maker, planned_maker
from penstock.state.arrangement import Arrangement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def add_source(graph: Graph, spec: SourceSpec) -> None:
    """Give a source its place."""
    graph.sources[spec.name] = _source(graph, spec)


def _source(graph: Graph, spec: SourceSpec) -> SourceEntry:
    operator = source_operator(spec, first_retained(spec))
    types = [spec.types[column] for column in operator.columns]
    place = graph.circuit.add(operator, (), types, owner=source_owner(spec.name), contents=operator.rows)
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
    fragment = planned_maker(session.spark, planned)
    install(graph, planned.view, fragment, micros, statics=planned.statics)


def add_saved(graph: Graph, session: Callable[[], Session], view: plan.View, micros: int) -> None:
    """Bring in a view by its saved plan; Spark is asked only for what the plan leaves to it."""
    if needs_spark(view):
        add_view(graph, session(), view.name, view.sql, micros)
        return
    for zone, rules in view.zones:
        zones.learn(zone, rules)

    @cache
    def fragments() -> Fragments:
        spark = session().spark
        planned = catalyst.plan_view(spark, view.name, view.sql, relations(graph))
        if planned.view.root != view.root:
            raise StateError(
                f"Spark plans view '{view.name}' differently now, so its saved plan cannot ask Spark for its part",
                code="STATE_PLAN_CHANGED",
                hint="register the view again in a new flow",
            )
        return Fragments(spark, planned)

    install(graph, view, operator_maker(view, fragments), micros)


def install(
    graph: Graph, view: plan.View, fragment: Fragment, micros: int, *, statics: Sequence[Static] = ()
) -> None:
    """Compile a planned view and fill it from the rows that are there."""
    with widened(graph, view.name, view.root), plain_pages():
        _install(graph, view, fragment, micros, statics)


def _install(
    graph: Graph, view: plan.View, fragment: Fragment, micros: int, statics: Sequence[Static]
) -> None:
    entries = {
        static.name: graph.statics.get(static.name) or _source(graph, SourceSpec(static.name, static.fields))
        for static in statics
    }
    fresh = {static: entry for static, entry in entries.items() if static not in graph.statics}
    compiler = Compiler(
        graph.circuit,
        {**places(graph), **{static: entry.place for static, entry in entries.items()}},
        graph.shared,
        view_owner(view.name),
        fragment,
        added=[entry.place for entry in fresh.values()],
        narrowed=graph.narrowed(),
    )
    try:
        loaded = {
            fresh[static.name].place: load(static.frame, fresh[static.name].spec)
            for static in statics
            if static.name in fresh
        }
        below = compiler.compile(view.root)
        arrangement = Arrangement(types_of(view.root.fields), None)
        output = Output(
            view.name,
            [field.name for field in view.root.fields],
            arrangement,
            visible=view.visible,
            below=graph.circuit.places[below].operator,
            contents=graph.circuit.places[below].contents,
        )
        place = compiler.add(output, (below,), view.fields, contents=output.rows)
        graph.circuit.fill(compiler.added, loaded, Tick(graph.ticks, micros))
    except BaseException:
        compiler.forget()
        raise
    graph.circuit.commit()
    graph.statics.update(fresh)
    graph.frames.update({static.name: static.frame for static in statics})
    graph.views[view.name] = ViewEntry(view, place, output, _reads(view.root), fragment)


def index(graph: Graph, name: str, keys: tuple[int, ...], micros: int) -> Arrangement:
    """Return the rows of a source or view by some columns, kept up to date from now on."""
    place = graph.place(name)
    known = graph.shared.arrangements.get((place, keys))
    if known is not None:
        return known[1]
    below = _whole_place(graph, name)
    arrangement = Arrangement([column.type for column in graph.circuit.places[below].nothing.columns], keys)
    added = graph.circuit.add(
        Arrange(arrangement), (below,), arrangement.types, owner=graph.circuit.places[place].owner
    )
    fresh = [added] if below == place else [below, added]
    graph.circuit.fill(fresh, {}, Tick(graph.ticks, micros))
    graph.circuit.commit()
    graph.shared.arrangements[(place, keys)] = (added, arrangement)
    return arrangement


def _whole_place(graph: Graph, name: str) -> int:
    """Where whole rows of a relation come from, also of a source whose columns are kept in the order of their use."""
    entry = graph.sources.get(name)
    if entry is None or entry.spec.retain == "all":
        return graph.place(name)
    columns = range(len(entry.spec.fields))
    kept = entry.operator.columns
    return graph.circuit.add(
        Select([kept.index(column) for column in columns]),
        (entry.place,),
        entry.spec.types,
        owner=source_owner(name),
        contents=lambda: whole_rows(entry, "whole rows"),
    )


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
