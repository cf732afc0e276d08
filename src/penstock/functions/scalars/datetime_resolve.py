"""The fields that a datetime pattern has found in a text, as a date and a time: strictly, with Spark's defaults for
what is missing."""

from __future__ import annotations

from penstock.functions.scalars import zones

Fields = dict[str, int]

RANGES = {
    "month": (1, 12),
    "day": (1, 31),
    "day_of_year": (1, 366),
    "hour": (0, 23),
    "clock_hour_of_day": (1, 24),
    "hour_of_ampm": (0, 11),
    "clock_hour": (1, 12),
    "ampm": (0, 1),
    "minute": (0, 59),
    "second": (0, 59),
    "nano": (0, 999_999_999),
    "era": (0, 1),
    "year": (-999_999_999, 999_999_999),
    "year_of_era": (1, 1_000_000_000),
}
_LAST_DAY = 365_241_780_471  # of the years that java.time has
_TIME_FIELDS = ("hour", "clock_hour_of_day", "hour_of_ampm", "clock_hour", "ampm", "minute", "second", "nano")


class Unparsable(ValueError):
    """A text that does not fit its pattern."""


def _valid(field: str, value: int) -> int:
    low, high = RANGES[field]
    if not low <= value <= high:
        raise Unparsable(field)
    return value


def _put(fields: Fields, field: str, value: int) -> None:
    if fields.setdefault(field, value) != value:
        raise Unparsable(field)


def resolved(parsed: Fields) -> tuple[int, int]:
    """Days since the epoch and nanoseconds of the day."""
    fields = dict(parsed)
    days = _full_date(fields)
    _simplify_time(fields)
    for field in _TIME_FIELDS:
        if field in fields:
            _valid(field, fields[field])
    if days is not None:
        _cross_check(fields, days)
    _cross_check_time(fields)
    return _date(fields) if days is None else days, _time(fields)


def _full_date(fields: Fields) -> int | None:
    """The date that year, month and day or year and day of the year make."""
    if "year_of_era" in fields:
        year = _valid("year_of_era", fields.pop("year_of_era"))
        era = fields.pop("era", None)
        if era is not None:
            _put(fields, "year", year if era == 1 else 1 - year)
        elif "year" in fields:
            _put(fields, "year", year if fields["year"] > 0 else 1 - year)
        else:
            fields["year_of_era"] = year
    if "year" in fields:
        if "month" in fields and "day" in fields:
            year, month, day = (_valid(field, fields.pop(field)) for field in ("year", "month", "day"))
            return _existing(zones.days_from_civil(year, month, day))
        if "day_of_year" in fields:
            return _of_year(
                _valid("year", fields.pop("year")), _valid("day_of_year", fields.pop("day_of_year"))
            )
    if "modified_julian_day" in fields:
        days = fields.pop("modified_julian_day") - 40587
        return _existing(days if abs(days) <= _LAST_DAY else None)
    return None


def _existing(days: int | None) -> int:
    if days is None:
        raise Unparsable("there is no such day")
    return days


def _of_year(year: int, day: int) -> int:
    if day == 366 and not zones.is_leap(year):
        raise Unparsable("there is no such day")
    return _existing(zones.days_from_civil(year, 1, 1)) + day - 1


def _cross_check(fields: Fields, days: int) -> None:
    """Fields that are left over must agree with the date."""
    year, month, day = zones.civil_from_days(days)
    facts = {
        "year": year,
        "month": month,
        "day": day,
        "era": 1 if year > 0 else 0,
        "year_of_era": year if year > 0 else 1 - year,
        "day_of_year": days - _existing(zones.days_from_civil(year, 1, 1)) + 1,
        "modified_julian_day": days + 40587,
    }
    for field, value in facts.items():
        if fields.get(field, value) != value:
            raise Unparsable(field)


def _cross_check_time(fields: Fields) -> None:
    """Halves of the day that are left over must agree with the hour, when the time is known from the hour on."""
    has_time = "hour" in fields and ("minute" in fields or not fields.keys() & {"second", "nano"})
    if not has_time or ("nano" in fields and "second" not in fields):
        return
    hour = fields["hour"]
    if fields.get("ampm", hour // 12) != hour // 12 or fields.get("hour_of_ampm", hour % 12) != hour % 12:
        raise Unparsable("ampm")


def _date(fields: Fields) -> int:
    """The date of what is there, in 1970 and on the first day where nothing says otherwise."""
    year = _valid("year", fields.get("year", 1970))
    if "day_of_year" in fields:
        days = _of_year(year, _valid("day_of_year", fields["day_of_year"]))
        _cross_check({field: fields[field] for field in ("month", "day") if field in fields}, days)
        return days
    month, day = (_valid(field, fields.get(field, 1)) for field in ("month", "day"))
    return _existing(zones.days_from_civil(year, month, day))


def _simplify_time(fields: Fields) -> None:
    if "clock_hour_of_day" in fields:
        _put(fields, "hour", _valid("clock_hour_of_day", fields.pop("clock_hour_of_day")) % 24)
    if "clock_hour" in fields:
        _put(fields, "hour_of_ampm", _valid("clock_hour", fields.pop("clock_hour")) % 12)
    if "ampm" in fields and "hour_of_ampm" in fields:
        half, hour = _valid("ampm", fields.pop("ampm")), _valid("hour_of_ampm", fields.pop("hour_of_ampm"))
        _put(fields, "hour", half * 12 + hour)


def _time(fields: Fields) -> int:
    hour = fields.get("hour", fields.get("hour_of_ampm", 12 if fields.get("ampm") == 1 else 0))
    seconds = (hour * 60 + fields.get("minute", 0)) * 60 + fields.get("second", 0)
    return seconds * 1_000_000_000 + fields.get("nano", 0)
