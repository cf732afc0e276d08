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
from penstock.engine.names import one_of, registered
from penstock.engine.session import Session
from penstock.engine.source import declare
from penstock.engine.summary import StepSummary
from penstock.engine.vector import VectorViewSpec
from penstock.errors import ConfigError, PenstockError
from penstock.plan.explain import Explanation
from penstock.plan.node import Fields
from penstock.spark.flow_table import FlowTables


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
        try:
            self._tables = FlowTables(session.spark, self._pin)
            for name in self.relations():
                self.refuse_spark_name(name)
            self._show()
        except BaseException:
            super().close()
            raise

    # Names

    def relations(self) -> dict[str, Fields]:
        """The sources and views with their columns."""
        with self._lock:
            return {name: item.fields for name, item in registration.relations(self._graph).items()}

    def column_kinds(self, name: str) -> tuple[str, ...]:
        """The types in Spark of the columns of a source or view."""
        return self._tables.kinds(name)

    def spelled(self, name: str, kind: str | None = None) -> str | None:
        """How a source or view was spelled when it was registered, None when there is none of this name."""
        with self._lock:
            names: dict[str, Iterable[str]] = {"source": self._graph.sources, "view": self._graph.views}
            kinds = (kind,) if kind else tuple(names)
            return next((one for kind in kinds if (one := registered(name, names[kind])) is not None), None)

    def refuse_spark_name(self, name: str) -> None:
        """ConfigError when Spark has a table or view of this name."""
        if self._tables.taken(name):
            raise ConfigError(
                f"there is a table or view '{name}' in Spark already",
                code="FLOW_NAME_TAKEN",
                hint="choose another name, or drop it: DROP TABLE or DROP VIEW",
            )

    # Declaring

    def register_source(self, name: str, schema: Any, **options: Any) -> None:
        """Declare a source of rows, which is a table for SQL; the options are those of every flow."""
        with self._registering:
            self.refuse_spark_name(name)
            super().register_source(name, schema, **options)
            self._show()

    def register_view(self, name: str, query: Any, *, on_error: OnError = "reject") -> Explanation:
        """Declare a view, which is a table for SQL."""
        with self._registering:
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

    def replace_source(self, name: str, schema: Any, **options: Any) -> None:
        """Declare a source in the place of the one of this name, whose rows are gone. Refused while views read that one."""
        with self._registering:
            spelled = self.spelled(name, "source")
            if spelled is not None:
                defaults = {"dedup": False, "retain": "all", "on_missing_delete": "reject"}
                declare(name, schema, **{**defaults, **options})  # a wrong one must not cost the old one
                self.drop_source(spelled)
            self.register_source(name, schema, **options)

    def replace_view(self, name: str, query: str, *, on_error: OnError = "reject") -> Explanation:
        """Declare a view in the place of the one of this name, which stays when that fails. Refused while views read that one."""
        one_of("on_error", on_error, ON_ERROR)
        with self._registering:
            spelled = self.spelled(name, "view")
            if spelled is None:
                return self.register_view(name, query, on_error=on_error)
            with self._lock:
                self._graph.refuse_read("view", spelled)
                old = self._graph.views[spelled]
                names = registration.relations(self._graph)
                del names[spelled]
                statics = [one for one in self._graph.statics if self._graph.readers(one) != [spelled]]
            prepared = registration.plan_query(self.session, name, query, names, statics)
            with self._lock:
                super().drop_view(spelled)
                try:
                    self._install(prepared, on_error)
                except BaseException:
                    known = list(self._graph.statics)
                    again = registration.saved_view(lambda: self.session, old.view, names, known)
                    self._install(again, old.on_error)
                    raise
            self._show()
            return self.explain(name)

    def drop_view(self, name: str) -> None:
        """Take a view out, and its table."""
        with self._registering:
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
        """Load the static tables that a view and those below it read again, step what was fed, and resume the view if it is suspended.

        Nothing is left to do for any other view: ticks bring them up to date.
        """
        with self._registering:
            with self._lock:
                view = self._graph.find_view(name).name
                statics = sorted(self._statics_below(view))
            summaries = [self.reload_static(static) for static in statics]
            with self._lock:
                if self._runner.pending:
                    summaries.append(self.step())
                if view in self._graph.state.suspended:
                    summaries.append(self.resume_view(view))
            return summaries[-1] if summaries else None

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
        """Take the tables out of the session, and close the flow."""
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
