"""`IncrementalFlow`: sources, views over them, and ticks that cost what changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from penstock.circuit.kernel import Kernel
from penstock.config import Settings
from penstock.data.batch import DeltaBatch
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.engine import (
    definition,
    feed,
    feeder,
    full_checkpoint,
    read,
    registration,
    replay,
    table_source,
)
from penstock.engine.asof import By, Tolerance, asof_view
from penstock.engine.budget import memory_budget
from penstock.engine.changelog import Changelog
from penstock.engine.directory import CHECKPOINT_EVERY, FlowDirectory
from penstock.engine.durability import (
    Durability,
    Profile,
    Sync,
    check_durability,
    open_directory,
    own_folder,
)
from penstock.engine.event import ClearEvent, DropEvent, RecomputeEvent, SourceEvent, ViewEvent
from penstock.engine.followers import FlowAccess, Followers, refuse_followed
from penstock.engine.graph import ON_ERROR, Fed, Graph, OnError
from penstock.engine.listing import SourceListing, ViewListing, explain_view, list_sources, list_views
from penstock.engine.names import one_of, registered
from penstock.engine.resume import run_resume
from penstock.engine.retention import require_no_open_source, require_rows
from penstock.engine.runner import Runner
from penstock.engine.session import Session, settings_of
from penstock.engine.source import SourceInfo, SourceSpec, declare
from penstock.engine.storage import FlowStorage
from penstock.engine.summary import StepSummary
from penstock.engine.tick import maintain
from penstock.engine.time_travel import Past, read_at
from penstock.engine.vector import VectorViewSpec, vector_view
from penstock.engine.watch import Watch
from penstock.engine.why import Provenance, why
from penstock.errors import ConfigError, suggest
from penstock.plan.explain import Explanation
from penstock.plan.node import View
from penstock.spark import catalyst

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")


class IncrementalFlow:
    """Views that are kept up to date by deltas.

    >>> flow = IncrementalFlow()                                               # doctest: +SKIP
    >>> flow.register_source("orders", "customer BIGINT, amount DECIMAL(10,2)")
    >>> flow.register_view("totals", "SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer")
    >>> flow.tick("orders", DeltaBatch.inserts([{"customer": 7, "amount": 5}])).rows_out
    1

    A flow may be used from several threads; each tick runs alone. Ticks and reads do not wait while Spark plans a view.
    """

    def __init__(
        self,
        session: Session | None = None,
        *,
        name: str | None = None,
        clock: Callable[[], int] | None = None,
        path: str | os.PathLike[str] | None = None,
        durability: Durability | None = None,
        sync: Sync = "tick",
        checkpoint_every: int = CHECKPOINT_EVERY,
        shared_disk: bool = False,
        memory: int | str | None = None,
    ) -> None:
        """Make a flow, or open the one in the flow directory `path`, with all rows that its ticks have returned for.

        `durability="memory"`, the default without a path, lasts as long as the process; `"local"`, the default with one, as long as the
        disk of this machine; `"shared"`, the default with an object store, as long as that store and the state backend, which
        says who owns the flow. `shared_disk` says that a path is a disk of all nodes. `sync="tick"` syncs every tick before it returns; a number of milliseconds lets a crash of the machine
        lose the ticks of so much time, and a crash of the process none. A checkpoint is taken whenever the log has grown
        by `checkpoint_every` bytes. State beyond `memory` bytes (or "2 GB") lies in scratch files, in a directory of this machine or where
        temporary files are.
        """
        self._session = session
        self._own_session = session is None
        self.durability = check_durability(durability, path)
        profile = Profile(self.durability, path, sync, checkpoint_every, shared_disk)
        self._runner = Runner(
            name,
            clock or (lambda: time.time_ns() // 1000),
            memory_budget(memory, own_folder(profile)),
            None if self._make_kernel is None or path is not None else self._make_kernel(),
        )
        self._past: Past | None = None
        # Sources and views come and go under `_registering`, which is taken before `_lock`; ticks and reads need `_lock` alone.
        self._registering = RLock()
        self._lock = self._runner.lock
        self._session_lock = Lock()
        self._checkpointing = RLock()  # taken before the other two
        self._storage = FlowStorage(self._settings)
        self._followers = Followers(
            FlowAccess(
                lock=self._lock,
                graph=lambda: self._graph,
                journal=lambda: self._runner.journal,
                name=lambda: self.name,
                settings=self._settings,
                session=lambda: self.session,
            )
        )
        if path is not None:
            self._open(open_directory(profile, name, self._settings()))

    # Makes the kernels of the flow; None stands for one in this process.
    _make_kernel: Callable[[], Kernel] | None = None

    def _open(self, directory: FlowDirectory) -> None:
        try:
            graph, name = replay.opened(
                directory, lambda: self.session, self._graph.budget, self._make_kernel
            )
        except BaseException:
            directory.close()
            raise
        self._runner.open(graph, self.name or name, directory)
        self._past = Past(directory, lambda: self.session)
        self._followers.start_all()

    @property
    def name(self) -> str | None:
        """The flow's name."""
        return self._runner.name

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        session: Session | None = None,
        *,
        memory: int | str | None = None,
    ) -> Self:
        """Return the flow of a flow directory as it is now, to look at it: another process may have it open. It takes no ticks.

        State beyond `memory` bytes lies where temporary files are.
        """
        flow = cls(session, memory=memory)
        directory, graph, name = replay.reading(Path(path), lambda: flow.session, flow._graph.budget)
        flow._runner.open(graph, name, directory)
        return flow

    # Saving

    def definition(self) -> str:
        """Return the flow's sources and views, with the plans that Spark made, as JSON text; rows are not part of it."""
        with self._lock:
            return definition.dumps(self._graph, self.name)

    @classmethod
    def from_definition(
        cls,
        text: str,
        session: Session | None = None,
        *,
        clock: Callable[[], int] | None = None,
        memory: int | str | None = None,
    ) -> Self:
        """Build an empty flow from what `definition()` gave, without planning anything.

        No JVM is started, except for views with a static table or an operator of tier `recompute`, whose first rows are
        Spark's; an expression of tier `spark` starts one when the first row reaches it.
        """
        saved = definition.loads(text)
        flow = cls(session, name=saved.name, clock=clock, memory=memory)
        for spec in saved.sources:
            registration.add_source(flow._graph, spec)
        for view in saved.views:
            names, statics = registration.relations(flow._graph), list(flow._graph.statics)
            prepared = registration.saved_view(lambda: flow.session, view, names, statics)
            flow._install(prepared, saved.on_error.get(view.name, "reject"))
        return flow

    def checkpoint(self, path: str | os.PathLike[str], *, keep: int = 3) -> int:
        """Write the flow to a folder, or to a prefix of an object store, and return the number of the checkpoint; ticks of other threads go on meanwhile.

        What the last checkpoint of this flow has there, and what has not changed since, is not written again. The newest `keep` checkpoints
        of the folder stay.
        """
        with self._checkpointing:
            checkpoints = self._storage.checkpoints(path)
            with self._lock:
                staged = checkpoints.stage(self._graph, self.name)
            return self._storage.write(checkpoints, staged, keep=keep)

    def checkpoint_full(self, path: str | os.PathLike[str]) -> None:
        """Write the whole flow as Parquet and JSON, which later versions and other tools read, instead of the full checkpoint that is there.

        It has the rows of sources; `restore` and `load` fill the views from them. So a source with `retain="open"` is refused. Ticks of other
        threads go on meanwhile.
        """
        with self._checkpointing:
            with self._lock:
                staged = full_checkpoint.stage(self._graph, self.name)
            self._storage.write_full(path, staged)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Be the flow of the newest checkpoint, or of the full one, in a folder or at a prefix of an object store, instead of what is here.

        Rows that wait for a step are forgotten and watches are closed. On an error nothing has changed.
        """
        with self._checkpointing, self._registering, self._lock:
            self._runner.refuse_ended()
            refuse_followed(self._graph)
            for entry in self._graph.sources.values():
                registration.refuse_fed(entry)
            graph, name = self._storage.restored(
                path, lambda: self.session, self._graph.budget, self._make_kernel
            )
            changelogs = self._runner.replace(graph, name)
        for changelog in changelogs:
            changelog.close()

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        session: Session | None = None,
        *,
        clock: Callable[[], int] | None = None,
        memory: int | str | None = None,
    ) -> Self:
        """Return the flow of the newest checkpoint, or of the full one, in a folder or at a prefix of an object store; views that the kernel computes start no JVM."""
        flow = cls(session, clock=clock, memory=memory)
        flow.restore(path)
        return flow

    # Declaring

    def register_source(
        self,
        name: str,
        schema: Any = None,
        *,
        primary_key: str | list[str] | tuple[str, ...] | None = None,
        dedup: bool = False,
        retain: str = "all",
        on_missing_delete: str = "reject",
        lateness: Any = None,
        table: str | None = None,
    ) -> None:
        """Declare a source of rows.

        `table="lake.shop.orders"` makes it the rows of an Iceberg or Delta table instead, with the columns of that table: they are read
        now, and `refresh()` reads what changed since. Of the options it takes only `retain`; with `retain="used"` rows are first read by `refresh()`.

        With a primary key, a row replaces the one with its key, and a retraction needs only the key. `dedup` drops
        a batch whose content was accepted before. `retain="used"` keeps only the columns that views use, and tells rows
        apart by a 128-bit hash: register the views before the first rows; the source itself can then not be read. `retain="open"` does the same
        and, with a lateness, lets rows go that lie behind the watermark.
        `on_missing_delete="quarantine"` quarantines retractions of rows that are not there instead of rejecting the tick.
        `lateness={"column": "ts", "delay": "10 minutes"}` quarantines rows whose event time lies further behind the latest
        one that was accepted in an earlier tick.
        """
        options = {
            "primary_key": primary_key,
            "dedup": dedup,
            "on_missing_delete": on_missing_delete,
            "lateness": lateness,
        }
        if table is not None:
            self._register_table(name, table, schema, retain, options)
            return
        with self._registering, self._lock:
            self._graph.refuse_taken(name)
            self._add_source(declare(name, schema, retain=retain, **options))

    def _register_table(
        self, name: str, table: str, schema: Any, retain: str, options: Mapping[str, Any]
    ) -> None:
        others = [key for key, value in options.items() if value not in (None, False, "reject")]
        if schema is not None or others:
            raise ConfigError(
                f"the source of a table takes no {' or '.join(['schema'] * (schema is not None) + others)}",
                code="FLOW_OPTION",
                where=f"source '{name}'",
                hint="it has the columns and the rows of the table; retain is the one option that it takes",
            )
        with self._registering:
            with self._lock:
                self._graph.refuse_taken(name)
            spec = table_source.declare_table(self.session, name, table, retain=retain)
            with self._lock:
                self._add_source(spec)
            if retain == "all":
                try:
                    self.refresh(name)
                except BaseException:
                    IncrementalFlow.drop_source(self, name)
                    raise

    def _add_source(self, spec: SourceSpec) -> None:
        registration.add_source(self._graph, spec)
        try:
            self._runner.journal.append(SourceEvent(spec))
        except BaseException:
            registration.drop_source(self._graph, spec.name)
            raise

    def register_view(
        self, name: str, query: str | DataFrame, *, on_error: OnError = "reject"
    ) -> Explanation:
        """Declare a view by Spark SQL, or by a DataFrame built from `flow.table(...)`; it is filled from what is there.

        A tick that fails in the view is rejected as a whole. With `on_error="suspend"` it goes on without the view, which keeps
        its last rows until `resume_view`, and without the views that read it, whatever their `on_error` is.
        Returns what `explain` gives: the tier and the cost of every operator.
        """
        one_of("on_error", on_error, ON_ERROR)
        with self._registering:
            with self._lock:
                self._graph.refuse_taken(name)
                if not self._graph.sources:
                    raise ConfigError(
                        "a view needs a source to read",
                        code="FLOW_NO_SOURCE",
                        hint='register one first: flow.register_source("orders", "id BIGINT, amount DECIMAL(10,2)")',
                    )
                names, statics = registration.relations(self._graph), list(self._graph.statics)
            prepared = registration.plan_query(self.session, name, query, names, statics)
            with self._lock:
                self._install(prepared, on_error)
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
        on_error: OnError = "reject",
    ) -> Explanation:
        """Declare a view of each row of `left` with the one row of `right` that is nearest in time.

        `by` are columns that must be equal, by one name for both sides or as pairs. `direction` is backward (the last right
        row at or before the left row's time), forward or nearest; `tolerance` is the most that they may be apart. `how` is
        left or inner. `columns` are the right columns to show, as a list or as {name in the view: column}. `on_error` is that of
        `register_view`.

        >>> flow.register_asof_view("priced", left="trades", right="quotes", by="symbol",
        ...     left_time="at", right_time="at", columns={"quoted": "at", "bid": "bid"})       # doctest: +SKIP
        """
        one_of("on_error", on_error, ON_ERROR)
        with self._registering, self._lock:
            self._graph.refuse_taken(name)
            view = asof_view(
                name,
                self._graph.find_relation(left),
                self._graph.find_relation(right),
                left_time=left_time,
                right_time=right_time,
                by=by,
                direction=direction,
                tolerance=tolerance,
                how=how,
                columns=columns,
            )
            prepared = registration.saved_view(lambda: self.session, view, {}, ())
            self._install(prepared, on_error)
            return self.explain(name)

    def register_vector_view(
        self, name: str, spec: VectorViewSpec, *, on_error: OnError = "reject"
    ) -> Explanation:
        """Declare a view of the k rows whose vectors are nearest to a query vector; only a filter needs Spark, once.

        `on_error` is that of `register_view`.

        >>> flow.register_vector_view("similar", VectorViewSpec(
        ...     source="docs", id="doc_id", embedding="vec", query=[0.1, 0.9], k=10))          # doctest: +SKIP
        """
        one_of("on_error", on_error, ON_ERROR)
        with self._registering:
            with self._lock:
                self._graph.refuse_taken(name)
                relation = self._graph.find_relation(spec.source)
                names = registration.relations(self._graph)

            def filtered(columns: Sequence[int], condition: str) -> View:
                return registration.plan_filter(self.session, name, names[relation.name], columns, condition)

            view = vector_view(name, spec, relation, filtered=filtered)
            prepared = registration.saved_view(lambda: self.session, view, names, ())
            with self._lock:
                self._install(prepared, on_error)
                return self.explain(name)

    def resume_view(self, name: str) -> StepSummary:
        """Let a suspended view go on, with the views that were suspended because of it: they are filled from what is there.

        This is a tick of its own, at the time of the last one; watches get the difference to the last rows. What was fed goes on
        waiting. When the view fails again, the error is raised and it stays suspended with that error; when one of the others
        does, the summary says so. StateError when the view is not suspended, or reads one that is.
        """
        with self._lock:
            self._runner.refuse_ended()
            view = self._graph.find_view(name).name
            return self._runner.publish_tick(partial(run_resume, self._graph, view, self._runner.journal))

    def drop_view(self, name: str) -> None:
        """Take a view out, with the state that only it needs; its watches are closed. Refused while other views read it."""
        with self._registering, self._lock:
            name = self._graph.find_view(name).name
            self._graph.refuse_read("view", name)
            refuse_followed(self._graph, name)
            self._runner.journal.append(DropEvent(name, is_view=True))
            registration.drop_view(self._graph, name)
            changelog = self._runner.changelogs.pop(name, None)
        if changelog is not None:
            changelog.close()

    def drop_source(self, name: str) -> None:
        """Take a source out, with its rows and those that wait for a step. Refused while views read it or a query feeds it."""
        with self._registering, self._lock:
            name = self._graph.find_source(name).name
            registration.refuse_used(self._graph, name)
            self._runner.journal.append(DropEvent(name, is_view=False))
            registration.drop_source(self._graph, name)
            self._runner.pending = [batch for batch in self._runner.pending if batch.source != name]

    def sink(
        self,
        view: str,
        kind: str,
        *,
        key: str | Sequence[str] | None = None,
        name: str | None = None,
        overwrite: bool = False,
        **options: Any,
    ) -> None:
        """Let a sink follow a view: it has all rows of the view when this returns, and gets the change of every later tick.

        `kind` is postgres, iceberg, kafka, parquet, clickhouse or vector, and `options` are those of the sink. `key` are the columns that tell the rows
        of the view apart: -old +new of one key is an update. Ticks do not wait for a sink; `flush_sinks` and `close` do.
        A place that has rows of others is refused, unless `overwrite` lets the view replace them. `name`, `<view>_<kind>` without it, is
        what `drop_sink` takes. A sink that is there already goes on: a flow that was opened again is given those with passwords anew.

        >>> flow.sink("totals", "postgres", url="postgresql://me:secret@db/shop", table="totals", key=["customer"])  # doctest: +SKIP
        """
        with self._registering:
            self._followers.register(view, kind, key=key, name=name, overwrite=overwrite, options=options)

    def drop_sink(self, name: str) -> None:
        """Let a sink follow its view no more; the rows that it has stored stay."""
        with self._registering:
            self._followers.drop(name)

    def flush_sinks(self, timeout: float | None = None) -> bool:
        """Wait until all sinks have the ticks of now; False when `timeout` seconds pass. Raises what has ended a sink."""
        return self._followers.flush(timeout)

    def table(self, name: str) -> DataFrame:
        """Return a source or view as a PySpark DataFrame to build other views from; it holds no rows."""
        with self._lock:
            relation = registration.relations(self._graph)[self._graph.find_relation(name).name]
        return catalyst.table(self.session.spark, relation)

    @property
    def session(self) -> Session:
        """The session that plans views; an embedded one is started when none was given."""
        with self._session_lock:
            if self._session is None:
                self._session = Session.embedded()
            return self._session

    # Changing

    def feed(self, source: str, delta: DeltaBatch | Any, *, ordinal: int | None = None) -> bool:
        """Hold a change for the next step; False when its ordinal is not above the last one.

        Rows that are no DeltaBatch are inserts. StateError when `run()` has ended with an error, which `stop()` raises.
        """
        with self._lock:
            self._runner.refuse_ended()
            batch = feed.batch_of(self._graph, source, delta, ordinal, self._runner.pending)
            if batch is not None:
                self._runner.pending.append(batch)
            return batch is not None

    def check(self, source: str, delta: DeltaBatch | Any) -> None:
        """Refuse rows that do not fit a source, as `feed` would, without feeding them."""
        with self._lock:
            feed.batch_of(self._graph, source, delta, None, ())

    def source_info(self, name: str) -> SourceInfo:
        """What a source is, and the ordinal up to which it was fed."""
        with self._lock:
            entry = self._graph.find_source(name)
            return entry.spec.info(entry.state.ordinal)

    def attach_query(self, source: str, query: str, *, epochs: int, begun: int | None = None) -> None:
        """Let a streaming query that has done so many epochs, and begun so many, feed a source; for sinks of streams.

        Refused while another query feeds the source, when the flow has not seen all epochs that are done, or has seen some that are not begun.
        """
        with self._lock:
            feeder.attach_query(self._graph.find_source(source), query, epochs, begun)

    def detach_query(self, source: str, query: str) -> None:
        """The streaming query feeds the source no more; how far it came stays known."""
        with self._lock:
            if (spelled := registered(source, self._graph.sources)) is not None:
                feeder.detach_query(self._graph.sources[spelled], query)

    def tick_epoch(
        self, source: str, delta: DeltaBatch | Any, *, query: str, epoch: int
    ) -> StepSummary | None:
        """Feed an epoch of a streaming query and step; None, and nothing is fed, when the epoch is in already.

        The tick is on the disk when this returns, whatever `sync` is: the query notes then that the epoch does not come again.
        """
        with self._lock:
            summary = self._step_epoch(source, delta, query, epoch)
            journal = self._runner.journal
        journal.sync()
        return summary

    def _step_epoch(self, source: str, delta: DeltaBatch | Any, query: str, epoch: int) -> StepSummary | None:
        entry = self._graph.find_source(source)
        if epoch < entry.state.feeders.get(query, 0):
            return None
        batch = feed.batch_of(self._graph, source, delta, None, ())
        assert batch is not None, "a batch without an ordinal is new"
        ordinal = feed.last_ordinal(entry, self._runner.pending) + 1
        return self._runner.step_with([replace(batch, ordinal=ordinal, query=query, epoch=epoch)])

    def step(self) -> StepSummary:
        """Run one tick over everything that was fed since the last one.

        When it fails, nothing has changed and what was fed is forgotten: correct it and feed it again. While `run()` is on,
        batches whose data is refused go to the quarantine instead, as `run` does it.
        """
        with self._lock:
            return self._runner.step()

    def tick(self, source: str, delta: DeltaBatch | Any, *, ordinal: int | None = None) -> StepSummary:
        """Feed one change and step; a replayed ordinal gives a summary of a tick that changed nothing.

        When it fails, nothing has changed and what was fed is forgotten; while `run()` is on, only this change is.
        """
        with self._lock:
            self._runner.refuse_ended()
            batch = feed.batch_of(self._graph, source, delta, ordinal, self._runner.pending)
            return self._runner.step_with([] if batch is None else [batch])

    def tick_all(self, source: str, deltas: Sequence[DeltaBatch | Any]) -> StepSummary:
        """Feed several changes of a source and step; when one of them is refused, none is fed."""
        with self._lock:
            self._runner.refuse_ended()
            batches = [feed.batch_of(self._graph, source, delta, None, ()) for delta in deltas]
            return self._runner.step_with([batch for batch in batches if batch is not None])

    def feed_snapshot(self, source: str, rows: Any) -> bool:
        """Feed the difference between these rows and what the source holds."""
        with self._lock:
            self._runner.refuse_ended()
            self._runner.pending.append(feed.snapshot_batch(self._graph, source, rows, self._runner.pending))
            return True

    def refresh(self, *names: str) -> StepSummary | None:
        """Read what changed in the tables of sources, and step it with all that was fed, in one tick; None when nothing did.

        `names` are sources, and views for all sources below them; without names all sources of tables are meant.
        """
        with self._registering:
            with self._lock:
                self._runner.refuse_ended()
                sources = table_source.standings(self._graph, names)
            return self._refresh(sources)

    def _refresh(
        self, sources: list[table_source.Standing], at: Mapping[str, str] | None = None
    ) -> StepSummary | None:
        """Bring sources to the versions of their tables of now, or to those `at`; called by whoever registers."""

        def held(spec: SourceSpec) -> Delta:
            with self._lock:
                return table_source.held_rows(self._graph, spec)

        batches = table_source.changes(self.session, sources, held, at=at) if sources else []
        with self._lock:
            return self._runner.step_with(batches) if batches else None

    def run(self, *, every: int | str = 1_000, max_rows: int = 100_000) -> None:
        """Step in the background: every so often, or as soon as `max_rows` rows wait. `stop()` ends it.

        What `feed` has accepted is not forgotten. A batch whose data is refused goes to `quarantined(source)` with the error,
        and the others go in. Any other error ends the stepping: rows go on waiting, `feed` and `step` raise, and `stop()`
        raises the error.
        """
        with self._lock:
            self._runner.run(every=every, max_rows=max_rows)

    def stop(self) -> None:
        """End `run()` after a step over what waits; raises what ended it, if that was an error. Rows that wait stay."""
        self._runner.stop()

    def waiting_rows(self) -> int:
        """How many fed rows wait for the next step."""
        return self._runner.waiting_rows()

    def force_diff_based(self) -> None:
        """From now on recompute every dirty view from all rows and diff, as a check of the incremental answer."""
        with self._lock:
            require_no_open_source(self._graph, "views cannot be recomputed from its rows")
            self._runner.journal.append(RecomputeEvent())
            replay.recompute_always(self._graph)

    # Reading

    def snapshot(self, name: str, *, at_tick: int | None = None) -> pa.Table:
        """Return the rows of a view, in its order when it has one, or of a source. Ticks go on while they are read.

        `at_tick` gives those that it had when this tick was the last one, for the `ticks()` of a flow with a path.
        """
        return self._read_at(at_tick, partial(read.snapshot, name=name))()

    def _read_at(self, at_tick: int | None, read: Callable[[Graph], T]) -> T:
        """What a function says of the flow, now or as it was when a tick was the last one."""
        with self._lock:
            now, end = self._graph.state.ticks, self._runner.journal.position
            if at_tick is None or at_tick == now:
                return read(self._graph)
        return read_at(self._past, at_tick, read, now=now, end=end)

    def ticks(self) -> range:
        """Return the ticks that `at_tick=n` of `snapshot`, `lookup` and `why` takes: those behind the oldest checkpoint of a flow with a path."""
        first = None if self._past is None else self._past.first()
        with self._lock:
            last = self._graph.state.ticks
        return range(last if first is None else first, last + 1)

    def lookup(self, name: str, /, *, at_tick: int | None = None, **key: Any) -> pa.Table:
        """Return the rows of a view or source with the given values, through an index.

        The index is made by the first look-up of its columns. A source or view keeps those of the 8 sets of columns that
        were looked up last. `at_tick` gives the rows that it had when this tick was the last one, as in `snapshot`.
        """
        return self._read_at(at_tick, partial(read.lookup, name=name, key=key))

    def why(self, view: str, row: Mapping[str, Any], *, at_tick: int | None = None) -> Provenance:
        """Return the source rows behind the one row of a view that has these values; ticks wait meanwhile.

        `at_tick` asks for a row that the view had when this tick was the last one, as in `snapshot`. `row` has some or all columns. Joins, filters and projections give exactly the rows that were needed, aggregates those of the
        group, windows those of the partition. Printed, the result lists them, and the relations that were read without an index.

        >>> print(flow.why("totals", {"customer": 7}))                        # doctest: +SKIP
        """
        return self._read_at(at_tick, partial(why, view=view, row=row))

    def watch_output(self, view: str, *, snapshot: bool = False, from_tick: int | None = None) -> Watch:
        """Return the changes of a view from now on; `snapshot` gives its rows first, `from_tick` the changes since then.

        The last changes are kept for readers that come back, from the first watch of a view on: at most 256, and at most
        64 MiB of them.
        """
        with self._lock:
            entry = self._graph.find_view(view)
            changelog = self._runner.changelogs.get(entry.name)
            if changelog is None:
                changelog = Changelog(entry.name, entry.fields, self._graph.state.ticks)
                self._runner.changelogs[entry.name] = changelog
            rows = self._graph.kernel.rows(entry.name) if snapshot else None
            return changelog.watch(rows=rows, from_tick=from_tick)

    def explain(self, view: str) -> Explanation:
        """Return the operators of a view with their tier, cost and reason, and why it is suspended, if it is."""
        with self._lock:
            entry = self._graph.find_view(view)
            return replace(
                explain_view(self._graph, entry.view),
                durability=self.durability,
                sinks=self._followers.describe(entry.name),
            )

    def sources(self) -> list[SourceListing]:
        """Return the sources, with how they were declared and the number of their rows."""
        with self._lock:
            return list_sources(self._graph)

    def views(self) -> list[ViewListing]:
        """Return the views, with their queries, their tiers and the number of their rows."""
        with self._lock:
            return list_views(self._graph)

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
                replay.apply(self._graph, event, lambda: self.session)
            return rows

    def reload_static(self, name: str) -> StepSummary:
        """Load a table of the session again, and bring the views that join it up to date in one tick."""
        with self._registering:
            with self._lock:
                spelled = registered(name, self._graph.statics)
                if spelled is None:
                    raise ConfigError(
                        f"'{name}' is not a static table of this flow",
                        code="FLOW_UNKNOWN_STATIC",
                        hint=suggest(name, self._graph.statics, what="static table"),
                    )
                entry = self._graph.statics[spelled]
            rows = registration.reload(self.session, entry)
            with self._lock:
                change = consolidate(concat([rows, -self._graph.kernel.rows(spelled)]))
                return self._runner.step_with([Fed(spelled, change)])

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

    def close(self) -> None:
        """End `run()`, the sinks when they have all ticks, the watches, and the session if the flow started it; also the end of `with`.

        Raises why a sink does not have them, behind everything else.
        """
        try:
            try:
                self.stop()
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

    def _settings(self) -> Settings:
        return settings_of(self._session)

    def _install(self, prepared: registration.Prepared, on_error: OnError) -> None:
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
