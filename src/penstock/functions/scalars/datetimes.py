"""Dates, timestamps and intervals; local time only in zones whose offset never changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import kernel_type
from penstock.functions.scalars import decimals, time_text, zones
from penstock.functions.scalars.base import (
    DATETIME,
    OVERFLOW,
    AnsiError,
    BeyondKernel,
    Build,
    ByRow,
    Check,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    ansi_error,
    array,
    both,
    from_numbers,
    numbers,
    only,
    rows_of,
    valid_mask,
)
from penstock.functions.scalars.moments import add_months
from penstock.plan.expression import Call, Literal

_DAY = 86_400_000_000
_MOST_DAYS = 2**63 // _DAY - 2  # with any time of day and any offset, its microseconds are a long
_INT32 = pa.int32()
_LAST_YEAR = 999_999_999  # of java.time


def _zone_check(call: Call) -> str | None:
    if any(item.type == "timestamp" for item in call.args):
        return zones.reason(call.option("timeZoneId"))
    return None


def _local(call: Call, value: Datum) -> Datum:
    """A timestamp as local time, anything else as it is."""
    if pa.types.is_timestamp(value.type) and value.type.tz:
        return zones.to_local(value, call.option("timeZoneId"))
    return value


def _part(function: Any, **options: Any) -> Build:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        (argument,) = args
        return lambda columns, length, tick: pc.cast(
            function(_local(call, argument(columns, length, tick)), **options), _INT32
        )

    return build


def _seconds_with_fraction(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    kind = kernel_type(call.type)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        value = _local(call, argument(columns, length, tick))
        micros = np.mod(numbers(pc.cast(value, pa.int64()), length), 60_000_000)
        return decimals.from_small(micros, valid_mask(value, length), kind)

    return run


def _days(value: Datum) -> Datum:
    return pc.cast(value, _INT32)


def _add_days(sign: int) -> Build:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        date_of, days_of = args
        function = pc.add if sign > 0 else pc.subtract

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            date, days = date_of(columns, length, tick), days_of(columns, length, tick)
            return pc.cast(function(_days(date), pc.cast(days, _INT32)), pa.date32())

        return run

    return build


def _date_difference(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    end_of, start_of = args
    return lambda columns, length, tick: pc.subtract(
        _days(end_of(columns, length, tick)), _days(start_of(columns, length, tick))
    )


def _over_days(twin: Callable[..., Any], kind: pa.DataType) -> Build:
    """Build a function that asks a Python function of day numbers for every row; what is no day number overflows."""

    def checked(*values: Any) -> int | None:
        days: int | None = twin(*values)
        if days is not None and not -(2**31) <= days < 2**31:
            raise AnsiError("date overflow", OVERFLOW)
        return days

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            values = [item(columns, length, tick) for item in args]
            values = [_days(item) if pa.types.is_date(item.type) else item for item in values]
            results = rows_of(call, checked, values, length, _INT32)
            return pc.cast(results, kind)

        return run

    return build


def _last_day(days: int) -> int:
    year, month, day = zones.civil_from_days(days)
    return days - day + zones.month_length(year, month)


_DATE_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
}
_TIME_UNITS = {
    **_DATE_UNITS,
    **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
    "MILLISECOND": "millisecond",
    "MICROSECOND": "microsecond",
}


def _truncate_date(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    def truncated(days: Any, unit: str) -> Any:
        return _first_days(days, unit)

    return _truncation(call, args[0], args[1], _DATE_UNITS, truncated, pa.int32())


def _truncation(
    call: Call,
    moment_of: Compiled,
    unit_of: Compiled,
    units: dict[str, str],
    truncate: Callable[[Any, str], Any],
    number: pa.DataType,
) -> Compiled:
    """Moments cut to a unit, which is constant or comes with each row; NULL where there is no such unit."""
    kind = kernel_type(call.type)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        moment, unit = moment_of(columns, length, tick), unit_of(columns, length, tick)
        single = isinstance(moment, pa.Scalar) and isinstance(unit, pa.Scalar)
        count = 1 if single else length
        names = (unit if isinstance(unit, pa.Scalar) else pc.unique(unit)).cast(pa.large_string())
        valid = np.zeros(count, bool)
        values = numbers(pc.cast(moment, number), count).astype(np.int64)
        cut = np.zeros(count, np.int64)
        for name in [names.as_py()] if isinstance(names, pa.Scalar) else names.to_pylist():
            standard_unit = units.get(name.upper()) if name is not None else None
            if standard_unit is None:
                continue
            rows = np.ones(count, bool)
            if not isinstance(unit, pa.Scalar):
                rows = pc.fill_null(pc.equal(unit, pa.scalar(name, unit.type)), False).to_numpy(
                    zero_copy_only=False
                )
            cut[rows] = truncate(values[rows], standard_unit)
            valid |= rows
        valid &= valid_mask(moment, count)
        result = pc.cast(from_numbers(cut.astype(number.to_pandas_dtype()), valid, number), kind)
        return result[0] if single else result

    return run


def _first_days(days: Any, unit: str) -> Any:
    """The first days of the years, quarters, months or weeks of dates."""
    if unit == "week":
        return days - (days + 3) % 7
    year, month, _ = time_text.civil_parts(days)
    first = {"year": 1 + 0 * month, "quarter": (month - 1) // 3 * 3 + 1, "month": month}[unit]
    return time_text.civil_days(year, first, np.ones_like(year))[0]


_FIXED = {"day": _DAY, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "millisecond": 1000}


def _truncate_timestamp(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    zone = call.option("timeZoneId")
    return _truncation(
        call, args[1], args[0], _TIME_UNITS, lambda micros, unit: _truncated(micros, unit, zone), pa.int64()
    )


def _truncated(micros: Any, unit: str, zone: str | None) -> Any:
    """Instants cut to a unit of local time."""
    if unit == "microsecond":
        return micros
    if unit in {"second", "millisecond"}:
        return micros - np.mod(micros, _FIXED[unit])
    offset = zones.offsets_at(micros, zone)
    local = micros + offset
    if unit in {"hour", "minute"}:
        return zones.keeping(local - np.mod(local, _FIXED[unit]), offset, zone)
    days = np.floor_divide(local, _DAY)
    if unit != "day":
        days = _first_days(days, unit)
    return zones.day_starts(days, zone)


def _make_date(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    fails = bool(call.option("failOnError", True))

    def twin(year: int, month: int, day: int) -> int | None:
        in_range = abs(year) <= _LAST_YEAR
        days = zones.days_from_civil(year, month, day) if in_range else None
        if days is None and fails:
            raise AnsiError(f"there is no day {year}-{month}-{day}", DATETIME)
        return days

    return _over_days(twin, pa.date32())(call, args)


def _micros(value: Datum) -> Datum:
    return pc.cast(value, pa.int64())


def _add_duration(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    """A timestamp and a day-time interval: whole days in local time, the rest in exact time."""
    if call.args[1].type == "interval":
        return _add_calendar(call, args)
    moment_of, interval_of = args
    kind = kernel_type(call.type)
    zone = call.option("timeZoneId") if call.type == "timestamp" else None
    simple = zones.fixed_offset(zone) is not None

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        moment, interval = (
            _micros(moment_of(columns, length, tick)),
            _micros(interval_of(columns, length, tick)),
        )
        try:
            total = pc.add_checked(moment, interval)
        except pa.ArrowInvalid:
            return rows_of(call, _overflowing, [moment, interval], length, pa.int64())
        if simple:
            return pc.cast(total, kind)
        count = 1 if isinstance(moment, pa.Scalar) and isinstance(interval, pa.Scalar) else length
        start, added = numbers(moment, count), numbers(interval, count)
        rest = np.fmod(added, _DAY)
        offset = zones.offsets_at(start, zone)
        moved = zones.keeping(start + offset + (added - rest), offset, zone) + rest
        valid = valid_mask(moment, count) & valid_mask(interval, count)
        result = pc.cast(from_numbers(moved, valid, pa.int64()), kind)
        return result[0] if isinstance(total, pa.Scalar) else result

    return run


_MOST_CALENDAR = 2**61  # microseconds, so that no sum of three leaves 64 bits


def _add_calendar(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    """A timestamp and a calendar interval without months: its days in local time, the rest in exact time."""
    moment_of, interval_of = args
    kind = kernel_type(call.type)
    zone = call.option("timeZoneId") if call.type == "timestamp" else None

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        moment = array(_micros(moment_of(columns, length, tick)), length)
        interval = array(interval_of(columns, length, tick), length)
        valid = valid_mask(moment, length) & valid_mask(interval, length)
        parts = [(0, 0, 0) if item is None else item for item in interval.to_pylist()]
        intervals = np.array(parts, np.int64).reshape(length, 3)
        months, days, micros = intervals[:, 0], intervals[:, 1], intervals[:, 2] // 1000
        start = numbers(moment, length)
        far = (months != 0) | (np.abs(start) > _MOST_CALENDAR) | (np.abs(days) > _MOST_CALENDAR // _DAY)
        if (far & valid).any():
            raise BeyondKernel("an interval of months, or a moment far away")
        start, days = np.where(valid, start, 0), np.where(valid, days, 0)
        offset = zones.offsets_at(start, zone)
        moved = zones.keeping(start + offset + days * _DAY, offset, zone) + np.where(valid, micros, 0)
        return pc.cast(from_numbers(moved, valid, pa.int64()), kind)

    return run


def _overflowing(start: int, added: int) -> int:
    if not -(2**63) <= start + added < 2**63:
        raise AnsiError("timestamp overflow", OVERFLOW)
    return start + added


def _add_year_month(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    """A date or timestamp and a year-month interval."""
    moment_of, interval_of = args
    kind = kernel_type(call.type)
    if call.type == "date":
        return _over_days(add_months, pa.date32())(call, args)
    zone = call.option("timeZoneId") if call.type == "timestamp" else None

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        moment, interval = _micros(moment_of(columns, length, tick)), interval_of(columns, length, tick)
        constant_in = isinstance(moment, pa.Scalar) and isinstance(interval, pa.Scalar)
        count = 1 if constant_in else length
        start, months = numbers(moment, count), numbers(interval, count)
        offset = zones.offsets_at(start, zone)
        days, rest = np.divmod(start + offset, _DAY)
        pairs = zip(days.tolist(), months.tolist(), strict=True)
        moved_days = np.fromiter((add_months(day, by) for day, by in pairs), np.int64, count)
        valid = valid_mask(moment, count) & valid_mask(interval, count)
        if (beyond := valid & (np.abs(moved_days) > _MOST_DAYS)).any():
            row = int(np.flatnonzero(beyond)[0])
            raise ansi_error(
                call, AnsiError("timestamp overflow", OVERFLOW), [int(start[row]), int(months[row])]
            )
        moved = moved_days * _DAY + rest
        result = pc.cast(from_numbers(zones.keeping(moved, offset, zone), valid, pa.int64()), kind)
        return result[0] if constant_in else result

    return run


def _subtract_dates(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    end_of, start_of = args
    day = pa.scalar(_DAY, pa.int64())

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        difference = pc.subtract(_days(end_of(columns, length, tick)), _days(start_of(columns, length, tick)))
        return pc.cast(pc.multiply(pc.cast(difference, pa.int64()), day), pa.duration("us"))

    return run


def _subtract_timestamps(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    """The difference in local time."""
    end_of, start_of = args
    return lambda columns, length, tick: pc.cast(
        pc.subtract_checked(
            _micros(_local(call, end_of(columns, length, tick))),
            _micros(_local(call, start_of(columns, length, tick))),
        ),
        pa.duration("us"),
    )


def _unix_of(divisor: int) -> Build:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        (argument,) = args

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            value = argument(columns, length, tick)
            units = np.floor_divide(numbers(_micros(value), length), divisor)
            return from_numbers(units, valid_mask(value, length), pa.int64())

        return run

    return build


def _from_unix(factor: int) -> Build:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        (argument,) = args
        times = pa.scalar(factor, pa.int64())
        kind = kernel_type(call.type)

        def twin(value: int) -> int:
            if not -(2**63) <= value * factor < 2**63:
                raise AnsiError("bigint overflow", OVERFLOW)
            return value * factor

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            value = pc.cast(argument(columns, length, tick), pa.int64())
            try:
                return pc.cast(pc.multiply_checked(value, times), kind)
            except pa.ArrowInvalid:
                return rows_of(call, twin, [value], length, pa.int64())

        return run

    return build


def _unix_date(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    return lambda columns, length, tick: _days(argument(columns, length, tick))


def _date_from_unix(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    return lambda columns, length, tick: pc.cast(argument(columns, length, tick), pa.date32())


def _reinterpreted(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    """Microseconds as a timestamp, and the other way round."""
    (argument,) = args
    kind = kernel_type(call.type)
    return lambda columns, length, tick: pc.cast(argument(columns, length, tick), kind)


_DATE = only("date")
_MOMENT = only("timestamp", "timestamp_ntz")
_ZONED: Check = both(_MOMENT, _zone_check)


def _interval_check(kind: str) -> Check:
    def check(call: Call) -> str | None:
        if len(call.args) != 2:
            return call.name
        other = call.args[1].type
        if (
            call.name == "TimestampAddInterval"
            and other == "interval"
            and not isinstance(call.args[1], Literal)
        ):
            return _zone_check(call) or ByRow("an interval of months, or a moment far away")
        months = "year" in other or "month" in other
        if other == "interval" or months != (kind == "months"):
            return f"{call.name} with {other}"
        return _zone_check(call)

    return check


FUNCTIONS: dict[str, Scalar] = {
    "Year": Scalar(_part(pc.year), _DATE),
    "Quarter": Scalar(_part(pc.quarter), _DATE),
    "Month": Scalar(_part(pc.month), _DATE),
    "DayOfMonth": Scalar(_part(pc.day), _DATE),
    "DayOfYear": Scalar(_part(pc.day_of_year), _DATE),
    "DayOfWeek": Scalar(_part(pc.day_of_week, count_from_zero=False, week_start=7), _DATE),
    "WeekDay": Scalar(_part(pc.day_of_week), _DATE),
    "WeekOfYear": Scalar(_part(pc.iso_week), _DATE),
    "YearOfWeek": Scalar(_part(pc.iso_year), _DATE),
    "Hour": Scalar(_part(pc.hour), _ZONED),
    "Minute": Scalar(_part(pc.minute), _ZONED),
    "Second": Scalar(_part(pc.second), _ZONED),
    "SecondWithFraction": Scalar(_seconds_with_fraction, _ZONED),
    "DateAdd": Scalar(_add_days(1), only("date", first=1)),
    "DateSub": Scalar(_add_days(-1), only("date", first=1)),
    "DateDiff": Scalar(_date_difference, _DATE),
    "AddMonths": Scalar(_over_days(add_months, pa.date32()), only("date", first=1)),
    "LastDay": Scalar(_over_days(_last_day, pa.date32()), _DATE),
    "TruncDate": Scalar(_truncate_date, only("date", first=1)),
    "TruncTimestamp": Scalar(_truncate_timestamp, _zone_check),
    "MakeDate": Scalar(_make_date, only("int")),
    "DateAddYMInterval": Scalar(_add_year_month, _interval_check("months")),
    "TimestampAddYMInterval": Scalar(
        _add_year_month, both(_interval_check("months"), only("timestamp", "timestamp_ntz", first=1))
    ),
    "TimestampAddInterval": Scalar(
        _add_duration, both(_interval_check("time"), only("timestamp", "timestamp_ntz", first=1))
    ),
    "TimeAdd": Scalar(
        _add_duration, both(_interval_check("time"), only("timestamp", "timestamp_ntz", first=1))
    ),
    "SubtractDates": Scalar(
        _subtract_dates, lambda call: None if call.type.startswith("interval day") else call.name
    ),
    "SubtractTimestamps": Scalar(
        _subtract_timestamps,
        both(_MOMENT, lambda call: None if call.type.startswith("interval day") else call.name, _zone_check),
    ),
    "UnixDate": Scalar(_unix_date, _DATE),
    "DateFromUnixDate": Scalar(_date_from_unix, only("int")),
    "UnixSeconds": Scalar(_unix_of(1_000_000), only("timestamp")),
    "UnixMillis": Scalar(_unix_of(1000), only("timestamp")),
    "UnixMicros": Scalar(_unix_of(1), only("timestamp")),
    "MillisToTimestamp": Scalar(_from_unix(1000), only("tinyint", "smallint", "int", "bigint")),
    "MicrosToTimestamp": Scalar(_from_unix(1), only("tinyint", "smallint", "int", "bigint")),
    "SecondsToTimestamp": Scalar(_from_unix(1_000_000), only("tinyint", "smallint", "int", "bigint")),
    "PreciseTimestampConversion": Scalar(_reinterpreted, only("timestamp", "timestamp_ntz", "bigint")),
}
