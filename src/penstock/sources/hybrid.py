"""A history that comes to an end, then a live source: where one ends and the other begins, so that nothing is missed or doubled.

With a cursor, a column that only grows, the boundary is its greatest value in the history at the first start: the
history gives the rows up to it, the live source those beyond. Without one, rows are upserts by their key: the live
source begins where it was before the history was read, and rows that come twice replace each other.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from penstock.data.operation import INSERT, OPERATION
from penstock.errors import DataError, suggest
from penstock.sources.base import ExternalResource, Source, SourceContext, SourceFrame
from penstock.sources.kafka import OWN
from penstock.spark.micro_batch import plan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


HISTORY, LIVE = "history", "live"
EARLIEST = -2
"""What Spark understands as the first offset of a partition."""
_WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?")
METADATA = frozenset(f"_{name}" for name in OWN)


@runtime_checkable
class HasGreatest(Protocol):
    """A source that knows the greatest value of a column without reading the rows."""

    def greatest(self, cursor: str) -> str | None:
        """Return it as text, times in UTC; None when there are no rows."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where the history ends and the live source begins; it is fixed at the first start and kept in the state."""

    cursor: str | None = None
    """The greatest value of the cursor in the history; None without a cursor, or when the history has no rows."""
    offsets: str | None = None
    """Where the live source stood before the history was read, in Spark's words; None when it begins where its options say."""

    def to_json(self) -> dict[str, str | None]:
        """Return what JSON can say."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Boundary:
        """Return the boundary of `to_json`."""
        return cls(values["cursor"], values["offsets"])


def boundary(
    history: Source, live: Source, context: SourceContext, *, cursor: str | None, records_offsets: bool
) -> Boundary:
    """Look where the live source stands, and after that where the history does."""
    offsets = end_offsets(live, _part(context, LIVE)) if records_offsets else None
    if cursor is None:
        return Boundary(None, offsets)
    if isinstance(history, HasGreatest):
        return Boundary(history.greatest(cursor), offsets)
    return Boundary(_greatest(history.read(_part(context, HISTORY)).frame, cursor), offsets)


def end_offsets(live: Source, context: SourceContext) -> str:
    """Return the ends of all partitions of topics as Spark's JSON."""
    [reading] = plan.readings(live.read(context).frame)
    jvm: Any = context.spark._jvm
    everything = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()
    with (
        TemporaryDirectory(prefix="penstock-offsets-") as notes,
        plan.opened(context.spark, reading.relation, notes) as stream,
    ):
        return str(stream.latestOffset(stream.initialOffset(), everything).json())


def with_new_partitions(noted: str, now: str) -> str:
    """Return offsets that were noted, with partitions that came later, from their beginning.

    >>> with_new_partitions('{"t": {"0": 5}}', '{"t": {"0": 9, "1": 3}}')
    '{"t": {"0": 5, "1": -2}}'
    """
    offsets: dict[str, dict[str, int]] = json.loads(noted)
    for topic, partitions in json.loads(now).items():
        for partition in partitions:
            offsets.setdefault(topic, {}).setdefault(partition, EARLIEST)
    return json.dumps(offsets)


class _OfLive(Source):
    """What all parts have in common: the live source says what it makes elsewhere, and which columns distinguish rows."""

    def __init__(self, live: Source) -> None:
        super().__init__({})
        self._live = live

    @property
    def keys(self) -> tuple[str, ...]:
        return self._live.keys

    def named(self, pipeline: str, node: str) -> Self:
        named = copy.copy(self)
        named._live = self._live.named(pipeline, node)
        return named

    @property
    def external_resource(self) -> ExternalResource | None:
        return self._live.external_resource

    def reset(self) -> bool:
        return self._live.reset()

    def check(self) -> None:
        self._live.check()


class BothParts(_OfLive):
    """Both parts for a pipeline that is only looked at: the rows are those of the live source, and `check` tries the
    history, too."""

    def __init__(self, history: Source, live: Source, *, cursor: str | None) -> None:
        super().__init__(live)
        self._history, self._cursor = history, cursor
        self._context: SourceContext | None = None

    def read(self, context: SourceContext) -> SourceFrame:
        self._context = context
        return self._live.read(_part(context, LIVE))

    def check(self) -> None:
        super().check()
        self._history.check()
        if self._context is None:
            return
        parts = HistorySource(self._history, self._live, cursor=self._cursor, until=None)
        frame = parts.read(self._context).frame
        if self._cursor is not None:
            _type(frame, self._cursor)


class HistorySource(_OfLive):
    """The first part: the rows up to the boundary, in the columns and types of the live source."""

    def __init__(self, history: Source, live: Source, *, cursor: str | None, until: str | None) -> None:
        super().__init__(live)
        self._history, self._cursor, self._until = history, cursor, until

    def check(self) -> None:
        super().check()
        self._history.check()

    def read(self, context: SourceContext) -> SourceFrame:
        wanted = self._live.read(_part(context, LIVE)).frame.schema
        history = self._history.read(_part(context, HISTORY))
        rows = history.frame
        if self._cursor is not None:
            rows = rows.where(_up_to(rows, self._cursor, self._until))
        return SourceFrame(_as_live(rows, wanted), history.bad_records)


class LiveSource(_OfLive):
    """The second part: the rows beyond the boundary, and updates and deletes of all; `begin` makes the source that
    begins at offsets, or where its options say."""

    def __init__(self, begin: Callable[[str | None], Source], at: Boundary, *, cursor: str | None) -> None:
        super().__init__(begin(None))
        self._begin, self._at, self._cursor = begin, at, cursor

    def named(self, pipeline: str, node: str) -> Self:
        named, begin = super().named(pipeline, node), self._begin
        named._begin = lambda offsets: begin(offsets).named(pipeline, node)
        return named

    def read(self, context: SourceContext) -> SourceFrame:
        context, offsets = _part(context, LIVE), self._at.offsets
        if offsets is not None:
            # Spark wants all partitions that there are when it begins.
            offsets = with_new_partitions(offsets, end_offsets(self._live, context))
        live = (self._live if offsets is None else self._begin(offsets)).read(context)
        if self._cursor is None or self._at.cursor is None:
            return live
        kind = _type(live.frame, self._cursor)
        later = _column(self._cursor) > _literal(self._at.cursor, kind)
        if OPERATION in live.frame.columns:
            # What happened later to rows of the history: read again from an earlier time, it ends with the same rows.
            later = later | (_column(OPERATION) != INSERT)
        return SourceFrame(live.frame.where(later), live.bad_records)


def _part(context: SourceContext, part: str) -> SourceContext:
    state = None if context.state is None else context.state.within(part)
    folder = None if context.folder is None else f"{context.folder}/{part}"
    # The history is read to its end before anything else, and the live source has none.
    return replace(context, state=state, folder=folder, goes_on=False)


def _up_to(rows: DataFrame, cursor: str, until: str | None) -> Column:
    from pyspark.sql import functions as F

    return F.lit(False) if until is None else _column(cursor) <= _literal(until, _type(rows, cursor))


def _greatest(frame: DataFrame, cursor: str) -> str | None:
    """The greatest value of a column in what a stream has now, as text."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampType

    kind = _type(frame, cursor)
    greatest = F.max(_column(cursor))
    is_time = isinstance(kind, TimestampType)
    value = F.unix_micros(greatest) if is_time else greatest.cast("string")
    [row] = plan.as_batch(frame).select(value).collect()
    if row[0] is None:
        return None
    if is_time:
        return str(datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(microseconds=row[0]))
    return str(row[0])


def _as_live(rows: DataFrame, wanted: StructType) -> DataFrame:
    """Rows of the history in the columns of the live source: inserts, without what Kafka says of its records."""
    from pyspark.sql import functions as F

    names = {name.lower(): name for name in rows.columns}
    columns = []
    for field in wanted.fields:
        name = names.get(field.name.lower())
        if name is not None:
            columns.append(_column(name).cast(field.dataType).alias(field.name))
        elif field.name == OPERATION:
            columns.append(F.lit(INSERT).alias(OPERATION))
        elif field.name in METADATA:
            columns.append(F.lit(None).cast(field.dataType).alias(field.name))
        else:
            raise DataError(
                f"the history has no column '{field.name}', which the live source has",
                code="SOURCE_COLUMN",
                hint=suggest(field.name, rows.columns, what="column"),
            )
    return rows.select(*columns)


def _type(frame: DataFrame, name: str) -> DataType:
    field = next((field for field in frame.schema.fields if field.name.lower() == name.lower()), None)
    if field is None:
        raise DataError(
            f"there is no column '{name}' (cursor)",
            code="SOURCE_COLUMN",
            hint=suggest(name, frame.columns, what="column"),
        )
    return field.dataType


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(f"`{name.replace('`', '``')}`")


def _literal(value: str, kind: DataType) -> Column:
    """A value of a cursor; times without a zone are in UTC."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampType

    text = f"{value}Z" if isinstance(kind, TimestampType) and _WITHOUT_ZONE.fullmatch(value) else value
    return F.lit(text).cast(kind)
