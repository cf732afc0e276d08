"""The builder of streaming queries: event time, windows, keys, aggregates, joins, in the words of PySpark."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.data.duration import milliseconds
from penstock.errors import ConfigError, PenstockError, suggest
from penstock.spark.micro_batch import frames, tap, window
from penstock.streaming.call_site import calling_line, told
from penstock.streaming.side_output import LateTap
from penstock.streaming.writer import StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.streaming.queries import Queries

Duration = int | str | timedelta
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stream:
    """A streaming DataFrame with the time and the keys that its next aggregate works on; every method returns a new one.

    What this class cannot say, `df`, the PySpark DataFrame, can; `session.stream(df)` leads back.
    """

    queries: Queries
    frame: DataFrame
    event_time: str | None = None
    delay_ms: int = 0
    keys: tuple[str, ...] = ()
    span: Column | None = None
    until: Callable[[], Column] | None = None
    """The end of the last window of a row."""
    late: str | None = None
    """Where rows go that come too late for what follows."""

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {kind}" for name, kind in self.frame.dtypes)
        return f"<penstock stream [{columns}]>"

    @property
    def df(self) -> DataFrame:
        """The PySpark DataFrame, with the watermark when there is an event time."""
        if self.event_time is None or not self.frame.isStreaming:
            return self.frame
        self._column(self.event_time, "the event time")
        if _guard(lambda: frames.has_watermark(self.frame, self.event_time or "")):
            return self.frame
        return _guard(
            lambda: self.frame.withWatermark(self.event_time or "", f"{self.delay_ms} milliseconds")
        )

    def with_event_time(self, column: str) -> Stream:
        """Name the column that says when a row happened; without `with_watermark` nothing may come late."""
        self._column(column, "the event time")
        frame = _guard(lambda: frames.with_timestamp(self.frame, column))
        return replace(self, frame=frame, event_time=column)

    def with_watermark(self, delay: Duration) -> Stream:
        """Say how late a row may come: windows wait that long, and rows that come later are dropped and counted."""
        if self.event_time is None:
            raise ConfigError(
                "a watermark needs an event time",
                code="STREAM_EVENT_TIME",
                hint='call .with_event_time("column") first',
            )
        return replace(self, delay_ms=milliseconds(delay, what="the delay of the watermark"))

    def side_output_late(self, place: str | os.PathLike[str]) -> Stream:
        """Keep the rows that come too late for the window, dedup or join of streams that follows, with all their columns.

        The place is a folder for Parquet files, an Iceberg table, or "topic:NAME". A row is late when the watermark had passed
        all its windows, or its time where there are none, before the batch in which it comes began.
        """
        self._time("side_output_late")
        return replace(self, late=os.fspath(place))

    def tumbling_window(self, size: Duration) -> Stream:
        """Group by windows of one size that follow each other."""
        size_ms, time = _positive(size, "the size of the window"), self._time()
        return replace(
            self, span=window.fixed(time, size_ms), until=partial(window.last_end, time, size_ms, size_ms)
        )

    def sliding_window(self, size: Duration, slide: Duration) -> Stream:
        """Group by windows of one size, of which a new one begins every `slide`."""
        size_ms, slide_ms = (
            _positive(size, "the size of the window"),
            _positive(slide, "the slide of the window"),
        )
        if slide_ms > size_ms:
            raise ConfigError(
                f"a window of {size_ms} ms every {slide_ms} ms would leave rows out",
                code="STREAM_WINDOW",
                hint="the slide may be as long as the window at most",
            )
        time = self._time()
        return replace(
            self,
            span=window.fixed(time, size_ms, slide_ms),
            until=partial(window.last_end, time, size_ms, slide_ms),
        )

    def session_window(self, gap: Duration) -> Stream:
        """Group by windows that last until nothing came for as long as `gap`."""
        gap_ms, time = _positive(gap, "the gap of the window"), self._time()
        return replace(
            self, span=window.session(time, gap_ms), until=partial(window.session_end, time, gap_ms)
        )

    def key_by(self, *columns: str) -> Stream:
        """Group by columns."""
        for column in columns:
            self._column(column, "the key")
        return replace(self, keys=columns)

    def agg(self, *aggregates: Column, **named: Column) -> Stream:
        """Aggregate per window and key: `.agg(n=F.count("*"))` or `.agg(F.count("*").alias("n"))`."""
        wanted = [*aggregates, *(column.alias(name) for name, column in named.items())]
        if not wanted:
            raise ConfigError(
                "agg needs at least one aggregate", code="STREAM_AGGREGATE", hint='for example n=F.count("*")'
            )
        groups: list[Any] = [*([] if self.span is None else [self.span]), *self.keys]
        if self.late is not None and self.span is None and self.event_time not in self.keys:
            raise _nothing_late("an aggregate without a window")
        source = self._watched(self.until).df
        frame = _guard(lambda: source.groupBy(*groups).agg(*wanted))
        if self.span is not None:
            frame = _guard(lambda: window.bounds(frame))
        return Stream(self.queries, frame)

    def select(self, *columns: Any) -> Stream:
        """Choose columns."""
        return self._with(lambda: self.frame.select(*columns))

    def where(self, condition: Any) -> Stream:
        """Keep the rows for which a condition, SQL text or a Column, holds."""
        return self._with(lambda: self.frame.where(condition))

    filter = where

    def with_column(self, name: str, column: Column) -> Stream:
        """Add or replace a column."""
        return self._with(lambda: self.frame.withColumn(name, column))

    def sql(self, query: str) -> Stream:
        """Run a query in which this stream is the table `stream`."""
        if self.late is not None:
            raise _nothing_late("SQL, whose windows nobody sees")
        source = self.df
        frame = _guard(lambda: frames.query(source, query), query)
        return Stream(self.queries, frame)

    def drop_duplicates(self, keys: Sequence[str] | str, within: Duration | None = None) -> Stream:
        """Keep the first row of each key; with `within`, state is forgotten that long after a row's event time."""
        names = [keys] if isinstance(keys, str) else list(keys)
        for name in names:
            self._column(name, "the key")
        watched = self._watched(None)
        if within is None:
            source = watched.df
            return Stream(self.queries, _guard(lambda: source.dropDuplicates(names)))
        self._time()
        bounded = replace(watched, delay_ms=max(self.delay_ms, _positive(within, "within"))).df
        made = bounded.dropDuplicatesWithinWatermark if bounded.isStreaming else bounded.dropDuplicates
        return Stream(self.queries, _guard(lambda: made(names)))

    def join(
        self,
        other: Stream | DataFrame,
        on: str | Sequence[str] | Column,
        how: str = "inner",
        within: Duration | None = None,
    ) -> Stream:
        """Join with a table (a batch DataFrame), or with a stream whose rows happened at most `within` apart."""
        table = other.frame if isinstance(other, Stream) else other
        if self.frame.isStreaming != table.isStreaming and (
            self.late is not None or (isinstance(other, Stream) and other.late is not None)
        ):
            raise _nothing_late("a join with a table, which drops none")
        left = self._watched(None).df
        right = other._watched(None).df if isinstance(other, Stream) else other
        if within is None:
            names: Any = on if isinstance(on, str) or not isinstance(on, Sequence) else list(on)
            joined = _guard(lambda: left.join(right, on=names, how=how))
            return Stream(self.queries, joined, None if table.isStreaming else self.event_time)
        if not isinstance(other, Stream) or other.event_time is None:
            raise ConfigError(
                "within needs two streams with event times",
                code="STREAM_EVENT_TIME",
                hint="call .with_event_time(...).with_watermark(...) on both",
            )
        bound = _positive(within, "within")
        mine, theirs = self._time(), other.event_time
        frame = _guard(
            lambda: frames.interval_join(left, right, on, how, times=(mine, theirs), within_ms=bound)
        )
        return Stream(self.queries, frame)

    def transform_with_state(
        self,
        processor: Any,
        output_schema: Any,
        *,
        output_mode: str = "append",
        time_mode: str = "none",
        initial_state: Any = None,
    ) -> Stream:
        """Run a PySpark StatefulProcessor per key; `key_by` comes first."""
        if not self.keys:
            raise ConfigError(
                "transform_with_state needs keys", code="STREAM_KEY", hint='call .key_by("column") first'
            )
        if self.late is not None and time_mode.lower() != "eventtime":
            raise _nothing_late("a processor without event time")
        source = self._watched(None).df
        frame = _guard(
            lambda: frames.transform_with_state(
                source, self.keys, processor, output_schema, output_mode, time_mode, initial_state
            )
        )
        return Stream(self.queries, frame)

    @property
    def write_stream(self) -> StreamWriter:
        """How the stream shall run, and where its rows go."""
        if self.late is not None:
            raise _nothing_late("a query without a window, dedup or join of streams behind it")
        return StreamWriter(self.queries, self.df)

    def _with(self, action: Callable[[], DataFrame]) -> Stream:
        return replace(self, frame=_guard(action))

    def _watched(self, until: Callable[[], Column] | None) -> Stream:
        """The stream with a point at which late rows are taken out, if they are wanted; `until` is None: their own time."""
        if self.late is None or not self.frame.isStreaming:
            return replace(self, late=None)
        name = f"late_{uuid.uuid4().hex[:12]}"
        frame = _guard(lambda: tap.named_rows(self.frame, name, self._time()))
        self.queries.points[name] = LateTap(
            name, self.late, until or partial(window.moment, self._time()), self.frame.schema
        )
        return replace(self, frame=frame, late=None)

    def _time(self, what: str = "a window") -> str:
        if self.event_time is None:
            raise ConfigError(
                f"{what} needs an event time",
                code="STREAM_EVENT_TIME",
                hint='call .with_event_time("column") first',
            )
        return self.event_time

    def _column(self, name: str, what: str) -> None:
        if name not in self.frame.columns:
            raise ConfigError(
                f"no column '{name}' for {what}",
                code="STREAM_COLUMN",
                hint=suggest(name, self.frame.columns, what="column"),
            )


def _nothing_late(what: str) -> ConfigError:
    return ConfigError(
        f"side_output_late cannot take late rows from {what}",
        code="STREAM_LATE",
        hint="call it before .tumbling_window(...).agg(...), another window, .drop_duplicates(...) or a join of two streams",
    )


def _positive(given: Duration, what: str) -> int:
    value = milliseconds(given, what=what)
    if value == 0:
        raise ConfigError(f"{what} must be longer than 0", code="STREAM_DURATION")
    return value


def _guard(action: Callable[[], T], query: str | None = None) -> T:
    try:
        return action()
    except PenstockError:
        raise
    except Exception as error:
        found = told(error, query)
        found.where = found.where or calling_line()
        raise found from None
