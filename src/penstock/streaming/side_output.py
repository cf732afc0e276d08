"""Rows that leave a query aside, bad records and late ones: where they go, with the epoch in which they came.

They are written after the sink has taken the epoch, when it is known whether there are any, and before Spark commits it: after
a crash in between, the epoch comes again, and so do they. So nothing is lost; files and tables know the epochs that they have, and
a topic may have a record twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError
from penstock.sinks import SINKS
from penstock.sinks.base import Epoch, Sink, Target

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.micro_batch.tap import EpochPlan, Late

TOPIC, TABLE = "topic:", "table:"


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows left a query in one epoch."""

    dropped: int = 0
    quarantined: int = 0
    late: int = 0
    """Late rows beyond those that Spark counts: it counts rows that were put together before as one."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.dropped + other.dropped, self.quarantined + other.quarantined, self.late + other.late
        )


@dataclass(frozen=True, slots=True)
class LateTap:
    """The point of a plan before which rows that are too late are taken out."""

    name: str
    place: str
    until: Callable[[], Column]
    """The time after which nothing takes a row any more."""
    schema: StructType
    kafka: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, plan: EpochPlan, late: Late, *, all_read: bool) -> DataFrame | None:
        """Return the late rows of an epoch that has been written, kept until they are given up, or None when it has none."""
        from penstock.spark.micro_batch.frames import before

        read = (plan.counted(self.name) or (0,))[0]
        if all_read and read > 0 and late.dropped == 0:
            return None
        found = plan.detached(before(plan.arriving(self.name), self.until(), late.watermark_ms)).persist()
        if not found.isEmpty():
            return found
        found.unpersist()
        return None


class Aside:
    """One place for rows of one point of a plan."""

    def __init__(self, place: str, spark: SparkSession, kafka: Mapping[str, Any]) -> None:
        self.place = place
        self.records = place.startswith(TOPIC)
        self._sink = _sink(place, spark, kafka)
        self._open = False

    def check(self, target: Target, schema: StructType, number: int) -> None:
        """Refuse what cannot work; `number` tells the places of one query apart, also after a restart."""
        self._target = replace(
            target,
            query=str(uuid.uuid5(uuid.UUID(target.query), f"aside-{number}")),
            name=f"{target.name} aside {number}",
            mode="append",
            schema=schema,
            keys=(),
        )
        self._sink.check(self._target)

    def open(self) -> None:
        """Open the place; before a second run of the query, close it first."""
        self.close()
        self._sink.open(self._target)
        self._open = True

    def write(self, rows: DataFrame, number: int) -> int:
        """Write rows of an epoch; return how many were new."""
        return self._sink.write(Epoch(number, rows)) or 0

    def close(self) -> None:
        """Called after the last epoch."""
        if self._open:
            self._open = False
            self._sink.close()


def _sink(place: str, spark: SparkSession, kafka: Mapping[str, Any]) -> Sink:
    if place.startswith(TOPIC):
        topic = place.removeprefix(TOPIC)
        if topic in str(kafka.get("subscribe", "")).split(","):
            raise ConfigError(
                f"the query reads the topic '{topic}', so its rows cannot be put aside there",
                code="STREAM_ASIDE_PLACE",
                hint="choose another topic",
            )
        shared = ("kafka.bootstrap.servers", "kafka.security.", "kafka.sasl.", "kafka.ssl.")
        given = {name: value for name, value in kafka.items() if name.startswith(shared)}
        return _made("kafka", {**given, "topic": topic})
    first, dot, _ = place.partition(".")
    if place.startswith(TABLE) or (
        dot and "/" not in place and spark.conf.get(f"spark.sql.catalog.{first}", None) is not None
    ):
        return _made("iceberg", {"table": place.removeprefix(TABLE)})
    return _made("parquet", {"path": place})


def _made(name: str, options: Mapping[str, Any]) -> Sink:
    sink: Sink = SINKS.load(name)(options)
    return sink
