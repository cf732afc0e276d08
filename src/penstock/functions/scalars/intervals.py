"""make_interval, make_dt_interval and make_ym_interval: intervals put together from numbers, with Java's exact arithmetic."""

from __future__ import annotations

from decimal import Decimal

from penstock.functions.scalars.base import (
    INTEGRAL_RANGE,
    OVERFLOW,
    AnsiError,
    BeyondKernel,
    ByRow,
    Compiled,
    Scalar,
    accept,
    row_wise,
)
from penstock.plan.expression import Call

_MINUTE = 60_000_000  # microseconds
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_MOST_MICROS = 2**63 // 1000 - 1  # of a calendar interval, whose time Arrow has in nanoseconds
_CONDITION = "INTERVAL_ARITHMETIC_OVERFLOW.WITHOUT_SUGGESTION"


def months_of(years: int, months: int) -> int | None:
    """A year-month interval in months, None where one of Java's steps overflows.

    >>> months_of(1, 2), months_of(2**30, 0)
    (14, None)
    """
    return _sum("int", months, years * 12)


def micros_of(seconds: Decimal, *parts: int) -> int | None:
    """A day-time interval in microseconds, from seconds and parts that are microseconds; None where one of Java's
    steps overflows."""
    return _sum("bigint", int(seconds.scaleb(6)), *parts)


def _sum(kind: str, first: int, *others: int) -> int | None:
    """A sum whose terms and partial sums all fit a type."""
    least, most = INTEGRAL_RANGE[kind]
    total = first
    for other in others:
        total += other
        if not (least <= other <= most and least <= total <= most):
            return None
    return total


def _year_month(years: int, months: int) -> int:
    total = months_of(years, months)
    if total is None:
        raise AnsiError("an interval of too many months", OVERFLOW, _CONDITION)
    return total


def _day_time(days: int, hours: int, minutes: int, seconds: Decimal) -> int:
    micros = micros_of(seconds, days * _DAY, hours * _HOUR, minutes * _MINUTE)
    if micros is None:
        raise AnsiError("an interval of too many microseconds", OVERFLOW, _CONDITION)
    return micros


def _calendar(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    fails = bool(call.option("failOnError", True))

    def twin(
        years: int, months: int, weeks: int, days: int, hours: int, minutes: int, seconds: Decimal
    ) -> tuple[int, int, int] | None:
        all_months = months_of(years, months)
        all_days = _sum("int", days, weeks * 7)
        micros = micros_of(seconds, hours * _HOUR, minutes * _MINUTE)
        if all_months is None or all_days is None or micros is None:
            if fails:
                raise AnsiError("an interval whose parts are too large", OVERFLOW)
            return None
        if abs(micros) > _MOST_MICROS:
            raise BeyondKernel("an interval of more than 292 years of hours")
        return all_months, all_days, micros * 1000

    return row_wise(twin)(call, args)


FUNCTIONS: dict[str, Scalar] = {
    "MakeInterval": Scalar(_calendar, lambda call: ByRow("an interval of more than 292 years of hours")),
    "MakeDTInterval": Scalar(row_wise(_day_time), accept),
    "MakeYMInterval": Scalar(row_wise(_year_month), accept),
}
