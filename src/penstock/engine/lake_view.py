"""Views whose rows are an Iceberg table of a catalog: `CREATE INCREMENTAL VIEW lake.shop.totals AS SELECT ... FROM
lake.shop.orders`.

The tables of the query are sources under their own names, the view is one of the flow, and its sink is the table. A
snapshot of the table says the snapshots of the sources that it stands for. A session that does not know the view
makes it again at exactly those, from the query in the properties of the table, and goes on from there; a flow
directory keeps all that between sessions.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any

from penstock.engine import registration, table_source
from penstock.engine.followers import Followers
from penstock.engine.graph import Graph, OnError
from penstock.engine.names import registered
from penstock.engine.runner import Runner
from penstock.engine.session import Session
from penstock.engine.source import SourceSpec
from penstock.engine.summary import StepSummary
from penstock.engine.table_source import Standing
from penstock.errors import ConfigError, DataError, PenstockError, SqlError, StateError
from penstock.plan.explain import Explanation
from penstock.sinks.iceberg_view import SINK, SOURCES, TICK, last_change
from penstock.spark import catalyst, errors, lake_table
from penstock.spark.iceberg import IcebergTable
from penstock.spark.lake_name import full_name, is_in_lake, is_plain, with_full_names
from penstock.spark.schema import nullable_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("penstock.flow")
VIEW = "penstock.view"
"""The property of a table that says the query of its view, and what a tick does when it fails there."""
TAKEN_OVER = ("SINK_FENCED", "FLOW_SINK_NOT_EMPTY")


@dataclass(frozen=True, slots=True)
class SavedLakeView:
    """A view as its table says it: the query, and the snapshots of the sources that its rows stand for."""

    query: str
    on_error: OnError
    sources: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class LakeAccess:
    """What the lake views of a flow need of it. What registers and drops is that of a flow which knows no lake views."""

    runner: Runner
    session: Session
    followers: Followers
    add_source: Callable[[SourceSpec], None]
    bring: Callable[[list[Standing], Mapping[str, str] | None], StepSummary | None]
    register_view: Callable[[str, str, OnError], Explanation]
    drop_view: Callable[[str], None]
    drop_source: Callable[[str], None]
    refresh: Callable[[str], StepSummary | None]

    @property
    def graph(self) -> Graph:
        """The graph of now, which is read and changed under the lock of the runner."""
        return self.runner.graph

    @property
    def lock(self) -> RLock:
        """The lock of ticks and reads."""
        return self.runner.lock


def own_tables(graph: Graph) -> set[str]:
    """The sources and views of a flow that Spark has under the same names: tables that are read, and tables of views."""
    sources = {
        name for name, entry in graph.sources.items() if entry.spec.table and entry.spec.table.name == name
    }
    return sources | {name for name in graph.views if is_lake_view(graph, name)}


def is_lake_view(graph: Graph, name: str) -> bool:
    """Whether a name is that of a view, of its sink, and of the table that the sink writes."""
    sink = graph.state.sinks.get(name)
    return (
        name in graph.views
        and sink is not None
        and (sink.spec.kind, sink.spec.view, sink.spec.options.get("table")) == ("iceberg", name, name)
    )


class LakeViews:
    """The lake views of a flow."""

    def __init__(self, flow: LakeAccess) -> None:
        self._flow = flow

    def is_lake_view(self, name: str) -> bool:
        """Whether a view of the flow is a lake view."""
        return is_lake_view(self._flow.graph, name)

    def full_name(self, name: str) -> str:
        """The name of a lake view in full, of a name that `USE` makes one of an Iceberg catalog."""
        return full_name(self._spark, name)

    def saved(self, name: str) -> SavedLakeView | None:
        """What the table of a view says, which this flow need not know; None when there is no such table."""
        spark, name = self._spark, self.full_name(name)
        if not is_in_lake(spark, name) or not is_plain(name) or not spark.catalog.tableExists(name):
            return None
        if lake_table.format_of(spark, name) != "iceberg":
            return None
        table = IcebergTable(spark, name)
        view = table.property(VIEW)
        if not view:
            return None
        newest = last_change(table)
        sources = None if newest is None else newest.says(SOURCES)
        return SavedLakeView(**json.loads(view), sources=None if sources is None else json.loads(sources))

    def create(self, name: str, query: str, on_error: OnError) -> Explanation:
        """Make a view and its table, which has all rows when this returns."""
        if not is_plain(name):
            raise _quoted_name(name, f"view '{name}'")
        if self._spark.catalog.tableExists(name):
            raise self._taken(name)
        with self._flow.lock:
            own = list(registration.relations(self._flow.graph))
        query = with_full_names(self._spark, query, own)
        with self._undone(name) as new_tables:
            self._refresh(self._add_sources(name, query))
            explanation = self._flow.register_view(name, query, on_error)
            self._create_table(name)
            new_tables.append(name)
            self._note_query(name, query, on_error)
            self._follow(name, overwrite=False)
            return explanation

    def _taken(self, name: str) -> ConfigError:
        view = self.saved(name) is not None
        return ConfigError(
            f"there is {'an incremental view' if view else 'a table'} '{name}' already",
            code="FLOW_NAME_TAKEN",
            hint=f"REFRESH INCREMENTAL VIEW {name} goes on with it; DROP INCREMENTAL VIEW {name} first to make another"
            if view
            else "choose another name, or drop it: DROP TABLE",
        )

    def _create_table(self, name: str) -> None:
        """Make the table of a view, without rows; ConfigError when another session was quicker."""
        spark = self._spark
        columns = nullable_ddl(spark, self._flow.graph.views[name].fields)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.rpartition('.')[0]}")
        try:
            spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg")
        except Exception:
            if spark.catalog.tableExists(name):
                raise self._taken(name) from None
            raise

    def open(self, name: str) -> bool:
        """Make a view that this flow does not know as its table says; False when no table says so.

        The view begins with the snapshots of the sources that the table stands for. When these are not kept any more, or the
        view depends on the time, it begins with those of now and the table gets all rows anew.
        """
        name, saved = self.full_name(name), self.saved(name)
        if saved is None:
            return False
        with self._undone(name):
            added = self._add_sources(name, saved.query)
            begun = self._begin(added, saved)
            self._flow.register_view(name, saved.query, saved.on_error)
            graph = self._flow.graph
            stands = graph.positions(name) == (saved.sources or {})
            if begun and stands and not graph.views[name].view.uses_time:
                options = {"table": name}
                self._flow.followers.adopt(
                    name, "iceberg", name=name, options=options, take=partial(self._take, name)
                )
            else:
                LOG.warning("the table of view '%s' gets all rows anew", name)
                self._follow(name, overwrite=True)
        return True

    def refresh(self, name: str) -> None:
        """Return when the table of a view has all ticks of now.

        When another session has refreshed it meanwhile, the view is made again as the table says, and steps on from there.
        """
        try:
            self._store(name)
        except PenstockError as error:
            if error.code not in TAKEN_OVER or self._flow.graph.readers(name):
                raise
            LOG.warning("view '%s' was refreshed by another session: it is made again from its table", name)
            self._forget(name)
            if not self.open(name):
                raise
            self._flow.refresh(name)
            self._store(name)

    def _store(self, name: str) -> None:
        if not self._spark.catalog.tableExists(name):
            raise DataError(
                f"the table of view '{name}' is gone",
                code="SINK_TABLE_CHANGED",
                hint=f"DROP INCREMENTAL VIEW {name}, and create it again if it is still wanted",
            )
        try:
            self._follow(name, overwrite=False)  # one that has ended begins again
            self._flow.followers.flush_one(name)
        finally:
            self._spark.catalog.refreshTable(name)

    def drop(self, name: str) -> None:
        """Take a view out with its table, and the sources that only it has read."""
        flow = self._flow
        if self.is_lake_view(name):
            flow.graph.refuse_read("view", name)
            self._forget(name)
        self._spark.sql(f"DROP TABLE IF EXISTS {name}")

    # Inside

    def _forget(self, name: str) -> None:
        """Take a view out, with the sources that only it has read; its table stays."""
        flow = self._flow
        below = flow.graph.sources_below(name)
        flow.followers.drop(name)
        flow.drop_view(name)
        self._drop_sources(below)

    @property
    def _spark(self) -> SparkSession:
        return self._flow.session.spark

    def _add_sources(self, name: str, query: str) -> list[str]:
        """Make the tables of a query sources, unless they are."""
        added = []
        for table in self._tables(name, query):
            if not is_plain(table):
                raise _quoted_name(table, f"view '{name}'")
            spec = table_source.declare_table(self._flow.session, table, table, retain="all")
            with self._flow.lock:
                self._flow.graph.refuse_taken(table)
                self._flow.add_source(spec)
            added.append(table)
        left = self._tables(name, query) if added else []
        if left:
            raise SqlError(
                f"the table {left[0]} is not named in full",
                code="SQL_LAKE_NAME",
                where=f"view '{name}'",
                hint=f"write {left[0]} in the query, without a version, so that other sessions find it, too",
            )
        return added

    def _tables(self, name: str, query: str) -> list[str]:
        """The Iceberg tables that a query reads and the flow does not have."""
        spark = self._spark
        with self._flow.lock:
            relations = registration.relations(self._flow.graph)
        planned = catalyst.plan_view(spark, name, query, relations)
        names = [static.name for static in planned.statics]
        return [
            table
            for table in names
            if is_in_lake(spark, table)
            and spark.catalog.tableExists(table)
            and lake_table.is_iceberg(spark, table)
        ]

    def _begin(self, added: list[str], saved: SavedLakeView) -> bool:
        """Read the rows of new sources at the versions that a table stands for; those of now, and False, when these are gone."""
        try:
            self._refresh(added, at=saved.sources or {})
        except StateError as error:
            if error.code != "FLOW_TABLE_HISTORY":
                raise
            LOG.warning("%s", error.message)
            self._refresh(added)
            return False
        return True

    def _refresh(self, names: list[str], at: Mapping[str, str] | None = None) -> StepSummary | None:
        with self._flow.lock:
            graph = self._flow.graph
            sources = [
                Standing(graph.sources[name].spec, graph.sources[name].state.position) for name in names
            ]
        return self._flow.bring(sources, at)

    def _follow(self, name: str, *, overwrite: bool) -> None:
        self._flow.followers.register(
            name, "iceberg", key=None, name=name, overwrite=overwrite, options={"table": name}
        )

    def _note_query(self, name: str, query: str, on_error: OnError) -> None:
        saved = json.dumps({"query": query, "on_error": on_error})
        IcebergTable(self._spark, name).set_properties({VIEW: saved})

    def _take(self, name: str, sink: str, tick: int) -> None:
        """Let the table of a view belong to a new sink, which stands for the same."""
        table = IcebergTable(self._spark, name)
        sources = json.dumps(self._flow.graph.positions(name), sort_keys=True)
        table.set_properties({SINK: sink})
        table.stamp({SINK: sink, TICK: str(tick), SOURCES: sources})

    def _drop_sources(self, names: list[str]) -> None:
        graph = self._flow.graph
        for source in names:
            spec = graph.sources[source].spec
            if spec.table is not None and spec.table.name == source and not graph.readers(source):
                self._flow.drop_source(source)

    @contextmanager
    def _undone(self, name: str) -> Iterator[list[str]]:
        """Take out again what an attempt has made that fails; the body adds the tables that it creates to the list."""
        flow = self._flow
        before = set(flow.graph.sources)
        new_tables: list[str] = []
        try:
            yield new_tables
        except BaseException as error:
            if name in flow.graph.state.sinks:
                flow.followers.drop(name)
            if registered(name, flow.graph.views):
                flow.drop_view(name)
            self._drop_sources([source for source in flow.graph.sources if source not in before])
            for table in new_tables:
                # Its property is empty now, unless another session has taken it over.
                if self._spark.catalog.tableExists(table) and not IcebergTable(self._spark, table).property(
                    SINK
                ):
                    self._spark.sql(f"DROP TABLE {table}")
            if isinstance(error, PenstockError) or not isinstance(error, Exception):
                raise
            raise _translated(error, name) from None


def _quoted_name(name: str, where: str) -> SqlError:
    return SqlError(
        f"{name} needs quotes, which names of lake views and of the tables that they read cannot have",
        code="SQL_LAKE_NAME",
        where=where,
        hint="use letters, digits and underscores",
    )


def _translated(error: Any, name: str) -> PenstockError:
    return errors.located(errors.translate(error), f"view '{name}'")
