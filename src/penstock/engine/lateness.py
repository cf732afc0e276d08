"""Rows that come too late: judged by their event time against the latest one that the source has accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.delta import Delta
from penstock.data.duration import milliseconds
from penstock.data.event_time import micros
from penstock.engine.names import position
from penstock.errors import ConfigError
from penstock.plan.node import Field

_TIMES = ("timestamp", "timestamp_ntz", "date")
_FORMS = 'lateness={"column": "ts", "delay": "10 minutes"}'


@dataclass(frozen=True, slots=True)
class Lateness:
    """How far, in microseconds, an event time may lie behind the latest one that was accepted before its tick."""

    column: int
    delay: int


@dataclass(frozen=True, slots=True)
class Sorted:
    """A change without the rows that are too late, those rows, and the latest event time with it."""

    on_time: Delta
    late: Delta
    latest_event_time: int | None


def declare_lateness(option: Any, fields: Sequence[Field], *, where: str) -> Lateness | None:
    """Check the option: a column and a delay, or a delay alone when the source has one column of times."""
    if option is None:
        return None
    times = [field.name for field in fields if field.type in _TIMES]
    if isinstance(option, Mapping) and set(option) == {"column", "delay"}:
        column, delay = option["column"], option["delay"]
    elif isinstance(option, tuple | list) and len(option) == 2:
        column, delay = option
    elif isinstance(option, int | str | timedelta) and len(times) == 1:
        column, delay = times[0], option
    else:
        raise ConfigError(
            f"lateness={option!r} does not say which column is the event time, and how late it may be",
            code="FLOW_OPTION",
            where=where,
            hint=f"write {_FORMS}" + (f"; columns of times are {', '.join(times)}" if times else ""),
        )
    at = position(column, [field.name for field in fields], of=where)
    if fields[at].type not in _TIMES:
        raise ConfigError(
            f"lateness needs an event time, and column '{column}' is {fields[at].type}",
            code="FLOW_OPTION",
            where=where,
            hint="use a column of type TIMESTAMP, TIMESTAMP_NTZ or DATE",
        )
    return Lateness(at, milliseconds(delay, what="the delay of lateness") * 1_000)


def sort_out(lateness: Lateness, accepted_time: int | None, latest: int | None, delta: Delta) -> Sorted:
    """Divide a change: late is what lies further behind `accepted_time`, the latest one of before, than the delay;
    `latest` is the latest one so far.

    A row without an event time is never late. Retractions are judged like inserts, and do not move the latest event time.
    """
    times, valid = micros(delta.columns[lateness.column])
    late = (
        valid & (times < accepted_time - lateness.delay)
        if accepted_time is not None
        else np.zeros(len(delta), np.bool_)
    )
    on_time = delta if not late.any() else delta.take(np.flatnonzero(~late))
    seen = times[valid & ~late & (delta.weights > 0)]
    candidates = [value for value in (latest, int(seen.max()) if len(seen) else None) if value is not None]
    return Sorted(on_time, delta.take(np.flatnonzero(late)), max(candidates, default=None))


def describe_late(lateness: Lateness, accepted_time: int) -> str:
    """Why rows were too late."""
    limit = pa.scalar(accepted_time - lateness.delay, pa.timestamp("us")).cast(pa.string()).as_py()
    return f"late: before {limit}"
