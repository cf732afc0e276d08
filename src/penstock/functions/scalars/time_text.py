"""Text to dates and timestamps as CAST reads it, and timestamps to text as CAST writes them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.scalars import characters, zone_ids, zones
from penstock.functions.scalars.base import Datum, array, from_numbers, numbers, valid_mask

_DAY = 86_400_000_000
_LONG = 2**63
NO_OFFSET = np.int64(-(2**63))
# What Spark trims from the ends of a text before a cast: bytes that are blanks or control characters.
BLANK = "".join(map(chr, (*range(0x21), 0x7F)))

_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_CLOCK = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*)([^0-9].*)?|([^0-9.].*))?)?)?"
_MOMENT = re.compile(
    r"([+-]?)([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]" + _CLOCK + r")?)?)?", re.DOTALL
)
_TIME = re.compile(r"(T|(?=[0-9]{1,2}:))" + _CLOCK, re.DOTALL)


def date_of(text: str) -> int | None:
    """Days since the epoch of a text as Spark reads dates: [+-]yyyy*[-[m]m[-[d]d[ or T anything]]]."""
    match = _DATE.fullmatch(text.strip(BLANK))
    if match is None:
        return None
    year = int(match[2]) * (-1 if match[1] == "-" else 1)
    days = zones.days_from_civil(year, int(match[3] or 1), int(match[4] or 1))
    return days if days is not None and -(2**31) <= days < 2**31 else None


def moment_of(text: str, zone: str | None, now: int | None) -> int | None:
    """Microseconds of a text as Spark reads timestamps, None when it is none.

    `zone` is that of texts which name none, None reads local time and ignores zones. A time without a date is one of
    today, which is the day of `now`.
    """
    stripped = text.strip(BLANK)
    match = _MOMENT.fullmatch(stripped)
    if match is not None:
        sign, year, month, day = match.groups()[:4]
        clock = match.groups()[4:]
        days = zones.days_from_civil(int(year) * (-1 if sign == "-" else 1), int(month or 1), int(day or 1))
    else:
        match = _TIME.fullmatch(stripped)
        if match is None or (match[1] and text[0] != "T"):
            return None
        clock = match.groups()[1:]
        days = None if zone is None or now is None else 0
    if days is None:
        return None
    time = _clock(*clock[:4])
    named, written = zone, clock[4] or clock[5]
    if written is not None:
        named = zone_ids.resolve(written.strip(_JAVA_BLANK))
        if named is None:
            return None
    if time is None:
        return None
    if match.re is _TIME:
        assert now is not None
        days = int((now + zones.offsets_at(np.array([now]), named)[0]) // _DAY)
    local = days * _DAY + time
    return instant_of(local, None if zone is None else named)


_JAVA_BLANK = "".join(map(chr, range(0x21)))


def _clock(hour: str | None, minute: str | None, second: str | None, fraction: str | None) -> int | None:
    """Microseconds of the day, None when there is no such time."""
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros


def instant_of(local: int, zone: str | None) -> int | None:
    """The instant of local time in a zone, None beyond the range of timestamps."""
    if zone is None:
        return local if -_LONG <= local < _LONG else None
    fixed = zones.fixed_offset(zone)
    if fixed is None:
        near = min(max(local, -_LONG + _DAY), _LONG - _DAY)
        fixed = near - int(zones.instants_of(np.array([near]), zone)[0])
    return local - fixed if -_LONG <= local - fixed < _LONG else None


def plain_moments(
    column: pa.Array,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The texts that are written as most are: yyyy-MM-dd[ HH:mm:ss[.S*]], and behind it nothing, Z or an offset such as +01:00.

    Gives local time, the offset in microseconds (`NO_OFFSET` where none is written), and which texts these are.
    """
    local, plain = np.zeros(len(column), np.int64), np.zeros(len(column), bool)
    offset = np.full(len(column), NO_OFFSET)
    for rows, matrix in characters.by_length(column, 10, 32):
        length = matrix.shape[1]
        bodies: list[tuple[Any, int, npt.NDArray[np.int64] | None]] = [
            (np.ones(len(rows), bool), length, None)
        ]
        if length > 19:
            bodies.append((matrix[:, -1] == 90, length - 1, np.zeros(len(rows), np.int64)))
        if length > 24:
            named, written = offset_of(matrix[:, -6:], colon=True)
            bodies.append((named, length - 6, written))
        for matching, width, shift in bodies:
            if width not in (10, 19) and not 21 <= width <= 26:
                continue
            micros, fits = _plain(matrix[:, :width])
            fits &= matching
            local[rows[fits]] = micros[fits]
            plain[rows[fits]] = True
            if shift is not None:
                offset[rows[fits]] = shift[fits]
    return local, offset, plain


def offset_of(
    matrix: characters.Bytes, *, colon: bool
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Which rows are an offset such as +01:00, and how many microseconds it is."""
    minute = 4 if colon else 3
    hours, minutes = characters.number(matrix, 1, 3), characters.number(matrix, minute, minute + 2)
    fits = ((matrix[:, 0] == 43) | (matrix[:, 0] == 45)) & (hours < 18) & (minutes < 60)
    fits &= characters.are_digits(matrix, 1, 3) & characters.are_digits(matrix, minute, minute + 2)
    if colon:
        fits &= matrix[:, 3] == 58
    micros = (hours * 60 + minutes) * 60_000_000
    return np.asarray(fits), np.where(matrix[:, 0] == 45, -micros, micros)


def instants(local: npt.NDArray[np.int64], offset: npt.NDArray[np.int64], zone: str) -> npt.NDArray[np.int64]:
    """The instants of local times, with their own offsets or those of a zone."""
    named = offset != NO_OFFSET
    if named.all():
        return np.asarray(local - offset)
    of_zone = zones.instants_of(local, zone)
    return np.where(named, local - offset, of_zone) if named.any() else of_zone


def _plain(matrix: characters.Bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    length = matrix.shape[1]
    fits = _has_date(matrix)
    micros = np.zeros(len(matrix), np.int64)
    if length > 10:
        fits &= _has_clock(matrix)
        hour, minute, second = (characters.number(matrix, at, at + 2) for at in (11, 14, 17))
        fits &= (hour < 24) & (minute < 60) & (second < 60)
        micros = ((hour * 60 + minute) * 60 + second) * 1_000_000
        if length > 20:
            fits &= (matrix[:, 19] == 46) & characters.are_digits(matrix, 20, length)
            micros += characters.number(matrix, 20, length) * 10 ** (26 - length)
    days, valid = civil_days(
        characters.number(matrix, 0, 4), characters.number(matrix, 5, 7), characters.number(matrix, 8, 10)
    )
    return days * _DAY + micros, fits & valid


def _has_date(matrix: characters.Bytes) -> npt.NDArray[np.bool_]:
    return np.asarray(
        (matrix[:, 4] == 45)
        & (matrix[:, 7] == 45)
        & characters.are_digits(matrix, 0, 4)
        & characters.are_digits(matrix, 5, 7)
        & characters.are_digits(matrix, 8, 10)
    )


def _has_clock(matrix: characters.Bytes) -> npt.NDArray[np.bool_]:
    return np.asarray(
        ((matrix[:, 10] == 32) | (matrix[:, 10] == 84))
        & (matrix[:, 13] == 58)
        & (matrix[:, 16] == 58)
        & characters.are_digits(matrix, 11, 13)
        & characters.are_digits(matrix, 14, 16)
        & characters.are_digits(matrix, 17, 19)
    )


_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def civil_days(
    year: npt.NDArray[np.int64], month: npt.NDArray[np.int64], day: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Days since the epoch of dates, and which of them exist."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    inside = (month >= 1) & (month <= 12)
    month = np.where(inside, month, 1)
    valid = inside & (day >= 1) & (day <= _MONTH_DAYS[month] + (leap & (month == 2)))
    shifted = year - (month <= 2)
    era, of_era = np.divmod(shifted, 400)
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468, valid


def month_lengths(year: npt.NDArray[np.int64], month: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The days of months."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return np.asarray(_MONTH_DAYS[month] + (leap & (month == 2)))


def civil_parts(
    days: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Year, month and day of days since the epoch."""
    era, of_era = np.divmod(days + 719468, 146097)
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    index = (5 * of_year + 2) // 153
    month = index + np.where(index < 10, 3, -9)
    return year + era * 400 + (month <= 2), month, of_year - (153 * index + 2) // 5 + 1


# ------------------------------------------------------------------ writing


def moment_text(value: Datum, zone: str | None, length: int) -> Datum:
    """Timestamps as text, yyyy-MM-dd HH:mm:ss and a fraction without zeros at its end; local time for no zone."""
    constant = isinstance(value, pa.Scalar)
    column = array(value, 1 if constant else length)
    micros = numbers(pc.cast(column, pa.int64()), len(column))
    valid = valid_mask(column, len(column))
    days, rest = local_days(micros, zone)
    text = pc.binary_join_element_wise(date_text(days), _clock_text(rest), pa.scalar(" ", pa.large_string()))
    fraction = rest % 1_000_000
    if fraction.any():
        three_digits, nothing = characters.padded(3, 1000), pa.scalar("", pa.large_string())
        written = pc.binary_join_element_wise(
            three_digits.take(pa.array(fraction // 1000)),
            three_digits.take(pa.array(fraction % 1000)),
            nothing,
        )
        dot = pa.array(np.where(fraction > 0, ".", ""), pa.large_string())
        text = pc.binary_join_element_wise(text, dot, pc.utf8_rtrim(written, characters="0"), nothing)
    if not valid.all():
        text = pc.if_else(pa.array(valid), text, pa.scalar(None, pa.large_string()))
    return text[0] if constant else text


def local_days(
    micros: npt.NDArray[np.int64], zone: str | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The local days of instants and the microseconds of those days, also at the ends of the range."""
    days, rest = np.divmod(micros, _DAY)
    if zone is None or zones.fixed_offset(zone) == 0:
        return days, rest
    # Added behind the division, so that nothing overflows.
    more, rest = np.divmod(rest + zones.offsets_at(micros, zone), _DAY)
    return days + more, rest


def _clock_text(rest: npt.NDArray[np.int64]) -> pa.Array:
    seconds = rest // 1_000_000
    two_digits = characters.padded(2, 100)
    return pc.binary_join_element_wise(
        two_digits.take(pa.array(seconds // 3600)),
        two_digits.take(pa.array(seconds // 60 % 60)),
        two_digits.take(pa.array(seconds % 60)),
        pa.scalar(":", pa.large_string()),
    )


def date_text(days: npt.NDArray[np.int64]) -> pa.Array:
    """Dates as text: four digits of the year, a sign where it is negative or longer."""
    year, month, day = civil_parts(days)
    two_digits = characters.padded(2, 100)
    return pc.binary_join_element_wise(
        year_text(year),
        two_digits.take(pa.array(month)),
        two_digits.take(pa.array(day)),
        pa.scalar("-", pa.large_string()),
    )


def year_text(year: npt.NDArray[np.int64]) -> pa.Array:
    """Years with four digits, with a sign when they are negative or longer."""
    if len(year) and (year.min() < 0 or year.max() > 9999):
        return pa.array([wide_year(item) for item in year.tolist()], pa.large_string())
    return characters.padded(4, 10_000).take(pa.array(year))


def wide_year(year: int) -> str:
    """A year of any length."""
    return f"{'+' if year > 9999 else '-' if year < 0 else ''}{abs(year):04d}"


def from_micros(micros: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """A column of timestamps from microseconds."""
    return pc.cast(from_numbers(micros, valid, pa.int64()), kind)
