"""Civil dates beyond Python's range, and local time in the session's zone."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.scalars.base import Datum

_UTC = {
    "UTC",
    "Z",
    "GMT",
    "Etc/UTC",
    "UCT",
    "Etc/UCT",
    "Zulu",
    "Etc/Zulu",
    "Universal",
    "Greenwich",
    "GMT0",
    "UT",
}
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?")
_DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_leap(year: int) -> bool:
    """Say whether a year of the proleptic Gregorian calendar has 366 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def month_length(year: int, month: int) -> int:
    """The number of days of a month."""
    return 29 if month == 2 and is_leap(year) else _DAYS_IN_MONTH[month - 1]


def days_from_civil(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01, None when there is no such day."""
    if not 1 <= month <= 12 or not 1 <= day <= month_length(year, month):
        return None
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146097 + day_of_era - 719468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970-01-01."""
    era, day_of_era = divmod(days + 719468, 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    index = (5 * day_of_year + 2) // 153
    month = index + (3 if index < 10 else -9)
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * index + 2) // 5 + 1


@lru_cache(maxsize=64)
def fixed_offset(zone: str | None) -> int | None:
    """The offset of a zone that never changes, in microseconds; None for the others."""
    if zone is None or zone in _UTC:
        return 0
    found = _OFFSET.fullmatch(zone)
    if found is None:
        return None
    minutes = int(found[2]) * 60 + int(found[3] or 0)
    return (-1 if found[1] == "-" else 1) * minutes * 60_000_000


def reason(zone: str | None, *, to_instant: bool) -> str | None:
    """Why a conversion in a zone is left to Spark, None when the kernel does it."""
    if fixed_offset(zone) is None:
        way = "from" if to_instant else "to"
        return f"time {way} local time of {zone}, whose offset changes"
    return None


def to_local(value: Datum, zone: str | None) -> Datum:
    """An instant as local time without a zone."""
    return _shift(pc.cast(value, pa.timestamp("us")), fixed_offset(zone) or 0)


def to_instant(value: Datum, zone: str | None) -> Datum:
    """Local time as an instant."""
    return pc.cast(_shift(value, -(fixed_offset(zone) or 0)), pa.timestamp("us", tz="UTC"))


def _shift(value: Datum, micros: int) -> Datum:
    if micros == 0:
        return value
    return pc.add_checked(value, pa.scalar(micros, pa.duration("us")))
