"""`IncrementalFlow`: sources, views over them, and ticks that cost what changed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from penstock.data.batch import DeltaBatch
from penstock.data.conform import conform
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty
from penstock.data.types import kernel_type
from penstock.engine import definition
from penstock.engine.asof import By, Tolerance, asof_view, side_of
from penstock.engine.naming import find_relation, find_source, find_view, refuse_taken
from penstock.engine.registration import (
    add_saved,
    add_source,
    add_view,
    index,
    load,
    relations,
    reloaded,
)
from penstock.engine.result import to_batch, to_table
from penstock.engine.retention import require_whole, snapshot_by_key, whole_rows
from penstock.engine.session import Session
from penstock.engine.source import SourceInfo, declare, to_delta
from penstock.engine.spelling import registered
from penstock.engine.stepper import Stepper
from penstock.engine.summary import StepSummary
from penstock.engine.tick import Fed, Graph, SourceEntry, run_tick
from penstock.engine.watch import Watch
from penstock.errors import ConfigError, DataError, StateError, suggest
from penstock.functions import aggregates
from penstock.plan.explain import Explanation, explain
from penstock.spark import catalyst

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HISTORY = 256


class IncrementalFlow:
    """Views that are kept up to date by deltas.

    >>> flow = IncrementalFlow()                                               # doctest: +SKIP
    >>> flow.register_source("orders", "customer BIGINT, amount DECIMAL(10,2)")
    >>> flow.register_view("totals", "SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer")
    >>> flow.tick("orders", DeltaBatch.inserts([{"customer": 7, "amount": 5}])).rows_out
    1

    A flow may be used from several threads; each tick runs alone.
    """

    def __init__(
        self,
        session: Session | None = None,
        *,
        name: str | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.name = name
        self._session = session
        self._own_session = session is None
        self._clock = clock or (lambda: time.time_ns() // 1000)
        self._graph = Graph()
        self._pending: list[Fed] = []
        self._watches: dict[str, list[Watch]] = {}
        self._history: dict[str, deque[tuple[int, Delta]]] = {}
        self._diff_based = False
        self._stepper: Stepper | None = None
        self._lock = RLock()

    # Saving

    def definition(self) -> str:
        """Return the flow's sources and views, with the plans that Spark made, as JSON text; rows are not part of it."""
        with self._lock:
            return definition.dumps(self._graph, self.name)

    @classmethod
    def from_definition(
        cls, text: str, session: Session | None = None, *, clock: Callable[[], int] | None = None
    ) -> Self:
        """Build an empty flow from what `definition()` gave, without planning anything.

        No JVM is started, except for views with a static table or an operator of tier `recompute`, whose first rows are
        Spark's; an expression of tier `spark` starts one when the first row reaches it.
        """
        saved = definition.loads(text)
        flow = cls(session, name=saved.name, clock=clock)
        for spec in saved.sources:
            add_source(flow._graph, spec)
        for view in saved.views:
            add_saved(flow._graph, lambda: flow.session, view, flow._now())
        return flow

    # Declaring

    def register_source(
        self,
        name: str,
        schema: Any,
        *,
        primary_key: str | list[str] | tuple[str, ...] | None = None,
        dedup: bool = False,
        retain: str = "all",
        on_missing_delete: str = "reject",
        lateness: Any = None,
    ) -> None:
        """Declare a source of rows.

        With a primary key, a row replaces the one with its key, and a retraction needs only the key. `dedup` drops
        a batch whose content was accepted before. `retain="used"` keeps only the columns that views use, and tells rows
        apart by a 128-bit hash: register the views before the first rows; the source itself can then not be read.
        `on_missing_delete="quarantine"` sets aside retractions of rows that are not there instead of rejecting the tick.
        `lateness={"column": "ts", "delay": "10 minutes"}` sets aside rows whose event time lies further behind the latest
        one that was accepted in an earlier tick.
        """
        with self._lock:
            refuse_taken(self._graph, name)
            spec = declare(
                name,
                schema,
                primary_key=primary_key,
                dedup=dedup,
                retain=retain,
                on_missing_delete=on_missing_delete,
                lateness=lateness,
            )
            add_source(self._graph, spec)

    def register_view(self, name: str, query: str | DataFrame) -> Explanation:
        """Declare a view by Spark SQL, or by a DataFrame built from `flow.table(...)`; it is filled from what is there.

        Returns what `explain` gives: the tier and the cost of every operator.
        """
        with self._lock:
            refuse_taken(self._graph, name)
            if not self._graph.sources:
                raise ConfigError(
                    "a view needs a source to read",
                    code="FLOW_NO_SOURCE",
                    hint='register one first: flow.register_source("orders", "id BIGINT, amount DECIMAL(10,2)")',
                )
            add_view(self._graph, self.session, name, query, self._now())
            return self.explain(name)

    def register_asof_view(
        self,
        name: str,
        *,
        left: str,
        right: str,
        left_time: str,
        right_time: str,
        by: By = (),
        direction: str = "backward",
        tolerance: Tolerance | None = None,
        how: str = "left",
        columns: Sequence[str] | Mapping[str, str] | None = None,
    ) -> Explanation:
        """Declare a view of each row of `left` with the one row of `right` that is nearest in time.

        `by` are columns that must be equal, by one name for both sides or as pairs. `direction` is backward (the last right
        row at or before the left row's time), forward or nearest; `tolerance` is the most that they may be apart. `how` is
        left or inner. `columns` are the right columns to show, as a list or as {name in the view: column}.

        >>> flow.register_asof_view("priced", left="trades", right="quotes", by="symbol",
        ...     left_time="at", right_time="at", columns={"quoted": "at", "bid": "bid"})       # doctest: +SKIP
        """
        with self._lock:
            refuse_taken(self._graph, name)
            view = asof_view(
                name,
                side_of(find_relation(self._graph, left)),
                side_of(find_relation(self._graph, right)),
                left_time=left_time,
                right_time=right_time,
                by=by,
                direction=direction,
                tolerance=tolerance,
                how=how,
                columns=columns,
            )
            add_saved(self._graph, lambda: self.session, view, self._now())
            return self.explain(name)

    def table(self, name: str) -> DataFrame:
        """Return a source or view as a PySpark DataFrame to build other views from; it holds no rows."""
        with self._lock:
            side = side_of(find_relation(self._graph, name))
            return catalyst.table(self.session.spark, relations(self._graph)[side.name])

    @property
    def session(self) -> Session:
        """The session that plans views; an embedded one is started when none was given."""
        if self._session is None:
            self._session = Session.embedded()
        return self._session

    # Changing

    def feed(self, source: str, delta: DeltaBatch | Any, *, ordinal: int | None = None) -> bool:
        """Hold a change for the next step; False when its ordinal is not above the last one.

        Rows that are no DeltaBatch are inserts.
        """
        with self._lock:
            entry = find_source(self._graph, source)
            if ordinal is not None and not self._is_new(entry, ordinal):
                return False
            batch = delta if isinstance(delta, DeltaBatch) else DeltaBatch.inserts(delta)
            keys = self._keys(entry, batch)
            self._pending.append(Fed(entry.spec.name, to_delta(entry.spec, batch), ordinal, keys))
            return True

    def check(self, source: str, delta: DeltaBatch | Any) -> None:
        """Refuse rows that do not fit a source, as `feed` would, without feeding them."""
        with self._lock:
            entry = find_source(self._graph, source)
            batch = delta if isinstance(delta, DeltaBatch) else DeltaBatch.inserts(delta)
            self._keys(entry, batch)
            to_delta(entry.spec, batch)

    def source_info(self, name: str) -> SourceInfo:
        """What a source is, and the ordinal up to which it was fed."""
        with self._lock:
            entry = find_source(self._graph, name)
            return entry.spec.info(entry.ordinal)

    def step(self) -> StepSummary:
        """Run one tick over everything that was fed since the last one.

        When it fails, nothing has changed and what was fed is forgotten: correct it and feed it again.
        """
        with self._lock:
            fed, self._pending = self._pending, []
            ticked = run_tick(self._graph, fed, self._now(), diff_based=self._diff_based)
            for name, change in ticked.changes.items():
                self._publish(name, change)
            return ticked.summary

    def tick(self, source: str, delta: DeltaBatch | Any, *, ordinal: int | None = None) -> StepSummary:
        """Feed one change and step; a replayed ordinal gives a summary of a tick that changed nothing."""
        with self._lock:
            self.feed(source, delta, ordinal=ordinal)
            return self.step()

    def feed_snapshot(self, source: str, rows: Any) -> bool:
        """Feed the difference between these rows and what the source holds."""
        with self._lock:
            entry = find_source(self._graph, source)
            source = entry.spec.name
            wanted = to_delta(entry.spec, DeltaBatch.inserts(rows))
            waiting = [fed.delta for fed in self._pending if fed.source == source]
            by_key = any(fed.keys for fed in self._pending if fed.source == source)
            if waiting and (entry.spec.primary_key or by_key):
                raise StateError(
                    f"source '{source}' has changes that wait for a step",
                    code="FLOW_PENDING",
                    hint="call flow.step() before flow.feed_snapshot(...)",
                )
            if entry.spec.retain == "used" and entry.spec.primary_key:
                self._pending.append(Fed(source, snapshot_by_key(entry, wanted)))
                return True
            held = whole_rows(entry, "the difference to a snapshot without a primary key")
            difference = consolidate(concat([wanted, *(-delta for delta in (held, *waiting))]))
            # Retractions first: by primary key, the new row must come after the old one is gone.
            ordered = difference.take(np.argsort(difference.weights > 0, kind="stable"))
            self._pending.append(Fed(source, ordered))
            return True

    def run(self, *, every: int | str = 1_000, max_rows: int = 100_000) -> None:
        """Step in the background: every so often, or as soon as `max_rows` rows wait. `stop()` ends it."""
        with self._lock:
            if self._stepper is not None and self._stepper.running:
                raise StateError(
                    "the flow is running already", code="FLOW_RUNNING", hint="call flow.stop() first"
                )
            self._stepper = Stepper(self, every=every, max_rows=max_rows)
            self._stepper.start()

    def stop(self) -> None:
        """End `run()` after the step that is under way; raises what ended it, if that was an error."""
        stepper, self._stepper = self._stepper, None
        if stepper is not None:
            stepper.stop()

    def waiting_rows(self) -> int:
        """How many fed rows wait for the next step."""
        with self._lock:
            return sum(len(fed.delta) for fed in self._pending)

    def force_diff_based(self) -> None:
        """From now on recompute every dirty view from all rows and diff, as a check of the incremental answer."""
        with self._lock:
            self._diff_based = True
            # Operators are not stepped any more: later views must not begin with theirs.
            self._graph.shared.nodes.clear()

    # Reading

    def snapshot(self, name: str) -> pa.Table:
        """Return the rows of a view, in its order when it has one, or of a source."""
        with self._lock:
            entry = find_relation(self._graph, name)
            if isinstance(entry, SourceEntry):
                return to_table(whole_rows(entry, "a snapshot"), entry.spec.fields)
            view = entry.view
            whole = to_table(entry.operator.all_rows(), view.root.fields, order=view.order)
            return whole if view.visible is None else whole.select(range(view.visible))

    def lookup(self, name: str, **key: Any) -> pa.Table:
        """Return the rows of a view or source with the given values, through an index."""
        with self._lock:
            entry = find_relation(self._graph, name)
            if isinstance(entry, SourceEntry):
                require_whole(entry, "a look-up")
            side = side_of(entry)
            positions = tuple(side.position(column) for column in key)
            if not key:
                raise ConfigError(
                    "a lookup needs a column and a value",
                    code="FLOW_LOOKUP",
                    hint=f"flow.lookup({name!r}, {side.fields[0].name}=...)",
                )
            fields = [side.fields[at] for at in positions]
            wanted = conform(
                pa.table({field.name: [value] for field, value in zip(fields, key.values(), strict=True)}),
                [(field.name, kernel_type(field.type), True) for field in fields],
                where=f"lookup in '{side.name}'",
            )
            _, found = index(self._graph, side.name, positions, self._now()).before().lookup(wanted, 1)
            return to_table(consolidate(found), side.fields)

    def watch_output(self, view: str, *, snapshot: bool = False, from_tick: int | None = None) -> Watch:
        """Return the changes of a view from now on; `snapshot` gives its rows first, `from_tick` the changes since then."""
        with self._lock:
            entry = find_view(self._graph, view)
            view = entry.view.name
            watch = Watch(view, on_close=lambda closed: self._watches[view].remove(closed))
            fields = entry.view.fields
            if snapshot:
                rows = entry.operator.rows()
                if len(rows):
                    watch.publish(to_batch(rows, fields))
            elif from_tick is not None:
                for _, change in self._since(view, from_tick):
                    watch.publish(to_batch(change, fields))
            self._watches.setdefault(view, []).append(watch)
            return watch

    def explain(self, view: str) -> Explanation:
        """Return the operators of a view with their tier, cost and reason."""
        with self._lock:
            entry = find_view(self._graph, view)
            return explain(entry.view, cost=aggregates.cost)

    def quarantined(self, source: str, *, clear: bool = False) -> pa.Table:
        """Return the rows that were set aside, with `_weight` and `_reason`; `clear` takes them out.

        Those are retractions of rows that were not there, and rows that came too late.
        """
        with self._lock:
            entry = find_source(self._graph, source)
            aside = concat([empty(entry.spec.types), *(part.rows for part in entry.quarantine)])
            reasons = [part.reason for part in entry.quarantine for _ in range(len(part.rows))]
            if clear:
                entry.quarantine.clear()
            table = to_batch(aside, entry.spec.fields).to_arrow()
            return table.append_column("_reason", pa.array(reasons, pa.string()))

    def reload_static(self, name: str) -> StepSummary:
        """Load a table of the session again, and bring the views that join it up to date in one tick."""
        with self._lock:
            found = registered(name, self._graph.statics)
            if found is None:
                raise ConfigError(
                    f"'{name}' is not a static table of this flow",
                    code="FLOW_UNKNOWN_STATIC",
                    hint=suggest(name, self._graph.statics, what="static table"),
                )
            entry = self._graph.statics[found]
            rows = load(reloaded(self.session, found, self._graph.frames[found]), entry.spec)
            self._pending.append(Fed(found, consolidate(concat([rows, -entry.operator.rows()]))))
            return self.step()

    def metrics(self) -> dict[str, float]:
        """Return counters and sizes of the flow by their Prometheus names."""
        with self._lock:
            seen = [entry.seen for entry in self._graph.sources.values()]
            return {
                "penstock_flow_ticks_total": self._graph.ticks,
                "penstock_flow_state_bytes": self._graph.circuit.memory(),
                "penstock_dedup_entries": sum(len(one) for one in seen),
                "penstock_dedup_dropped_total": sum(one.dropped for one in seen),
                "penstock_late_rows_total": sum(entry.late for entry in self._graph.sources.values()),
            }

    def close(self) -> None:
        """End `run()`, the watches, and the session if the flow started it; also the end of `with`."""
        self.stop()
        for watches in list(self._watches.values()):
            for watch in tuple(watches):
                watch.close()
        if self._own_session and self._session is not None:
            self._session.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside

    def _now(self) -> int:
        return max(self._clock(), self._graph.micros)

    def _publish(self, name: str, change: Delta) -> None:
        history = self._history.setdefault(name, deque(maxlen=HISTORY))
        history.append((self._graph.ticks, change))
        watches = self._watches.get(name)
        if watches:
            batch = to_batch(change, self._graph.views[name].view.fields)
            for watch in tuple(watches):
                watch.publish(batch)

    def _since(self, view: str, tick: int) -> list[tuple[int, Delta]]:
        history = self._history.get(view, deque())
        oldest = history[0][0] if len(history) == HISTORY else 0
        if tick < oldest:
            raise StateError(
                f"the changes of '{view}' since tick {tick} are gone: the oldest kept is tick {oldest}",
                code="FLOW_HISTORY",
                hint="use watch_output(view, snapshot=True)",
            )
        return [(number, change) for number, change in history if number >= tick]

    def _keys(self, entry: SourceEntry, batch: DeltaBatch) -> tuple[int, ...]:
        """The columns of a change by key, when the source has no primary key that says the same."""
        if not batch.keys:
            return ()
        spec = entry.spec
        keys = spec.positions(batch.keys)
        if not spec.primary_key:
            require_whole(entry, "the rows that a change by key replaces, without a primary key")
            index(self._graph, spec.name, keys, self._now())
            return keys
        if set(keys) != set(spec.positions(spec.primary_key)):
            raise DataError(
                f"the change is by {', '.join(batch.keys)}, but the primary key is {', '.join(spec.primary_key)}",
                code="FLOW_KEYS",
                where=f"source '{spec.name}'",
                hint="use the primary key as keys=",
            )
        return ()

    def _is_new(self, entry: SourceEntry, ordinal: int) -> bool:
        waiting = [
            fed.ordinal for fed in self._pending if fed.source == entry.spec.name and fed.ordinal is not None
        ]
        last = max((value for value in (entry.ordinal, *waiting) if value is not None), default=None)
        return last is None or ordinal > last
