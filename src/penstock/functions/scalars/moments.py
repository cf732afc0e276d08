"""Timestamps between zones and units: shifting, adding, differences, and making them of parts."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import kernel_type
from penstock.functions.scalars import datetime_words, time_text, zone_ids, zones
from penstock.functions.scalars.base import (
    DATETIME,
    OVERFLOW,
    AnsiError,
    Build,
    Check,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    array,
    bad_row_error,
    both,
    from_numbers,
    numbers,
    only,
    rows_of,
    valid_mask,
)
from penstock.plan.expression import Call, Literal

Numbers = npt.NDArray[np.int64]
_DAY = 86_400_000_000
_LONG = 2**63
_INT = 2**31
TIMEZONE = "DATA_INVALID_TIMEZONE"
DAY_OF_WEEK = "DATA_ILLEGAL_DAY_OF_WEEK"
FRACTION = "DATA_INVALID_FRACTION_OF_SECOND"


def _zone(call: Call) -> str:
    return call.option("timeZoneId") or "UTC"


def _zone_check(call: Call) -> str | None:
    return zones.reason(_zone(call))


def _zone_arguments(*positions: int) -> Check:
    """Constant names of zones are known; for others the table of all zones is."""

    def check(call: Call) -> str | None:
        for position in positions:
            if position < len(call.args):
                argument = call.args[position]
                if not isinstance(argument, Literal):
                    if not zone_ids.has_zones():
                        return "a zone that comes with each row"
                elif argument.value is not None and zone_ids.resolve(argument.value) is None:
                    return f"the zone {argument.value!r}, whose rules are not known"
        return None

    return check


def _overflow(call: Call, values: list[Datum], row: int) -> Exception:
    return bad_row_error(call, values, row, AnsiError("a timestamp is out of range", OVERFLOW))


def _longs(value: Datum, length: int) -> Numbers:
    return numbers(pc.cast(value, pa.int64()), length)


def _evaluated(
    call: Call, args: tuple[Compiled, ...], function: Callable[[list[Datum], int], Any]
) -> Compiled:
    """A function of 64-bit numbers over its arguments, NULL where one of them is."""
    kind = kernel_type(call.type)
    number = kind if pa.types.is_floating(kind) else pa.int64()

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        values = [item(columns, length, tick) for item in args]
        single = all(isinstance(value, pa.Scalar) for value in values)
        count = 1 if single else length
        valid = np.ones(count, bool)
        for value in values:
            valid &= valid_mask(value, count)
        # NULL rows hold zeros, which never overflow.
        shown: list[Datum] = [
            value if valid.all() or isinstance(value, pa.Scalar) else pc.if_else(pa.array(valid), value, None)
            for value in values
        ]
        column = from_numbers(function(shown, count), valid, number)
        result = pc.cast(column, kind) if number != kind else column
        return result[0] if single else result

    return run


# ------------------------------------------------------------------ zones


def _by_zone(
    call: Call, names: Datum, length: int, function: Callable[[npt.NDArray[np.bool_], str], None]
) -> None:
    """Call a function with the rows of each zone."""
    if isinstance(names, pa.Scalar):
        zone = zone_ids.resolve(names.as_py()) if names.is_valid else None
        if zone is not None:
            function(np.ones(length, bool), zone)
        return
    encoded = names.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        rows = codes == code
        zone = zone_ids.resolve(name)
        if zone is None:
            error = AnsiError(f"there is no time zone {name!r}", TIMEZONE)
            raise bad_row_error(call, [names], int(np.argmax(rows)), error)
        function(rows, zone)


def _shift(from_utc: bool) -> Build:
    """from_utc_timestamp and to_utc_timestamp."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        def function(values: list[Datum], length: int) -> Numbers:
            micros = _longs(values[0], length)
            shifted = np.zeros(length, np.int64)

            def of_zone(rows: npt.NDArray[np.bool_], zone: str) -> None:
                part = micros[rows]
                moved = part + zones.offsets_at(part, zone) if from_utc else zones.instants_of(part, zone)
                wrong = np.abs(moved // 2 - part // 2) > _DAY
                if wrong.any():
                    raise _overflow(call, values, int(np.flatnonzero(rows)[np.argmax(wrong)]))
                shifted[rows] = moved

            _by_zone(call, values[1], length, of_zone)
            return shifted

        return _evaluated(call, args, function)

    return build


def _convert_timezone(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    def function(values: list[Datum], length: int) -> Numbers:
        local = _longs(values[2], length)
        instants, moved = np.zeros(length, np.int64), np.zeros(length, np.int64)

        def from_zone(rows: npt.NDArray[np.bool_], zone: str) -> None:
            instants[rows] = zones.instants_of(local[rows], zone)

        def to_zone(rows: npt.NDArray[np.bool_], zone: str) -> None:
            moved[rows] = instants[rows] + zones.offsets_at(instants[rows], zone)

        _by_zone(call, values[0], length, from_zone)
        _by_zone(call, values[1], length, to_zone)
        return moved

    return _evaluated(call, args, function)


# ------------------------------------------------------------------ units

_EXACT = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
}
_DAYS = {"DAY": 1, "DAYOFYEAR": 1, "WEEK": 7}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _unit(call: Call) -> str:
    return str(call.option("unit", "")).upper()


def _unit_check(*tables: dict[str, int]) -> Check:
    def check(call: Call) -> str | None:
        is_supported = any(_unit(call) in table for table in tables)
        return None if is_supported else f"the unit {call.option('unit')}"

    return check


def _timestamp_add(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    unit = _unit(call)
    zone = _zone(call) if call.type == "timestamp" else "UTC"

    def function(values: list[Datum], length: int) -> Numbers:
        quantity, micros = _longs(values[0], length), _longs(values[1], length)
        scale = _EXACT.get(unit) or _DAYS.get(unit, 31 * _MONTHS.get(unit, 0)) * _DAY
        far = np.abs(quantity.astype(np.float64)) * scale + np.abs(micros.astype(np.float64)) > 9.2e18
        if far.any():
            _refuse_overflow(call, values, quantity, micros, np.flatnonzero(far))
        if unit in _EXACT:
            return np.asarray(micros + quantity * _EXACT[unit])
        offset = zones.offsets_at(micros, zone)
        local = micros + offset
        if unit in _DAYS:
            return zones.keeping(local + quantity * _DAYS[unit] * _DAY, offset, zone)
        days, rest = np.divmod(local, _DAY)
        return zones.keeping(months_later(days, quantity * _MONTHS[unit]) * _DAY + rest, offset, zone)

    def _refuse_overflow(
        call: Call, values: list[Datum], quantity: Numbers, micros: Numbers, rows: Numbers
    ) -> None:
        for row in rows.tolist():
            by, at = int(quantity[row]), int(micros[row])
            if unit in _EXACT:
                beyond = (
                    not -_LONG <= by * _EXACT[unit] < _LONG or not -_LONG <= at + by * _EXACT[unit] < _LONG
                )
            elif unit in _DAYS:
                beyond = not -_LONG <= at + by * _DAYS[unit] * _DAY < _LONG
            else:
                days = add_months(at // _DAY, by * _MONTHS[unit])
                beyond = not -_LONG <= days * _DAY + at % _DAY < _LONG
            if beyond:
                raise _overflow(call, values, row)

    return _evaluated(call, args, function)


def add_months(days: int, months: int) -> int:
    """A date moved by months, its day cut to the month's length."""
    year, month, day = zones.civil_from_days(days)
    total = year * 12 + month - 1 + months
    year, month = total // 12, total % 12 + 1
    moved = zones.days_from_civil(year, month, min(day, zones.month_length(year, month)))
    assert moved is not None
    return moved


def months_later(days: Numbers, months: Numbers) -> Numbers:
    """Dates moved by months, their days cut to the months' lengths."""
    year, month, day = time_text.civil_parts(days)
    year, month = np.divmod(year * 12 + month - 1 + months, 12)
    moved, _ = time_text.civil_days(
        year, month + 1, np.minimum(day, time_text.month_lengths(year, month + 1))
    )
    return moved


def _towards_zero(number: Numbers, divisor: int) -> Numbers:
    return np.where(number < 0, -(-number // divisor), number // divisor)


def _timestamp_diff(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    unit, zone = _unit(call), _zone(call)

    def function(values: list[Datum], length: int) -> Numbers:
        (start, start_rest), (end, end_rest) = (
            time_text.local_days(_longs(value, length), zone) for value in values
        )
        if unit in _EXACT:
            return _towards_zero((end - start) * _DAY + (end_rest - start_rest), _EXACT[unit])
        # The last day counts when its time has come.
        end = end - ((end > start) & (end_rest < start_rest)) + ((end < start) & (end_rest > start_rest))
        if unit in _DAYS:
            return _towards_zero(end - start, _DAYS[unit])
        start_code, end_code = (
            (year * 12 + month) * 32 + day
            for year, month, day in (time_text.civil_parts(start), time_text.civil_parts(end))
        )
        return _towards_zero(_towards_zero(end_code - start_code, 32), _MONTHS[unit])

    return _evaluated(call, args, function)


def _months_between(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    zone = _zone(call)

    def function(values: list[Datum], length: int) -> npt.NDArray[np.float64]:
        parts = []
        for value in values[:2]:
            micros = _longs(value, length)
            days, _ = time_text.local_days(micros, zone)
            year, month, day = time_text.civil_parts(days)
            seconds = _towards_zero(micros - zones.day_starts(days, zone), 1_000_000)
            last = day == time_text.month_lengths(year, month)
            parts.append((year * 12 + month, day, last, seconds))
        (months, day, last, seconds), (months2, day2, last2, seconds2) = parts
        full_months = (months - months2).astype(np.float64)
        part = ((day - day2) * 86_400 + seconds - seconds2) / 2_678_400.0
        exact = full_months + part
        scaled = exact * 1e8
        floor = np.floor(scaled)
        rounded = (floor + (scaled - floor >= 0.5)) / 1e8
        rounding = numbers(values[2], length, False).astype(bool)
        return np.where((day == day2) | (last & last2), full_months, np.where(rounding, rounded, exact))

    return _evaluated(call, args, function)


# ------------------------------------------------------------------ days

_WEEKDAYS = {
    name[:size]: (index + 4) % 7
    for index, name in enumerate(word.upper() for word in datetime_words.WORDS["weekday", True])
    for size in (2, 3, len(name))
}


def _next_day(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    fails = bool(call.option("failOnError", True))

    def twin(days: int, name: str) -> int | None:
        weekday = _WEEKDAYS.get(name.upper())
        if weekday is None:
            if fails:
                raise AnsiError(f"there is no day of the week {name!r}", DAY_OF_WEEK)
            return None
        return days + 1 + (weekday - 1 - days) % 7

    date_of, name_of = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        date, name = pc.cast(date_of(columns, length, tick), pa.int32()), name_of(columns, length, tick)
        return pc.cast(rows_of(call, twin, [date, name], length, pa.int32()), pa.date32())

    return run


def _day_word(field: str) -> Build:
    """The name of the weekday or the month of a date, in three letters."""
    words = pa.array(datetime_words.WORDS[field, False], pa.large_string())

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        (argument,) = args

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            value = argument(columns, length, tick)
            single = isinstance(value, pa.Scalar)
            column = pc.cast(pc.cast(array(value, 1 if single else length), pa.int32()), pa.int64())
            days = numbers(column, len(column))
            index = (days + 3) % 7 if field == "weekday" else time_text.civil_parts(days)[1] - 1
            mask = ~valid_mask(column, len(column))
            result = words.take(pa.array(index, mask=mask if mask.any() else None))
            return result[0] if single else result

        return run

    return build


def _make_timestamp(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    fails = bool(call.option("failOnError", True))
    session = _zone(call) if call.type == "timestamp" else None

    def twin(
        year: int, month: int, day: int, hour: int, minute: int, second: Decimal, zone: str | None = None
    ) -> int | None:
        try:
            return _instant(year, month, day, hour, minute, second, zone, session)
        except AnsiError as error:
            if fails or error.code == OVERFLOW:
                raise
            return None

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        values = [item(columns, length, tick) for item in args]
        return pc.cast(rows_of(call, twin, values, length, pa.int64()), kernel_type(call.type))

    return run


def _instant(
    year: int,
    month: int,
    day: int,
    hour: int,
    minute: int,
    second: Decimal,
    zone: str | None,
    session: str | None,
) -> int:
    full_seconds, micros = divmod(int(second.scaleb(6)), 1_000_000)
    # As Java's ints wrap.
    seconds = (full_seconds + _INT) % (2 * _INT) - _INT
    later = seconds == 60
    if later and micros:
        raise AnsiError(f"the second {second} has a fraction", FRACTION)
    days = zones.days_from_civil(year, month, day) if abs(year) <= 999_999_999 else None
    if (
        days is None
        or not 0 <= hour < 24
        or not 0 <= minute < 60
        or not 0 <= seconds % 60 == seconds - 60 * later
    ):
        raise AnsiError(f"there is no moment {year}-{month}-{day} {hour}:{minute}:{second}", DATETIME)
    local = days * _DAY + ((hour * 60 + minute) * 60 + seconds) * 1_000_000 + micros
    if session is None:
        instant: int | None = local if -_LONG <= local < _LONG else None
    else:
        named = session if zone is None else zone_ids.resolve(zone)
        if named is None:
            raise AnsiError(f"there is no time zone {zone!r}", TIMEZONE)
        instant = time_text.instant_of(local, named)
    if instant is None:
        raise AnsiError("a timestamp is out of range", OVERFLOW)
    return instant


FUNCTIONS: dict[str, Scalar] = {
    "FromUTCTimestamp": Scalar(_shift(True), _zone_arguments(1)),
    "ToUTCTimestamp": Scalar(_shift(False), _zone_arguments(1)),
    "ConvertTimezone": Scalar(_convert_timezone, _zone_arguments(0, 1)),
    "TimestampAdd": Scalar(_timestamp_add, both(_unit_check(_EXACT, _DAYS, _MONTHS), _zone_check)),
    "TimestampDiff": Scalar(
        _timestamp_diff,
        both(_unit_check(_EXACT, {"DAY": 1, "WEEK": 7}, _MONTHS), only("timestamp"), _zone_check),
    ),
    "MonthsBetween": Scalar(_months_between, both(only("timestamp", first=2), _zone_check)),
    "NextDay": Scalar(_next_day, only("date", first=1)),
    "DayName": Scalar(_day_word("weekday"), only("date")),
    "MonthName": Scalar(_day_word("month"), only("date")),
    "MakeTimestamp": Scalar(_make_timestamp, both(_zone_check, _zone_arguments(6))),
}
