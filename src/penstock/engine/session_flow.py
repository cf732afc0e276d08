"""The flow of a session: its sources and views are tables for SQL, and a name belongs to it or to Spark, never to both."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from threading import RLock
from typing import Any

import pyarrow as pa

from penstock.engine import listing, read, registration
from penstock.engine.flow import IncrementalFlow
from penstock.engine.graph import ON_ERROR, OnError
from penstock.engine.lake_view import LakeAccess, LakeViews, own_tables
from penstock.engine.names import one_of, registered
from penstock.engine.refresh_job import RefreshJob
from penstock.engine.session import Session
from penstock.engine.source import declare
from penstock.engine.summary import StepSummary
from penstock.engine.table_source import declare_table
from penstock.engine.vector import VectorViewSpec
from penstock.errors import ConfigError, PenstockError, StateError
from penstock.plan.explain import Explanation
from penstock.plan.node import Fields
from penstock.spark.flow_table import FlowTables
from penstock.spark.lake_name import is_in_lake


class SessionFlow(IncrementalFlow):
    """The flow that SQL uses (`session.flow`)."""

    def __init__(
        self,
        session: Session,
        *,
        path: str | os.PathLike[str] | None = None,
        memory: int | str | None = None,
    ) -> None:
        super().__init__(session, path=path, memory=memory)
        self.last_step: StepSummary | None = None
        """What the last statement did that was a tick."""
        self.changing = RLock()
        """Statements that read a source and then change it do so one after the other."""
        self.lake = LakeViews(self._lake_access(session))
        self._jobs: dict[str, RefreshJob] = {}
        try:
            self._tables = FlowTables(session.spark, self._pin)
            for name in self.relations():
                self.refuse_spark_name(name)
            self._show()
        except BaseException:
            super().close()
            raise

    def _lake_access(self, session: Session) -> LakeAccess:
        register_view = super().register_view
        return LakeAccess(
            runner=self._runner,
            session=session,
            followers=self._followers,
            add_source=self._registrar.add_source,
            bring=self._table_refresh.bring,
            register_view=lambda name, query, on_error: register_view(name, query, on_error=on_error),
            drop_view=super().drop_view,
            drop_source=super().drop_source,
            refresh=super().refresh,
        )

    # Names

    def relations(self) -> dict[str, Fields]:
        """The sources and views with their columns, but for those that are tables of Spark under the same names."""
        with self._lock:
            own = own_tables(self._graph)
            relations = registration.relations(self._graph)
            return {name: item.fields for name, item in relations.items() if name not in own}

    def column_kinds(self, name: str) -> tuple[str, ...]:
        """The types in Spark of the columns of a source or view."""
        return self._tables.kinds(name)

    def spelled(self, name: str, kind: str | None = None) -> str | None:
        """How a source or view was spelled when it was registered, None when there is none of this name."""
        with self._lock:
            # A table that a lake view reads is Spark's, whatever the flow makes of it.
            own = own_tables(self._graph) - self._graph.views.keys()
            sources = [source for source in self._graph.sources if source not in own]
            names: dict[str, Iterable[str]] = {"source": sources, "view": self._graph.views}
            kinds = (kind,) if kind else tuple(names)
            spelled = next(
                (spelling for kind in kinds if (spelling := registered(name, names[kind])) is not None), None
            )
            if spelled is None and kind != "source":
                view = registered(self.lake.full_name(name), self._graph.views)
                spelled = view if view is not None and self.lake.is_lake_view(view) else None
            return spelled

    def refuse_spark_name(self, name: str) -> None:
        """ConfigError when Spark has a table or view of this name."""
        if self._tables.taken(name):
            raise ConfigError(
                f"there is a table or view '{name}' in Spark already",
                code="FLOW_NAME_TAKEN",
                hint="choose another name, or drop it: DROP TABLE or DROP VIEW",
            )

    # Declaring

    def register_source(self, name: str, schema: Any = None, **options: Any) -> None:
        """Declare a source of rows, which is a table for SQL; the options are those of every flow."""
        with self._registering:
            self.refuse_spark_name(name)
            super().register_source(name, schema, **options)
            self._show()

    def register_view(self, name: str, query: Any, *, on_error: OnError = "reject") -> Explanation:
        """Declare a view, which is a table for SQL; with a name in a lake catalog its rows are an Iceberg table."""
        with self._registering:
            if isinstance(query, str) and is_in_lake(self.session.spark, name):
                one_of("on_error", on_error, ON_ERROR)
                self._graph.refuse_taken(name)
                return self.lake.create(name, query, on_error)
            self.refuse_spark_name(name)
            explanation = super().register_view(name, query, on_error=on_error)
            self._show()
            return explanation

    def register_asof_view(self, name: str, **options: Any) -> Explanation:
        """Declare an ASOF view, which is a table for SQL."""
        with self._registering:
            self.refuse_spark_name(name)
            explanation = super().register_asof_view(name, **options)
            self._show()
            return explanation

    def register_vector_view(
        self, name: str, spec: VectorViewSpec, *, on_error: OnError = "reject"
    ) -> Explanation:
        """Declare a vector view, which is a table for SQL."""
        with self._registering:
            self.refuse_spark_name(name)
            explanation = super().register_vector_view(name, spec, on_error=on_error)
            self._show()
            return explanation

    def replace_source(self, name: str, schema: Any = None, **options: Any) -> None:
        """Declare a source in the place of the one of this name, whose rows are gone. Refused while views read that one."""
        with self._registering:
            spelled = self.spelled(name, "source")
            if spelled is not None:
                # A wrong one must not cost the old one.
                if options.get("table") is not None:
                    declare_table(self.session, name, options["table"], retain=options.get("retain", "all"))
                else:
                    defaults = {"dedup": False, "retain": "all", "on_missing_delete": "reject"}
                    declare(name, schema, **{**defaults, **options})
                self.drop_source(spelled)
            self.register_source(name, schema, **options)

    def replace_view(self, name: str, query: str, *, on_error: OnError = "reject") -> Explanation:
        """Declare a view in the place of the one of this name, which stays when that fails. Refused while views read that one."""
        one_of("on_error", on_error, ON_ERROR)
        with self._registering:
            spelled = self.spelled(name, "view")
            if (spelled and self.lake.is_lake_view(spelled)) or self.lake.saved(name) is not None:
                name = self.lake.full_name(name)
                # A wrong one must not cost the old one.
                self.explain_query(query)
                self.drop_view(name)
                spelled = None
            if spelled is None:
                return self.register_view(name, query, on_error=on_error)
            with self._lock:
                self._graph.refuse_read("view", spelled)
                old = self._graph.views[spelled]
                names = registration.relations(self._graph)
                del names[spelled]
                statics = [
                    static for static in self._graph.statics if self._graph.readers(static) != [spelled]
                ]
            prepared = registration.plan_query(self.session, name, query, names, statics)
            with self._lock:
                super().drop_view(spelled)
                try:
                    self._install(prepared, on_error)
                except BaseException:
                    static_names = list(self._graph.statics)
                    again = registration.saved_view(lambda: self.session, old.view, names, static_names)
                    self._install(again, old.on_error)
                    raise
            self._show()
            return self.explain(name)

    def drop_view(self, name: str) -> None:
        """Take a view out, and its table: a temporary one of this session, or that of a lake view."""
        with self._registering:
            spelled = self.spelled(name, "view")
            if self.lake.is_lake_view(spelled or name) or (
                spelled is None and self.lake.saved(name) is not None
            ):
                self.lake.drop(spelled or self.lake.full_name(name))
            else:
                super().drop_view(name)
            self._show()

    def drop_source(self, name: str) -> None:
        """Take a source out, and its table."""
        with self._registering:
            super().drop_source(name)
            self._show()

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Be the flow of the newest checkpoint in a folder."""
        with self._registering:
            super().restore(path)
            self._show()

    def refresh_view(self, name: str) -> StepSummary | None:
        """Bring a view up to date: read what changed in the tables of the sources below it, in one tick with what was
        fed, load the static tables again, and resume the view if it is suspended.

        Nothing is left to do for any other view: ticks bring them up to date.
        """
        with self._registering:
            view = self.find_or_open(name)
            with self._lock:
                statics = sorted(self._statics_below(view))
            refreshed = self.refresh(view)
            summaries = [refreshed] if refreshed is not None else []
            summaries += [self.reload_static(static) for static in statics]
            with self._lock:
                if self._runner.pending:
                    summaries.append(self.step())
                if view in self._graph.state.suspended:
                    summaries.append(self.resume_view(view))
            if self.lake.is_lake_view(view):
                self.lake.refresh(view)
            return summaries[-1] if summaries else None

    def refresh_every(self, name: str, every: str) -> None:
        """Refresh a view now and again and again, in the background, as a job under the name of the view."""
        view = self.find_or_open(name)
        with self._registering:
            running = self._jobs.get(view)
            if running is not None and running.running:
                raise StateError(
                    f"view '{view}' is refreshed every {running.every} ms already",
                    code="STREAM_NAME_TAKEN",
                    hint=f"stop it first: penstock jobs stop {view}",
                )
            self._jobs[view] = RefreshJob(self.session, view, every, lambda: self.refresh_view(view))

    def stop_jobs(self) -> None:
        """End the views that are refreshed again and again."""
        for job in self._jobs.values():
            job.stop()

    def wait_for_jobs(self) -> None:
        """Wait until all views that are refreshed again and again have ended; raises why the first one did."""
        for job in list(self._jobs.values()):
            job.wait()

    def find_or_open(self, name: str) -> str:
        """The name of a view of this flow, also of a lake view that the flow does not know yet."""
        with self._registering:
            spelled = self.spelled(name, "view")
            if spelled is None and self.lake.open(name):
                spelled = self.lake.full_name(name)
            return self._graph.find_view(spelled or name).name

    def _statics_below(self, view: str) -> set[str]:
        entry = self._graph.views[view]
        below = [self._statics_below(name) for name in entry.reads if name in self._graph.views]
        return set(entry.view.statics).union(*below)

    # Reading

    def explain_query(self, query: str) -> Explanation:
        """What a view with this query would cost; nothing is registered."""
        with self._lock:
            names, statics = registration.relations(self._graph), list(self._graph.statics)
        prepared = registration.plan_query(self.session, "query", query, names, statics)
        with self._lock:
            return listing.explain_view(self._graph, prepared.view)

    def close(self) -> None:
        """End the refreshing of views, take the tables out of the session, and close the flow."""
        self.stop_jobs()
        self._tables.close()
        super().close()

    def _show(self) -> None:
        self._tables.show(self.relations())

    def _pin(self) -> Mapping[str, Callable[[], pa.Table]]:
        """What reads every table as it is after the last tick."""
        with self._lock:
            return {name: self._reader(name) for name in registration.relations(self._graph)}

    def _reader(self, name: str) -> Callable[[], pa.Table]:
        try:
            return read.snapshot(self._graph, name)
        except PenstockError as error:
            refusal = error  # for a query that reads this table, and no other

            def refuse() -> pa.Table:
                raise refusal

            return refuse
