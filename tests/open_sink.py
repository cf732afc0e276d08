"""Sinks as a query opens them."""

from __future__ import annotations

from typing import TypeVar

from pyspark.sql import DataFrame

from penstock import config
from penstock.sinks.base import QueryStatus, Sink, Target
from penstock.sinks.refused import RefusedRows

AnySink = TypeVar("AnySink", bound=Sink)


def open_sink(
    sink: AnySink,
    frame: DataFrame,
    *,
    mode: str = "append",
    keys: tuple[str, ...] = (),
    query: str = "q-1",
    operation: str | None = None,
    status: QueryStatus | None = None,
    refused: RefusedRows | None = None,
) -> AnySink:
    """Check and open a sink for rows like those of the frame, and return it."""
    target = Target(
        frame.sparkSession,
        query,
        "q",
        mode,
        frame.schema,
        keys,
        operation,
        status=status or QueryStatus(),
        refused=refused,
        settings=config.load(),
    )
    sink.check(target)
    sink.open(target)
    return sink
