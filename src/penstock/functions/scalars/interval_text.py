"""Intervals as text, in the form of SQL's literals."""

from __future__ import annotations

import re
from decimal import Decimal

_FIELDS = ("day", "hour", "minute", "second")
_MICROS = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000)


_CALENDAR_MICROS = {
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1000,
    "microsecond": 1,
}
_CALENDAR_DAYS = {"week": 7, "day": 1}
_CALENDAR_MONTHS = {"year": 12, "month": 1}
_TERM = r"([+-]?) *([0-9]{1,9})(?:\.([0-9]{1,9}))? +(year|month|week|day|hour|minute|second|millisecond|microsecond)s?"
_CALENDAR = re.compile(rf" *(?:interval +)?{_TERM}(?: +{_TERM})* *", re.ASCII | re.IGNORECASE)
_TERMS = re.compile(_TERM, re.ASCII | re.IGNORECASE)
_MOST_MICROS = 2**63 // 1000 - 1  # Arrow has nanoseconds


def calendar(text: str) -> tuple[int, int, int] | None:
    """Months, days and microseconds of a text such as '1 day -2.5 seconds'; None for all that is not plainly one.

    >>> calendar("interval 1 month 2 weeks"), calendar("5 Minutes"), calendar("soon"), calendar("1.5 days")
    ((1, 14, 0), (0, 0, 300000000), None, None)
    """
    if _CALENDAR.fullmatch(text) is None:
        return None
    months = days = micros = 0
    for sign, integral, fraction, unit in _TERMS.findall(text):
        unit, by = unit.lower(), -1 if sign == "-" else 1
        if fraction and unit != "second":
            return None
        months += by * int(integral) * _CALENDAR_MONTHS.get(unit, 0)
        days += by * int(integral) * _CALENDAR_DAYS.get(unit, 0)
        micros += by * (
            int(integral) * _CALENDAR_MICROS.get(unit, 0)
            + (int(fraction.ljust(9, "0")) // 1000 if fraction else 0)
        )
        if max(abs(months), abs(days)) >= 2**31 or abs(micros) > _MOST_MICROS:
            return None
    return months, days, micros


def ends(kind: str) -> tuple[str, str]:
    """The first and the last field of an interval type.

    >>> ends("interval day to second"), ends("interval month")
    (('day', 'second'), ('month', 'month'))
    """
    words = kind.split()
    return words[1], words[-1]


def months_text(months: int, kind: str) -> str:
    """A year-month interval as text.

    >>> months_text(-14, "interval year to month")
    "INTERVAL '-1-2' YEAR TO MONTH"
    """
    first, last = ends(kind)
    sign = "-" if months < 0 else ""
    year = f"{sign}{abs(months) // 12}"
    if first != last:
        return f"INTERVAL '{year}-{abs(months) % 12}' YEAR TO MONTH"
    return f"INTERVAL '{year}' YEAR" if first == "year" else f"INTERVAL '{months}' MONTH"


def micros_text(micros: int, kind: str) -> str:
    """A day-time interval as text.

    >>> micros_text(93_784_500_000, "interval day to second")
    "INTERVAL '1 02:03:04.5' DAY TO SECOND"
    """
    first, last = (_FIELDS.index(field) for field in ends(kind))
    text, rest = "-" if micros < 0 else "", abs(micros)
    for index in range(first, last + 1):
        between = "" if index == first else " " if index == 1 else ":"
        if index == 3:
            seconds = Decimal(rest).scaleb(-6).normalize()
            zero = "0" if rest < 10_000_000 else ""
            text += f"{between}{zero}{seconds:f}"
        else:
            amount, rest = divmod(rest, _MICROS[index])
            text += f"{between}{amount}" if index == 0 else f"{between}{amount:02d}"
    names = [_FIELDS[first].upper()] if first == last else [_FIELDS[first].upper(), _FIELDS[last].upper()]
    return f"INTERVAL '{text}' {' TO '.join(names)}"
