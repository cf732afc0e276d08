"""Intervals as text, in the form of SQL's literals."""

from __future__ import annotations

from decimal import Decimal

_FIELDS = ("day", "hour", "minute", "second")
_MICROS = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000)


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
            whole, rest = divmod(rest, _MICROS[index])
            text += f"{between}{whole}" if index == 0 else f"{between}{whole:02d}"
    names = [_FIELDS[first].upper()] if first == last else [_FIELDS[first].upper(), _FIELDS[last].upper()]
    return f"INTERVAL '{text}' {' TO '.join(names)}"
