"""Timestamps as text by a datetime pattern, a column at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.scalars import characters, datetime_words, time_text, zone_ids, zones
from penstock.functions.scalars.datetime_pattern import (
    Fraction,
    LocalOffset,
    NamedField,
    Number,
    Offset,
    PatternPart,
    Text,
    ZoneId,
    ZoneName,
    walk,
)

Numbers = npt.NDArray[np.int64]
_NOTHING = pa.scalar("", pa.large_string())
_WEEK_OF_MONTH = 19  # the Java from which on F counts weeks of the month and not days of a week


def beyond(parts: Sequence[PatternPart], zone: str | None) -> str | None:
    """Why a pattern is left to Spark in a zone, None when it is written here."""
    for part in walk(parts):
        if isinstance(part, ZoneName) and (part.generic or _zone_word(zone, part.full) is None):
            return f"the name of the zone {zone} in a date format"
        if isinstance(part, ZoneId) and _zone_id(zone) is None:
            return f"the id of the zone {zone} in a date format"
    return None


def written(parts: Sequence[PatternPart], micros: Numbers, zone: str | None, java: int) -> pa.Array:
    """The text of instants in a zone."""
    moments = _Moments(micros, zone, java)
    pieces = [moments.piece(part) for part in walk(parts)]
    if all(isinstance(piece, pa.Scalar) for piece in pieces):
        return pa.repeat("".join(piece.as_py() for piece in pieces), len(micros)).cast(pa.large_string())
    return pc.binary_join_element_wise(*pieces, _NOTHING)


class _Moments:
    """The fields of instants in a zone, each computed when it is first asked for."""

    def __init__(self, micros: Numbers, zone: str | None, java: int) -> None:
        self._micros, self._zone, self._java = micros, zone, java
        self._days, self._rest = time_text.local_days(micros, zone)
        self._fields: dict[str, Numbers] = {}

    def piece(self, part: PatternPart) -> pa.Array | pa.Scalar:
        """A part of the pattern as text."""
        match part:
            case Text():
                return pa.scalar(part.text, pa.large_string())
            case Number():
                return self._number(part)
            case Fraction():
                return _fraction(self._rest % 1_000_000, part.most)
            case NamedField():
                values = self.field(part.field) - datetime_words.FIRST[part.field]
                return _words(part.field, part.full).take(pa.array(values))
            case Offset() | LocalOffset():
                return self._offsets(part)
            case ZoneId():
                return pa.scalar(_zone_id(self._zone), pa.large_string())
            case ZoneName():
                return pa.scalar(_zone_word(self._zone, part.full), pa.large_string())
        raise AssertionError(part)

    def field(self, name: str) -> Numbers:
        """The values of a field."""
        if name not in self._fields:
            if name in ("year", "month", "day"):
                parts = time_text.civil_parts(self._days)
                self._fields |= dict(zip(("year", "month", "day"), parts, strict=True))
            else:
                self._fields[name] = np.asarray(_FIELDS[name](self))
        return self._fields[name]

    def _number(self, part: Number) -> pa.Array:
        values = self.field(part.field)
        if part.reduced:
            return characters.padded(2, 100).take(pa.array(np.abs(values) % 100))
        if part.sign == "exceeds" and part.fewest == 4:
            return time_text.year_text(values)
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        if low >= 0 and high < 10_000 and (part.sign != "exceeds" or high < 10**part.fewest):
            return characters.padded(part.fewest, 10_000 if high > 99 else 100).take(pa.array(values))
        signed = part.sign == "exceeds"
        return pa.array([_wide(value, part.fewest, signed) for value in values.tolist()], pa.large_string())

    def _offsets(self, part: Offset | LocalOffset) -> pa.Array:
        offsets = zones.offsets_at(self._micros, self._zone) // 1_000_000
        distinct, places = np.unique(offsets, return_inverse=True)
        write: Callable[[int], str] = (
            (lambda seconds: offset_text(part, seconds))
            if isinstance(part, Offset)
            else (lambda seconds: _local_offset(seconds, part.full))
        )
        return pa.array([write(item) for item in distinct.tolist()], pa.large_string()).take(pa.array(places))

    def second_of_day(self) -> Numbers:
        return np.asarray(self._rest // 1_000_000)

    def days(self) -> Numbers:
        return self._days

    def day_in_month(self) -> Numbers:
        """What F stands for."""
        day = self.field("day") - 1
        return np.asarray(day // 7 + 1 if self._java >= _WEEK_OF_MONTH else day % 7 + 1)


def _day_of_year(moments: _Moments) -> Numbers:
    year = moments.field("year")
    first, _ = time_text.civil_days(year, np.ones_like(year), np.ones_like(year))
    return np.asarray(moments.days() - first + 1)


_FIELDS: dict[str, Callable[[_Moments], Numbers]] = {
    "hour": lambda moments: moments.second_of_day() // 3600,
    "minute": lambda moments: moments.second_of_day() // 60 % 60,
    "second": lambda moments: moments.second_of_day() % 60,
    "clock_hour_of_day": lambda moments: (moments.field("hour") + 23) % 24 + 1,
    "hour_of_ampm": lambda moments: moments.field("hour") % 12,
    "clock_hour": lambda moments: (moments.field("hour") + 11) % 12 + 1,
    "ampm": lambda moments: moments.field("hour") // 12,
    "quarter": lambda moments: (moments.field("month") + 2) // 3,
    "weekday": lambda moments: (moments.days() + 3) % 7 + 1,
    "day_of_year": _day_of_year,
    "era": lambda moments: np.where(moments.field("year") > 0, 1, 0),
    "year_of_era": lambda moments: np.where(
        moments.field("year") > 0, moments.field("year"), 1 - moments.field("year")
    ),
    "modified_julian_day": lambda moments: moments.days() + 40587,
    "week_or_weekday_of_month": lambda moments: moments.day_in_month(),
}


@lru_cache(maxsize=16)
def _words(field: str, full: bool) -> pa.Array:
    return pa.array(datetime_words.WORDS[field, full], pa.large_string())


def _wide(value: int, fewest: int, signed: bool) -> str:
    sign = "-" if value < 0 else "+" if signed and value >= 10**fewest else ""
    return f"{sign}{abs(value):0{fewest}d}"


def _fraction(micros: Numbers, digits: int) -> pa.Array:
    three_digits = characters.padded(3, 1000)
    if digits <= 3:
        return characters.padded(digits, 10**digits).take(pa.array(micros // 10 ** (6 - digits)))
    last = min(digits, 6) - 3
    low = characters.padded(last, 10**last).take(pa.array(micros % 1000 // 10 ** (3 - last)))
    zeros = pa.scalar("0" * max(digits - 6, 0), pa.large_string())
    return pc.binary_join_element_wise(three_digits.take(pa.array(micros // 1000)), low, zeros, _NOTHING)


def offset_text(part: Offset, seconds: int) -> str:
    """An offset from UTC in the form that a pattern asks for."""
    minutes, second = divmod(abs(seconds), 60)
    hour, minute = divmod(minutes, 60)
    colon = ":" if part.colons else ""
    text = f"{'-' if seconds < 0 else '+'}{hour:02d}"
    shown = hour
    if part.minutes or minute:
        text, shown = f"{text}{colon}{minute:02d}", shown + minute
        if part.seconds and second:
            text, shown = f"{text}{colon}{second:02d}", shown + second
    return text if shown else part.zero


def _local_offset(seconds: int, full: bool) -> str:
    if not seconds:
        return "GMT"
    minutes, second = divmod(abs(seconds), 60)
    hour, minute = divmod(minutes, 60)
    text = f"GMT{'-' if seconds < 0 else '+'}{f'{hour:02d}' if full else hour}"
    if full or minute or second:
        text += f":{minute:02d}"
    return f"{text}:{second:02d}" if second else text


def _zone_id(zone: str | None) -> str | None:
    """The id that Java gives a zone; None where the session's name for it is a short one."""
    resolved = zone_ids.resolve(zone or "UTC")
    if resolved is None or (resolved == zone and len(resolved) == 3 and resolved not in ("UTC", "GMT")):
        return None
    return resolved


def _zone_word(zone: str | None, full: bool) -> str | None:
    """What a zone without summer and winter is called; None for the others, whose names are the JVM's."""
    resolved = zone_ids.resolve(zone or "UTC")
    if resolved == "UTC":
        return "Coordinated Universal Time" if full else "UTC"
    return resolved if resolved == "Z" or (resolved or " ")[0] in "+-" else None
