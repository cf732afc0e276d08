"""From a stream to a running query: mode, trigger, sink, checkpoint, start."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock.errors import ConfigError, PenstockError, suggest
from penstock.plugin import SinkPlugin
from penstock.sinks import SINKS
from penstock.sinks.base import Sink, Target
from penstock.sinks.flow import Flow, FlowSink
from penstock.sinks.foreach import ForeachBatchSink
from penstock.sinks.plugin import sink_of
from penstock.spark.micro_batch import checkpoint, live, plan
from penstock.spark.micro_batch.run import Settings
from penstock.spark.reader import absolute
from penstock.streaming.call_site import calling_line, told
from penstock.streaming.epoch_writer import BatchCourse, LiveCourse, OnceCourse, Work
from penstock.streaming.job import JobRecord, QueryJob
from penstock.streaming.query import Course, QueryInfo, StreamingQuery
from penstock.streaming.query_sources import QuerySources
from penstock.streaming.trigger import OutputMode, Trigger, TriggerKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.streaming.queries import Queries

T = TypeVar("T")

CHECKPOINT = "checkpoint.location"
_CHECKPOINT_NAMES = (CHECKPOINT, "checkpoint_location", "checkpointLocation")


class StreamWriter:
    """Collects how a stream shall run; `start` runs it."""

    def __init__(self, queries: Queries, frame: DataFrame) -> None:
        self._queries = queries
        self._frame = frame
        self._mode = OutputMode.APPEND
        self._trigger = Trigger.processing_time(0)
        self._format: str | type[SinkPlugin] | None = None
        self._function: Callable[[DataFrame, int], Any] | None = None
        self._options: dict[str, Any] = {}
        self._checkpoint: str | None = None
        self._savepoint: str | None = None
        self._close_windows = False
        self._keys: tuple[str, ...] = ()

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
        """Set an option of the sink, or of the query: `checkpoint.location`, `savepoint`, `close_windows`."""
        if name in _CHECKPOINT_NAMES:
            self._checkpoint = absolute(value)
        elif name == "savepoint":
            self._savepoint = absolute(value)
        elif name == "close_windows":
            self._close_windows = str(value).lower() == "true"
        else:
            self._options[name] = os.fspath(value) if isinstance(value, os.PathLike) else value
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

        Append inserts rows, update changes them by the source's primary key; a column `_weight` says how often rows come or go.
        """
        if self._format is not None or self._function is not None or self._options:
            raise ConfigError(
                "a query to a flow has no other sink and no options of one",
                code="STREAM_SINK_MISSING",
                hint="leave .format(...), .foreach_batch(...) and the sink's options out",
            )
        return self._start(FlowSink(flow, source), name, calling_line())

    def start(self, name: str | None = None) -> StreamingQuery:
        """Start the query, and return its handle; what cannot work is refused here, before anything is written.

        A query with a name is recorded in the state backend, and runs once at a time.
        """
        place = calling_line()
        return self._start(self._sink(), name, place)

    def _start(self, sink: Sink, name: str | None, place: str | None) -> StreamingQuery:
        self._refuse_mode(sink)
        if self._close_windows and self._trigger.kind is not TriggerKind.AVAILABLE_NOW:
            raise ConfigError(
                f"close_windows belongs to Trigger.available_now(), and the trigger is {self._trigger}",
                code="STREAM_OPTION_VALUE",
                hint="once closes all windows anyway; the other triggers have no end at which they could be closed",
            )
        if name is None:
            return self._begin(f"query-{uuid.uuid4().hex[:8]}", sink, place, None)
        job = self._queries.job(name)
        try:
            return self._begin(name, sink, place, job)
        except BaseException:
            job.release()
            raise

    def _begin(self, name: str, sink: Sink, place: str | None, job: QueryJob | None) -> StreamingQuery:
        once = self._trigger.kind is TriggerKind.ONCE
        checkpoint_at = None if once else self._checkpoint_at(sink)
        query_id = (
            str(uuid.uuid4())
            if checkpoint_at is None
            else checkpoint.query_id(self._frame.sparkSession, checkpoint_at)
        )
        stateful, evolves, committed = False, False, -1
        if checkpoint_at is not None:
            shape = _guarded(lambda: plan.shape(self._frame))
            _guarded(lambda: checkpoint.fit(self._frame.sparkSession, checkpoint_at, shape))
            stateful = any(kind == "state" for kind, _ in shape)
            evolves = checkpoint.evolves(shape)
            committed = checkpoint.committed(self._frame.sparkSession, checkpoint_at)
        sources = _guarded(
            lambda: QuerySources(
                self._frame, self._queries.points, note=(lambda text: None) if job is None else job.note
            )
        )
        frame = self._frame
        if once and frame.isStreaming:
            frame = _guarded(lambda: sources.as_batch(self._frame, self._queries.temporary_folder))
        obstacle = self._obstacle(sink, sources)
        query = self._query(query_id, name, sink, place, sources, note=_note(self._trigger, obstacle))
        target = replace(
            self._target(query_id, name),
            status=query.waits,
            stateful=stateful,
            committed=committed,
            state=None if job is None else job.values(),
        )
        _guarded(lambda: sink.check(target))
        _guarded(lambda: sources.check(target))
        if job is not None:
            job.record(self._record(query_id, sink, place))
        self._queries.add(query)
        work = Work(query, sink, target, self._trigger, job=job, sources=sources)
        course: Course
        if checkpoint_at is None:
            course = OnceCourse(frame, work, tag=f"penstock-stream-{query_id}")
        else:
            settings = Settings(
                self._mode.value,
                _spark_trigger(self._trigger),
                checkpoint_at,
                name,
                rows_only=self._trigger.ends and plan.follows_clock(frame),
                alone=job is not None or self._checkpoint is None,
                checksums=checkpoint.has_checksums(self._frame.sparkSession, checkpoint_at),
                evolves=evolves,
            )
            if self._trigger.kind is TriggerKind.CONTINUOUS and obstacle is None:
                course = LiveCourse(frame, work, settings, interval_ms=self._trigger.interval_ms)
            else:
                course = BatchCourse(frame, work, settings, close_windows=self._close_windows)
        query.launch(course, job, group_failures=lambda: sources.group_failures)
        return query

    def _checkpoint_at(self, sink: Sink) -> str:
        if self._checkpoint is None and sink.needs_checkpoint:
            raise ConfigError(
                f"a query to {sink.describe()} needs a place for its checkpoint",
                code="STREAM_CHECKPOINT_MISSING",
                hint='add .option("checkpoint.location", "path/"), or use Trigger.once()',
            )
        at = self._checkpoint or self._queries.temporary_folder()
        if self._savepoint is not None:
            savepoint = self._savepoint
            _guarded(lambda: checkpoint.start_from(self._frame.sparkSession, savepoint, at))
        return at

    def _sink(self) -> Sink:
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
        refused = dict.fromkeys(plan.MODES) if batch else plan.refusals(self._frame)
        mode = self._mode.value
        if refused[mode] is None and mode in sink.modes:
            return
        raise ConfigError(
            f"output mode {mode} is not possible: {refused[mode] or f'{sink.describe()} cannot take it'}",
            code="STREAM_OUTPUT_MODE",
            hint=f"the query can do {_listed(m for m in plan.MODES if refused[m] is None)}; "
            f"{sink.describe()} takes {_listed(m for m in plan.MODES if m in sink.modes)}"
            + ("; a watermark makes append possible" if mode == "append" and refused[mode] else ""),
        )

    def _target(self, query_id: str, name: str) -> Target:
        return Target(
            spark=self._frame.sparkSession,
            query=query_id,
            name=name,
            mode=self._mode.value,
            schema=self._frame.schema,
            keys=self._keys,
            settings=self._queries.settings,
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
            raise sources.told(error) from None

    def _query(
        self,
        query_id: str,
        name: str,
        sink: Sink,
        place: str | None,
        sources: QuerySources,
        *,
        note: str | None,
    ) -> StreamingQuery:
        info = QueryInfo(
            id=query_id,
            name=name,
            mode=self._mode,
            trigger=self._trigger,
            checkpoint=None if self._trigger.kind is TriggerKind.ONCE else self._checkpoint,
            plan=self._frame._jdf.queryExecution().analyzed().toString(),
            place=place,
            note=note,
        )
        spark = self._frame.sparkSession
        return StreamingQuery(
            info,
            sink,
            self._queries.dispatcher,
            self._queries.metrics,
            ended=self._queries.remove,
            told=sources.told,
            save=lambda at, path: checkpoint.save(spark, at, absolute(path)),
        )

    def _record(self, query_id: str, sink: Sink, place: str | None) -> JobRecord:
        return JobRecord(
            query=query_id,
            checkpoint=self._checkpoint,
            place=place,
            definition={
                "sink": sink.describe(),
                "guarantee": sink.guarantee.value,
                "trigger": str(self._trigger),
                "output_mode": self._mode.value,
                "columns": self._frame.schema.simpleString(),
            },
        )


def _guarded(action: Callable[[], T]) -> T:
    try:
        return action()
    except PenstockError:
        raise
    except Exception as error:
        raise told(error) from None


def _listed(modes: Iterable[str]) -> str:
    return ", ".join(modes) or "none"


def _spark_trigger(trigger: Trigger) -> dict[str, Any]:
    if trigger.kind is TriggerKind.AVAILABLE_NOW:
        return {"availableNow": True}
    interval = trigger.interval_ms if trigger.kind is TriggerKind.PROCESSING_TIME else 0
    return {"processingTime": f"{interval} milliseconds"}


def _note(trigger: Trigger, obstacle: str | None) -> str | None:
    if trigger.kind is not TriggerKind.CONTINUOUS:
        return None
    return "rows as they come" if obstacle is None else f"micro-batches back to back: {obstacle}"
