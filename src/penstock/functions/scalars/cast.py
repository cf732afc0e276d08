"""CAST between types, with ANSI errors, where the kernel gives exactly Spark's answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.interval import cut, cut_months
from penstock.data.time_of_day import to_nanos
from penstock.data.types import decimal_parts, is_year_month, kernel_type
from penstock.functions.scalars import decimals, zones
from penstock.functions.scalars.arithmetic import unscaled_rows
from penstock.functions.scalars.base import (
    CAST,
    FLOATING,
    INTEGRAL,
    INTEGRAL_RANGE,
    OVERFLOW,
    AnsiError,
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
from penstock.plan.expression import Call

Convert = Callable[[Call, Datum, int], Datum]

# What UTF8String.trimAll takes away: blanks and ISO control characters.
_BLANK = "".join(chr(code) for code in (*range(0x21), *range(0x7F, 0xA0)))


def _invalid(value: Any, kind: str) -> AnsiError:
    return AnsiError(f"the value {value!r} cannot be cast to {kind}", CAST)


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
    with np.errstate(invalid="ignore"):
        # As Java compares: rounded towards the range on both sides, so that 127.9 is a tinyint and NaN is nothing.
        outside = ~((np.floor(values) <= high) & (np.ceil(values) >= low))
        if call.type == "bigint":
            # 2^63 as a double equals the bound after rounding; Java compares in double too and saturates.
            integers = np.where(values >= 2.0**63, 2**63 - 1, np.where(outside, 0, values).astype(np.int64))
        else:
            integers = np.trunc(np.where(outside, 0, values)).astype(np.int64)
    return _narrow(call, value, length, integers, outside, kind)


def _narrow(call: Call, value: Datum, length: int, integers: Any, outside: Any, kind: pa.DataType) -> Datum:
    valid = valid_mask(value, length)
    bad = outside & valid
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
    return _whole_rows(call, exact, value, 1 if constant else length, kind)


def _whole_rows(
    call: Call, twin: Callable[[Any], int | None], value: Datum, length: int, kind: pa.DataType
) -> Datum:
    items = [value.as_py()] * length if isinstance(value, pa.Scalar) else value.to_pylist()
    results: list[int | None] = []
    for position, item in enumerate(items):
        try:
            results.append(None if item is None else twin(item))
        except AnsiError as error:
            raise bad_row_error(call, [value], position, error) from None
    column = decimals.from_unscaled(results, kind)
    return column[0] if isinstance(value, pa.Scalar) else column


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


def _decimal_to_double(call: Call, value: Datum, length: int) -> Datum:
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
    """Through the shortest decimal form, as Java writes the number."""
    kind = kernel_type(call.type)
    ansi = eval_mode(call) == "ANSI"

    def exact(number: float) -> int | None:
        if number != number or number in (float("inf"), float("-inf")):
            return None
        sign, digits, exponent = Decimal(repr(number)).as_tuple()
        assert isinstance(exponent, int)
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        if exponent >= 0:
            unscaled, exponent = unscaled * decimals.power(min(exponent, 110)), 0
        return decimals.bounded(
            decimals.rescale(unscaled, min(-exponent, 110), kind.scale), kind.precision, ansi
        )

    return _whole_rows(call, exact, value, 1 if isinstance(value, pa.Scalar) else length, kind)


# ------------------------------------------------------------------ text


def _text_rows(twin: Callable[[str], Any]) -> Convert:
    def convert(call: Call, value: Datum, length: int) -> Datum:
        ansi = eval_mode(call) == "ANSI"

        def checked(text: str) -> Any:
            converted = twin(text)
            if converted is None and ansi:
                raise _invalid(text, call.type)
            return converted

        return rows_of(call, checked, [value], length, kernel_type(call.type))

    return convert


_WHOLE = re.compile(r"[+-]?[0-9]+")
_FLOATING = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?)", re.ASCII)
# Java's BigDecimal takes the digits of every script.
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_SPECIAL = {
    "nan": float("nan"),
    "inf": float("inf"),
    "+inf": float("inf"),
    "-inf": float("-inf"),
    "infinity": float("inf"),
    "+infinity": float("inf"),
    "-infinity": float("-inf"),
}
_TRUE = {"t", "true", "y", "yes", "1"}
_NOT_TRUE = {"f", "false", "n", "no", "0"}


def _text_to_integral(call: Call, value: Datum, length: int) -> Datum:
    low, high = INTEGRAL_RANGE[call.type]

    def twin(text: str) -> int | None:
        match = _WHOLE.fullmatch(text.strip(_BLANK))
        if match is None:
            return None
        number = int(match[0])
        return number if low <= number <= high else None

    return _text_rows(twin)(call, value, length)


def _floating_of(text: str) -> float | None:
    trimmed = text.strip(_BLANK)
    if _FLOATING.fullmatch(trimmed):
        return float(trimmed.rstrip("dDfF"))
    return _SPECIAL.get(trimmed.lower())


def _text_to_decimal(call: Call, value: Datum, length: int) -> Datum:
    kind = kernel_type(call.type)
    ansi = eval_mode(call) == "ANSI"

    def twin(text: str) -> int | None:
        trimmed = text.strip(_BLANK)
        if not _DECIMAL.fullmatch(trimmed):
            if ansi:
                raise _invalid(text, call.type)
            return None
        sign, digits, exponent = Decimal(trimmed).as_tuple()
        assert isinstance(exponent, int)
        unscaled = int("".join(map(str, digits)))
        if len(digits) + exponent > decimals.MOST_DIGITS and unscaled:
            return decimals.bounded(10**decimals.MOST_DIGITS, kind.precision, ansi)
        if exponent < -100:
            return 0
        unscaled = (
            decimals.rescale(-unscaled if sign else unscaled, -exponent, kind.scale)
            if exponent <= 0
            else (
                decimals.rescale((-unscaled if sign else unscaled) * decimals.power(exponent), 0, kind.scale)
            )
        )
        return decimals.bounded(unscaled, kind.precision, ansi)

    constant = isinstance(value, pa.Scalar)
    return _whole_rows(call, twin, value, 1 if constant else length, kind)


def _boolean_of(text: str) -> bool | None:
    folded = text.strip(_BLANK).lower()
    return True if folded in _TRUE else False if folded in _NOT_TRUE else None


_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)


def _date_of(text: str) -> int | None:
    """Days since the epoch of a text as Spark reads dates: [+-]yyyy*[-[m]m[-[d]d[ or T anything]]]."""
    match = _DATE.fullmatch(text.strip(_BLANK))
    if match is None:
        return None
    year = int(match[2]) * (-1 if match[1] == "-" else 1)
    month, day = int(match[3] or 1), int(match[4] or 1)
    return zones.days_from_civil(year, month, day)


def _text_to_date(call: Call, value: Datum, length: int) -> Datum:
    ansi = eval_mode(call) == "ANSI"

    def checked(text: str) -> int | None:
        days = _date_of(text)
        if days is None and ansi:
            raise _invalid(text, "date")
        return days

    return pc.cast(rows_of(call, checked, [value], length, pa.int32()), pa.date32())


def _to_text(call: Call, value: Datum, length: int) -> Datum:
    return pc.cast(value, pa.large_string())


def _decimal_to_text(call: Call, value: Datum, length: int) -> Datum:
    return rows_of(call, lambda number: format(number, "f"), [value], length, pa.large_string())


def _date_text(days: int) -> str:
    year, month, day = zones.civil_from_days(days)
    if year > 9999:
        return f"+{year}-{month:02d}-{day:02d}"
    return f"-{-year:04d}-{month:02d}-{day:02d}" if year < 0 else f"{year:04d}-{month:02d}-{day:02d}"


def _date_to_text(call: Call, value: Datum, length: int) -> Datum:
    return rows_of(call, _date_text, [pc.cast(value, pa.int32())], length, pa.large_string())


def _text_to_binary(call: Call, value: Datum, length: int) -> Datum:
    return pc.cast(value, pa.large_binary())


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


def _timestamp_to_bigint(call: Call, value: Datum, length: int) -> Datum:
    micros = numbers(pc.cast(value, pa.int64()), length)
    return from_numbers(np.floor_divide(micros, 1_000_000), valid_mask(value, length), pa.int64())


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
    ("decimal", "floating"): _decimal_to_double,
    ("string", "integral"): _text_to_integral,
    ("string", "floating"): _text_rows(_floating_of),
    ("string", "decimal"): _text_to_decimal,
    ("string", "boolean"): _text_rows(_boolean_of),
    ("string", "date"): _text_to_date,
    ("string", "binary"): _text_to_binary,
    ("integral", "string"): _to_text,
    ("boolean", "string"): _to_text,
    ("decimal", "string"): _decimal_to_text,
    ("date", "string"): _date_to_text,
    ("date", "timestamp"): _date_to_timestamp,
    ("date", "timestamp_ntz"): _date_to_ntz,
    ("timestamp", "date"): _timestamp_to_date,
    ("timestamp", "timestamp_ntz"): _timestamp_to_ntz,
    ("timestamp_ntz", "timestamp"): _ntz_to_timestamp,
    ("timestamp_ntz", "date"): _ntz_to_date,
    ("timestamp", "bigint"): _timestamp_to_bigint,
    ("months", "months"): _in_whole_units,
    ("duration", "duration"): _in_whole_units,
    ("time", "time"): _in_whole_units,
}


def _conversion(call: Call) -> Convert | str:
    """The conversion, or the reason why it is left to Spark."""
    source, target = call.args[0].type, call.type
    if source == "void":
        return _nothing
    if source == target:
        return _same
    one, two = _family(source), _family(target)
    convert = _CASTS.get((one, two)) or _CASTS.get((one, target))
    if (source, target) == ("timestamp", "bigint"):
        convert = _timestamp_to_bigint
    if convert is None:
        return f"CAST from {source} to {target}"
    if target == "float" and one in {"decimal", "string"}:
        return f"CAST from {source} to {target}"
    if one == "floating" and two == "decimal":
        # Java before 19 writes numbers from 2^53 on with digits of its own; those overflow the types below.
        precision, scale = decimal_parts(target) or (0, 0)
        if precision - scale > 15 or scale > 11:
            return f"CAST from {source} to {target}"
    legacy = eval_mode(call) == "LEGACY"
    if legacy and (two == "integral" and one != "boolean"):
        return f"CAST from {source} to {target} outside ANSI mode"
    zone = call.option("timeZoneId")
    zoned = {
        ("date", "timestamp"),
        ("timestamp", "date"),
        ("timestamp", "timestamp_ntz"),
        ("timestamp_ntz", "timestamp"),
    }
    if (source, target) in zoned:
        why = zones.reason(zone)
        if why is not None:
            return why
    return convert


def _check(call: Call) -> str | None:
    conversion = _conversion(call)
    return conversion if isinstance(conversion, str) else None


def _build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    convert = _conversion(call)
    assert not isinstance(convert, str)
    (one,) = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        return convert(call, one(columns, length, tick), length)

    return run


def _normalise(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    """One NaN and no negative zero, as keys of groups."""
    (one,) = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        value = one(columns, length, tick)
        # Adding zero turns -0.0 into 0.0 and leaves every other number, NaN and NULL as they are.
        return pc.add(value, pa.scalar(0.0, value.type))

    return run


def _normalise_check(call: Call) -> str | None:
    return None if call.type in FLOATING else f"floating numbers inside {call.type} as a key"


def _unscaled(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (one,) = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        return unscaled_rows(call, lambda number: number, (one(columns, length, tick),), length, pa.int64())

    return run


def _make_decimal(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (one,) = args
    kind = kernel_type(call.type)
    ansi = not call.option("nullOnOverflow", False)

    def exact(number: int) -> int | None:
        return decimals.bounded(number, kind.precision, ansi)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        value = one(columns, length, tick)
        return _whole_rows(call, exact, value, 1 if isinstance(value, pa.Scalar) else length, kind)

    return run


def _check_overflow(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (one,) = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        return _decimal_to_decimal(call, one(columns, length, tick), length)

    return run


def _check_overflow_check(call: Call) -> str | None:
    if call.option("nullOnOverflow", False):
        return "CheckOverflow outside ANSI mode"
    return None if decimal_parts(call.args[0].type) else f"CheckOverflow over {call.args[0].type}"


FUNCTIONS: dict[str, Scalar] = {
    "Cast": Scalar(_build, _check),
    "NormalizeNaNAndZero": Scalar(_normalise, _normalise_check),
    "UnscaledValue": Scalar(_unscaled, lambda call: None),
    "MakeDecimal": Scalar(_make_decimal, lambda call: None),
    "CheckOverflow": Scalar(_check_overflow, _check_overflow_check),
}
