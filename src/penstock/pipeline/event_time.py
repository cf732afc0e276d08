"""How far the rows of nodes are behind the clock, by their event time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.data.operation import OPERATION
from penstock.errors import ConfigError, suggest
from penstock.pipeline.node import EventTime
from penstock.sinks.column import column
from penstock.spark.event_time import is_event_time, latest
from penstock.spark.observed import Observed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.pipeline.spec import NodeSpec

REPORT_SECONDS = 0.1
"""How long the end of an epoch waits for the report of what it saw; what comes later counts with the next epoch."""
_LATEST = "penstock_event_time"


def event_time_of(node: NodeSpec, schema: StructType) -> EventTime | None:
    """Return the event time of a node whose rows have these columns; refused when it has no such column, or none of that unit."""
    telemetry = node.model.telemetry
    if telemetry is None or telemetry.event_time is None:
        return None
    event_time = telemetry.event_time
    path = ("telemetry", "event_time")
    if event_time.column not in schema.names:
        raise ConfigError(
            f"'{node.name}' has no column '{event_time.column}' for its event time",
            code="PIPELINE_EVENT_TIME",
            where=str(node.place_of(*path, "column")),
            hint=suggest(
                event_time.column, [name for name in schema.names if name != OPERATION], what="column"
            ),
        )
    kind = schema[event_time.column].dataType
    if not is_event_time(kind, event_time.unit):
        raise ConfigError(
            f"the column '{event_time.column}' of '{node.name}' is {kind.simpleString()}, which is "
            f"no event time with the unit {event_time.unit}",
            code="PIPELINE_EVENT_TIME",
            where=str(node.place_of(*path, "unit")),
            hint="unit: timestamp is for timestamps and dates, s, ms, us and ns are for numbers; cast text in a `sql` node",
        )
    return event_time


class EventTimes:
    """Observes the newest event time of each node while its rows are written."""

    def __init__(
        self, event_times: Mapping[str, EventTime], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._event_times = event_times
        self._clock = clock
        self._observed: dict[str, Observed] = {}

    def watched(self, name: str, frame: DataFrame) -> DataFrame:
        """Return the frame to read instead of the frame of a node."""
        event_time = self._event_times.get(name)
        if event_time is None:
            return frame
        seconds = latest(column(event_time.column), event_time.unit)
        observed = self._observed[name] = Observed(frame, {_LATEST: seconds})
        return observed.frame

    def lags(self) -> dict[str, float]:
        """Return the seconds since the newest row of each node that had some; called when an epoch is written."""
        result = {}
        for name, observed in list(self._observed.items()):
            values = observed.reported(REPORT_SECONDS)
            if values is not None:
                del self._observed[name]
                if values[_LATEST] is not None:
                    result[name] = self._clock() - float(values[_LATEST])
        return result
