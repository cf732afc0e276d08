"""The sources of one query: their taps and side outputs, their consumer groups, their schemas that change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.sources import bad_record, source_of
from penstock.sources.bad_record import BadRecordTap
from penstock.spark.errors.cause import faults
from penstock.spark.errors.query import translate_query_error
from penstock.spark.micro_batch import plan, tap
from penstock.streaming.consumer_groups import ConsumerGroups, subscription
from penstock.streaming.side_output import TapOutputs
from penstock.streaming.source_feeds import SourceFeeds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.config import Settings
    from penstock.streaming.taps import Taps

KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class BatchInput:
    """A streaming query as a batch over all that its sources hold, with the offsets at which it ends."""

    frame: DataFrame
    ends: Mapping[str, Any]
    """By what Spark's progress would call the source."""


class QuerySources:
    """The sources of one query; `taps` are those of the session."""

    def __init__(self, frame: DataFrame, taps: Taps, settings: Settings) -> None:
        self._readings = plan.readings(frame) if frame.isStreaming else []
        self.feeds = SourceFeeds.of(self._readings)
        own_taps = taps.named(tap.names(frame)) if taps.used else []
        self._bad = {own.name: own for own in own_taps if isinstance(own, BadRecordTap)}
        self.side_outputs = TapOutputs(
            own_taps,
            spark=frame.sparkSession,
            kafka_sources=[reading.options for reading in self._readings if reading.source == KAFKA],
            settings=settings,
        )

    def consumer_groups(self, note: Callable[[str], None]) -> ConsumerGroups:
        """Return the consumer groups that the sources name; `note` writes a failure into the query's log."""
        return ConsumerGroups(self._readings, note=note)

    def as_batch(self, frame: DataFrame, folder: Callable[[], str]) -> BatchInput:
        """Return the query over all that its sources hold in this moment; `folder` makes a temporary one."""
        if not frame.isStreaming:
            return BatchInput(frame, {})
        pinned = {
            reading.key: source.bounded(frame.sparkSession, reading.relation, folder=folder)
            for reading in self._readings
            if (source := source_of(reading.source)) is not None
        }
        ends = {
            subscription(reading.options): json.loads(options["endingOffsets"])
            for reading in self._readings
            if "endingOffsets" in (options := pinned.get(reading.key, {}))
        }
        return BatchInput(plan.as_batch(frame, pinned), ends)

    @property
    def needs_batches(self) -> str | None:
        """Why the rows must come in batches; None when they need not."""
        if self.side_outputs:
            return "bad and late rows are taken out batch by batch"
        if any(bad.evolving is not None for bad in self._bad.values()):
            return "schemas that are new in a topic are learnt between batches"
        return None

    def learn(self, error: BaseException) -> bool:
        """Learn new schemas from an error that ended a run; True when another run can go on with them."""
        decoders = [bad.evolving for bad in self._bad.values() if bad.evolving is not None]
        chain = faults(_behind(error)) if decoders else ()
        return any(decoder.learn(chain) for decoder in decoders)

    def evolved(self, frame: DataFrame) -> DataFrame:
        """Return the query with all schemas that were learnt."""
        for bad in self._bad.values():
            if bad.evolving is not None:
                frame = plan.replaced(frame, bad.evolving.column(), bad.evolving.alias)
        return frame

    def translate(self, error: BaseException) -> PenstockError:
        """Return the penstock error of an error of the query; bad records and topics are named."""
        if not isinstance(error, PenstockError) and self.feeds.failure is not None:
            return self.feeds.failure
        if self._bad:
            refused = bad_record.refused(faults(_behind(error)), self._bad)
            if refused is not None:
                return refused
        translation = translate_query_error(error)
        topics = [name for reading in self._readings if (name := reading.options.get("subscribe"))]
        if translation.code == "KAFKA_TOPIC_MISSING" and topics:
            translation.message = f"no such topic: {', '.join(topics)}"  # Kafka does not say which
        return translation


def _behind(error: BaseException) -> BaseException:
    """What Spark raised, behind an error in the words of the sink in which it came up."""
    while isinstance(error, PenstockError):
        behind = error.__cause__ or error.__context__
        if behind is None:
            break
        error = behind
    return error
