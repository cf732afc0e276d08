"""Side outputs of a query: where its bad and late rows go, with the epoch in which they came.

They are written after the sink has taken the epoch, when it is known whether there are any, and before Spark commits it: after
a crash in between, the epoch comes again, and so do they. So nothing is lost; files and tables know the epochs that
they have, and a topic may have a record twice.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError
from penstock.sinks import SINKS
from penstock.sinks.base import Epoch, Sink, Target
from penstock.sources import bad_record
from penstock.sources.bad_record import BadRecordTap
from penstock.spark.micro_batch.tap import EpochPlan, Late
from penstock.streaming.taps import LateTap, Tap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.config import Settings

TOPIC, TABLE = "topic:", "table:"
SHARED_KAFKA_OPTIONS = ("kafka.bootstrap.servers", "kafka.security.", "kafka.sasl.", "kafka.ssl.")


@dataclass(frozen=True, slots=True)
class SideCounts:
    """How many rows left a query beside its sink in one epoch."""

    dropped: int = 0
    quarantined: int = 0
    late: int = 0
    """Late rows beyond those that Spark counts: it counts rows that were put together before as one."""

    def __add__(self, other: SideCounts) -> SideCounts:
        return SideCounts(
            self.dropped + other.dropped, self.quarantined + other.quarantined, self.late + other.late
        )


class TapOutput:
    """One destination for the rows of one tap; `number` tells those of one query apart, also after a restart."""

    def __init__(
        self,
        destination: str,
        *,
        number: int,
        spark: SparkSession,
        kafka: Mapping[str, Any],
        settings: Settings | None = None,
    ) -> None:
        self.is_topic = destination.startswith(TOPIC)
        self._sink = _sink(destination, spark, kafka, settings)
        self._number = number
        self._open = False

    def check(self, target: Target, schema: StructType) -> None:
        """Refuse what cannot work; `target` is that of the query."""
        self._sink.check(self._target(target, schema))
        self._sink.close()

    def open(self, target: Target, schema: StructType) -> None:
        """Open the destination; before a second run of the query, close it first."""
        self.close()
        self._sink.open(self._target(target, schema))
        self._open = True

    def write(self, rows: DataFrame, number: int) -> int:
        """Write rows of an epoch; return how many were new."""
        return self._sink.write(Epoch(number, rows)) or 0

    def close(self) -> None:
        """Called after the last epoch."""
        if self._open:
            self._open = False
            self._sink.close()

    def _target(self, target: Target, schema: StructType) -> Target:
        return replace(
            target,
            # The destination knows the epochs that it has by this id: it must stay the same from release to release.
            query=str(uuid.uuid5(uuid.UUID(target.query), f"aside-{self._number}")),
            name=f"{target.name} side output {self._number}",
            mode="append",
            schema=schema,
            keys=(),
        )


class TapOutputs:
    """The side outputs of one query, and the counts of the rows that it drops."""

    def __init__(
        self,
        taps: Sequence[Tap],
        *,
        spark: SparkSession,
        kafka_sources: Sequence[Mapping[str, Any]],
        settings: Settings | None = None,
    ) -> None:
        self._dropping = [tap for tap in taps if isinstance(tap, BadRecordTap) and tap.rule.action == "drop"]
        self._outputs: list[tuple[Tap, TapOutput]] = []
        for tap in taps:
            destination = tap.destination if isinstance(tap, LateTap) else tap.rule.quarantine
            if destination is not None:
                kafka = next((options for options in (tap.kafka, *kafka_sources) if options), {})
                output = TapOutput(
                    destination, number=len(self._outputs), spark=spark, kafka=kafka, settings=settings
                )
                self._outputs.append((tap, output))

    def __bool__(self) -> bool:
        """Whether rows can leave the query otherwise than through its sink."""
        return bool(self._outputs or self._dropping)

    def check(self, target: Target) -> None:
        """Refuse destinations that cannot work, before the query starts."""
        for tap, output in self._outputs:
            output.check(target, _columns(tap, output))

    def open(self, target: Target) -> None:
        """Open the destinations; before a second run of the query, close them first."""
        for tap, output in self._outputs:
            output.open(target, _columns(tap, output))

    def write(self, plan: EpochPlan, number: int, *, query: str, all_read: bool) -> SideCounts:
        """Write the bad and late rows of an epoch that the sink has taken.

        `query` is the query's name, `all_read` says that the sink has read all rows of the epoch.
        """
        counts = SideCounts()
        for dropping in self._dropping:
            counts += SideCounts(dropped=dropping.count(plan))
        all_read = all_read and (not self._outputs or plan.reads_all)
        late: list[tuple[Late, int]] = []
        for tap, output in self._outputs:
            if isinstance(tap, LateTap):
                late += _write_late(tap, output, plan, number=number, all_read=all_read)
                continue
            rows = tap.rows(plan, all_read=all_read)
            if rows is not None:
                records = bad_record.quarantined(
                    rows, tap, query=query, epoch=number, records=output.is_topic
                )
                counts += SideCounts(quarantined=output.write(records, number))
        return counts + _uncounted(late)

    def close(self) -> None:
        """Close the destinations; what they have taken is written."""
        for _, output in self._outputs:
            with contextlib.suppress(Exception):
                output.close()


def _columns(tap: Tap, output: TapOutput) -> StructType:
    return tap.schema if isinstance(tap, LateTap) else bad_record.columns(records=output.is_topic)


def _write_late(
    tap: LateTap, output: TapOutput, plan: EpochPlan, *, number: int, all_read: bool
) -> list[tuple[Late, int]]:
    """Write the late rows of one tap; return what the operator behind it dropped, and how many rows were written."""
    late = plan.late(tap.name)
    if late is None:
        return []
    rows = tap.rows(plan, late, all_read=all_read)
    if rows is None:
        return [(late, 0)]
    try:
        return [(late, output.write(rows, number))]
    finally:
        rows.unpersist()


def _uncounted(late: Sequence[tuple[Late, int]]) -> SideCounts:
    """How many rows came late beyond those that Spark has counted, of operators all of whose late rows were written."""
    more = 0
    for operator in {dropped.operator for dropped, _ in late}:
        inputs = [(dropped, rows) for dropped, rows in late if dropped.operator == operator]
        if len(inputs) == inputs[0][0].inputs:
            more += sum(rows for _, rows in inputs) - inputs[0][0].dropped
    return SideCounts(late=more)


def _sink(destination: str, spark: SparkSession, kafka: Mapping[str, Any], settings: Settings | None) -> Sink:
    if destination.startswith(TOPIC):
        topic = destination.removeprefix(TOPIC)
        if topic in str(kafka.get("subscribe", "")).split(","):
            raise ConfigError(
                f"the query reads the topic '{topic}', so its bad or late rows cannot go there",
                code="STREAM_ASIDE_PLACE",
                hint="choose another topic",
            )
        servers = {name: value for name, value in kafka.items() if name.startswith(SHARED_KAFKA_OPTIONS)}
        return _built_in("kafka", {**servers, "topic": topic}, settings)
    catalog, dot, _ = destination.partition(".")
    if destination.startswith(TABLE) or (
        dot and "/" not in destination and spark.conf.get(f"spark.sql.catalog.{catalog}", None) is not None
    ):
        return _built_in("iceberg", {"table": destination.removeprefix(TABLE)}, settings)
    return _built_in("parquet", {"path": destination}, settings)


def _built_in(name: str, options: Mapping[str, Any], settings: Settings | None) -> Sink:
    sink: Sink = SINKS.load(name)(options, settings)
    return sink
