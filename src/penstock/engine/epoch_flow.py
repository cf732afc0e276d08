"""A durable flow as one step of a streaming query: each epoch is one tick over all sources, and its changes of the
views can be had again.

The log of the flow has the rows of an epoch and its number in one record. An epoch that comes again behind a crash is
not stepped again: the flow is opened by its log, and what the last epoch changed is found on the way. Hence the
record of an epoch must stay until the query says, by `finalize`, that the epoch does not come again: checkpoints,
which let the log go, are taken nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import RLock

import numpy as np
import pyarrow as pa

from penstock.circuit.kernel import Kernel
from penstock.data.batch import DeltaBatch
from penstock.data.delta import Delta, empty
from penstock.engine import read, registration, replay
from penstock.engine.budget import memory_budget
from penstock.engine.directory import CHECKPOINT_EVERY, FlowDirectory
from penstock.engine.durability import Durability, Profile, check_durability, open_directory, own_folder
from penstock.engine.epoch_change import last_of_keys
from penstock.engine.event import TickEvent
from penstock.engine.feed import last_ordinal
from penstock.engine.graph import FedBatch, Graph, ViewEntry
from penstock.engine.partitioned import shard_kernels
from penstock.engine.registrar import Registrar
from penstock.engine.registration import Prepared
from penstock.engine.runner import Runner
from penstock.engine.seal import Seal, missing
from penstock.engine.session import Session
from penstock.engine.source import SourceSpec, declare, to_delta
from penstock.engine.tick import Ticked, run_tick
from penstock.errors import StateError
from penstock.plan.node import Fields
from penstock.plan.unique import unique_columns
from penstock.spark.catalyst import Relation

QUERY = "epochs"
EPOCHS = "_penstock_epochs"
"""A source without rows, which every epoch feeds: it remembers the number of the last one."""


class EpochFlow:
    """The flow of a directory, opened for one query; all calls come from one thread."""

    def __init__(
        self,
        session: Session,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        shards: int | None = None,
        memory: int | str | None = None,
        checkpoint_every: int = CHECKPOINT_EVERY,
        clock: Callable[[], int],
        secrets: Collection[str] = (),
    ) -> None:
        """Open the flow, or make one; with shards, Spark's tasks hold its state, otherwise this process.

        `secrets` are texts in the queries of views that storage must not show. When they are others than before, the
        views that had them can only be dropped.
        """
        durability: Durability = check_durability(None, path)
        settings = session.settings
        profile = Profile(durability, path, checkpoint_every=checkpoint_every)
        make_kernel: Callable[[], Kernel] | None = None
        budget = None
        if shards is None:
            budget = memory_budget(memory, own_folder(profile))
        else:
            make_kernel = shard_kernels(
                lambda: session, settings, shards=shards, durability=durability, memory=memory
            )
        self._session = session
        self._runner = Runner(name, clock, budget)
        self._runner.checkpoints_when_due = False
        self._registrar = Registrar(self._runner, RLock(), lambda: session)
        self._last: Mapping[str, Delta] | None = None
        self._seal = Seal(secrets, may_miss=True)
        self._directory = open_directory(profile, name, settings, seal=self._seal)
        try:
            self._open(self._directory, make_kernel)
        except Exception as error:
            self._directory.close()
            if self._seal.is_missing:
                # Whatever a plan without its values cannot do.
                raise missing() from error
            raise
        except BaseException:
            self._directory.close()
            raise

    def _open(self, directory: FlowDirectory, make_kernel: Callable[[], Kernel] | None) -> None:
        opened = replay.opened_at_last_epoch(
            directory, lambda: self._session, self._runner.graph.budget, make_kernel, is_epoch=_is_epoch
        )
        self._runner.open(opened.graph, opened.name, directory)
        if opened.last is not None:
            self._last = opened.last.changes
        if EPOCHS not in self._graph.sources:
            self.add_source(EPOCHS, "none BOOLEAN")

    # What there is

    @property
    def epoch(self) -> int | None:
        """The last epoch that the flow has; None before the first one."""
        epochs = self._graph.sources[EPOCHS].state.feeders.get(QUERY)
        return None if epochs is None else epochs - 1

    @property
    def last_changes(self) -> Mapping[str, Delta] | None:
        """What the last epoch changed in the views, until it is final; a view that it did not change is not among them."""
        return self._last

    @property
    def sources(self) -> Mapping[str, SourceSpec]:
        """The sources, as they were declared."""
        return {name: entry.spec for name, entry in self._graph.sources.items() if name != EPOCHS}

    @property
    def views(self) -> Mapping[str, ViewEntry]:
        """The views, in an order in which each comes behind those that it reads."""
        return self._graph.views

    def has_rows_of_before(self, source: str) -> bool:
        """Whether rows were fed to a source, at any time."""
        return self._graph.sources[source].state.ordinal is not None

    def rows(self, name: str) -> Delta:
        """All rows of a view, or of a source that keeps them."""
        return self._graph.kernel.rows(name)

    def rows_of_keys(self, view: str, columns: Sequence[int], values: Sequence[pa.Array]) -> Delta:
        """The rows of a view with these values, through an index, which the first call makes."""
        return self._graph.kernel.lookup(view, columns, values)

    def tells_apart(self, view: str, columns: Sequence[int]) -> bool:
        """Whether the plan of a view shows that no two rows are alike in these columns."""
        unique = unique_columns(self._graph.views[view].view.root)
        return unique is not None and set(unique) <= set(columns)

    def metrics(self) -> dict[str, float]:
        """Counters and sizes of the flow by their Prometheus names."""
        with self._runner.lock:
            return {**read.metrics(self._graph), **self._directory.metrics()}

    # Declaring

    def add_source(
        self,
        name: str,
        schema: object,
        *,
        primary_key: Sequence[str] = (),
        retain: str = "all",
    ) -> None:
        """Have a source; a retraction by key of a row that is not there is nothing."""
        missing = "ignore" if primary_key else "reject"
        spec = declare(
            name,
            schema,
            primary_key=tuple(primary_key),
            dedup=False,
            retain=retain,
            on_missing_delete=missing,
        )
        with self._runner.lock:
            self._graph.refuse_taken(name)
            self._registrar.add_source(spec)

    def add_view(self, prepared: Prepared) -> None:
        """Have a view that was planned, filled from what its sources keep."""
        with self._runner.lock:
            self._graph.refuse_taken(prepared.view.name)
            self._registrar.install(prepared, "reject")

    def drop_view(self, name: str) -> None:
        """Take a view out; no other may read it."""
        self._registrar.drop_view(name)

    def drop_source(self, name: str) -> None:
        """Take a source out with its rows; no view may read it."""
        self._registrar.drop_source(name)

    def fill(self, source: str, rows: Delta) -> None:
        """Give rows to a source that never had any: a tick of its own, which belongs to no epoch."""
        self._tick([FedBatch(source, rows, ordinal=0)])

    # Epochs

    def tick(self, epoch: int, batches: Mapping[str, DeltaBatch]) -> None:
        """Step the flow once over the rows of an epoch, for all sources together; it lasts when this returns. On an
        error nothing has changed.

        By primary key the last row of a key counts. `last_changes` are then those of this epoch.
        """
        fed = [FedBatch(EPOCHS, empty(self._graph.spec(EPOCHS).types), query=QUERY, epoch=epoch)]
        for name, batch in batches.items():
            entry = self._graph.find_source(name)
            delta = to_delta(entry.spec, batch)
            if entry.spec.primary_key:
                delta = last_of_keys(delta, entry.spec.positions(entry.spec.primary_key), entry.spec.fields)
            if len(delta):
                fed.append(FedBatch(entry.name, delta, ordinal=last_ordinal(entry, ()) + 1))
        self._last = self._tick(fed)

    def finalize(self) -> None:
        """Take note that the last epoch does not come again: a checkpoint is taken when the log has grown enough,
        beside what follows."""
        self._last = None
        with self._runner.lock:
            self._runner.checkpoint_if_due()

    def forget_unknown(self) -> None:
        """Note that no view is left that had secrets which are not known any more."""
        if self._seal.is_missing:
            self._checkpoint()
            self._directory.wait()

    def _checkpoint(self) -> None:
        with self._runner.lock:
            self._directory.checkpoint(self._graph, self._runner.name)

    def wait(self) -> None:
        """Return when the checkpoint that is being written is there, or has failed."""
        self._directory.wait()

    def close(self) -> None:
        """Let others open the directory."""
        try:
            if self._seal and self._last is None and self._directory.metrics()["penstock_flow_log_bytes"]:
                # Without ticks behind a checkpoint it can be opened when secrets have changed.
                self._checkpoint()
            self._directory.close()
        finally:
            self._graph.kernel.close()

    def _tick(self, fed: Sequence[FedBatch]) -> Mapping[str, Delta]:
        changes: Mapping[str, Delta] = {}

        def run() -> Ticked:
            nonlocal changes
            ticked = run_tick(self._graph, fed, self._runner.now(), self._runner.journal)
            changes = ticked.changes
            return ticked

        with self._runner.lock:
            self._runner.publish_tick(run)
        return changes

    @property
    def _graph(self) -> Graph:
        return self._runner.graph


def plan_views(
    session: Session, sources: Mapping[str, Fields], views: Sequence[tuple[str, str]]
) -> dict[str, Prepared]:
    """Plan views by name and SQL over sources that need not be there yet; each may read those before it."""
    relations = {name: Relation(name, fields) for name, fields in sources.items()}
    planned: dict[str, Prepared] = {}
    for name, sql in views:
        if not relations:
            raise StateError("a view needs a source to read", code="FLOW_NO_SOURCE")
        planned[name] = registration.plan_query(session, name, sql, relations, ())
        view = planned[name].view
        relations[name] = Relation(name, view.fields, view.metadata)
    return planned


def _is_epoch(event: TickEvent) -> bool:
    return any(batch.query == QUERY for batch in event.fed)


def once(rows: Delta) -> Delta:
    """Rows that are there, each with weight 1 as often as it is there."""
    if (rows.weights == 1).all():
        return rows
    several = rows.take(np.repeat(np.arange(len(rows)), rows.weights))
    return Delta(several.columns, np.ones(len(several), np.int64))
