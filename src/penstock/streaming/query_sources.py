"""What comes into a query, beside its rows: who is told how far they are read, and which of them leave it aside."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.sinks.base import Target
from penstock.sources import bad_record, source_of
from penstock.sources.bad_record import BadPoint
from penstock.sources.base import OffsetReporter
from penstock.spark.errors.cause import faults
from penstock.spark.micro_batch import plan, tap
from penstock.spark.micro_batch.tap import EpochPlan, Late
from penstock.streaming.call_site import told
from penstock.streaming.side_output import Aside, Counts, LateTap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KAFKA = "kafka"

Point = BadPoint | LateTap


@dataclass(frozen=True, slots=True)
class _Member:
    """A source whose consumer group is told; `place` is what Spark's progress calls it."""

    place: str
    group: OffsetReporter


class QuerySources:
    """The sources of one query, from its start to its end; `points` are all that streams of the session have."""

    def __init__(self, frame: DataFrame, points: Mapping[str, Point], *, note: Callable[[str], None]) -> None:
        self._readings = plan.readings(frame) if frame.isStreaming else []
        self._members = tuple(
            _Member(_place(reading.options), reporter)
            for reading in self._readings
            if (source := source_of(reading.source)) is not None
            and (reporter := source.reporter(reading.options, note=note)) is not None
        )
        self._pinned: dict[str, dict[str, str]] = {}
        self._once = not frame.isStreaming
        found = [points[name] for name in tap.names(frame) if name in points] if points else []
        self._bad = {point.name: point for point in found if isinstance(point, BadPoint)}
        self._asides: list[tuple[Point, Aside]] = []
        for point in found:
            place = point.place if isinstance(point, LateTap) else point.rule.quarantine
            if place is not None:
                kafkas = [point.kafka, *(each.options for each in self._readings if each.source == KAFKA)]
                known = next((options for options in kafkas if options), {})
                self._asides.append((point, Aside(place, frame.sparkSession, known)))

    def as_batch(self, frame: DataFrame, folder: Callable[[], str]) -> DataFrame:
        """The query over all that its sources hold in this moment; `folder` makes a temporary one."""
        self._once = True
        self._pinned = {
            reading.key: source.bounded(frame.sparkSession, reading.relation, folder=folder)
            for reading in self._readings
            if (source := source_of(reading.source)) is not None
        }
        return plan.as_batch(frame, self._pinned)

    def check(self, target: Target) -> None:
        """Refuse places for rows aside that cannot work, before the query starts."""
        for number, (point, aside) in enumerate(self._asides):
            columns = (
                point.schema if isinstance(point, LateTap) else bad_record.columns(records=aside.records)
            )
            aside.check(target, columns, number)

    def open(self) -> None:
        """Open the places for rows aside; before a second run of the query, close them first."""
        for _, aside in self._asides:
            aside.open()

    @property
    def takes_aside(self) -> bool:
        """Whether rows can leave the query otherwise than through its sink."""
        return bool(self._asides) or any(point.rule.action == "drop" for point in self._bad.values())

    @property
    def needs_batches(self) -> str | None:
        """Why the rows must come in batches; None when they need not."""
        if self.takes_aside:
            return "rows that leave the query aside are taken out batch by batch"
        if any(point.evolving is not None for point in self._bad.values()):
            return "schemas that are new in a topic are learnt between batches"
        return None

    def take_aside(self, batch: DataFrame, target: Target, number: int, *, all_read: bool) -> Counts:
        """Write bad and late rows of an epoch that the sink has taken; `all_read`: the sink has read all its rows."""
        counts = Counts()
        late: list[tuple[Late, int]] = []
        epoch = (
            EpochPlan.of_batch(batch) if self._once else EpochPlan.of_query(batch, target.spark, target.query)
        )
        for left_out in self._bad.values():
            if left_out.rule.action == "drop":
                counts += Counts(dropped=left_out.count(epoch))
        for point, aside in self._asides:
            whole = all_read and epoch.whole
            if isinstance(point, LateTap):
                self._take_late(point, aside, epoch, number, whole, late)
                continue
            rows = point.rows(epoch, all_read=whole)
            if rows is not None:
                kept = bad_record.kept(rows, point, query=target.name, epoch=number, records=aside.records)
                counts += Counts(quarantined=aside.write(kept, number))
        return counts + _uncounted(late)

    def _take_late(
        self,
        point: LateTap,
        aside: Aside,
        epoch: EpochPlan,
        number: int,
        whole: bool,
        found: list[tuple[Late, int]],
    ) -> None:
        late = epoch.late(point.name)
        if late is None:
            return
        rows = point.rows(epoch, late, all_read=whole)
        try:
            found.append((late, 0 if rows is None else aside.write(rows, number)))
        finally:
            if rows is not None:
                rows.unpersist()

    def mends(self, error: BaseException) -> bool:
        """Whether the query can go on after an error, because something was learnt from it."""
        decoders = [point.evolving for point in self._bad.values() if point.evolving is not None]
        told = faults(error) if decoders and not isinstance(error, PenstockError) else ()
        return any(decoder.learn(told) for decoder in decoders)

    def mended(self, frame: DataFrame) -> DataFrame:
        """The query with all that was learnt."""
        for point in self._bad.values():
            if point.evolving is not None:
                frame = plan.replaced(frame, point.evolving.column(), point.evolving.alias)
        return frame

    def told(self, error: BaseException) -> PenstockError:
        """The error of a query in penstock's words."""
        if not isinstance(error, PenstockError) and self._bad:
            refused = bad_record.refused(faults(error), self._bad)
            if refused is not None:
                return refused
        made = told(error)
        topics = [name for each in self._readings if (name := each.options.get("subscribe"))]
        if made.code == "KAFKA_TOPIC_MISSING" and topics:
            made.message = f"no such topic: {', '.join(topics)}"  # Kafka does not say which
        return made

    def committed(self, progress: Mapping[str, Any]) -> None:
        """Spark has committed an epoch: its progress says how far."""
        for source in progress.get("sources", ()):
            for member in self._members:
                if member.place in str(source["description"]) and source.get("endOffset"):
                    member.group.commit(source["endOffset"])

    def read_all(self) -> None:
        """The one batch of a query without a checkpoint is written."""
        for reading in self._readings:
            ends = self._pinned.get(reading.key, {}).get("endingOffsets")
            for member in self._members:
                if ends is not None and member.place == _place(reading.options):
                    member.group.commit(json.loads(ends))

    @property
    def group_failures(self) -> int:
        """How often a consumer group could not be told."""
        return sum(member.group.failures for member in self._members)

    def close(self) -> None:
        """Let the groups know the last offsets, and close the places for rows aside."""
        for member in self._members:
            member.group.close()
        for _, aside in self._asides:
            with contextlib.suppress(Exception):  # what they were given is written
                aside.close()


def _uncounted(found: Sequence[tuple[Late, int]]) -> Counts:
    """How many rows came late beyond those that Spark has counted, of operators all of whose late rows were kept."""
    more = 0
    for operator in {late.operator for late, _ in found}:
        kept = [(late, rows) for late, rows in found if late.operator == operator]
        if len(kept) == kept[0][0].inputs:
            more += sum(rows for _, rows in kept) - kept[0][0].dropped
    return Counts(late=more)


def _place(options: Mapping[str, str]) -> str:
    """What Spark's progress calls a source of Kafka."""
    given = {name.lower(): value for name, value in options.items()}
    if "subscribepattern" in given:
        return f"SubscribePattern[{given['subscribepattern']}]"
    topics = ", ".join(topic.strip() for topic in given.get("subscribe", "").split(",") if topic.strip())
    return f"Subscribe[{topics}]"
