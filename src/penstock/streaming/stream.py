"""The builder of streaming queries: event time, windows, keys, aggregates, joins, in the words of PySpark."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.data.duration import milliseconds
from penstock.errors import ConfigError, suggest
from penstock.spark.errors.query import translated
from penstock.spark.micro_batch import frames, tap, window
from penstock.streaming.call_site import calling_line
from penstock.streaming.taps import LateTap, Tap
from penstock.streaming.writer import StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.streaming.queries import Queries

Duration = int | str | timedelta


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
    taps: tuple[Tap, ...] = ()
    """The points of its plan at which bad and late rows are taken out."""

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {kind}" for name, kind in self.frame.dtypes)
        return f"<penstock stream [{columns}]>"

    @property
    def df(self) -> DataFrame:
        """The PySpark DataFrame, with the watermark when there is an event time."""
        self.queries.taps.retain(self.taps)
        return self._watermarked()

    def with_event_time(self, column: str) -> Stream:
        """Name the column that says when a row happened; without `with_watermark` nothing may come late."""
        self._column(column, "the event time")
        with _translated():
            frame = frames.with_timestamp(self.frame, column)
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
        columns = [*aggregates, *(column.alias(name) for name, column in named.items())]
        if not columns:
            raise ConfigError(
                "agg needs at least one aggregate", code="STREAM_AGGREGATE", hint='for example n=F.count("*")'
            )
        groups: list[Any] = [*([] if self.span is None else [self.span]), *self.keys]
        if self.late is not None and self.span is None and self.event_time not in self.keys:
            raise _nothing_late("an aggregate without a window")
        source = self._tapped(self.until)
        with _translated():
            frame = source._watermarked().groupBy(*groups).agg(*columns)
            if self.span is not None:
                frame = window.bounds(frame)
        return source._derived(frame)

    def select(self, *columns: Any) -> Stream:
        """Choose columns."""
        with _translated():
            return replace(self, frame=self.frame.select(*columns))

    def where(self, condition: Any) -> Stream:
        """Keep the rows for which a condition, SQL text or a Column, holds."""
        with _translated():
            return replace(self, frame=self.frame.where(condition))

    filter = where

    def with_column(self, name: str, column: Column) -> Stream:
        """Add or replace a column."""
        with _translated():
            return replace(self, frame=self.frame.withColumn(name, column))

    def sql(self, query: str) -> Stream:
        """Run a query in which this stream is the table `stream`."""
        if self.late is not None:
            raise _nothing_late("SQL, whose windows nobody sees")
        source = self._watermarked()
        with _translated(query):
            return self._derived(frames.query(source, query))

    def drop_duplicates(self, keys: Sequence[str] | str, within: Duration | None = None) -> Stream:
        """Keep the first row of each key; with `within`, state is forgotten that long after a row's event time."""
        names = [keys] if isinstance(keys, str) else list(keys)
        for name in names:
            self._column(name, "the key")
        source = self._tapped(None)
        if within is None:
            with _translated():
                return source._derived(source._watermarked().dropDuplicates(names))
        self._time()
        bounded = replace(source, delay_ms=max(self.delay_ms, _positive(within, "within")))._watermarked()
        with _translated():
            if not bounded.isStreaming:
                return source._derived(bounded.dropDuplicates(names))
            return source._derived(bounded.dropDuplicatesWithinWatermark(names))

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
        left = self._tapped(None)
        right = other._tapped(None) if isinstance(other, Stream) else Stream(self.queries, other)
        taps = tuple({tap.name: tap for tap in (*left.taps, *right.taps)}.values())
        left_frame, right_frame = left._watermarked(), right._watermarked()
        if within is None:
            names: Any = on if isinstance(on, str) or not isinstance(on, Sequence) else list(on)
            event_time = None if table.isStreaming else self.event_time
            with _translated():
                joined = left_frame.join(right_frame, on=names, how=how)
            return Stream(self.queries, joined, event_time, taps=taps)
        if not isinstance(other, Stream) or other.event_time is None:
            raise ConfigError(
                "within needs two streams with event times",
                code="STREAM_EVENT_TIME",
                hint="call .with_event_time(...).with_watermark(...) on both",
            )
        bound = _positive(within, "within")
        times = self._time(), other.event_time
        with _translated():
            frame = frames.interval_join(left_frame, right_frame, on, how, times=times, within_ms=bound)
        return Stream(self.queries, frame, taps=taps)

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
        source = self._tapped(None)
        frame = source._watermarked()
        with _translated():
            frame = frames.transform_with_state(
                frame, self.keys, processor, output_schema, output_mode, time_mode, initial_state
            )
        return source._derived(frame)

    @property
    def write_stream(self) -> StreamWriter:
        """How the stream shall run, and where its rows go."""
        if self.late is not None:
            raise _nothing_late("a query without a window, dedup or join of streams behind it")
        return StreamWriter(self.queries, self._watermarked(), taps=self.taps)

    def _watermarked(self) -> DataFrame:
        """The DataFrame with the watermark when there is an event time."""
        if self.event_time is None or not self.frame.isStreaming:
            return self.frame
        self._column(self.event_time, "the event time")
        with _translated():
            if frames.has_watermark(self.frame, self.event_time):
                return self.frame
            return self.frame.withWatermark(self.event_time, f"{self.delay_ms} milliseconds")

    def _derived(self, frame: DataFrame) -> Stream:
        """A stream of what was made of this one; it has no event time, keys or window yet."""
        return Stream(self.queries, frame, taps=self.taps)

    def _tapped(self, until: Callable[[], Column] | None) -> Stream:
        """The stream with a tap for late rows, if they are wanted; `until` is None: a row's own time."""
        if self.late is None or not self.frame.isStreaming:
            return replace(self, late=None)
        name = f"late_{uuid.uuid4().hex[:12]}"
        with _translated():
            frame = tap.named_rows(self.frame, name, self._time())
        late_tap = LateTap(name, self.late, until or partial(window.moment, self._time()), self.frame.schema)
        self.queries.taps.add(late_tap)
        return replace(self, frame=frame, late=None, taps=(*self.taps, late_tap))

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


def _positive(duration: Duration, what: str) -> int:
    value = milliseconds(duration, what=what)
    if value == 0:
        raise ConfigError(f"{what} must be longer than 0", code="STREAM_DURATION")
    return value


def _translated(sql: str | None = None) -> AbstractContextManager[None]:
    """Raise Spark's errors as penstock's, with the line of the user's program."""
    return translated(sql=sql, where=calling_line())
