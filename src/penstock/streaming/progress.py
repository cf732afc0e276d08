"""What is reported of each batch of a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How far one source has been read."""

    description: str
    input_rows: int
    start_offset: Any = None
    end_offset: Any = None
    latest_offset: Any = None
    lag: int | None = None
    """Records that are there and not read yet, for sources that can tell."""
    lag_by_partition: Mapping[str, int] = field(default_factory=dict)
    """The same for each partition, "topic-0"."""


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One batch of a query."""

    trigger: str
    batch_id: int
    input_rows: int
    output_rows: int | None
    """Rows that the sink took; None when only the user's function knows."""
    duration_ms: int
    timestamp: str
    watermark: str | None = None
    state_rows: int = 0
    state_bytes: int = 0
    late_rows: int = 0
    """Rows that came after the watermark had passed them, and were dropped or went to a side output."""
    dropped_records: int = 0
    """Records that could not be read, and were left out."""
    quarantined_records: int = 0
    """Records that could not be read, and went to the quarantine."""
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[SourceProgress, ...] = ()

    lag: int | None = None
    """Records that are there and not read yet, of all sources that can tell."""

    @property
    def input_rows_per_second(self) -> float:
        """How fast rows were taken in."""
        return self.input_rows * 1000 / self.duration_ms if self.duration_ms else 0.0


def from_spark(report: Mapping[str, Any], *, trigger: str, output_rows: int | None) -> QueryProgress:
    """Return Spark's progress report as ours."""
    operators = report.get("stateOperators", ())
    sources = tuple(_source(source) for source in report.get("sources", ()))
    return QueryProgress(
        trigger=trigger,
        batch_id=int(report["batchId"]),
        input_rows=int(report["numInputRows"]),
        output_rows=output_rows,
        duration_ms=int(report["durationMs"].get("triggerExecution", report.get("batchDuration", 0))),
        timestamp=str(report["timestamp"]),
        watermark=report.get("eventTime", {}).get("watermark"),
        state_rows=sum(int(operator["numRowsTotal"]) for operator in operators),
        state_bytes=sum(int(operator["memoryUsedBytes"]) for operator in operators),
        late_rows=sum(int(operator["numRowsDroppedByWatermark"]) for operator in operators),
        durations_ms=dict(report["durationMs"]),
        sources=sources,
        lag=_sum(source.lag for source in sources),
    )


def _source(report: Mapping[str, Any]) -> SourceProgress:
    end, latest = report.get("endOffset"), report.get("latestOffset")
    lags = _lags(end, latest)
    return SourceProgress(
        description=str(report["description"]),
        input_rows=int(report["numInputRows"]),
        start_offset=report.get("startOffset"),
        end_offset=end,
        latest_offset=latest,
        lag=None if lags is None else sum(lags.values()),
        lag_by_partition=lags or {},
    )


def _lags(end: Any, latest: Any) -> dict[str, int] | None:
    """The records between two offsets of Kafka, {"topic": {"partition": offset}}; None when these are not Kafka's."""
    try:
        return {
            # The end is newer than the latest when a batch runs again and the broker was not asked anew.
            f"{topic}-{partition}": max(0, int(newest) - int(end.get(topic, {}).get(partition, 0)))
            for topic, partitions in latest.items()
            for partition, newest in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        return None


def _sum(lags: Iterable[int | None]) -> int | None:
    numbers = [lag for lag in lags if lag is not None]
    return sum(numbers) if numbers else None
