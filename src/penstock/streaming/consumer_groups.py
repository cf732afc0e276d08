"""The consumer groups of a query: after each epoch they get its offsets, for tools that show lag."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.sources import source_of
from penstock.sources.base import OffsetReporter

if TYPE_CHECKING:
    from penstock.spark.micro_batch.plan import PlannedSource


@dataclass(frozen=True, slots=True)
class _Member:
    """A source whose consumer group gets offsets; `source` is what Spark's progress calls it."""

    source: str
    group: OffsetReporter


class ConsumerGroups:
    """The groups of one running query; `note` writes a failure into the query's log."""

    def __init__(self, readings: Iterable[PlannedSource], *, note: Callable[[str], None]) -> None:
        self._members = tuple(
            _Member(subscription(reading.options), reporter)
            for reading in readings
            if (source := source_of(reading.source)) is not None
            and (reporter := source.reporter(reading.options, note=note)) is not None
        )

    @property
    def failures(self) -> int:
        """How often a group could not be reached."""
        return sum(member.group.failures for member in self._members)

    def commit(self, progress: Mapping[str, Any]) -> None:
        """Commit the offsets of an epoch, from Spark's progress; returns at once."""
        for source in progress.get("sources", ()):
            for member in self._members:
                if member.source in str(source["description"]) and source.get("endOffset"):
                    member.group.commit(source["endOffset"])

    def commit_ends(self, ends: Mapping[str, Mapping[str, Mapping[str, int]]]) -> None:
        """Commit the last offsets of a batch query, by `subscription`; returns at once."""
        for member in self._members:
            if member.source in ends:
                member.group.commit(ends[member.source])

    def close(self) -> None:
        """Wait a moment until the groups have the last offsets."""
        for member in self._members:
            member.group.close()


def subscription(options: Mapping[str, str]) -> str:
    """Return what Spark's progress calls a source of Kafka.

    >>> subscription({"subscribe": "orders, returns"})
    'Subscribe[orders, returns]'
    """
    by_name = {name.lower(): value for name, value in options.items()}
    if "subscribepattern" in by_name:
        return f"SubscribePattern[{by_name['subscribepattern']}]"
    topics = ", ".join(topic.strip() for topic in by_name.get("subscribe", "").split(",") if topic.strip())
    return f"Subscribe[{topics}]"
