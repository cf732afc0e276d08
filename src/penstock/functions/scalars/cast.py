"""CAST between types, with ANSI errors, where the kernel gives exactly Spark's answer."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.interval import cut, cut_months
from penstock.data.time_of_day import to_nanos
from penstock.data.types import decimal_parts, is_year_month, kernel_type
from penstock.functions.scalars import decimals, floats, text_cast, zone_ids, zones
from penstock.functions.scalars.arithmetic import unscaled_rows
from penstock.functions.scalars.base import (
    FLOATING,
    INTEGRAL,
    INTEGRAL_RANGE,
    OVERFLOW,
    AnsiError,
    ByRow,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    array,
    bad_row_error,
    eval_mode,
    from_numbers,
    is_decimal,
    numbers,
    rows_of,
    typed,
    valid_mask,
)
from penstock.functions.scalars.elements import without_negative_zeros
from penstock.plan.expression import Call

Convert = text_cast.Convert


def _too_large(kind: str) -> AnsiError:
    return AnsiError(f"a value is out of the range of {kind}", OVERFLOW)


# ------------------------------------------------------------------ numbers


def _to_integral(call: Call, value: Datum, length: int) -> Datum:
    kind = kernel_type(call.type)
    source = call.args[0].type
    low, high = INTEGRAL_RANGE[call.type]
    if source in INTEGRAL:
        source_low, source_high = INTEGRAL_RANGE[source]
        if low <= source_low and source_high <= high:
            return pc.cast(value, kind)
        values = numbers(value, length)
        outside = (values < low) | (values > high)
        return _narrow(call, value, length, values, outside, kind)
    values = numbers(value, length)
    if eval_mode(call) == "LEGACY":
        return _narrow(call, value, length, _saturated(values, wide=call.type == "bigint"), None, kind)
    with np.errstate(invalid="ignore"):
        # As Java compares: rounded towards the range on both sides, so that 127.9 is a tinyint and NaN is nothing.
        # A float is compared as a double, in which the bounds of INT are exact.
        outside = ~((np.floor(values, dtype=np.float64) <= high) & (np.ceil(values, dtype=np.float64) >= low))
        if call.type == "bigint":
            # 2^63 as a double equals the bound after rounding; Java compares in double too and saturates.
            integers = np.where(values >= 2.0**63, 2**63 - 1, np.where(outside, 0, values).astype(np.int64))
        else:
            integers = np.trunc(np.where(outside, 0, values)).astype(np.int64)
    return _narrow(call, value, length, integers, outside, kind)


def _saturated(values: Any, *, wide: bool) -> Any:
    """Floating numbers as Java casts them to int or long: NaN is 0, and what is too large the largest."""
    low, high = INTEGRAL_RANGE["bigint" if wide else "int"]
    doubles = np.where(np.isnan(values), 0.0, values.astype(np.float64))
    above, below = doubles >= float(high), doubles <= float(low)
    integers = np.where(above | below, 0.0, doubles).astype(np.int64)
    return np.where(above, high, np.where(below, low, integers))


def _narrow(call: Call, value: Datum, length: int, integers: Any, outside: Any, kind: pa.DataType) -> Datum:
    """Integers in a narrower type: where they are outside, an ANSI error or NULL; in LEGACY mode their lower bits."""
    valid = valid_mask(value, length)
    bad = outside & valid if eval_mode(call) != "LEGACY" else np.zeros(len(valid), bool)
    if bad.any():
        if eval_mode(call) == "ANSI":
            raise bad_row_error(call, [value], int(np.argmax(bad)), _too_large(call.type))
        valid = valid & ~bad
        integers = np.where(bad, 0, integers)
    result = from_numbers(integers.astype(kind.to_pandas_dtype()), valid, kind)
    return result[0] if isinstance(value, pa.Scalar) else result


def _number_to_floating(call: Call, value: Datum, length: int) -> Datum:
    return pc.cast(value, kernel_type(call.type), safe=False)


def _number_to_boolean(call: Call, value: Datum, length: int) -> Datum:
    return pc.not_equal(value, pa.scalar(0, value.type))


def _decimal_to_boolean(call: Call, value: Datum, length: int) -> Datum:
    return pc.not_equal(value, pa.scalar(Decimal(0), value.type))


def _boolean_to_number(call: Call, value: Datum, length: int) -> Datum:
    return pc.cast(pc.cast(value, pa.int8()), kernel_type(call.type))


def _integral_to_decimal(call: Call, value: Datum, length: int) -> Datum:
    kind = kernel_type(call.type)
    # What Arrow's own cast asks for; a boolean goes there as a tinyint.
    digits = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19, "boolean": 3}[call.args[0].type]
    if call.args[0].type == "boolean":
        value = pc.cast(value, pa.int8())
    if kind.precision - kind.scale >= digits:
        return pc.cast(value, kind)
    ansi = eval_mode(call) == "ANSI"

    def exact(number: int) -> int | None:
        return decimals.bounded(number * decimals.power(kind.scale), kind.precision, ansi)

    constant = isinstance(value, pa.Scalar)
    return text_cast.decimal_rows(call, exact, value, 1 if constant else length, kind)


def _decimal_to_decimal(call: Call, value: Datum, length: int) -> Datum:
    kind = kernel_type(call.type)
    source = kernel_type(call.args[0].type)
    if kind.scale >= source.scale and kind.precision - kind.scale >= source.precision - source.scale:
        return pc.cast(value, kind)
    ansi = eval_mode(call) == "ANSI"

    def exact(number: int) -> int | None:
        return decimals.bounded(decimals.rescale(number, source.scale, kind.scale), kind.precision, ansi)

    return unscaled_rows(call, exact, (value,), length, kind)


def _decimal_to_integral(call: Call, value: Datum, length: int) -> Datum:
    kind = kernel_type(call.type)
    scale = kernel_type(call.args[0].type).scale
    low, high = INTEGRAL_RANGE[call.type]
    ansi = eval_mode(call) == "ANSI"

    def exact(number: int) -> int | None:
        integer = abs(number) // decimals.power(scale)
        integer = integer if number >= 0 else -integer
        if low <= integer <= high:
            return integer
        if ansi:
            raise _too_large(call.type)
        return None

    return unscaled_rows(call, exact, (value,), length, kind)


def _decimal_to_floating(call: Call, value: Datum, length: int) -> Datum:
    if call.type == "float":
        return rows_of(
            call, lambda number: floats.read_float(format(number, "f")), [value], length, pa.float32()
        )
    return _decimal_to_double(value, length)


def _decimal_to_double(value: Datum, length: int) -> Datum:
    scale = value.type.scale
    constant = isinstance(value, pa.Scalar)
    column = array(value, 1 if constant else length)
    small = decimals.small(column)
    if small is not None and scale <= 22 and (np.abs(small) < 2**53).all():
        # Both numbers are exact doubles, so the division is rounded once, as BigDecimal does.
        doubles = from_numbers(small / float(10**scale), valid_mask(column, len(column)), pa.float64())
    else:
        doubles = pa.array(
            [None if item is None else float(item) for item in column.to_pylist()], pa.float64()
        )
    return doubles[0] if constant else doubles


def _floating_to_decimal(call: Call, value: Datum, length: int) -> Datum:
    """Through the decimal form in which Java writes the number."""
    kind = kernel_type(call.type)
    java = int(call.option("java", floats.SHORTEST))
    ansi = eval_mode(call) == "ANSI"

    def exact(number: float) -> int | None:
        if number != number or number in (float("inf"), float("-inf")):
            return None
        if number == 0:
            return 0
        digits, point = floats.double_digits(abs(number), java)
        unscaled = int(digits) * (-1 if number < 0 else 1)
        exponent = point - len(digits)
        if exponent >= 0:
            unscaled, exponent = unscaled * decimals.power(min(exponent, 110)), 0
        elif exponent < -110:
            return 0
        return decimals.bounded(decimals.rescale(unscaled, -exponent, kind.scale), kind.precision, ansi)

    return text_cast.decimal_rows(call, exact, value, 1 if isinstance(value, pa.Scalar) else length, kind)


# ------------------------------------------------------------------ time


def _timestamp_to_date(call: Call, value: Datum, length: int) -> Datum:
    return pc.cast(_floor_day(zones.to_local(value, call.option("timeZoneId"))), pa.date32())


def _ntz_to_date(call: Call, value: Datum, length: int) -> Datum:
    return pc.cast(_floor_day(value), pa.date32())


def _floor_day(value: Datum) -> Datum:
    return pc.floor_temporal(value, unit="day")


def _date_to_ntz(call: Call, value: Datum, length: int) -> Datum:
    return pc.cast(value, pa.timestamp("us"))


def _date_to_timestamp(call: Call, value: Datum, length: int) -> Datum:
    return zones.start_of_day(value, call.option("timeZoneId"))


def _timestamp_to_ntz(call: Call, value: Datum, length: int) -> Datum:
    return zones.to_local(value, call.option("timeZoneId"))


def _ntz_to_timestamp(call: Call, value: Datum, length: int) -> Datum:
    return zones.to_instant(value, call.option("timeZoneId"))


def _timestamp_to_integral(call: Call, value: Datum, length: int) -> Datum:
    constant = isinstance(value, pa.Scalar)
    seconds = np.floor_divide(numbers(pc.cast(value, pa.int64()), 1 if constant else length), 1_000_000)
    low, high = INTEGRAL_RANGE[call.type]
    outside = (seconds < low) | (seconds > high)
    valid = valid_mask(value, len(seconds))
    bad = outside & valid
    if bad.any() and eval_mode(call) == "ANSI":
        raise bad_row_error(call, [value], int(np.argmax(bad)), _too_large(call.type))
    kind = kernel_type(call.type)
    result = from_numbers(np.where(bad, 0, seconds).astype(kind.to_pandas_dtype()), valid & ~bad, kind)
    return result[0] if constant else result


def _timestamp_to_floating(call: Call, value: Datum, length: int) -> Datum:
    constant = isinstance(value, pa.Scalar)
    column = pc.cast(array(value, 1 if constant else length), pa.int64())
    seconds = numbers(column, len(column)) / 1_000_000.0
    result = pc.cast(
        from_numbers(seconds, valid_mask(column, len(column)), pa.float64()),
        kernel_type(call.type),
        safe=False,
    )
    return result[0] if constant else result


def _timestamp_to_decimal(call: Call, value: Datum, length: int) -> Datum:
    kind = kernel_type(call.type)
    ansi = eval_mode(call) == "ANSI"

    def exact(micros: int) -> int | None:
        return decimals.bounded(decimals.rescale(micros, 6, kind.scale), kind.precision, ansi)

    micros = pc.cast(value, pa.int64())
    return text_cast.decimal_rows(call, exact, micros, 1 if isinstance(value, pa.Scalar) else length, kind)


def _integral_to_timestamp(call: Call, value: Datum, length: int) -> Datum:
    """Seconds; those beyond the range are its ends, as java.util.concurrent.TimeUnit has it."""
    constant = isinstance(value, pa.Scalar)
    column = array(value, 1 if constant else length)
    seconds = numbers(pc.cast(column, pa.int64()), len(column))
    low, high = INTEGRAL_RANGE["bigint"]
    most = high // 1_000_000
    inside = np.clip(seconds, -most, most) * 1_000_000
    micros = np.where(seconds > most, high, np.where(seconds < -most, low, inside))
    result = pc.cast(
        from_numbers(micros, valid_mask(column, len(column)), pa.int64()), kernel_type(call.type)
    )
    return result[0] if constant else result


def _same(call: Call, value: Datum, length: int) -> Datum:
    return typed(value, kernel_type(call.type))


def _nothing(call: Call, value: Datum, length: int) -> Datum:
    return pa.scalar(None, kernel_type(call.type))


def _in_whole_units(call: Call, value: Datum, length: int) -> Datum:
    """An interval with other fields, or a time with fewer digits: parts below its last unit are cut off."""
    column = array(value, length if not isinstance(value, pa.Scalar) else 1)
    if call.type.startswith("time("):
        result = to_nanos(column, call.type, name="", where="")
    else:
        result = (cut_months if is_year_month(call.type) else cut)(column, call.type)
    return result[0] if isinstance(value, pa.Scalar) else result


def _family(kind: str) -> str:
    if kind in INTEGRAL:
        return "integral"
    if kind in FLOATING:
        return "floating"
    if is_decimal(kind):
        return "decimal"
    if kind.startswith("time("):
        return "time"
    if kind.startswith("interval "):
        return "months" if is_year_month(kind) else "duration"
    return kind


_CASTS: dict[tuple[str, str], Convert] = {
    **text_cast.CONVERSIONS,
    ("integral", "integral"): _to_integral,
    ("floating", "integral"): _to_integral,
    ("integral", "floating"): _number_to_floating,
    ("floating", "floating"): _number_to_floating,
    ("integral", "boolean"): _number_to_boolean,
    ("floating", "boolean"): _number_to_boolean,
    ("decimal", "boolean"): _decimal_to_boolean,
    ("boolean", "integral"): _boolean_to_number,
    ("boolean", "floating"): _boolean_to_number,
    ("integral", "decimal"): _integral_to_decimal,
    ("boolean", "decimal"): _integral_to_decimal,
    ("floating", "decimal"): _floating_to_decimal,
    ("decimal", "decimal"): _decimal_to_decimal,
    ("decimal", "integral"): _decimal_to_integral,
    ("decimal", "floating"): _decimal_to_floating,
    ("date", "timestamp"): _date_to_timestamp,
    ("date", "timestamp_ntz"): _date_to_ntz,
    ("timestamp", "date"): _timestamp_to_date,
    ("timestamp", "timestamp_ntz"): _timestamp_to_ntz,
    ("timestamp_ntz", "timestamp"): _ntz_to_timestamp,
    ("timestamp_ntz", "date"): _ntz_to_date,
    ("timestamp", "integral"): _timestamp_to_integral,
    ("timestamp", "floating"): _timestamp_to_floating,
    ("timestamp", "decimal"): _timestamp_to_decimal,
    ("integral", "timestamp"): _integral_to_timestamp,
    ("months", "months"): _in_whole_units,
    ("duration", "duration"): _in_whole_units,
    ("time", "time"): _in_whole_units,
}


_MOMENTS = ("timestamp", "timestamp_ntz")


def _conversion(call: Call) -> Convert | str:
    """The conversion, or the reason why it is left to Spark."""
    source, target = call.args[0].type, call.type
    if source == "void":
        return _nothing
    if source == target:
        return _same
    source_family, target_family = _family(source), _family(target)
    convert = _CASTS.get((source_family, target_family)) or _CASTS.get((source_family, target))
    if source_family == "string" and target in _MOMENTS:
        convert = _same
    if convert is None:
        return f"CAST from {source} to {target}"
    if source_family == "string" and target in _MOMENTS and not zone_ids.has_zones():
        return f"CAST from {source} to {target} without the rules of all zones"
    if source_family == "floating" and target == "string" and call.option("java") is None:
        return f"CAST from {source} to {target} as an unknown Java writes it"
    if eval_mode(call) == "LEGACY" and target_family == "integral" and source_family == "decimal":
        return f"CAST from {source} to {target} outside ANSI mode"
    zone = call.option("timeZoneId")
    zoned = {
        ("date", "timestamp"),
        ("timestamp", "date"),
        ("timestamp", "timestamp_ntz"),
        ("timestamp_ntz", "timestamp"),
        ("timestamp", "string"),
        ("string", "timestamp"),
    }
    if (source, target) in zoned:
        why = zones.reason(zone)
        if why is not None:
            return why
    return convert


def _check(call: Call) -> str | None:
    conversion = _conversion(call)
    if isinstance(conversion, str):
        return conversion
    if (call.args[0].type, call.type) == ("string", "interval"):
        return ByRow("a text that is not plainly an interval")
    return None


def _build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    convert = _conversion(call)
    (argument,) = args
    if call.args[0].type == "string" and call.type in _MOMENTS:
        return lambda columns, length, tick: text_cast.to_moment(
            call, argument(columns, length, tick), length, tick
        )
    assert not isinstance(convert, str)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        return convert(call, argument(columns, length, tick), length)

    return run


def _normalise(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    """One NaN and no negative zero, as keys of groups."""
    (argument,) = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        return without_negative_zeros(array(argument(columns, length, tick), length))

    return run


def _unscaled(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        return unscaled_rows(
            call, lambda number: number, (argument(columns, length, tick),), length, pa.int64()
        )

    return run


def _make_decimal(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    kind = kernel_type(call.type)
    ansi = not call.option("nullOnOverflow", False)

    def exact(number: int) -> int | None:
        return decimals.bounded(number, kind.precision, ansi)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        value = argument(columns, length, tick)
        return text_cast.decimal_rows(call, exact, value, 1 if isinstance(value, pa.Scalar) else length, kind)

    return run


def _check_overflow(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        return _decimal_to_decimal(call, argument(columns, length, tick), length)

    return run


def _check_overflow_check(call: Call) -> str | None:
    if call.option("nullOnOverflow", False):
        return "CheckOverflow outside ANSI mode"
    return None if decimal_parts(call.args[0].type) else f"CheckOverflow over {call.args[0].type}"


FUNCTIONS: dict[str, Scalar] = {
    "Cast": Scalar(_build, _check),
    "NormalizeNaNAndZero": Scalar(_normalise, lambda call: None),
    "UnscaledValue": Scalar(_unscaled, lambda call: None),
    "MakeDecimal": Scalar(_make_decimal, lambda call: None),
    "CheckOverflow": Scalar(_check_overflow, _check_overflow_check),
}
