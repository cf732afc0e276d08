"""`IncrementalFlow`: sources, views over them, and ticks that cost what changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

from penstock.circuit.kernel import Kernel
from penstock.config import Settings
from penstock.data.batch import DeltaBatch
from penstock.engine import definition, registration, replay
from penstock.engine.asof import By, Tolerance
from penstock.engine.budget import memory_budget
from penstock.engine.directory import CHECKPOINT_EVERY, FlowDirectory
from penstock.engine.durability import (
    Durability,
    Profile,
    Sync,
    check_durability,
    open_directory,
    own_folder,
)
from penstock.engine.event import RecomputeEvent
from penstock.engine.flow_input import FlowInput
from penstock.engine.graph import OnError
from penstock.engine.readable import ReadableFlow
from penstock.engine.registrar import Registrar
from penstock.engine.resume import run_resume
from penstock.engine.retention import require_no_open_source
from penstock.engine.runner import Runner
from penstock.engine.seam import translated
from penstock.engine.session import Session, settings_of
from penstock.engine.storage import FlowStorage
from penstock.engine.summary import StepSummary
from penstock.engine.table_refresh import TableRefresh
from penstock.engine.time_travel import Past
from penstock.engine.vector import VectorViewSpec
from penstock.plan.explain import Explanation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@translated
class IncrementalFlow(ReadableFlow):
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

        `durability="memory"`, the default without a path, lasts as long as the process; `"local"`, the default with
        one, as long as the disk of this machine; `"shared"`, the default with an object store, as long as that store
        and the state backend, which says who owns the flow. `shared_disk` says that a path is a disk of all nodes.
        `sync="tick"` syncs every tick before it returns; a number of milliseconds lets a crash of the machine lose
        the ticks of so much time, and a crash of the process none. A checkpoint is taken whenever the log has grown
        by `checkpoint_every` bytes. State beyond `memory` bytes (or "2 GB") lies in scratch files, in a directory of
        this machine or where temporary files are.
        """
        durability = check_durability(durability, path)
        settings = settings_of(session)
        self._make_kernel = self._kernels(settings, durability)
        profile = Profile(durability, path, sync, checkpoint_every, shared_disk)
        runner = Runner(
            name,
            clock or (lambda: time.time_ns() // 1000),
            memory_budget(memory, own_folder(profile)),
            None if self._make_kernel is None or path is not None else self._make_kernel(),
        )
        super().__init__(session, settings, runner, durability)
        # Sources and views come and go under `_registering`, which is taken before `_lock`; ticks and reads need `_lock` alone.
        self._registering = RLock()
        self._input = FlowInput(runner)
        self._registrar = Registrar(runner, self._registering, self._opened_session)
        self._table_refresh = TableRefresh(runner, self._registering, self._registrar, self._opened_session)
        self._storage = FlowStorage(
            runner,
            self._registering,
            session=self._opened_session,
            settings=settings,
        )
        if path is not None:
            self._open(open_directory(profile, name, settings))

    def _kernels(self, settings: Settings, durability: Durability) -> Callable[[], Kernel] | None:
        """What makes the kernels of the flow; None stands for one in this process."""
        return None

    def _open(self, directory: FlowDirectory) -> None:
        try:
            graph, name = replay.opened(
                directory, self._opened_session, self._graph.budget, self._make_kernel
            )
        except BaseException:
            directory.close()
            raise
        self._runner.open(graph, self.name or name, directory)
        self._past = Past(directory, self._opened_session)
        self._followers.start_all()

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
        directory, graph, name = replay.reading(Path(path), flow._opened_session, flow._graph.budget)
        flow._runner.open(graph, name, directory)
        return flow

    # Saving

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
        return cls._of_definition(text, partial(cls, session, clock=clock, memory=memory))

    @classmethod
    def _of_definition(cls, text: str, make: Callable[..., Self]) -> Self:
        saved = definition.loads(text)
        flow = make(name=saved.name)
        flow._registrar.register_saved(saved)
        return flow

    def checkpoint(self, path: str | os.PathLike[str], *, keep: int = 3) -> int:
        """Write the flow to a folder, or to a prefix of an object store, and return the number of the checkpoint;
        ticks of other threads go on meanwhile.

        What the last checkpoint of this flow has there, and what has not changed since, is not written again. The
        newest `keep` checkpoints of the folder stay.
        """
        return self._storage.checkpoint(path, keep=keep)

    def checkpoint_full(self, path: str | os.PathLike[str]) -> None:
        """Write the whole flow as Parquet and JSON, which later versions and other tools read, instead of the full
        checkpoint that is there.

        It has the rows of sources; `restore` and `load` fill the views from them. So a source with `retain="open"` is
        refused. Ticks of other threads go on meanwhile.
        """
        self._storage.checkpoint_full(path)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Be the flow of the newest checkpoint, or of the full one, in a folder or at a prefix of an object store,
        instead of what is here.

        Rows that wait for a step are forgotten and watches are closed. On an error nothing has changed.
        """
        self._storage.restore(path, self._make_kernel)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        session: Session | None = None,
        *,
        clock: Callable[[], int] | None = None,
        memory: int | str | None = None,
    ) -> Self:
        """Return the flow of the newest checkpoint, or of the full one, in a folder or at a prefix of an object
        store; views that the kernel computes start no JVM."""
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

        `table="lake.shop.orders"` makes it the rows of an Iceberg or Delta table instead, with the columns of that
        table: they are read now, and `refresh()` reads what changed since. Of the options it takes only `retain`;
        with `retain="used"` rows are first read by `refresh()`.

        With a primary key, a row replaces the one with its key, and a retraction needs only the key. `dedup` drops
        a batch whose content was accepted before. `retain="used"` keeps only the columns that views use, and tells rows
        apart by a 128-bit hash: register the views before the first rows; the source itself can then not be read.
        `retain="open"` does the same and, with a lateness, lets rows go that lie behind the watermark.
        `on_missing_delete="quarantine"` quarantines retractions of rows that are not there instead of rejecting the
        tick, and `"ignore"` forgets them. `lateness={"column": "ts", "delay": "10 minutes"}` quarantines rows whose
        event time lies further behind the latest one that was accepted in an earlier tick.
        """
        options = {
            "primary_key": primary_key,
            "dedup": dedup,
            "on_missing_delete": on_missing_delete,
            "lateness": lateness,
        }
        if table is not None:
            self._table_refresh.register(name, table, schema, retain=retain, options=options)
        else:
            self._registrar.register_source(name, schema, {**options, "retain": retain})

    def register_view(
        self, name: str, query: str | DataFrame, *, on_error: OnError = "reject"
    ) -> Explanation:
        """Declare a view by Spark SQL, or by a DataFrame built from `flow.table(...)`; it is filled from what is there.

        A tick that fails in the view is rejected as a whole. With `on_error="suspend"` it goes on without the view, which keeps
        its last rows until `resume_view`, and without the views that read it, whatever their `on_error` is.
        Returns what `explain` gives: the tier and the cost of every operator.
        """
        with self._registering:
            self._registrar.register_view(name, query, on_error)
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
        options = {
            "left_time": left_time,
            "right_time": right_time,
            "by": by,
            "direction": direction,
            "tolerance": tolerance,
            "how": how,
            "columns": columns,
        }
        with self._registering:
            self._registrar.register_asof_view(name, left, right, on_error, options)
            return self.explain(name)

    def register_vector_view(
        self, name: str, spec: VectorViewSpec, *, on_error: OnError = "reject"
    ) -> Explanation:
        """Declare a view of the k rows whose vectors are nearest to a query vector; only a filter needs Spark, once.

        `on_error` is that of `register_view`.

        >>> flow.register_vector_view("similar", VectorViewSpec(
        ...     source="docs", id="doc_id", embedding="vec", query=[0.1, 0.9], k=10))          # doctest: +SKIP
        """
        with self._registering:
            self._registrar.register_vector_view(name, spec, on_error)
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
        self._registrar.drop_view(name)

    def drop_source(self, name: str) -> None:
        """Take a source out, with its rows and those that wait for a step. Refused while views read it or a query feeds it."""
        self._registrar.drop_source(name)

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

        `kind` is postgres, iceberg, kafka, parquet, clickhouse or vector, and `options` are those of the sink. `key`
        are the columns that tell the rows of the view apart: -old +new of one key is an update. Ticks do not wait for
        a sink; `flush_sinks` and `close` do. A place that has rows of others is refused, unless `overwrite` lets the
        view replace them. `name`, `<view>_<kind>` without it, is what `drop_sink` takes. A sink that is there already
        goes on: a flow that was opened again is given those with passwords anew.

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

    # Changing

    def feed(self, source: str, delta: DeltaBatch | Any, *, ordinal: int | None = None) -> bool:
        """Hold a change for the next step; False when its ordinal is not above the last one.

        Rows that are no DeltaBatch are inserts. StateError when `run()` has ended with an error, which `stop()` raises.
        """
        return self._input.feed(source, delta, ordinal)

    def check(self, source: str, delta: DeltaBatch | Any) -> None:
        """Refuse rows that do not fit a source, as `feed` would, without feeding them."""
        self._input.check(source, delta)

    def attach_query(self, source: str, query: str, *, epochs: int, begun: int | None = None) -> None:
        """Let a streaming query that has done so many epochs, and begun so many, feed a source; for sinks of streams.

        Refused while another query feeds the source, when the flow has not seen all epochs that are done, or has seen
        some that are not begun.
        """
        self._input.attach_query(source, query, epochs=epochs, begun=begun)

    def detach_query(self, source: str, query: str) -> None:
        """The streaming query feeds the source no more; how far it came stays known."""
        self._input.detach_query(source, query)

    def tick_epoch(
        self, source: str, delta: DeltaBatch | Any, *, query: str, epoch: int
    ) -> StepSummary | None:
        """Feed an epoch of a streaming query and step; None, and nothing is fed, when the epoch is in already.

        The tick is on the disk when this returns, whatever `sync` is: the query notes then that the epoch does not come again.
        """
        return self._input.tick_epoch(source, delta, query=query, epoch=epoch)

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
        return self._input.tick(source, delta, ordinal)

    def tick_all(self, source: str, deltas: Sequence[DeltaBatch | Any]) -> StepSummary:
        """Feed several changes of a source and step; when one of them is refused, none is fed."""
        return self._input.tick_all(source, deltas)

    def feed_snapshot(self, source: str, rows: Any) -> bool:
        """Feed the difference between these rows and what the source holds."""
        self._input.feed_snapshot(source, rows)
        return True

    def refresh(self, *names: str) -> StepSummary | None:
        """Read what changed in the tables of sources, and step it with all that was fed, in one tick; None when nothing did.

        `names` are sources, and views for all sources below them; without names all sources of tables are meant.
        """
        return self._table_refresh.refresh(names)

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

    def force_diff_based(self) -> None:
        """From now on recompute every dirty view from all rows and diff, as a check of the incremental answer."""
        with self._lock:
            require_no_open_source(self._graph, "views cannot be recomputed from its rows")
            self._runner.journal.append(RecomputeEvent())
            replay.recompute_always(self._graph)

    def reload_static(self, name: str) -> StepSummary:
        """Load a table of the session again, and bring the views that join it up to date in one tick."""
        return self._table_refresh.reload_static(name)

    def _install(self, prepared: registration.Prepared, on_error: OnError) -> None:
        self._registrar.install(prepared, on_error)
