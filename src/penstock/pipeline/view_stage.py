"""The views of one level of a pipeline: one durable flow, one tick for each epoch, and the changes of the views for
the next nodes.

1. `step` takes the rows of an epoch for all inputs together and runs one tick, which is in the log of the flow when
  it returns; the changes of the views go on.
2. Sinks store them. When the process dies before all of them have, Spark gives the epoch again: `step` then finds the
  tick in the log and returns the same
   changes, without a tick.
3. Spark notes that the epoch is done, and `finalize` is called: now, and only now, the log may be cut.

A definition that has changed is taken over by `open`: what did not change keeps its state. The changes of a view that
was made again are the difference between what sinks have of it and its new answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.data.batch import DeltaBatch
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty
from penstock.data.operation import OPERATION, WEIGHT
from penstock.data.schema import to_arrow_field
from penstock.data.types import kernel_type
from penstock.engine.directory import CHECKPOINT_EVERY
from penstock.engine.epoch_change import KeyedRows, keyed, merged, require_unique
from penstock.engine.epoch_flow import EpochFlow, once, plan_views
from penstock.engine.names import registered
from penstock.engine.registration import Prepared
from penstock.engine.session import Session
from penstock.errors import ConfigError, StateError, suggest
from penstock.pipeline import stage_rows
from penstock.pipeline.secret import forms_of
from penstock.pipeline.stage_plan import (
    SavedInput,
    SavedStage,
    SavedStageView,
    StageInput,
    StagePlan,
    StageView,
    compare,
)
from penstock.pipeline.stage_store import SavedRows, Settling, StageStore
from penstock.plan.node import Field, Fields
from penstock.spark.arrow import to_arrow_all, to_frame
from penstock.spark.no_rows import no_rows
from penstock.spark.schema import struct_of
from penstock.state.location import open_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_NO_ROWS = SavedRows((), Delta((), np.zeros(0, np.int64)))


class ViewStage:
    """Views over inputs, as one step of a streaming query whose epochs come in order.

    >>> stage = ViewStage(session, "state/totals",
    ...     [StageInput("orders", orders.schema, keys=("id",))],
    ...     [StageView("totals", "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer", keys=("customer",))])  # doctest: +SKIP
    >>> stage.open(committed=-1)                                               # doctest: +SKIP
    >>> stage.step(0, {"orders": orders})["totals"].show()                     # doctest: +SKIP
    >>> stage.finalize(0)                                                      # doctest: +SKIP

    All calls come from one thread.
    """

    def __init__(
        self,
        session: Session,
        directory: str | os.PathLike[str],
        inputs: Sequence[StageInput],
        views: Sequence[StageView],
        *,
        name: str | None = None,
        shards: int | None = None,
        memory: int | str | None = None,
        checkpoint_every: int = CHECKPOINT_EVERY,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
        secrets: Collection[str] = (),
    ) -> None:
        """Describe a stage; nothing is opened. Views come after those that they read.

        `directory` is a folder of this machine, or the URI of one in an object store, where `name` is its owner in
        the state backend. With `shards` the tasks of Spark have the state, otherwise this process; state beyond
        `memory` is in files. A checkpoint is taken when the log has grown by `checkpoint_every` bytes. `secrets` are
        texts in the SQL of views that the files must not show.
        """
        self._session = session
        self._directory = directory
        self._inputs = {declared.name: declared for declared in inputs}
        self._views = {view.name: view for view in views}
        self._name, self._shards, self._memory = name, shards, memory
        self._checkpoint_every, self._clock = checkpoint_every, clock
        self._secrets = frozenset(form for secret in secrets for form in forms_of(secret))
        self._prepared: dict[str, Prepared] | None = None
        self._flow: EpochFlow | None = None
        self._settling: dict[str, Settling] = {}
        self._schemas: dict[str, StructType] = {}
        self._nothing: dict[str, DataFrame] = {}

    # Before the first epoch

    def with_keys(self, keys: Mapping[str, tuple[str, ...]]) -> ViewStage:
        """Return the same stage with other keys of views; what Spark has planned is not planned again."""
        stage = copy(self)
        stage._views = {
            name: replace(view, keys=keys.get(name, view.keys)) for name, view in self._views.items()
        }
        stage._schemas, stage._nothing = {}, {}
        return stage

    def columns(self, view: str) -> tuple[str, ...]:
        """Return the names of the columns of a view, without `_op` and `_weight`."""
        return tuple(field.name for field in self._fields(view))

    def plan(self) -> StagePlan:
        """Return what `open` would do to the state that is there. It reads one small file, and calls neither Spark
        nor the flow."""
        return compare(self._store().read(), list(self._inputs.values()), list(self._views.values()))

    @property
    def has_waiting_changes(self) -> bool:
        """Whether the next epoch has changes although no row comes: a view is new or another one, and sinks do not
        have all of it yet."""
        return not self.plan().is_unchanged or any(self._store().settling_names())

    def schema(self, view: str) -> StructType:
        """Return the columns of the changes of a view: its own, and `_op` when it has a key, or `_weight`.

        Spark plans all views for it, unless nothing has changed since the stage was last opened.
        """
        if view not in self._schemas:
            self._schemas[view] = struct_of(self._session.spark, _shown(self._view(view), self._fields(view)))
        return self._schemas[view]

    def open(self, *, committed: int, fresh: Collection[str] = ()) -> StagePlan:
        """Open the flow, or make it, with these inputs and views; returns what that meant for its state.

        `committed` is the last epoch that is done in Spark's checkpoint, -1 before the first one. StateError when the
        flow and the checkpoint do not belong together. `fresh` are views whose readers begin anew: all rows of these
        go on with the next epoch.
        """
        self.close()
        flow = EpochFlow(
            self._session,
            _inside(self._directory, "flow"),
            name=self._name,
            shards=self._shards,
            memory=self._memory,
            checkpoint_every=self._checkpoint_every,
            clock=self._clock,
            secrets=self._secrets,
        )
        try:
            _require_together(flow.epoch, committed, os.fspath(self._directory))
            plan = self._take_over(flow, committed, fresh)
        except BaseException:
            flow.close()
            raise
        self._flow = flow
        return plan

    # Epochs

    def step(self, epoch: int, frames: Mapping[str, DataFrame | pa.Table]) -> dict[str, DataFrame]:
        """Run the tick of an epoch and return the changes of each wanted view, as rows with `_op` or `_weight`.

        An input that is not among `frames` has no rows in this epoch. When the flow has the tick of the epoch
        already, the frames are not read, and the changes are those of then. On an error nothing has changed, but for
        a view whose key is none: its tick has happened, and the error comes again.
        """
        flow = self._opened()
        last = flow.epoch
        if last is None or epoch == last + 1:
            flow.tick(epoch, self._batches(frames, epoch))
        elif epoch != last:
            raise StateError(
                f"epoch {epoch} comes behind epoch {last}: epochs are taken in their order",
                code="VIEW_EPOCH",
                where=os.fspath(self._directory),
            )
        return {name: self._changes(view, epoch) for name, view in self._views.items() if view.wanted}

    def finalize(self, epoch: int) -> None:
        """Take note that Spark's checkpoint has an epoch, which does not come again; the log may be cut."""
        flow = self._opened()
        if flow.epoch != epoch:
            return
        for name, settling in list(self._settling.items()):
            if settling.until <= epoch:
                self._store().settled(name)
                del self._settling[name]
        flow.finalize()

    def metrics(self) -> dict[str, float]:
        """Counters and sizes of the flow by their Prometheus names; none while it is closed."""
        return {} if self._flow is None else self._flow.metrics()

    def close(self) -> None:
        """Close the flow, so that others can open the stage; `open` may come again."""
        flow, self._flow = self._flow, None
        self._settling = {}
        if flow is not None:
            flow.close()

    # Rows that come

    def _batches(self, frames: Mapping[str, DataFrame | pa.Table], epoch: int) -> dict[str, DeltaBatch]:
        """The rows of all inputs as changes."""
        for name in frames.keys() - self._inputs.keys():
            raise ConfigError(
                f"the views have no input '{name}'",
                code="VIEW_INPUT",
                hint=suggest(name, list(self._inputs), what="input"),
            )
        tables = {name: frame for name, frame in frames.items() if isinstance(frame, pa.Table)}
        waiting = {name: frame for name, frame in frames.items() if not isinstance(frame, pa.Table)}
        # Two relations of one node, its table and its log, have the same frame, which is read once.
        different = {id(frame): frame for frame in waiting.values()}
        read = dict(zip(different, to_arrow_all(list(different.values())), strict=True))
        tables |= {name: read[id(frame)] for name, frame in waiting.items()}
        return {name: stage_rows.change_of(self._inputs[name], tables[name], epoch) for name in frames}

    # Changes that go

    def _changes(self, view: StageView, epoch: int) -> DataFrame:
        flow, name = self._opened(), view.name
        fields = flow.views[name].fields
        changes = (flow.last_changes or {}).get(name)
        if changes is None:
            changes = empty([kernel_type(field.type) for field in fields])
        settling = self._settling.get(name)
        if settling is not None and not settling.epoch < epoch <= settling.until:
            settling = None
        if not view.keys:
            if settling is not None and epoch == settling.epoch + 1:
                changes = self._difference(name, settling.base, fields)
            marks, columns = pa.array(changes.weights), changes.columns
        else:
            rows = self._keyed(view, changes, fields, settling, epoch)
            marks, columns = rows.operations, tuple(rows.rows)
        return self._frame(name, [*columns, marks])

    def _keyed(
        self, view: StageView, changes: Delta, fields: Fields, settling: Settling | None, epoch: int
    ) -> KeyedRows:
        """What happens to the rows of each key; DataError when the view has several rows of one."""
        flow, name = self._opened(), view.name
        keys = _positions(view, fields)
        if settling is None:
            rows = keyed(changes, keys, fields, view=name)
            self._require_unique(flow, name, keys, fields, changes)
            return rows
        if len(settling.base.delta) or settling.others:
            require_unique(flow.rows(name), keys, fields, view=name)
        parts = [
            keyed(self._difference(name, base, fields, keys), keys, fields, view=name)
            for base in settling.others
        ]
        if epoch == settling.epoch + 1:
            first = self._difference(name, settling.base, fields, keys)
        else:
            first = changes
        return merged([keyed(first, keys, fields, view=name), *parts], keys, fields)

    def _difference(self, view: str, base: SavedRows, fields: Fields, keys: Sequence[int] = ()) -> Delta:
        """From the rows that sinks have to those that the view has now."""
        if not len(base.delta):
            return consolidate(self._opened().rows(view))
        old = stage_rows.without_null_keys(stage_rows.aligned(base, fields, keys), keys)
        if not keys and base.columns != tuple((field.name, field.type) for field in fields):
            # Without a key, rows of other columns cannot be taken back.
            old = old.take(np.zeros(0, np.int64))
        return consolidate(concat([self._opened().rows(view), -old]))

    @staticmethod
    def _require_unique(
        flow: EpochFlow, view: str, keys: Sequence[int], fields: Fields, changes: Delta
    ) -> None:
        """DataError when a key that comes is the key of several rows of the view now."""
        coming = np.flatnonzero(changes.weights > 0)
        if len(coming) and not flow.tells_apart(view, keys):
            values = consolidate(changes.take(coming).select(keys))
            require_unique(flow.rows_of_keys(view, keys, values.columns), keys, fields, view=view)

    def _frame(self, view: str, columns: Sequence[pa.Array]) -> DataFrame:
        spark, schema = self._session.spark, self.schema(view)
        if len(columns[0]):
            kinds = [field.dataType.simpleString() for field in schema.fields]
            return to_frame(spark, columns, schema.names, kinds, schema=schema)
        if view not in self._nothing:
            self._nothing[view] = no_rows(spark, schema)
        return self._nothing[view]

    # Taking over a definition

    def _take_over(self, flow: EpochFlow, committed: int, fresh: Collection[str]) -> StagePlan:
        store = self._store()
        for name, settling in store.settling():
            if settling.until <= committed or name not in self._views:
                store.settled(name)
            else:
                self._settling[name] = settling
        inputs, views = list(self._inputs.values()), list(self._views.values())
        saved = store.read()
        actual = _actual(flow, saved, self._views)
        plan = compare(actual, inputs, views)
        refilled = [view.name for view in plan.views if view.change in ("rebuilt", "new")]
        # Whatever is wrong with a view is raised before anything of the state goes.
        prepared = self._planned() if refilled else {}
        for view in views:
            planned = prepared[view.name].view if view.name in refilled else flow.views[view.name].view
            _positions(view, planned.fields)
            _refuse_marks(view, planned.fields)
        for view in views:
            if view.wanted and (view.name in fresh or plan.view(view.name).change != "unchanged"):
                self._settle(flow, store, saved, view, committed, is_fresh=view.name in fresh)
        self._replace_inputs(flow, store, plan)
        for name in refilled:
            flow.add_view(prepared[name])
        flow.forget_unknown()
        now = _saved(flow, inputs, views)
        if now != saved:
            store.write(now)
        return plan

    def _replace_inputs(self, flow: EpochFlow, store: StageStore, plan: StagePlan) -> None:
        """Give the flow the declared inputs, and drop the views that are made again."""
        for input_plan in plan.inputs:
            if input_plan.change == "kept":
                spec = flow.sources[input_plan.name]
                columns = tuple((field.name, field.type) for field in spec.fields)
                store.save_rows(input_plan.name, SavedRows(columns, once(flow.rows(input_plan.name))))
        drop = {view.name for view in plan.views if view.change in ("rebuilt", "dropped")}
        for name in reversed([name for name in flow.views if name in drop]):
            flow.drop_view(name)
        for input_plan in plan.inputs:
            if input_plan.change in ("kept", "emptied", "dropped"):
                flow.drop_source(input_plan.name)
            if input_plan.change == "dropped":
                store.forget_rows(input_plan.name)
        for declared in self._inputs.values():
            if declared.name not in flow.sources:
                schema = _schema(declared.fields)
                flow.add_source(declared.name, schema, primary_key=declared.keys, retain=declared.retain)
            self._fill(flow, store, declared)

    @staticmethod
    def _fill(flow: EpochFlow, store: StageStore, declared: StageInput) -> None:
        """Give an input the rows that it had before its columns changed."""
        rows = store.saved_rows(declared.name)
        if rows is None:
            return
        if not flow.has_rows_of_before(declared.name):
            flow.fill(declared.name, stage_rows.aligned(rows, declared.fields, ()))
        store.forget_rows(declared.name)

    def _settle(
        self,
        flow: EpochFlow,
        store: StageStore,
        saved: SavedStage | None,
        view: StageView,
        committed: int,
        *,
        is_fresh: bool,
    ) -> None:
        """Remember what sinks have of a view whose changes begin anew."""
        name, before = view.name, self._settling.get(view.name)
        had = None if saved is None else saved.views.get(name)
        is_ahead = flow.epoch is not None and flow.epoch > committed
        others = () if before is None else before.others
        base = before.base if before is not None and before.epoch == committed else None
        if name in flow.views and had is not None and had.wanted and had.keys == view.keys:
            columns = tuple((field.name, field.type) for field in flow.views[name].fields)
            now = flow.rows(name)
            # What sinks have that did not store the epoch that Spark does not have, and what those have that did.
            changed = (flow.last_changes or {}).get(name) if is_ahead else None
            if base is None:
                base = SavedRows(columns, now if changed is None else consolidate(concat([now, -changed])))
            if is_ahead:
                others = (*others, SavedRows(columns, now))
        if is_fresh and base is not None:
            others, base = (*others, base), None
        settling = Settling(committed, committed + 1 + is_ahead, base or _NO_ROWS, others)
        store.settle(name, settling)
        self._settling[name] = settling

    # The columns of the views

    def _fields(self, view: str) -> Fields:
        """The columns of a view."""
        declared = self._view(view)
        if self._flow is not None:
            return self._flow.views[declared.name].fields
        if self._prepared is None:
            saved = self._store().read()
            if saved is not None and self.plan().is_unchanged:
                return tuple(Field(*field) for field in saved.views[declared.name].fields)
        return self._planned()[declared.name].view.fields

    def _planned(self) -> dict[str, Prepared]:
        """All views as Spark plans them."""
        if self._prepared is None:
            fields = {declared.name: declared.fields for declared in self._inputs.values()}
            self._prepared = plan_views(
                self._session, fields, [(view.name, view.sql) for view in self._views.values()]
            )
        return self._prepared

    def _view(self, name: str) -> StageView:
        if name not in self._views:
            raise ConfigError(
                f"there is no view '{name}'",
                code="VIEW_UNKNOWN",
                hint=suggest(name, list(self._views), what="view"),
            )
        return self._views[name]

    def _store(self) -> StageStore:
        files, folder = open_location(self._directory, self._session.settings)
        return StageStore(files, folder, self._secrets)

    def _opened(self) -> EpochFlow:
        assert self._flow is not None, "a stage is opened before its first epoch"
        return self._flow


def _positions(view: StageView, fields: Fields) -> tuple[int, ...]:
    """The positions of the key columns of a view; ConfigError when it has no such column."""
    names = [field.name for field in fields]
    positions = []
    for key in view.keys:
        spelled = registered(key, names)
        if spelled is None:
            raise ConfigError(
                f"the primary key of the view '{view.name}' names '{key}', which is none of its columns",
                code="VIEW_KEY",
                where=f"view '{view.name}'",
                hint=suggest(key, names, what="column"),
            )
        positions.append(names.index(spelled))
    return tuple(positions)


def _refuse_marks(view: StageView, fields: Fields) -> None:
    """ConfigError when a view has a column that its changes need."""
    for name in (OPERATION, WEIGHT):
        if any(field.name.lower() == name for field in fields):
            raise ConfigError(
                f"the view '{view.name}' has a column '{name}', which its changes need",
                code="PIPELINE_COLUMN_TAKEN",
                where=f"view '{view.name}'",
                hint=f"leave it out, or give it another name: {name} AS operation",
            )


def _shown(view: StageView, fields: Fields) -> Fields:
    """The columns of the changes of a view. Only keys are NOT NULL in rows that may be deletes of a view that had
    other columns."""
    if not view.keys:
        return (*fields, Field(WEIGHT, "bigint", False))
    keys = _positions(view, fields)
    columns = (replace(field, nullable=at not in keys) for at, field in enumerate(fields))
    return (*columns, Field(OPERATION, "string", False))


def _schema(fields: Fields) -> pa.Schema:
    return pa.schema([to_arrow_field(field.name, field.type, field.nullable) for field in fields])


def _actual(flow: EpochFlow, saved: SavedStage | None, views: Mapping[str, StageView]) -> SavedStage:
    """What the flow has, which may be more or less than was saved, when the process died while it took over a definition."""
    origins = (
        {} if saved is None else {name: saved_input.origin for name, saved_input in saved.inputs.items()}
    )
    inputs = {
        name: SavedInput(
            name,
            tuple((field.name, field.type) for field in spec.fields),
            spec.primary_key,
            spec.retain if spec.retain != "open" else "used",
            origins.get(name, ()),
        )
        for name, spec in flow.sources.items()
    }
    saved_views = {} if saved is None else saved.views
    actual = {}
    for name, entry in flow.views.items():
        before = saved_views.get(name) or views.get(name)
        keys, wanted = ((), False) if before is None else (before.keys, before.wanted)
        actual[name] = SavedStageView(name, entry.view.sql, keys, wanted)
    return SavedStage(inputs, actual)


def _saved(flow: EpochFlow, inputs: Sequence[StageInput], views: Sequence[StageView]) -> SavedStage:
    """What a stage is made of, to be remembered."""
    saved = {}
    for view in views:
        fields = tuple((field.name, field.type, field.nullable) for field in flow.views[view.name].fields)
        saved[view.name] = SavedStageView(view.name, view.sql, view.keys, view.wanted, fields)
    return SavedStage({declared.name: SavedInput.of(declared) for declared in inputs}, saved)


def _require_together(epoch: int | None, committed: int, where: str) -> None:
    """StateError when a flow and a checkpoint are not of one run."""
    if epoch is None or epoch in (committed, committed + 1):
        return
    if epoch < committed:
        raise StateError(
            f"the query has done epoch {committed} according to its checkpoint, and its views have "
            f"only epoch {epoch}: they would lack rows",
            code="VIEW_BEHIND",
            where=where,
            hint="put back the state of the views that belongs to the checkpoint, or begin again with both empty",
        )
    raise StateError(
        f"the views have epoch {epoch}, and the query has done epoch {committed} according to "
        "its checkpoint: the epochs between would come again with other rows",
        code="VIEW_AHEAD",
        where=where,
        hint="put back the checkpoint that belongs to the views, or begin again with both empty",
    )


def _inside(directory: str | os.PathLike[str], name: str) -> str:
    return f"{os.fspath(directory).rstrip('/')}/{name}"
