"""What brings tables of Spark into a flow: sources that have the rows of a table, and static tables, each brought up
to date in a tick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any

from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.engine import registration, table_source
from penstock.engine.graph import FedBatch
from penstock.engine.names import registered
from penstock.engine.registrar import Registrar
from penstock.engine.runner import Runner
from penstock.engine.session import Session
from penstock.engine.source import SourceSpec
from penstock.engine.summary import StepSummary
from penstock.errors import ConfigError, suggest


class TableRefresh:
    """Reads tables for one flow, under `lock`, that of its registrar; ticks and reads go on while Spark reads."""

    def __init__(
        self, runner: Runner, lock: RLock, registrar: Registrar, session: Callable[[], Session]
    ) -> None:
        self._runner = runner
        self._lock = lock
        self._registrar = registrar
        self._session = session

    def register(
        self, name: str, table: str, schema: Any, *, retain: str, options: Mapping[str, Any]
    ) -> None:
        """Declare a source with the rows of a table, and read them, unless they are read by the first refresh."""
        others = [key for key, value in options.items() if value not in (None, False, "reject")]
        if schema is not None or others:
            raise ConfigError(
                f"the source of a table takes no {' or '.join(['schema'] * (schema is not None) + others)}",
                code="FLOW_OPTION",
                where=f"source '{name}'",
                hint="it has the columns and the rows of the table; retain is the one option that it takes",
            )
        with self._lock:
            with self._runner.lock:
                self._runner.graph.refuse_taken(name)
            spec = table_source.declare_table(self._session(), name, table, retain=retain)
            with self._runner.lock:
                self._registrar.add_source(spec)
            if retain == "all":
                try:
                    self.refresh((name,))
                except BaseException:
                    self._registrar.drop_source(name)
                    raise

    def refresh(self, names: tuple[str, ...]) -> StepSummary | None:
        """Read what changed in the tables of sources, and step it with all that was fed; None when nothing did."""
        with self._lock:
            with self._runner.lock:
                self._runner.refuse_ended()
                sources = table_source.standings(self._runner.graph, names)
            return self.bring(sources)

    def bring(
        self, sources: list[table_source.Standing], at: Mapping[str, str] | None = None
    ) -> StepSummary | None:
        """Bring sources to the versions of their tables of now, or to those `at`; called under `lock`."""

        def rows_of(spec: SourceSpec) -> Delta:
            with self._runner.lock:
                return table_source.source_rows(self._runner.graph, spec)

        batches = table_source.changes(self._session(), sources, rows_of, at=at) if sources else []
        with self._runner.lock:
            return self._runner.step_with(batches) if batches else None

    def reload_static(self, name: str) -> StepSummary:
        """Load a static table again, and bring the views that join it up to date in one tick."""
        with self._lock:
            with self._runner.lock:
                statics = self._runner.graph.statics
                spelled = registered(name, statics)
                if spelled is None:
                    raise ConfigError(
                        f"'{name}' is not a static table of this flow",
                        code="FLOW_UNKNOWN_STATIC",
                        hint=suggest(name, statics, what="static table"),
                    )
                entry = statics[spelled]
            rows = registration.reload(self._session(), entry)
            with self._runner.lock:
                change = consolidate(concat([rows, -self._runner.graph.kernel.rows(spelled)]))
                return self._runner.step_with([FedBatch(spelled, change)])
