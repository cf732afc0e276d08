"""A plugin as a transform: its life, its rows in tasks or on the driver, its side outputs, rows that it cannot take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.data.operation import OPERATION
from penstock.data.record_batch import conformed
from penstock.data.schema import to_arrow_schema, to_ddl
from penstock.errors import ConfigError, ConnectorError, DataError, PenstockError
from penstock.options import Options, OptionsOwner, read_options
from penstock.plugin import PluginContext, TransformPlugin, TransientValues
from penstock.sinks.base import QueryStatus, Sink, Target
from penstock.sinks.epoch_rows import EpochRows
from penstock.sinks.retry import RetryPolicy, retry
from penstock.sinks.side_sink import SideSink
from penstock.transforms.base import Transform, TransformContext
from penstock.transforms.failed_rows import (
    TaskFailed,
    beside_failed,
    failed_rows,
    shown_row,
    with_error_columns,
)
from penstock.transforms.transaction import ValueTransaction

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.config import Settings
    from penstock.transforms.base import OnError

RETRY = RetryPolicy(seconds=120.0)
"""For how long a batch is tried again when the plugin reports that another system is away."""

Attempt = Callable[[], AbstractContextManager[None]]
"""Takes back what is done inside when it raises."""

_FAULTS = ("PLUGIN_BATCH", "DATA_UNKNOWN_COLUMN", "DATA_MISSING_COLUMN")
"""Codes of errors that the plugin causes, and no row."""


class PluginTransform(Transform):
    """Calls a plugin through its life."""

    def __init__(
        self,
        kind: type[TransformPlugin],
        options: Mapping[str, Any] | Options,
        *,
        name: str,
        settings: Settings | None = None,
        side_sinks: Mapping[str, Sink] | None = None,
    ) -> None:
        """Check the options, unless they are checked already; `side_sinks` are the side outputs by their names."""
        self._plugin_kind = kind
        self._name = name
        super().__init__({}, settings)
        owner = OptionsOwner(f"the {name} transform", code="TRANSFORM_OPTION", syntax="{name}: {value}")
        self.options = read_options(kind.Options, options, owner=owner, settings=settings)
        self._side = {key: SideSink(sink, key) for key, sink in (side_sinks or {}).items()}
        self._plugin: TransformPlugin | None = None
        self._plugin_context: PluginContext | None = None
        self._target: Target | None = None
        self._state: ValueTransaction | None = None
        self._number: int | None = None
        self._last: EpochRows | None = None
        self._columns: pa.Schema | None = None
        self._is_open = False

    @property
    def kind(self) -> str:
        return self._name

    def check(self, context: TransformContext) -> None:
        for side in self._side.values():
            side.check(context.spark, name=context.name, settings=context.settings)

    def open(self, context: TransformContext) -> None:
        self._end()
        self._is_open = True

    def begin(self, epoch: int) -> None:
        self._number = epoch
        if self._state is not None:
            self._state.begin()
        for side in self._side.values():
            side.discard()

    def apply(self, rows: DataFrame, context: TransformContext) -> DataFrame:
        from pyspark.sql.pandas.types import to_arrow_schema as arrow_of_spark

        in_schema = arrow_of_spark(rows.schema)
        plugin, own = self._initialized(rows.schema, in_schema, context)
        if self._columns is None:
            self._columns = self._columns_of(plugin, in_schema)
        columns = self._columns
        marked = _with_errors(columns) if context.on_error != "fail" else columns
        work = _Batches(self._name, context.on_error, columns, marked)
        if not self._is_open:
            # Only the plan is wanted, and no later call ends the plugin.
            self._end()
            return rows.sparkSession.createDataFrame([], _spark_schema(marked))
        if plugin.parallel:
            number = self._number
            in_task = replace(own, current=_Fixed(number), memory=None, side=None)
            return rows.mapInArrow(
                _Task(self._plugin_kind, self.options, in_task, work, number), _spark_schema(marked)
            )
        return self._on_driver(plugin, rows, work, context.status)

    def commit(self, epoch: int) -> None:
        plugin, target = self._plugin, self._target
        if plugin is None or target is None:
            return
        for side in self._side.values():
            side.store(target, epoch)
        plugin.process_checkpoint_marker(epoch)
        if self._state is not None:
            self._state.commit()
        self._number = None

    def finalize(self, epoch: int) -> None:
        if self._plugin is not None:
            self._plugin.process_checkpoint_finalizer(epoch)
        for side in self._side.values():
            side.finalize(epoch)

    def close(self) -> None:
        self._is_open = False
        try:
            self._end()
        finally:
            for side in self._side.values():
                side.close()

    def _end(self) -> None:
        """Let the instance end its life."""
        plugin, self._plugin = self._plugin, None
        self._number = self._last = self._columns = None
        if plugin is not None:
            plugin.terminate()

    def _initialized(
        self, schema: StructType, in_schema: pa.Schema, context: TransformContext
    ) -> tuple[TransformPlugin, PluginContext]:
        """The instance on the driver; it begins its life with the first rows, whose columns it gets."""
        if self._plugin is not None and self._plugin_context is not None:
            if self._plugin_context.schema.equals(in_schema):
                return self._plugin, self._plugin_context
            # The columns are others than before: what the plugin prepared for the old ones does not fit.
            number = self._number
            self._end()
            self._number = number
        self._target = Target(
            context.spark,
            f"{context.query}-{context.name}",
            context.name,
            "append",
            schema,
            labels=context.labels,
            status=context.status,
            settings=context.settings,
        )
        self._state = ValueTransaction(context.state if context.state is not None else TransientValues())
        if self._number is not None:
            self._state.begin()
        self._plugin_context = PluginContext(
            query=context.query,
            name=context.name,
            mode="append",
            schema=in_schema,
            keys=context.keys,
            operation=OPERATION if OPERATION in in_schema.names else None,
            labels=dict(context.labels),
            current=lambda: self._number,
            memory=self._state,
            side=self._side_output,
        )
        plugin = self._plugin_kind(self.options)
        self._plugin = plugin
        plugin.initialize(self._plugin_context)
        return plugin, self._plugin_context

    def _columns_of(self, plugin: TransformPlugin, in_schema: pa.Schema) -> pa.Schema:
        """The columns that come out, in Spark's own Arrow types."""
        from pyspark.sql.pandas.types import to_arrow_schema as arrow_of_spark

        declared = plugin.schema
        if declared is None:
            declared = self._tried(plugin, in_schema)
        columns = arrow_of_spark(_spark_schema(to_arrow_schema(declared)))
        if OPERATION in in_schema.names and OPERATION not in columns.names:
            raise ConfigError(
                f"the rows that go into {self._name} have operations, and those that come out have none",
                code="PLUGIN_OPERATION",
                hint=f"hand on the column {OPERATION}, and add '{OPERATION} STRING' to the schema of the plugin",
            )
        return columns

    def _tried(self, plugin: TransformPlugin, in_schema: pa.Schema) -> pa.Schema:
        import pyarrow as pa

        empty = pa.RecordBatch.from_pylist([], schema=in_schema)
        try:
            with self._attempt(keep=False):
                out = plugin.process_batch(empty)
        except PenstockError:
            raise
        except Exception as error:
            raise DataError(
                f"the plugin {self._name} raised {_described(error)} for a batch without rows, which is to show its columns",
                code="PLUGIN_SCHEMA",
                hint='take such a batch, or declare the columns: schema = "id BIGINT, name STRING"',
            ) from error
        if out is None:
            return in_schema
        if not isinstance(out, pa.RecordBatch):
            conformed(out, in_schema, where=f"the plugin {self._name}")
        return out.schema

    def _on_driver(
        self, plugin: TransformPlugin, rows: DataFrame, work: _Batches, status: QueryStatus
    ) -> DataFrame:
        import pyarrow as pa

        with EpochRows(rows, last=self._last) as epoch_rows:
            batches = list(work.through(plugin, epoch_rows.batches(), status, self._attempt))
        self._last = epoch_rows
        table = pa.Table.from_batches(batches, schema=work.marked)
        return rows.sparkSession.createDataFrame(table, _spark_schema(work.marked))

    @contextmanager
    def _attempt(self, *, keep: bool = True) -> Iterator[None]:
        """Take back what the plugin stores and gives to side outputs inside, unless it ends well and is to be kept."""
        with ExitStack() as attempts:
            if self._state is not None:
                attempts.enter_context(self._state.attempt(keep=keep))
            for side in self._side.values():
                attempts.enter_context(side.attempt(keep=keep))
            yield

    def _side_output(self, name: str) -> SideSink:
        if name not in self._side:
            raise ConfigError(
                f"the transform {self._name} has rows for a side output '{name}', and the pipeline does not say where they go",
                code="STREAM_OPTION_MISSING",
                hint=f"add side_outputs: {{{name}: {{type: file, path: {name}/}}}}",
            )
        return self._side[name]


@dataclass(frozen=True, slots=True)
class _Batches:
    """What is done with each batch: the plugin, the check of what it gives, and the search for rows that it cannot take."""

    name: str
    on_error: OnError
    columns: pa.Schema
    marked: pa.Schema
    """The columns, and with `on_error` those of rows that failed."""

    def through(
        self,
        plugin: TransformPlugin,
        batches: Iterable[pa.RecordBatch],
        status: QueryStatus,
        attempt: Attempt = nullcontext,
    ) -> Iterator[pa.RecordBatch]:
        """Return what comes out for the batches that come in; each time that the plugin gets one is an `attempt`."""

        def process(batch: pa.RecordBatch) -> pa.RecordBatch:
            with attempt():
                return self._checked(plugin.process_batch(batch))

        for batch in batches:
            if batch.num_rows:
                for out in self._of_batch(process, batch, status):
                    if out.num_rows:
                        yield out

    def _of_batch(
        self,
        process: Callable[[pa.RecordBatch], pa.RecordBatch],
        batch: pa.RecordBatch,
        status: QueryStatus,
    ) -> Iterator[pa.RecordBatch]:
        try:
            out = retry(
                lambda: process(batch),
                status=status,
                description=f"the plugin {self.name}",
                policy=RETRY,
                transient=_transient,
            )
        except (ConfigError, ConnectorError):
            raise
        except Exception as raised:
            if isinstance(raised, DataError) and raised.code in _FAULTS:
                raise
            error = raised
        else:
            yield out
            return
        if batch.num_rows > 1:
            # The row that the plugin refuses is in one half, or both have one.
            half = batch.num_rows // 2
            yield from self._of_batch(process, batch.slice(0, half), status)
            yield from self._of_batch(process, batch.slice(half), status)
            if self.on_error == "fail":
                raise error
            return
        if self.on_error == "fail":
            raise self._refused(error, batch) from error
        yield self._failed(error, batch)

    def _checked(self, out: pa.RecordBatch | None) -> pa.RecordBatch:
        import pyarrow as pa

        if out is None:
            return pa.RecordBatch.from_pylist([], schema=self.marked)
        rows = conformed(out, self.columns, where=f"the plugin {self.name}")
        return rows if self.marked is self.columns else beside_failed(rows, self.marked)

    def _failed(self, error: Exception, batch: pa.RecordBatch) -> pa.RecordBatch:
        reason = error.message if isinstance(error, PenstockError) else _described(error)
        return failed_rows(batch, {0: reason}, self.marked)

    def _refused(self, error: Exception, batch: pa.RecordBatch) -> DataError:
        reason = error.message if isinstance(error, PenstockError) else _described(error)
        return DataError(
            f"the plugin {self.name} cannot take a row: {reason}; the row: {shown_row(batch, 0)}",
            code=error.code if isinstance(error, DataError) else "PLUGIN_ROW",
            hint="on_error: drop or dead_letter lets the other rows pass",
        )


@dataclass(frozen=True, slots=True)
class _Fixed:
    number: int | None

    def __call__(self) -> int | None:
        return self.number


@dataclass(frozen=True, slots=True)
class _Task:
    """What a task does with its partition: the life of an instance of the plugin, for one epoch."""

    kind: type[TransformPlugin]
    options: Any
    context: PluginContext
    work: _Batches
    number: int | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return
        plugin = self.kind(self.options)
        try:
            yield from self._lived(plugin, _behind(first, rows), task.partitionId())
        except PenstockError as error:
            raise TaskFailed(error) from error

    def _lived(
        self, plugin: TransformPlugin, batches: Iterator[pa.RecordBatch], partition: int
    ) -> Iterator[pa.RecordBatch]:
        try:
            plugin.initialize(replace(self.context, partition=partition))
            yield from self.work.through(plugin, batches, QueryStatus())
            if self.number is not None:
                plugin.process_checkpoint_marker(self.number)
        finally:
            plugin.terminate()


def _behind(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _transient(error: Exception) -> str | None:
    return error.message if isinstance(error, ConnectorError) and error.retryable else None


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _with_errors(columns: pa.Schema) -> pa.Schema:
    """The columns with those of rows that failed, in which nothing else is set."""
    return with_error_columns([field.with_nullable(True) for field in columns])


def _spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.types import StructType

    struct = StructType.fromDDL(to_ddl(schema))
    assert isinstance(struct, StructType)
    return struct
