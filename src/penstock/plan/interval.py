"""How far apart in time two rows of a join can be that match, as its condition says it.

`b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 MINUTES` bounds the difference of two columns from both sides, an equal key
bounds it by zero. Each side of a comparison is followed as a sum of columns, each added or subtracted, and of
something that lies between two numbers of microseconds. A bound may be wider than it need be, never narrower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.plan.expression import Call, Column, Expression, Literal, conjuncts, uses_time
from penstock.plan.node import Join

DAY = 86_400_000_000
SECOND = 1_000_000
TIMES = ("timestamp", "timestamp_ntz")
# Local times of a zone are less than a day from UTC, and a clock goes back by less.
ZONE = DAY
_NO_OVERFLOW = 1 << 53  # numbers whose sums with times do not wrap around
_UTC = ("UTC", "Etc/UTC", "Z")


@dataclass(frozen=True, slots=True)
class Distance:
    """Of two rows that match, the right time is at most `after` microseconds behind the left one, and at most
    `before` before it."""

    after: int | None = None
    before: int | None = None

    @property
    def span(self) -> int | None:
        """The most by which the times of two right rows differ that match one left row; None when there is no bound."""
        return None if self.after is None or self.before is None else max(self.after + self.before, 0)

    def mirrored(self) -> Distance:
        """The same, seen from the right side."""
        return Distance(self.before, self.after)

    def within(self, other: Distance) -> Distance:
        """What holds when both hold."""
        return Distance(_least(self.after, other.after), _least(self.before, other.before))


@dataclass(frozen=True, slots=True)
class _Sum:
    """Columns, each with +1 or -1, and something from `low` to `high`, in microseconds; one of its own unit is `unit` of them."""

    terms: Mapping[int, int]
    low: int
    high: int
    unit: int

    def plus(self, low: int, high: int, *, unit: int | None = None) -> _Sum:
        """The same and something between two numbers."""
        return _Sum(self.terms, self.low + low, self.high + high, self.unit if unit is None else unit)

    def minus(self, other: _Sum) -> _Sum:
        """The difference of two."""
        terms = dict(self.terms)
        for column, sign in other.terms.items():
            terms[column] = terms.get(column, 0) - sign
        there = {column: sign for column, sign in terms.items() if sign}
        return _Sum(there, self.low - other.high, self.high - other.low, self.unit)


def distances(node: Join) -> dict[tuple[int, int], Distance]:
    """For columns of the left and the right input, by position, how far apart they can be in rows that match."""
    if node.null_aware or (node.residual is not None and uses_time(node.residual)):
        return {}
    width = len(node.left.fields)
    by_pair = {
        (left, right): Distance(0, 0)
        for left, right in zip(node.left_keys, node.right_keys, strict=True)
        if node.left.fields[left].type == node.right.fields[right].type
    }
    for condition in [] if node.residual is None else conjuncts(node.residual):
        for pair, distance in _compared(condition, width):
            by_pair[pair] = by_pair.get(pair, Distance()).within(distance)
    return by_pair


def _compared(condition: Expression, width: int) -> list[tuple[tuple[int, int], Distance]]:
    """What a comparison says of a column of either side."""
    if not isinstance(condition, Call) or len(condition.args) != 2:
        return []
    difference = _difference(*condition.args)
    if difference is None or sorted(difference.terms.values()) != [-1, 1]:
        return []
    (added,) = (column for column, sign in difference.terms.items() if sign > 0)
    (taken,) = (column for column, sign in difference.terms.items() if sign < 0)
    # The column that is added is at most `most` behind the other one, and at most `least` before it.
    most: int | None = -difference.low
    least: int | None = difference.high
    match condition.name:
        case "LessThan" | "LessThanOrEqual":
            least = None
        case "GreaterThan" | "GreaterThanOrEqual":
            most = None
        case "EqualTo":
            pass
        case _:
            return []
    if added >= width > taken:
        return [((taken, added - width), Distance(most, least))]
    if taken >= width > added:
        return [((added, taken - width), Distance(least, most))]
    return []


def _difference(left: Expression, right: Expression) -> _Sum | None:
    left_sum, right_sum = _sum(left), _sum(right)
    if left_sum is not None and right_sum is not None:
        return left_sum.minus(right_sum) if left_sum.unit == right_sum.unit else None
    if left_sum is not None and (number := _number(right)) is not None:
        return left_sum.plus(-number * left_sum.unit, -number * left_sum.unit)
    if right_sum is not None and (number := _number(left)) is not None:
        return _Sum({}, number * right_sum.unit, number * right_sum.unit, right_sum.unit).minus(right_sum)
    return None


def _number(expression: Expression) -> int | None:
    value = expression.value if isinstance(expression, Literal) else None
    is_months = isinstance(expression, Literal) and any(part in expression.type for part in ("year", "month"))
    is_small = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _NO_OVERFLOW
    return value if is_small and not is_months else None


def _sum(expression: Expression) -> _Sum | None:
    if isinstance(expression, Column):
        if expression.type in TIMES:
            return _Sum({expression.index: 1}, 0, 0, 1)
        return _Sum({expression.index: 1}, 0, 0, DAY) if expression.type == "date" else None
    if not isinstance(expression, Call) or not expression.args:
        return None
    first = _sum(expression.args[0])
    if first is None:
        return None
    of_type, rest = expression.args[0].type, expression.args[1:]
    match expression.name, rest:
        case "PreciseTimestampConversion", ():
            return first
        case "UnixTimestamp" | "ToUnixTimestamp", _ if of_type in TIMES:
            zone = 0 if of_type == "timestamp" else ZONE
            return first.plus(-SECOND - zone, zone, unit=SECOND)
        case "Cast", ():
            return _cast(first, of_type, expression.type)
        case "TimestampAddInterval" | "DateAdd" | "Add", (by,) if (number := _number(by)) is not None:
            return _moved(first, number, _is_local(expression))
        case "DateSub" | "Subtract", (by,) if (number := _number(by)) is not None:
            return _moved(first, -number, _is_local(expression))
        case "SubtractTimestamps" | "SubtractDates" | "DateDiff" | "Subtract", (by,):
            other = _sum(by)
            if other is None or other.unit != first.unit:
                return None
            slack = ZONE if _is_local(expression) and expression.name == "SubtractTimestamps" else 0
            unit = 1 if expression.name == "SubtractDates" else first.unit
            return first.minus(other).plus(-slack, slack, unit=unit)
        case _:
            return None


def _moved(value: _Sum, number: int, is_local: bool) -> _Sum:
    """A value and so many of its unit; days of a zone may be an hour longer or shorter."""
    micros = number * value.unit
    slack = ZONE if is_local and abs(micros) >= DAY else 0
    return value.plus(micros - slack, micros + slack)


def _is_local(call: Call) -> bool:
    """Whether a zone decides how long a day is."""
    return call.args[0].type == "timestamp" and call.option("timeZoneId") not in _UTC


def _cast(value: _Sum, before: str, after: str) -> _Sum | None:
    if before in TIMES and after in TIMES:
        return value if before == after else value.plus(-ZONE, ZONE)
    if before in TIMES and after == "date":
        return value.plus(-ZONE - DAY, ZONE, unit=DAY)
    if before == "date" and after in TIMES:
        return value.plus(-ZONE, ZONE, unit=1)
    if before == "timestamp" and after == "bigint":
        return value.plus(-SECOND, 0, unit=SECOND)
    return None


def _least(left: int | None, right: int | None) -> int | None:
    return min((bound for bound in (left, right) if bound is not None), default=None)
