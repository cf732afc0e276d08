"""What registers and drops the sources and views of a flow: each is an event of its log, and is there whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING, Any

from penstock.engine import definition, registration
from penstock.engine.asof import asof_view
from penstock.engine.event import DropEvent, SourceEvent, ViewEvent
from penstock.engine.followers import refuse_followed
from penstock.engine.graph import ON_ERROR, Graph, OnError
from penstock.engine.names import one_of
from penstock.engine.retention import require_rows
from penstock.engine.runner import Runner
from penstock.engine.session import Session
from penstock.engine.source import SourceSpec, declare
from penstock.engine.tick import maintain
from penstock.engine.vector import VectorViewSpec, vector_view
from penstock.errors import ConfigError
from penstock.plan.node import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Registrar:
    """Sources and views of one flow come and go under `lock`, which is taken before that of ticks and reads; those go
    on while Spark plans."""

    def __init__(self, runner: Runner, lock: RLock, session: Callable[[], Session]) -> None:
        self._runner = runner
        self._lock = lock
        self._session = session

    # Sources

    def register_source(self, name: str, schema: Any, options: Mapping[str, Any]) -> None:
        """Declare a source of rows."""
        with self._lock, self._runner.lock:
            self._graph.refuse_taken(name)
            self.add_source(declare(name, schema, **options))

    def add_source(self, spec: SourceSpec) -> None:
        """Have a source whose name is free; called under both locks."""
        registration.add_source(self._graph, spec)
        try:
            self._runner.journal.append(SourceEvent(spec))
        except BaseException:
            registration.drop_source(self._graph, spec.name)
            raise

    def drop_source(self, name: str) -> None:
        """Take a source out, with its rows and those that wait for a step."""
        with self._lock, self._runner.lock:
            name = self._graph.find_source(name).name
            registration.refuse_used(self._graph, name)
            self._runner.journal.append(DropEvent(name, is_view=False))
            registration.drop_source(self._graph, name)
            self._runner.pending = [batch for batch in self._runner.pending if batch.source != name]

    # Views

    def register_view(self, name: str, query: str | DataFrame, on_error: OnError) -> None:
        """Declare a view by Spark SQL or a DataFrame, and fill it from what is there."""
        one_of("on_error", on_error, ON_ERROR)
        with self._lock:
            with self._runner.lock:
                self._graph.refuse_taken(name)
                if not self._graph.sources:
                    raise ConfigError(
                        "a view needs a source to read",
                        code="FLOW_NO_SOURCE",
                        hint='register one first: flow.register_source("orders", "id BIGINT, amount DECIMAL(10,2)")',
                    )
                names, statics = registration.relations(self._graph), list(self._graph.statics)
            prepared = registration.plan_query(self._session(), name, query, names, statics)
            with self._runner.lock:
                self.install(prepared, on_error)

    def register_asof_view(
        self, name: str, left: str, right: str, on_error: OnError, options: Mapping[str, Any]
    ) -> None:
        """Declare a view of each row of `left` with the one of `right` that is nearest in time."""
        one_of("on_error", on_error, ON_ERROR)
        with self._lock, self._runner.lock:
            self._graph.refuse_taken(name)
            relations = self._graph.find_relation(left), self._graph.find_relation(right)
            view = asof_view(name, *relations, **options)
            self.install(registration.saved_view(self._session, view, {}, ()), on_error)

    def register_vector_view(self, name: str, spec: VectorViewSpec, on_error: OnError) -> None:
        """Declare a view of the rows whose vectors are nearest to a query vector."""
        one_of("on_error", on_error, ON_ERROR)
        with self._lock:
            with self._runner.lock:
                self._graph.refuse_taken(name)
                relation = self._graph.find_relation(spec.source)
                names = registration.relations(self._graph)

            def filtered(columns: Sequence[int], condition: str) -> View:
                source = names[relation.name]
                return registration.plan_filter(self._session(), name, source, columns, condition)

            view = vector_view(name, spec, relation, filtered=filtered)
            prepared = registration.saved_view(self._session, view, names, ())
            with self._runner.lock:
                self.install(prepared, on_error)

    def install(self, prepared: registration.Prepared, on_error: OnError) -> None:
        """Have a planned view, filled from what is there; called under both locks."""
        micros, view = self._runner.now(), prepared.view
        require_rows(self._graph, view, on_error)
        if self._runner.directory is not None:
            definition.require_savable(view)
        registration.install(self._graph, replace(prepared, on_error=on_error), micros)
        try:
            statics = tuple((entry.spec.name, rows) for entry, rows in prepared.statics)
            self._runner.journal.append(ViewEvent(view, on_error, micros, statics))
        except BaseException:
            registration.drop_view(self._graph, view.name)
            raise
        maintain(self._graph)

    def drop_view(self, name: str) -> None:
        """Take a view out, with the state that only it needs; its watches are closed."""
        with self._lock, self._runner.lock:
            name = self._graph.find_view(name).name
            self._graph.refuse_read("view", name)
            refuse_followed(self._graph, name)
            self._runner.journal.append(DropEvent(name, is_view=True))
            registration.drop_view(self._graph, name)
            changelog = self._runner.changelogs.pop(name, None)
        if changelog is not None:
            changelog.close()

    # Both

    def register_saved(self, saved: definition.Definition) -> None:
        """Have the sources and views of a definition in an empty flow; nothing that its plans say is planned again."""
        for spec in saved.sources:
            registration.add_source(self._graph, spec)
        for view in saved.views:
            names, statics = registration.relations(self._graph), list(self._graph.statics)
            prepared = registration.saved_view(self._session, view, names, statics)
            self.install(prepared, saved.on_error.get(view.name, "reject"))

    @property
    def _graph(self) -> Graph:
        return self._runner.graph
