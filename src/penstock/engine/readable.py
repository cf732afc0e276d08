"""`ReadableFlow`: what can be asked of a flow, whether it takes ticks or not: its rows and their changes, its plans
and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from penstock.config import Settings
from penstock.engine import definition, read, registration, replay
from penstock.engine.changelog import Changelog
from penstock.engine.durability import Durability
from penstock.engine.event import ClearEvent
from penstock.engine.followers import FlowAccess, Followers
from penstock.engine.graph import Graph
from penstock.engine.listing import SourceListing, ViewListing, explain_view, list_sources, list_views
from penstock.engine.runner import Runner
from penstock.engine.seam import translated
from penstock.engine.session import Session
from penstock.engine.source import SourceInfo
from penstock.engine.time_travel import Past, read_at
from penstock.engine.watch import Watch
from penstock.engine.why import Provenance, why
from penstock.plan.explain import Explanation
from penstock.spark import catalyst

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")


@translated
class ReadableFlow:
    """A flow as its readers see it; each read runs alone under the lock of the ticks."""

    def __init__(
        self, session: Session | None, settings: Settings, runner: Runner, durability: Durability
    ) -> None:
        self.durability = durability
        self._session = session
        self._settings = settings
        self._own_session = session is None
        self._session_lock = Lock()
        self._runner = runner
        self._lock = runner.lock
        self._past: Past | None = None
        self._followers = Followers(
            FlowAccess(
                lock=self._lock,
                graph=lambda: self._graph,
                journal=lambda: self._runner.journal,
                name=lambda: self.name,
                settings=settings,
                session=self._opened_session,
            )
        )

    @property
    def name(self) -> str | None:
        """The flow's name."""
        return self._runner.name

    @property
    def session(self) -> Session:
        """The session that plans views; an embedded one is started when none was given."""
        with self._session_lock:
            if self._session is None:
                self._session = Session.of_settings(self._settings)
            return self._session

    def definition(self) -> str:
        """Return the flow's sources and views, with the plans that Spark made, as JSON text; rows are not part of it."""
        with self._lock:
            return definition.dumps(self._graph, self.name)

    def table(self, name: str) -> DataFrame:
        """Return a source or view as a PySpark DataFrame to build other views from; it holds no rows."""
        with self._lock:
            relation = registration.relations(self._graph)[self._graph.find_relation(name).name]
        return catalyst.table(self.session.spark, relation)

    def source_info(self, name: str) -> SourceInfo:
        """What a source is, and the ordinal up to which it was fed."""
        with self._lock:
            entry = self._graph.find_source(name)
            return entry.spec.info(entry.state.ordinal)

    def sources(self) -> list[SourceListing]:
        """Return the sources, with how they were declared and the number of their rows."""
        with self._lock:
            return list_sources(self._graph)

    def views(self) -> list[ViewListing]:
        """Return the views, with their queries, their tiers and the number of their rows."""
        with self._lock:
            return list_views(self._graph)

    # Reading

    def explain(self, view: str) -> Explanation:
        """Return the operators of a view with their tier, cost and reason, and why it is suspended, if it is."""
        with self._lock:
            entry = self._graph.find_view(view)
            return replace(
                explain_view(self._graph, entry.view),
                durability=self.durability,
                sinks=self._followers.describe(entry.name),
            )

    def ticks(self) -> range:
        """Return the ticks that `at_tick=n` of `snapshot`, `lookup` and `why` takes: those behind the oldest
        checkpoint of a flow with a path."""
        first = None if self._past is None else self._past.first()
        with self._lock:
            last = self._graph.state.ticks
        return range(last if first is None else first, last + 1)

    def snapshot(self, name: str, *, at_tick: int | None = None) -> pa.Table:
        """Return the rows of a view, in its order when it has one, or of a source. Ticks go on while they are read.

        `at_tick` gives those that it had when this tick was the last one, for the `ticks()` of a flow with a path.
        """
        return self._read_at(at_tick, partial(read.snapshot, name=name))()

    def _read_at(self, at_tick: int | None, reading: Callable[[Graph], T]) -> T:
        """What a function says of the flow, now or as it was when a tick was the last one."""
        with self._lock:
            now, end = self._graph.state.ticks, self._runner.journal.position
            if at_tick is None or at_tick == now:
                return reading(self._graph)
        return read_at(self._past, at_tick, reading, now=now, end=end)

    def lookup(self, name: str, /, *, at_tick: int | None = None, **key: Any) -> pa.Table:
        """Return the rows of a view or source with the given values, through an index.

        The index is made by the first look-up of its columns. A source or view keeps those of the 8 sets of columns that
        were looked up last, in the last 10,000 ticks. `at_tick` gives the rows that it had when this tick was the
        last one, as in `snapshot`.
        """
        return self._read_at(at_tick, partial(read.lookup, name=name, key=key))

    def why(self, view: str, row: Mapping[str, Any], *, at_tick: int | None = None) -> Provenance:
        """Return the source rows behind the one row of a view that has these values; ticks wait meanwhile.

        `at_tick` asks for a row that the view had when this tick was the last one, as in `snapshot`. `row` has some
        or all columns. Joins, filters and projections give exactly the rows that were needed, aggregates those of the
        group, windows those of the partition. Printed, the result lists them, and the relations that were read
        without an index.

        >>> print(flow.why("totals", {"customer": 7}))                        # doctest: +SKIP
        """
        return self._read_at(at_tick, partial(why, view=view, row=row))

    def watch_output(self, view: str, *, snapshot: bool = False, from_tick: int | None = None) -> Watch:
        """Return the changes of a view from now on; `snapshot` gives its rows first, `from_tick` the changes since then.

        The last changes are kept for readers that come back, at most 256, and at most 64 MiB of them: from the first
        watch of a view on, and behind its last one until the first change is gone that it has not had.
        """
        with self._lock:
            entry = self._graph.find_view(view)
            changelog = self._runner.changelogs.get(entry.name)
            if changelog is None:
                changelog = Changelog(entry.name, entry.fields, self._graph.state.ticks)
            rows = self._graph.kernel.rows(entry.name) if snapshot else None
            watch = changelog.watch(rows=rows, from_tick=from_tick)
            self._runner.changelogs[entry.name] = changelog
            return watch

    def quarantined(self, source: str, *, clear: bool = False) -> pa.Table:
        """Return the latest rows in the quarantine, with `_weight` and `_reason`; `clear` takes them out.

        Those are retractions of rows that were not there, rows that came too late, and batches that `run()` could not step:
        at most 100,000 rows and 64 MiB per source. `metrics()` counts older ones that are gone.
        """
        with self._lock:
            rows = read.quarantined(self._graph, source)
            if clear:
                event = ClearEvent(self._graph.find_source(source).name)
                self._runner.journal.append(event)
                replay.apply(self._graph, event, self._opened_session)
            return rows

    def waiting_rows(self) -> int:
        """How many fed rows wait for the next step."""
        return self._runner.waiting_rows()

    def metrics(self) -> dict[str, float]:
        """Return counters and sizes of the flow by their Prometheus names."""
        with self._lock:
            history = sum(changelog.bytes for changelog in self._runner.changelogs.values())
            return {
                **read.metrics(self._graph),
                "penstock_flow_history_bytes": history,
                "penstock_flow_past_bytes": 0 if self._past is None else self._past.bytes,
                f'penstock_flow_durability{{durability="{self.durability}"}}': 1,
                **({} if self._runner.directory is None else self._runner.directory.metrics()),
                **self._followers.metrics(),
            }

    # Ending

    def close(self) -> None:
        """End `run()`, the sinks when they have all ticks, the watches, and the session if the flow started it; also
        the end of `with`.

        Raises why a sink does not have them, behind everything else.
        """
        try:
            try:
                self._runner.stop()
            finally:
                self._followers.close()
        finally:
            for changelog in list(self._runner.changelogs.values()):
                changelog.close()
            if self._runner.directory is not None:
                self._runner.directory.close()
            if self._past is not None:
                self._past.forget()
            self._graph.kernel.close()
            if self._own_session and self._session is not None:
                self._session.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside

    @property
    def _graph(self) -> Graph:
        return self._runner.graph

    def _opened_session(self) -> Session:
        return self.session
