"""What comes into a query, beside its rows: who is told how far they are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.sources import kafka, kafka_group
from penstock.spark.streaming import plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class _Member:
    """A source whose consumer group is told; `place` is its number among the sources of the query."""

    place: str
    group: kafka_group.ConsumerGroup


class Intake:
    """The sources of one query, from its start to its end."""

    def __init__(self, frame: DataFrame, *, note: Callable[[str], None]) -> None:
        self._readings = plan.readings(frame) if frame.isStreaming else []
        self._members = tuple(
            _Member(
                _place(reading.options),
                kafka_group.ConsumerGroup(reading.options, told=note),
            )
            for reading in self._readings
            if kafka_group.OPTION in reading.options
        )
        self._pinned: dict[str, dict[str, str]] = {}

    def as_batch(self, frame: DataFrame, folder: Callable[[], str]) -> DataFrame:
        """The query over all that its sources hold in this moment; `folder` makes a temporary one."""
        self._pinned = {
            reading.key: kafka.pinned(frame.sparkSession, reading.relation, folder())
            for reading in self._readings
            if reading.source == KAFKA
        }
        return plan.as_batch(frame, self._pinned)

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
        """Let the groups know the last offsets."""
        for member in self._members:
            member.group.close()


def _place(options: Mapping[str, str]) -> str:
    """What Spark's progress calls a source of Kafka."""
    given = {name.lower(): value for name, value in options.items()}
    if "subscribepattern" in given:
        return f"SubscribePattern[{given['subscribepattern']}]"
    topics = ", ".join(topic.strip() for topic in given.get("subscribe", "").split(",") if topic.strip())
    return f"Subscribe[{topics}]"
