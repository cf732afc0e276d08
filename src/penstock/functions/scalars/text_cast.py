"""CAST from and to text: what Spark takes for a number, a truth value or a moment, and how it writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import kernel_type
from penstock.functions.scalars import decimals, floats, interval_text, time_text
from penstock.functions.scalars.base import (
    CAST,
    INTEGRAL_RANGE,
    OVERFLOW,
    AnsiError,
    BeyondKernel,
    Datum,
    TickLike,
    array,
    bad_row_error,
    eval_mode,
    numbers,
    rows_of,
    valid_mask,
)
from penstock.plan.expression import Call

Convert = Callable[[Call, Datum, int], Datum]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_INTEGER_OR_CUT = re.compile(r"[+-]?(?=[0-9.])([0-9]*)(?:\.[0-9]*)?")
# Java's BigDecimal takes the digits of every script in the Basic Multilingual Plane.
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?")
_JAVA_BLANK = "".join(map(chr, range(0x21)))
_TRUE = {"t", "true", "y", "yes", "1"}
_NOT_TRUE = {"f", "false", "n", "no", "0"}


def invalid(value: Any, kind: str) -> AnsiError:
    """The error for a text that is no value of a type."""
    return AnsiError(f"the value {value!r} cannot be cast to {kind}", CAST)


def _text_rows(twin: Callable[[str], Any]) -> Convert:
    def convert(call: Call, value: Datum, length: int) -> Datum:
        return rows_of(call, _checked(call, twin), [value], length, kernel_type(call.type))

    return convert


def _checked(call: Call, twin: Callable[[str], Any]) -> Callable[[str], Any]:
    """A reader that raises where ANSI mode does."""
    if eval_mode(call) != "ANSI":
        return twin

    def checked(text: str) -> Any:
        converted = twin(text)
        if converted is None:
            raise invalid(text, call.type)
        return converted

    return checked


# ------------------------------------------------------------------ numbers


def _to_integral(call: Call, value: Datum, length: int) -> Datum:
    low, high = INTEGRAL_RANGE[call.type]
    legacy = eval_mode(call) == "LEGACY"

    def twin(text: str) -> int | None:
        trimmed = text.strip(time_text.BLANK)
        match = (_INTEGER_OR_CUT if legacy else _INTEGER).fullmatch(trimmed)
        if match is None:
            return None
        number = int(match[1] or 0) * (-1 if trimmed[0] == "-" else 1) if legacy else int(match[0])
        return number if low <= number <= high else None

    return _text_rows(twin)(call, value, length)


def _to_floating(call: Call, value: Datum, length: int) -> Datum:
    reader = floats.read_float if call.type == "float" else floats.read_double
    return _text_rows(reader)(call, value, length)


def _to_decimal(call: Call, value: Datum, length: int) -> Datum:
    kind = kernel_type(call.type)
    ansi = eval_mode(call) == "ANSI"

    def twin(text: str) -> int | None:
        parts = _decimal_parts(text.strip(_JAVA_BLANK))
        if parts is None:
            return None
        unscaled, exponent = parts
        if not unscaled:
            return 0
        if len(str(abs(unscaled))) + exponent > decimals.MOST_DIGITS:
            if ansi:
                raise AnsiError("a decimal is out of range", OVERFLOW, "NUMERIC_OUT_OF_SUPPORTED_RANGE")
            return _TOO_LARGE
        if exponent < -100:
            return 0
        scaled = unscaled * decimals.power(exponent) if exponent > 0 else unscaled
        rounded = decimals.rescale(scaled, max(-exponent, 0), kind.scale)
        return rounded if ansi or decimals.bounded(rounded, kind.precision, False) is not None else _TOO_LARGE

    checked = _checked(call, twin)

    def exact(text: str) -> int | None:
        unscaled = checked(text)
        return None if unscaled in (None, _TOO_LARGE) else decimals.bounded(unscaled, kind.precision, ansi)

    constant = isinstance(value, pa.Scalar)
    return decimal_rows(call, exact, value, 1 if constant else length, kind)


_TOO_LARGE = 10**60  # NULL, but not for the reason that the text is no number


def _decimal_parts(trimmed: str) -> tuple[int, int] | None:
    """Digits and the power of ten behind them of a text, None when it is no number of Java's."""
    match = _DECIMAL.fullmatch(trimmed)
    if match is None or max(trimmed) > "\uffff":
        return None
    mantissa = trimmed[: match.start(1) - 1] if match[1] else trimmed
    integral, _, fraction = mantissa.lstrip("+-").partition(".")
    exponent = 0
    if match[1]:
        if len(match[1].lstrip("+-").lstrip("0")) > 10:
            return None
        exponent = int(match[1])
    exponent -= len(fraction)
    if not -(2**31) < exponent < 2**31:
        return None
    digits = int(Decimal(integral + fraction))
    return (-digits if trimmed[0] == "-" else digits), exponent


def decimal_rows(
    call: Call, twin: Callable[[Any], int | None], value: Datum, length: int, kind: pa.DataType
) -> Datum:
    """A decimal column from a Python function that gives unscaled numbers."""
    items = [value.as_py()] * length if isinstance(value, pa.Scalar) else value.to_pylist()
    results: list[int | None] = []
    for position, item in enumerate(items):
        try:
            results.append(None if item is None else twin(item))
        except AnsiError as error:
            raise bad_row_error(call, [value], position, error) from None
    column = decimals.from_unscaled(results, kind)
    return column[0] if isinstance(value, pa.Scalar) else column


def _boolean_of(text: str) -> bool | None:
    folded = text.strip(time_text.BLANK).lower()
    return True if folded in _TRUE else False if folded in _NOT_TRUE else None


# ------------------------------------------------------------------ time


def _to_date(call: Call, value: Datum, length: int) -> Datum:
    if isinstance(value, pa.Scalar):
        days = rows_of(call, _checked(call, time_text.date_of), [value], length, pa.int32())
        return pc.cast(days, pa.date32())
    local, _, plain = time_text.plain_moments(value)
    days = np.floor_divide(local, 86_400_000_000)
    return _with_rest(call, value, days, plain, time_text.date_of, pa.int32(), pa.date32())


def to_moment(call: Call, value: Datum, length: int, tick: TickLike) -> Datum:
    """Text to a timestamp, with or without a zone."""
    zone = call.option("timeZoneId") or "UTC" if call.type == "timestamp" else None
    kind = kernel_type(call.type)

    def twin(text: str) -> int | None:
        return time_text.moment_of(text, zone, tick.micros)

    if isinstance(value, pa.Scalar):
        return pc.cast(rows_of(call, _checked(call, twin), [value], length, pa.int64()), kind)
    local, offset, plain = time_text.plain_moments(value)
    micros = local if zone is None else time_text.instants(local, offset, zone)
    return _with_rest(call, value, micros, plain, twin, pa.int64(), kind)


def _with_rest(
    call: Call,
    value: pa.Array,
    results: Any,
    plain: Any,
    twin: Callable[[str], int | None],
    number: pa.DataType,
    kind: pa.DataType,
) -> pa.Array:
    """The results that are known, and for the other rows those that a reader of single texts gives."""
    valid = valid_mask(value, len(value))
    rest = np.flatnonzero(valid & ~plain)
    if len(rest):
        results, valid = results.copy(), valid.copy()
        checked = _checked(call, twin)
        for row, text in zip(rest.tolist(), value.take(pa.array(rest)).to_pylist(), strict=True):
            try:
                result = checked(text)
            except AnsiError as error:
                raise bad_row_error(call, [value], row, error) from None
            results[row], valid[row] = result or 0, result is not None
    column = pa.array(results.astype(number.to_pandas_dtype()), number, mask=None if valid.all() else ~valid)
    return pc.cast(column, kind)


# ------------------------------------------------------------------ writing


def _plain(call: Call, value: Datum, length: int) -> Datum:
    return pc.cast(value, pa.large_string())


def _from_decimal(call: Call, value: Datum, length: int) -> Datum:
    write: Callable[[Decimal], str] = (
        str if eval_mode(call) == "LEGACY" else lambda number: format(number, "f")
    )
    return rows_of(call, write, [value], length, pa.large_string())


def _from_floating(call: Call, value: Datum, length: int) -> Datum:
    write = floats.write_floats if call.args[0].type == "float" else floats.write_doubles
    java = int(call.option("java", floats.SHORTEST))
    constant = isinstance(value, pa.Scalar)
    column = array(value, 1 if constant else length)
    texts: Sequence[str] = write(numbers(column, len(column), 0.0).tolist(), java)
    valid = valid_mask(column, len(column))
    written = pa.array(texts, pa.large_string(), mask=None if valid.all() else ~valid)
    return written[0] if constant else written


def _from_date(call: Call, value: Datum, length: int) -> Datum:
    constant = isinstance(value, pa.Scalar)
    column = pc.cast(pc.cast(array(value, 1 if constant else length), pa.int32()), pa.int64())
    valid = valid_mask(column, len(column))
    text = time_text.date_text(numbers(column, len(column)))
    if not valid.all():
        text = pc.if_else(pa.array(valid), text, pa.scalar(None, pa.large_string()))
    return text[0] if constant else text


def _from_moment(call: Call, value: Datum, length: int) -> Datum:
    zone = call.option("timeZoneId") if call.args[0].type == "timestamp" else None
    return time_text.moment_text(value, zone, length)


def _from_interval(call: Call, value: Datum, length: int) -> Datum:
    kind = call.args[0].type
    months = interval_text.ends(kind)[0] in ("year", "month")
    write = interval_text.months_text if months else interval_text.micros_text
    numbers_of = pc.cast(value, pa.int32() if months else pa.int64())
    return rows_of(call, lambda number: write(number, kind), [numbers_of], length, pa.large_string())


def _to_calendar(call: Call, value: Datum, length: int) -> Datum:
    """A calendar interval; Spark says of a text that is none of the common ones whether it is one."""

    def twin(text: str) -> tuple[int, int, int]:
        parts = interval_text.calendar(text)
        if parts is None:
            raise BeyondKernel(f"{text!r} is not plainly an interval")
        months, days, micros = parts
        return months, days, micros * 1000

    return rows_of(call, twin, [value], length, pa.month_day_nano_interval())


def _to_binary(call: Call, value: Datum, length: int) -> Datum:
    return pc.cast(value, pa.large_binary())


CONVERSIONS: dict[tuple[str, str], Convert] = {
    ("string", "integral"): _to_integral,
    ("string", "floating"): _to_floating,
    ("string", "decimal"): _to_decimal,
    ("string", "boolean"): _text_rows(_boolean_of),
    ("string", "date"): _to_date,
    ("string", "binary"): _to_binary,
    ("string", "interval"): _to_calendar,
    ("integral", "string"): _plain,
    ("boolean", "string"): _plain,
    ("decimal", "string"): _from_decimal,
    ("floating", "string"): _from_floating,
    ("date", "string"): _from_date,
    ("timestamp", "string"): _from_moment,
    ("timestamp_ntz", "string"): _from_moment,
    ("months", "string"): _from_interval,
    ("duration", "string"): _from_interval,
}
