"""From a stream to a query: mode, trigger, sink and checkpoint are collected, checked as a plan, and launched."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import ConfigError, suggest
from penstock.plugin import SinkPlugin
from penstock.sinks import SINKS
from penstock.sinks.base import Sink, Target
from penstock.sinks.flow import Flow, FlowSink
from penstock.sinks.foreach import ForeachBatchSink
from penstock.sinks.plugin import sink_of
from penstock.spark.errors.query import translated
from penstock.spark.micro_batch import checkpoint, live
from penstock.spark.micro_batch import plan as spark_plan
from penstock.spark.micro_batch.checkpoint import CheckpointState
from penstock.streaming.call_site import calling_line
from penstock.streaming.query_options import (
    QueryOptions,
    both,
    query_option,
    read_query_options,
    with_near_options,
)
from penstock.streaming.query_plan import QueryPlan
from penstock.streaming.query_sources import QuerySources
from penstock.streaming.runtime import QueryRuntime
from penstock.streaming.trigger import OutputMode, Trigger, TriggerKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.streaming.queries import Queries
    from penstock.streaming.query import StreamingQuery
    from penstock.streaming.taps import Tap


class StreamWriter:
    """Collects how a stream shall run; `start` runs it, `plan` only checks it."""

    def __init__(self, queries: Queries, frame: DataFrame, *, taps: Sequence[Tap] = ()) -> None:
        self._queries = queries
        self._frame = frame
        self._taps = taps  # owned until the plan owns them
        self._mode = OutputMode.APPEND
        self._trigger = Trigger.processing_time(0)
        self._format: str | type[SinkPlugin] | None = None
        self._function: Callable[[DataFrame, int], Any] | None = None
        self._options: dict[str, Any] = {}
        self._query_options: dict[str, Any] = {}
        self._keys: tuple[str, ...] = ()

    def __call__(self) -> Self:
        """Return the writer: `stream.write_stream()` is what `stream.write_stream` is."""
        return self

    def output_mode(self, mode: OutputMode | str) -> Self:
        """Which rows each batch emits: append, update or complete."""
        self._mode = OutputMode.of(mode)
        return self

    def trigger(self, trigger: Trigger) -> Self:
        """When batches start."""
        if not isinstance(trigger, Trigger):
            raise ConfigError(
                f"a trigger is needed, got {type(trigger).__name__} {trigger!r}",
                code="STREAM_TRIGGER",
                hint="for example Trigger.processing_time(5_000) or Trigger.available_now()",
            )
        self._trigger = trigger
        return self

    def key(self, *columns: str) -> Self:
        """The columns that identify a row in a keyed sink."""
        for column in columns:
            if column not in self._frame.columns:
                raise ConfigError(
                    f"no column '{column}' for the key",
                    code="STREAM_KEY",
                    hint=suggest(column, self._frame.columns, what="column"),
                )
        self._keys = columns
        return self

    def format(self, name: str | type[SinkPlugin]) -> Self:
        """Where rows go: the name of a sink, such as memory, console, parquet, or a plugin's; or a plugin's class."""
        if isinstance(name, str):
            SINKS.load(name)
        elif not (isinstance(name, type) and issubclass(name, SinkPlugin)):
            raise ConfigError(
                f"a sink is a name or a subclass of penstock.SinkPlugin, got {name!r}", code="PLUGIN_KIND"
            )
        self._format, self._function = name, None
        return self

    def foreach_batch(self, function: Callable[[DataFrame, int], Any]) -> Self:
        """Give every batch to a function: a DataFrame and the epoch's number."""
        if not callable(function):
            raise ConfigError(
                f"foreach_batch needs a function, got {type(function).__name__}", code="STREAM_FUNCTION"
            )
        self._format, self._function = None, function
        return self

    def option(self, name: str, value: Any) -> Self:
        """Set an option of the sink, or of the query: `checkpoint.location`, `savepoint`, `close_windows`. All are
        checked when the query is planned."""
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        option = query_option(name)
        if option is not None:
            self._query_options[option] = value
        else:
            self._options[name] = value
        return self

    def options(self, **options: Any) -> Self:
        """Set several options."""
        for name, value in options.items():
            self.option(name, value)
        return self

    def with_kafka_transactional(self, transactional_id: str) -> Self:
        """Write to Kafka exactly once: each batch in one transaction of this id, which no other running query may use."""
        if self._format != "kafka":
            raise ConfigError(
                f"only the kafka sink has transactions, and this query writes to {self._format or 'no sink yet'}",
                code="STREAM_TRANSACTIONAL",
                hint='call .format("kafka") first',
            )
        return self.option("transactional_id", transactional_id)

    def to_flow(self, flow: Flow, source: str, name: str | None = None) -> StreamingQuery:
        """Start the query into a source of an `IncrementalFlow`: each epoch is one tick, and a repeated one counts once.

        A flow with a path and the checkpoint of the query know the same epochs, whatever moment the process dies at.
        Append inserts rows, update changes them by the source's primary key; a column `_weight` says how often rows
        come or go.
        """
        if self._format is not None or self._function is not None or self._options:
            raise ConfigError(
                "a query to a flow has no other sink and no options of one",
                code="STREAM_SINK_MISSING",
                hint="leave .format(...), .foreach_batch(...) and the sink's options out",
            )
        return self.launch(self._plan(FlowSink(flow, source), name, calling_line()))

    def start(self, name: str | None = None) -> StreamingQuery:
        """Start the query, and return its handle; what cannot work is refused here, before anything is written.

        A query with a name is recorded in the state backend, and runs once at a time.
        """
        return self.launch(self._plan(self._sink(), name, calling_line()))

    def plan(self, name: str | None = None) -> QueryPlan:
        """Check everything that `start` checks, and return the query as a value: no lease is taken, nothing is written."""
        return self._plan(self._sink(), name, calling_line())

    def plan_for(self, sink: Sink, name: str | None, *, place: str, sources: Sequence[str] = ()) -> QueryPlan:
        """Check a query into a sink that is made already, as that of a pipeline is; `place` is where the user described it.

        `sources` are the names of its sources, in the order of the plan: its checkpoint is for these and no others.
        """
        return self._plan(sink, name, place, sources)

    def launch(self, plan: QueryPlan) -> StreamingQuery:
        """Start a query that `plan` returned, and return its handle; a plan is launched once."""
        runtime = QueryRuntime(plan, self._queries)
        runtime.start()
        return runtime.handle

    def _plan(
        self, sink: Sink, name: str | None, call_site: str | None, names: Sequence[str] = ()
    ) -> QueryPlan:
        options = read_query_options(self._query_options)
        self._refuse_mode(sink)
        self._refuse_close_windows(options)
        self._refuse_missing_checkpoint(sink, options)
        once = self._trigger.kind is TriggerKind.ONCE
        frame = self._frame
        with translated():
            shape = () if once else tuple(spark_plan.named(spark_plan.shape(frame), names))
            state = self._checkpoint_state(shape, options)
            sources = QuerySources(frame, self._queries.taps, self._queries.settings)
            if once and frame.isStreaming:
                spark_plan.refuse_endless(frame)
        obstacle = self._obstacle(sink, sources)
        target = self._target(name or f"query-{uuid.uuid4().hex[:8]}", state, shape)
        with translated():
            sink.check(target)
            sink.close()
            sources.side_outputs.check(target)
            return QueryPlan(
                name=target.name,
                named=name is not None,
                call_site=call_site,
                frame=frame,
                mode=self._mode,
                trigger=self._trigger,
                sink=sink,
                target=target,
                sources=sources,
                logical_plan=spark_plan.analyzed(frame),
                location=None if once else options.checkpoint,
                savepoint=options.savepoint,
                shape=shape,
                rows_only=not once and self._trigger.ends and spark_plan.follows_clock(frame),
                close_windows=options.close_windows,
                obstacle=obstacle,
            )

    def _checkpoint_state(self, shape: checkpoint.Shape, options: QueryOptions) -> CheckpointState:
        """Return what the query goes on from; a batch query has no checkpoint."""
        if self._trigger.kind is TriggerKind.ONCE:
            return CheckpointState(str(uuid.uuid4()), -1, checksums=False)
        spark = self._frame.sparkSession
        return checkpoint.inspect(spark, options.checkpoint, shape, savepoint=options.savepoint)

    def _target(self, name: str, state: CheckpointState, shape: checkpoint.Shape) -> Target:
        return Target(
            spark=self._frame.sparkSession,
            query=state.query,
            name=name,
            mode=self._mode.value,
            schema=self._frame.schema,
            keys=self._keys,
            stateful=checkpoint.is_stateful(shape),
            committed=state.committed,
            begun=state.begun,
            settings=self._queries.settings,
        )

    def _sink(self) -> Sink:
        """The sink that the user chose; one error has all mistakes in its options and in those of the query."""
        mistakes: ConfigError | None = None
        try:
            read_query_options(self._query_options)
        except ConfigError as error:
            mistakes = error
        try:
            sink = self._sink_of_options()
        except ConfigError as error:
            error = with_near_options(error, self._options)
            raise (error if mistakes is None else both(mistakes, error)) from None
        if mistakes is not None:
            raise mistakes
        return sink

    def _sink_of_options(self) -> Sink:
        if self._function is not None:
            return ForeachBatchSink(self._function)
        if self._format is None:
            raise ConfigError(
                "the query has no sink",
                code="STREAM_SINK_MISSING",
                hint=f"choose one with .format(name) ({', '.join(SINKS.names())}) or .foreach_batch(function)",
            )
        if isinstance(self._format, str):
            kind, name = SINKS.load(self._format), self._format
        else:
            kind, name = self._format, self._format.__name__
        return sink_of(kind, self._options, name=name, settings=self._queries.settings)

    def _refuse_mode(self, sink: Sink) -> None:
        """Refuse a mode that the query or the sink cannot do, with those that both can."""
        batch = self._trigger.kind is TriggerKind.ONCE
        refused = dict.fromkeys(spark_plan.MODES) if batch else spark_plan.refusals(self._frame)
        mode = self._mode.value
        if refused[mode] is None and mode in sink.modes:
            return
        raise ConfigError(
            f"output mode {mode} is not possible: {refused[mode] or f'{sink.describe()} cannot take it'}",
            code="STREAM_OUTPUT_MODE",
            hint=f"the query can do {_listed(m for m in spark_plan.MODES if refused[m] is None)}; "
            f"{sink.describe()} takes {_listed(m for m in spark_plan.MODES if m in sink.modes)}"
            + ("; a watermark makes append possible" if mode == "append" and refused[mode] else ""),
        )

    def _obstacle(self, sink: Sink, sources: QuerySources) -> str | None:
        """Why rows cannot go on as they come; None when they can, or need not."""
        if self._trigger.kind is not TriggerKind.CONTINUOUS:
            return None
        if not sink.is_live:
            return f"{sink.describe()} is written batch by batch"
        try:
            return sources.needs_batches or live.obstacle(self._frame)
        except Exception as error:
            raise sources.translate(error) from None

    def _refuse_close_windows(self, options: QueryOptions) -> None:
        if options.close_windows and self._trigger.kind is not TriggerKind.AVAILABLE_NOW:
            raise ConfigError(
                f"close_windows belongs to Trigger.available_now(), and the trigger is {self._trigger}",
                code="STREAM_OPTION_VALUE",
                hint="once closes all windows anyway; the other triggers have no end at which they could be closed",
            )

    def _refuse_missing_checkpoint(self, sink: Sink, options: QueryOptions) -> None:
        if self._trigger.kind is TriggerKind.ONCE or options.checkpoint is not None:
            return
        if sink.needs_checkpoint:
            raise ConfigError(
                f"a query to {sink.describe()} needs a place for its checkpoint",
                code="STREAM_CHECKPOINT_MISSING",
                hint='add .option("checkpoint.location", "path/"), or use Trigger.once()',
            )


def _listed(modes: Iterable[str]) -> str:
    return ", ".join(modes) or "none"
