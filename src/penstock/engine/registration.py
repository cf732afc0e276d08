"""Bring sources and views into a flow, whole or not at all, and take them out again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from penstock.circuit.compile import Fragment
from penstock.circuit.kernel import StaticRows
from penstock.data.conform import conform_to
from penstock.data.delta import Delta
from penstock.data.huge_pages import plain_pages
from penstock.data.tick import Tick
from penstock.engine.definition import needs_spark
from penstock.engine.flow_state import SourceState
from penstock.engine.graph import Graph, OnError, SourceEntry, StaticEntry, ViewEntry
from penstock.engine.session import Session
from penstock.engine.source import SourceSpec
from penstock.engine.suspension import refuse_suspended
from penstock.errors import PenstockError, StateError, unexpected
from penstock.functions.scalars import zone_ids
from penstock.plan import node as plan
from penstock.spark import catalyst
from penstock.spark.catalyst import Relation, Static
from penstock.spark.fragment import Fragments
from penstock.spark.operator import operator_maker, planned_maker
from penstock.spark.table import current_frame, read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Prepared:
    """A planned view with the rows of the static tables that it reads: all that Spark is asked for before the first tick."""

    view: plan.View
    fragment: Fragment
    statics: tuple[tuple[StaticEntry, Delta], ...] = ()
    on_error: OnError = "reject"


def add_source(graph: Graph, spec: SourceSpec) -> None:
    """Give a source its vertex in the circuit."""
    state = graph.state.sources.setdefault(spec.name, SourceState())
    graph.kernel.add_source(spec.kernel_source(state.retained))
    graph.sources[spec.name] = SourceEntry(spec, state)


def relations(graph: Graph) -> dict[str, Relation]:
    """What a query may name: the flow's sources and views."""
    sources = {name: Relation(name, entry.fields) for name, entry in graph.sources.items()}
    views = {name: Relation(name, entry.fields, entry.view.metadata) for name, entry in graph.views.items()}
    return sources | views


def plan_query(
    session: Session,
    name: str,
    query: str | DataFrame,
    names: dict[str, Relation],
    statics: Sequence[str],
    *,
    variables: Sequence[plan.Variable] = (),
) -> Prepared:
    """Plan a view and load the static tables that are not among `statics`. It reads nothing of the flow and may take seconds."""
    planned = catalyst.plan_view(session.spark, name, query, names, variables=variables)
    loaded = tuple(_loaded(static) for static in planned.statics if static.name not in statics)
    return Prepared(planned.view, planned_maker(session.spark, planned), loaded)


def saved_view(
    session: Callable[[], Session], view: plan.View, names: dict[str, Relation], statics: Sequence[str]
) -> Prepared:
    """A view by its saved plan; Spark is asked only for what the plan leaves to it."""
    if needs_spark(view):
        return plan_query(session(), view.name, view.sql, names, statics, variables=view.variables)
    zone_ids.learn(view.zones, view.zone_table)

    @cache
    def fragments() -> Fragments:
        spark = session().spark
        planned = catalyst.plan_view(spark, view.name, view.sql, names, variables=view.variables)
        if planned.view.root != view.root:
            raise StateError(
                f"Spark plans view '{view.name}' differently now, so its saved plan cannot ask Spark for its part",
                code="STATE_PLAN_CHANGED",
                hint="register the view again in a new flow",
            )
        return Fragments(spark, planned)

    return Prepared(view, operator_maker(view, fragments))


def plan_filter(
    session: Session, name: str, relation: Relation, columns: Sequence[int], condition: str
) -> plan.View:
    """Plan a view of some columns of a relation's rows for which a condition in SQL holds."""
    frame = catalyst.filtered(session.spark, name, relation, columns, condition)
    return catalyst.plan_view(session.spark, name, frame, {relation.name: relation}).view


def install(graph: Graph, prepared: Prepared, micros: int) -> None:
    """Compile a planned view and fill it from the rows that are there; on an error nothing has changed.

    A view that the state of a restored flow says is suspended has its saved rows.
    """
    view, state = prepared.view, graph.state
    now = max(micros, state.micros)
    reads, suspended = plan.scanned(view.root), view.name in state.suspended
    if not suspended:
        refuse_suspended(graph, view.name, reads)
    fresh = [(entry, rows) for entry, rows in prepared.statics if entry.spec.name not in graph.statics]
    statics = [StaticRows(entry.spec.kernel_source(), rows) for entry, rows in fresh]
    with plain_pages():
        try:
            graph.kernel.register(
                view, prepared.fragment, Tick(state.ticks, now), statics=statics, suspended=suspended
            )
        except PenstockError:
            raise
        except Exception as error:
            raise unexpected(error, f"the registration of view '{view.name}'") from error
    graph.statics.update({entry.spec.name: entry for entry, _ in fresh})
    graph.views[view.name] = ViewEntry(view, reads, prepared.on_error)
    state.micros = now
    for entry in graph.sources.values():
        if entry.spec.retain != "all":
            entry.state.retained = graph.kernel.columns(entry.name)


def drop_view(graph: Graph, name: str) -> None:
    """Take out a view that no other reads, and the static tables that only it has read."""
    graph.refuse_read("view", name)
    reads = graph.views.pop(name).reads
    graph.kernel.drop(name)
    graph.state.suspended.pop(name, None)
    for static in reads & graph.statics.keys():
        if not graph.readers(static):
            graph.kernel.drop(static)
            del graph.statics[static]


def drop_source(graph: Graph, name: str) -> None:
    """Take out a source that no view reads and no query feeds."""
    refuse_used(graph, name)
    graph.kernel.drop(name)
    del graph.sources[name]
    del graph.state.sources[name]


def refuse_used(graph: Graph, name: str) -> None:
    """StateError when views read a source, or a query feeds it."""
    graph.refuse_read("source", name)
    refuse_fed(graph.sources[name])


def refuse_fed(entry: SourceEntry) -> None:
    """StateError when a streaming query feeds a source."""
    if entry.query is not None:
        raise StateError(
            f"source '{entry.name}' is fed by a streaming query",
            code="FLOW_IN_USE",
            hint="stop the query first",
        )


def load(frame: DataFrame, spec: SourceSpec) -> Delta:
    """All rows of a table of the session, for a static side."""
    where = f"static table '{spec.name}'"
    table = read_table(frame, [field.name for field in spec.fields], where=where)
    fields = [(field.name, field.type, field.nullable) for field in spec.fields]
    return Delta(conform_to(table, fields, where=where), np.ones(table.num_rows, np.int64))


def reload(session: Session, entry: StaticEntry) -> Delta:
    """The rows of a static table now."""
    return load(current_frame(session.spark, entry.spec.name, entry.frame), entry.spec)


def _loaded(static: Static) -> tuple[StaticEntry, Delta]:
    entry = StaticEntry(SourceSpec(static.name, static.fields), static.frame)
    return entry, load(static.frame, entry.spec)
