"""Which columns follow the event time of a source with a lateness: a bound behind which none of their rows will change any more.

Every change that a source accepts has an event time that is not before its watermark (or none). From there on,
intervals of values are followed through the plan: `window(ts, '1 minute').start` is a time less a remainder that is
between two numbers, so its changes are not before the watermark less a minute or two. The bound may be lower than it
need be, never higher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.plan.expression import Call, Column, Expression, Literal, uses_time
from penstock.plan.interval import DAY, SECOND, TIMES, ZONE, distances
from penstock.plan.node import (
    Aggregate,
    Asof,
    Exchange,
    Expand,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    TopK,
    Union,
    Window,
)

# The longest that each unit of date_trunc and trunc may be.
_UNITS = {
    "YEAR": 366 * DAY,
    "YYYY": 366 * DAY,
    "YY": 366 * DAY,
    "QUARTER": 92 * DAY,
    "MONTH": 31 * DAY,
    "MM": 31 * DAY,
    "MON": 31 * DAY,
    "WEEK": 7 * DAY,
    "DAY": DAY,
    "DD": DAY,
    "HOUR": 3_600 * SECOND,
    "MINUTE": 60 * SECOND,
    "SECOND": SECOND,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}


@dataclass(frozen=True, slots=True)
class WatermarkBound:
    """Values that are not before the watermark of any of these sources plus `low` microseconds, in every change to come."""

    lows: tuple[tuple[str, int], ...]

    def plus(self, micros: int) -> WatermarkBound:
        """The same values with something added that is at least this."""
        return WatermarkBound(tuple((source, low + micros) for source, low in self.lows))

    def bound(self, watermarks: Mapping[str, int]) -> int | None:
        """The microseconds behind which nothing changes any more; None while a source has no watermark."""
        if any(source not in watermarks for source, _ in self.lows):
            return None
        return min(watermarks[source] + low for source, low in self.lows)


@dataclass(frozen=True, slots=True)
class _Between:
    """Numbers that lie between two others, whatever the row is."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class _Fields:
    """A struct."""

    values: tuple[_Value, ...]


_Value = WatermarkBound | _Between | _Fields | None
Times = tuple[WatermarkBound | None, ...]
"""For each column of a relation its event time, if it follows one; of a struct, that of its first field."""


def of_source(name: str, fields: int, column: int | None) -> Times:
    """The event times of a source with so many columns."""
    return tuple(WatermarkBound(((name, 0),)) if at == column else None for at in range(fields))


def event_times(node: Node, relations: Mapping[str, Times]) -> Times:
    """The event times of the rows of a node."""
    return tuple(_first(value) for value in _columns(node, relations))


def _columns(node: Node, relations: Mapping[str, Times]) -> Sequence[_Value]:
    match node:
        case Scan():
            times = relations.get(node.name)
            return [None if times is None else times[column] for column in node.columns]
        case Exchange():
            return _columns(node.input, relations)
        case Filter() if not uses_time(node.condition):
            return _columns(node.input, relations)
        case Project() if not any(map(uses_time, node.expressions)):
            below = _columns(node.input, relations)
            return [_value(expression, below) for expression in node.expressions]
        case Union():
            return [
                _either(column)
                for column in zip(*(_columns(child, relations) for child in node.inputs), strict=True)
            ]
        case Expand() if not any(uses_time(item) for row in node.projections for item in row):
            below = _columns(node.input, relations)
            return [
                _either([_value(item, below) for item in column])
                for column in zip(*node.projections, strict=True)
            ]
        case Generate() if not uses_time(node.generator):
            below = _columns(node.input, relations)
            generated = len(node.fields) - len(node.required)
            return [*(below[column] for column in node.required), *([None] * generated)]
        case Aggregate():
            below = _columns(node.input, relations)
            return [*(below[key] for key in node.keys), *([None] * len(node.calls))]
        case Join():
            return _joined(node, relations)
        case Asof():
            return _asof(node, relations)
        case TopK() | Window():
            # A change reaches other rows of its partition, and no others.
            below = _columns(node.input, relations)
            return [below[at] if at in node.partition else None for at in range(len(below))] + [None] * (
                len(node.fields) - len(below)
            )
        case _:
            return [None] * len(node.fields)


def _asof(node: Asof, relations: Mapping[str, Times]) -> Sequence[_Value]:
    """The time of the left side: a right row that comes reaches left rows behind it (backward), or before it, as far
    as the tolerance."""
    left = event_times(node.left, relations)[node.left_time]
    right = event_times(node.right, relations)[node.right_time]
    if node.direction != "backward" and right is not None:
        unit = DAY if node.right.fields[node.right_time].type == "date" else 1
        right = None if node.tolerance is None else right.plus(-node.tolerance * unit)
    time = _either([left, right])
    return [time if at == node.left_time else None for at in range(len(node.fields))]


def _joined(node: Join, relations: Mapping[str, Times]) -> Sequence[_Value]:
    """The columns that bound each other: a change of one side reaches rows of the other side that are so far from it."""
    left, right = event_times(node.left, relations), event_times(node.right, relations)
    of_left: list[_Value] = [None] * len(left)
    of_right: list[_Value] = [None] * len(right)
    for (left_column, right_column), distance in distances(node).items():
        first, second = left[left_column], right[right_column]
        if first is None or second is None:
            continue
        if distance.after is not None and of_left[left_column] is None:
            of_left[left_column] = _either([first, second.plus(-distance.after)])
        if distance.before is not None and of_right[right_column] is None:
            of_right[right_column] = _either([second, first.plus(-distance.before)])
    return of_left if node.kind in ("semi", "anti") else [*of_left, *of_right]


def _first(value: _Value) -> WatermarkBound | None:
    if isinstance(value, _Fields):
        return _first(value.values[0]) if value.values else None
    return value if isinstance(value, WatermarkBound) else None


def _either(values: Sequence[_Value]) -> _Value:
    """What holds for each of several values."""
    if all(isinstance(value, _Between) for value in values):
        between = [value for value in values if isinstance(value, _Between)]
        return _Between(min(bounds.low for bounds in between), max(bounds.high for bounds in between))
    times = [time for value in values if (time := _first(value)) is not None]
    if len(times) < len(values):
        return None
    lows: dict[str, int] = {}
    for time in times:
        for source, low in time.lows:
            lows[source] = min(low, lows.get(source, low))
    return WatermarkBound(tuple(sorted(lows.items())))


def _value(expression: Expression, below: Sequence[_Value]) -> _Value:
    match expression:
        case Column():
            return below[expression.index]
        case Literal(value=int() as value) if not isinstance(value, bool):
            return _Between(value, value)
        case Call():
            return _call(expression, [_value(argument, below) for argument in expression.args])
        case _:
            return None


def _call(call: Call, values: Sequence[_Value]) -> _Value:
    match call.name, values:
        case "PreciseTimestampConversion", [WatermarkBound() as time]:
            return time
        case "Cast", [WatermarkBound() as time]:
            return _cast(call, time)
        case "TruncTimestamp", [_, WatermarkBound() as time]:
            return _truncated(call.args[0], time)
        case "TruncDate", [WatermarkBound() as time, _]:
            return _truncated(call.args[1], time)
        case "Add", [WatermarkBound() as time, _Between() as other] | [
            _Between() as other,
            WatermarkBound() as time,
        ]:
            return time.plus(other.low)
        case "Subtract", [WatermarkBound() as time, _Between() as other]:
            return time.plus(-other.high)
        case "Add", [_Between() as first, _Between() as other]:
            return _Between(first.low + other.low, first.high + other.high)
        case "Remainder", [_, _Between(low, high)] if low == high and low != 0:
            return _Between(-abs(low), abs(low))
        case "CaseWhen", _ if len(values) % 2:
            # Conditions and values take turns; the last one is the value of ELSE.
            return _either([*values[1::2], values[-1]])
        case "CreateNamedStruct", _:
            return _Fields(tuple(values[1::2]))
        case "GetStructField", [WatermarkBound() as time] if call.option("ordinal") == 0:
            return time
        case "GetStructField", [_Fields(fields)]:
            ordinal: Any = call.option("ordinal")
            return fields[ordinal] if isinstance(ordinal, int) and ordinal < len(fields) else None
        case _:
            return None


def _cast(call: Call, time: WatermarkBound) -> _Value:
    before = call.args[0].type
    if before in TIMES and call.type in TIMES:
        return time if before == call.type else time.plus(-ZONE)
    if before in TIMES and call.type == "date":
        return time.plus(-ZONE - DAY)
    if before == "date" and call.type in TIMES:
        return time.plus(-ZONE)
    return None


def _truncated(unit: Expression, time: WatermarkBound) -> _Value:
    if not isinstance(unit, Literal) or str(unit.value).upper() not in _UNITS:
        return None
    return time.plus(-_UNITS[str(unit.value).upper()] - ZONE)
