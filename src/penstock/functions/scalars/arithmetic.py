"""Arithmetic with Spark's overflow rules: + - * / div % pmod, signs and decimals."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import decimal_parts, kernel_type
from penstock.functions.scalars import decimals
from penstock.functions.scalars.base import (
    DIVIDE_BY_ZERO,
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
    null_of,
    numbers,
    only,
    rows_of,
    typed,
    valid_mask,
)
from penstock.plan.expression import Call

_NUMERIC = (*INTEGRAL, *FLOATING, "decimal")


def _overflow(kind: str) -> AnsiError:
    return AnsiError(f"{kind} overflow", OVERFLOW)


def _in_range(value: int, kind: str) -> int:
    low, high = INTEGRAL_RANGE[kind]
    if not low <= value <= high:
        raise _overflow(kind)
    return value


def _try(twin: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, NULL where it would raise."""

    def quiet(*row: Any) -> Any:
        try:
            return twin(*row)
        except AnsiError:
            return None

    return quiet


def _integral(
    call: Call, args: tuple[Compiled, ...], checked: Any, wrapping: Any, twin: Callable[..., int]
) -> Compiled:
    kind, mode, name = kernel_type(call.type), eval_mode(call), call.type
    fast = wrapping if mode == "LEGACY" else checked

    def exact(*row: int) -> int:
        return _in_range(twin(*row), name)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        values = [argument(columns, length, tick) for argument in args]
        try:
            return fast(*values)
        except pa.ArrowInvalid:
            # One row overflows: find it, or give NULL for it.
            return rows_of(call, exact if mode == "ANSI" else _try(exact), values, length, kind)

    return run


def _sum_like(
    checked: Any, plain: Any, twin: Callable[..., Any], exact_scale: Callable[[int, int], int]
) -> Any:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        if is_decimal(call.type):
            return _decimal(call, args, plain, twin, exact_scale)
        if call.type in INTEGRAL:
            return _integral(call, args, checked, plain, twin)
        left, right = args
        return lambda columns, length, tick: plain(left(columns, length, tick), right(columns, length, tick))

    return build


def _decimal(
    call: Call,
    args: tuple[Compiled, ...],
    plain: Any,
    twin: Callable[..., Any],
    exact_scale: Callable[[int, int], int],
) -> Compiled:
    kind = kernel_type(call.type)
    (_, left_scale), (_, right_scale) = (decimal_parts(item.type) or (0, 0) for item in call.args)
    fast = _arrow_type(call, plain) == kind
    ansi = eval_mode(call) == "ANSI"
    scale = exact_scale(left_scale, right_scale)
    multiplying = twin is operator.mul

    def exact(left: int, right: int) -> int | None:
        if multiplying:
            # Java multiplies in a context of 39 digits before the result is brought to its scale.
            value, cut = decimals.significant(left * right, decimals.MOST_DIGITS + 1)
            value = decimals.rescale(value, scale - cut, kind.scale)
        else:
            common = max(left_scale, right_scale)
            value = twin(
                decimals.rescale(left, left_scale, common), decimals.rescale(right, right_scale, common)
            )
            value = decimals.rescale(value, common, kind.scale)
        return decimals.bounded(value, kind.precision, ansi)

    left_of, right_of = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        left, right = left_of(columns, length, tick), right_of(columns, length, tick)
        if fast:
            return plain(left, right)
        return unscaled_rows(call, exact, (left, right), length, kind)

    return run


def _arrow_type(call: Call, plain: Any) -> pa.DataType | None:
    """The type that Arrow gives the operation, None when it would need more digits than decimal128 has."""
    try:
        return plain(*(pa.array([], kernel_type(item.type)) for item in call.args)).type
    except pa.ArrowInvalid:
        return None


def unscaled_rows(
    call: Call, twin: Callable[..., int | None], values: tuple[Datum, ...], length: int, kind: pa.DataType
) -> Datum:
    """Apply a function of unscaled decimals row by row."""
    constant = all(isinstance(value, pa.Scalar) for value in values)
    count = 1 if constant else length
    lists = [decimals.unscaled(value, count) for value in values]
    results: list[int | None] = []
    for position, row in enumerate(zip(*lists, strict=True)):
        if None in row:
            results.append(None)
            continue
        try:
            results.append(twin(*row))
        except AnsiError as error:
            raise bad_row_error(call, values, position, error) from None
    column = decimals.from_unscaled(results, kind) if pa.types.is_decimal(kind) else pa.array(results, kind)
    return column[0] if constant else column


# ------------------------------------------------------------------ division


def _zero_guard(call: Call, values: list[Datum], length: int) -> Any:
    """Where the divisor is zero: an ANSI error, or the mask of rows that become NULL."""
    divisor = values[1]
    zeros = numbers(divisor, length, 1) == 0
    bad = zeros & valid_mask(divisor, length) & valid_mask(values[0], length)
    if bad.any() and eval_mode(call) == "ANSI" and call.option("failOnError", True):
        raise bad_row_error(call, values, int(np.argmax(bad)), AnsiError("division by zero", DIVIDE_BY_ZERO))
    return bad


def _divide(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    if is_decimal(call.type):
        return _decimal_divide(call, args)
    dividend_of, divisor_of = args
    kind = kernel_type(call.type)
    nothing = null_of(kind)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        dividend, divisor = dividend_of(columns, length, tick), divisor_of(columns, length, tick)
        if isinstance(divisor, pa.Scalar) and divisor.is_valid and divisor.as_py() != 0:
            return pc.divide(dividend, divisor)
        bad = _zero_guard(call, [dividend, divisor], length)
        if bad.any():
            divisor = pc.if_else(pa.array(bad), nothing, divisor)
        return pc.divide(dividend, divisor)

    return run


def divide_unscaled(dividend: int, divisor: int, shift: int, scale: int) -> int:
    """Spark's decimal division: to scale 39 half up, then to the result's scale half up."""
    deep = decimals.MOST_DIGITS + 1
    exponent = deep + shift
    if exponent >= 0:
        quotient = decimals.half_up(dividend * decimals.power(exponent), divisor)
    else:
        quotient = decimals.half_up(dividend, divisor * decimals.power(-exponent))
    return decimals.rescale(quotient, deep, scale)


def _decimal_divide(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    kind = kernel_type(call.type)
    (_, dividend_scale), (_, divisor_scale) = (decimal_parts(item.type) or (0, 0) for item in call.args)
    ansi = eval_mode(call) == "ANSI"

    def exact(dividend: int, divisor: int) -> int | None:
        if divisor == 0:
            if ansi:
                raise AnsiError("division by zero", DIVIDE_BY_ZERO)
            return None
        value = divide_unscaled(dividend, divisor, divisor_scale - dividend_scale, kind.scale)
        return decimals.bounded(value, kind.precision, ansi)

    dividend_of, divisor_of = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        dividend, divisor = dividend_of(columns, length, tick), divisor_of(columns, length, tick)
        quick = _small_divide(dividend, divisor, length, kind.scale + divisor_scale - dividend_scale, kind)
        return quick if quick is not None else unscaled_rows(call, exact, (dividend, divisor), length, kind)

    return run


def _small_divide(
    dividend: Datum, divisor: Datum, length: int, shift: int, kind: pa.DataType
) -> Datum | None:
    """Division of decimals that fit 64 bits with the shift applied; None when they do not, or a divisor is zero."""
    if not 0 <= shift <= 18 or kind.scale > 18:
        return None
    top, bottom = decimals.small(array(dividend, length)), decimals.small(array(divisor, length))
    if top is None or bottom is None:
        return None
    valid = valid_mask(dividend, length) & valid_mask(divisor, length)
    bottom = np.where(valid, bottom, 1)
    limit = (2**62) // decimals.power(shift)
    if (bottom == 0).any() or (np.abs(top) > limit).any() or (np.abs(bottom) > 2**61).any():
        return None
    shifted = np.abs(top) * decimals.power(shift)
    size = np.abs(bottom)
    quotients = shifted // size
    quotients += (shifted - quotients * size) * 2 >= size
    if kind.precision < 19 and (quotients >= decimals.power(kind.precision)).any():
        return None
    result = decimals.from_small(np.where((top < 0) != (bottom < 0), -quotients, quotients), valid, kind)
    both = isinstance(dividend, pa.Scalar) and isinstance(divisor, pa.Scalar)
    return result[0] if both else result


def _integral_divide(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    ansi = eval_mode(call) == "ANSI"
    kind = kernel_type(call.type)

    def truncated(dividend: int, divisor: int) -> int | None:
        if divisor == 0:
            if ansi:
                raise AnsiError("division by zero", DIVIDE_BY_ZERO)
            return None
        value = abs(dividend) // abs(divisor)
        value = value if (dividend < 0) == (divisor < 0) else -value
        if not -(2**63) <= value < 2**63:
            if ansi:
                raise _overflow("bigint")
            return None
        return value

    if is_decimal(call.args[0].type):
        (_, dividend_scale), (_, divisor_scale) = (decimal_parts(item.type) or (0, 0) for item in call.args)
        common = max(dividend_scale, divisor_scale)

        def rescaled(dividend: int, divisor: int) -> int | None:
            return truncated(
                decimals.rescale(dividend, dividend_scale, common),
                decimals.rescale(divisor, divisor_scale, common),
            )

        dividend_of, divisor_of = args
        return lambda columns, length, tick: unscaled_rows(
            call,
            rescaled,
            (dividend_of(columns, length, tick), divisor_of(columns, length, tick)),
            length,
            kind,
        )
    return _over_numbers(call, args, truncated, _numpy_truncated, kind)


def _numpy_truncated(dividend: Any, divisor: Any) -> Any:
    floors = np.floor_divide(dividend, divisor)
    return floors + ((floors * divisor != dividend) & ((dividend < 0) != (divisor < 0)))


def _over_numbers(
    call: Call,
    args: tuple[Compiled, ...],
    twin: Callable[..., Any],
    fast: Callable[..., Any],
    kind: pa.DataType,
) -> Compiled:
    """Integer functions of two arguments with a zero guard: NumPy, or row by row where an extreme value is in play."""
    left_of, right_of = args
    low = INTEGRAL_RANGE.get(call.args[0].type, (None, None))[0]

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        values = [left_of(columns, length, tick), right_of(columns, length, tick)]
        if isinstance(values[0], pa.Scalar) and isinstance(values[1], pa.Scalar):
            return rows_of(call, twin, values, length, kind)
        bad = _zero_guard(call, values, length)
        left, right = numbers(values[0], length), numbers(values[1], length, 1)
        if low is not None and ((left == low) & (right == -1)).any():
            return rows_of(call, twin, values, length, kind)
        valid = valid_mask(values[0], length) & valid_mask(values[1], length) & ~bad
        with np.errstate(invalid="ignore"):
            results = fast(left, np.where(right == 0, 1, right))
        return from_numbers(results.astype(kind.to_pandas_dtype()), valid, kind)

    return run


def _remainder_twin(call: Call) -> Callable[[int, int], int | None]:
    ansi = eval_mode(call) == "ANSI"

    def remainder(dividend: int, divisor: int) -> int | None:
        if divisor == 0:
            if ansi:
                raise AnsiError("division by zero", DIVIDE_BY_ZERO)
            return None
        value = abs(dividend) % abs(divisor)
        return value if dividend >= 0 else -value

    return remainder


def _pmod_twin(call: Call) -> Callable[[int, int], int | None]:
    remainder = _remainder_twin(call)
    bits = {"int": 32, "bigint": 64}.get(call.type)  # narrower ones are added as int

    def pmod(dividend: int, divisor: int) -> int | None:
        value = remainder(dividend, divisor)
        if value is None or value >= 0:
            return value
        total = value + divisor
        if bits is not None:
            total = (total + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
        return remainder(total, divisor)

    return pmod


def _numpy_pmod(dividend: Any, divisor: Any) -> Any:
    if dividend.dtype in (np.int8, np.int16):
        dividend, divisor = dividend.astype(np.int32), divisor.astype(np.int32)
    rest = np.fmod(dividend, divisor)
    return np.where(rest < 0, np.fmod(rest + divisor, divisor), rest)


def _modulo(twin_of: Callable[[Call], Callable[[int, int], int | None]], fast: Callable[..., Any]) -> Any:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        kind = kernel_type(call.type)
        twin = twin_of(call)
        if is_decimal(call.type):
            (_, dividend_scale), (_, divisor_scale) = (
                decimal_parts(item.type) or (0, 0) for item in call.args
            )
            common = max(dividend_scale, divisor_scale)
            ansi = eval_mode(call) == "ANSI"

            def exact(dividend: int, divisor: int) -> int | None:
                value = twin(
                    decimals.rescale(dividend, dividend_scale, common),
                    decimals.rescale(divisor, divisor_scale, common),
                )
                if value is None:
                    return None
                return decimals.bounded(decimals.rescale(value, common, kind.scale), kind.precision, ansi)

            dividend_of, divisor_of = args
            return lambda columns, length, tick: unscaled_rows(
                call,
                exact,
                (dividend_of(columns, length, tick), divisor_of(columns, length, tick)),
                length,
                kind,
            )
        return _over_numbers(call, args, twin, fast, kind)

    return build


# ------------------------------------------------------------------ signs


def _negate(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    if call.type in INTEGRAL:
        return _integral_unary(call, args, pc.negate_checked, pc.negate, operator.neg)
    return lambda columns, length, tick: pc.negate(argument(columns, length, tick))


def _absolute(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    if call.type in INTEGRAL:
        return _integral_unary(call, args, pc.abs_checked, pc.abs, abs)
    return lambda columns, length, tick: pc.abs(argument(columns, length, tick))


def _integral_unary(call: Call, args: tuple[Compiled, ...], checked: Any, plain: Any, twin: Any) -> Compiled:
    if not call.option("failOnError", True):
        (argument,) = args
        return lambda columns, length, tick: plain(argument(columns, length, tick))
    return _integral(call, args, checked, plain, twin)


def _same(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    kind = kernel_type(call.type)
    return lambda columns, length, tick: typed(argument(columns, length, tick), kind)


_OVER_NUMBERS = only(*_NUMERIC)
_OVER_INTEGRAL = only(*INTEGRAL, "decimal")

FUNCTIONS: dict[str, Scalar] = {
    "Add": Scalar(_sum_like(pc.add_checked, pc.add, operator.add, max), _OVER_NUMBERS),
    "Subtract": Scalar(_sum_like(pc.subtract_checked, pc.subtract, operator.sub, max), _OVER_NUMBERS),
    "Multiply": Scalar(
        _sum_like(pc.multiply_checked, pc.multiply, operator.mul, operator.add), _OVER_NUMBERS
    ),
    "Divide": Scalar(_divide, only(*FLOATING, "decimal")),
    "IntegralDivide": Scalar(_integral_divide, _OVER_INTEGRAL),
    "Remainder": Scalar(_modulo(_remainder_twin, np.fmod), _OVER_NUMBERS),
    "Pmod": Scalar(_modulo(_pmod_twin, _numpy_pmod), _OVER_NUMBERS),
    "UnaryMinus": Scalar(_negate, _OVER_NUMBERS),
    "UnaryPositive": Scalar(_same, _OVER_NUMBERS),
    "Abs": Scalar(_absolute, _OVER_NUMBERS),
    "PromotePrecision": Scalar(_same, only("decimal")),
}
