"""Rounding, roots, signs and bits: only what is exact to the last bit on every platform.

Exponentials, logarithms and trigonometry are Java's own approximations, and stay with Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import decimal_parts, kernel_type
from penstock.functions.scalars import decimals
from penstock.functions.scalars.arithmetic import unscaled_rows
from penstock.functions.scalars.base import (
    INTEGRAL,
    INTEGRAL_RANGE,
    OVERFLOW,
    AnsiError,
    Build,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    both,
    constant,
    from_numbers,
    is_decimal,
    literal_args,
    numbers,
    only,
    rows_of,
    typed,
    valid_mask,
)
from penstock.plan.expression import Call

Rounding = Callable[[int, int], int]  # numerator, positive denominator -> whole


def _floor(numerator: int, denominator: int) -> int:
    return numerator // denominator


def _ceiling(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def _round(rounding: Rounding) -> Build:
    """ROUND and its kin to a constant scale, on decimals and whole numbers."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        places = constant(call, 1)
        kind = kernel_type(call.type)
        (argument, *_) = args
        if is_decimal(call.args[0].type):
            scale = (decimal_parts(call.args[0].type) or (0, 0))[1]
            ansi = bool(call.option("ansiEnabled", True))

            def exact(number: int) -> int | None:
                if places < scale:
                    number = rounding(number, decimals.power(min(scale - places, 110)))
                    number *= decimals.power(max(-places, 0))
                    at = max(places, 0)
                else:
                    at = scale
                return decimals.bounded(decimals.rescale(number, at, kind.scale), kind.precision, ansi)

            return lambda columns, length, tick: unscaled_rows(
                call, exact, (argument(columns, length, tick),), length, kind
            )
        if call.args[0].type == "double":
            return _round_double(call, argument, places, rounding)
        if places >= 0:
            return lambda columns, length, tick: typed(argument(columns, length, tick), kind)
        low, high = INTEGRAL_RANGE[call.type]
        unit = decimals.power(min(-places, 100))
        ansi = bool(call.option("ansiEnabled", True))

        def rounded(number: int) -> int:
            result = rounding(number, unit) * unit
            if not ansi:  # the lowest bits, as Java takes them
                return (result - low) % (high - low + 1) + low
            if not low <= result <= high:
                raise AnsiError(f"{call.type} overflow", OVERFLOW)
            return result

        return lambda columns, length, tick: rows_of(
            call, rounded, [argument(columns, length, tick)], length, kind
        )

    return build


def _round_check(call: Call) -> str | None:
    kind = call.args[0].type
    if kind == "double" and call.name in {"Round", "BRound"} and 0 <= constant(call, 1) <= 10:
        return None
    return None if kind in INTEGRAL or is_decimal(kind) else f"{call.name} over {kind}"


def _round_double(call: Call, argument: Compiled, places: int, rounding: Rounding) -> Compiled:
    """A double rounded in its shortest decimal form, as Spark does.

    Java before 19 writes some numbers above 2^53 with one digit more than the shortest form; those are whole numbers, which
    rounding to places behind the point leaves as they are. Numbers that are far from a tie are rounded by NumPy: the quotient
    of two exact whole numbers is the nearest double of the decimal.
    """
    unit = float(10**places)

    def twin(value: float) -> float:
        if value != value or abs(value) >= 2.0**53:
            return value
        sign, digits, exponent = Decimal(repr(value)).as_tuple()
        assert isinstance(exponent, int)
        unscaled = int("".join(map(str, digits)))
        shift = exponent + places
        if shift >= 0:
            return value + 0.0
        unscaled = rounding(-unscaled if sign else unscaled, decimals.power(min(-shift, 110)))
        return float(unscaled / 10**places)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        value = argument(columns, length, tick)
        count = 1 if isinstance(value, pa.Scalar) else length
        doubles = numbers(value, count)
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.abs(doubles) * unit
            integers = np.rint(scaled)
            far = (scaled < 2.0**45) & (np.abs(scaled - np.floor(scaled) - 0.5) > 1e-3)
            rounded = np.where(far, np.where(doubles < 0, 0.0 - integers, integers) / unit + 0.0, doubles)
        for row in np.flatnonzero(~far):
            rounded[row] = twin(float(doubles[row]))
        result = from_numbers(rounded, valid_mask(value, count), pa.float64())
        return result[0] if isinstance(value, pa.Scalar) else result

    return run


def _to_integral(rounding: Rounding, floating: Any) -> Build:
    """FLOOR and CEIL: decimals stay decimals, doubles become bigint as Java casts them."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        kind = kernel_type(call.type)
        (argument,) = args
        source = call.args[0].type
        if is_decimal(source):
            unit = decimals.power((decimal_parts(source) or (0, 0))[1])
            return lambda columns, length, tick: unscaled_rows(
                call, lambda number: rounding(number, unit), (argument(columns, length, tick),), length, kind
            )
        if source in INTEGRAL:
            return lambda columns, length, tick: typed(argument(columns, length, tick), kind)

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            value = argument(columns, length, tick)
            count = 1 if isinstance(value, pa.Scalar) else length
            integers = floating(numbers(value, count))
            # (long) in Java: NaN is 0, and what is too large becomes the largest.
            top, bottom = integers >= 2.0**63, integers < -(2.0**63)
            safe = np.where(np.isnan(integers) | top | bottom, 0, integers).astype(np.int64)
            safe = np.where(top, 2**63 - 1, np.where(bottom, -(2**63), safe))
            result = from_numbers(safe, valid_mask(value, count), kind)
            return result[0] if isinstance(value, pa.Scalar) else result

        return run

    return build


def _over_doubles(function: Any) -> Build:
    """A function of NumPy's that is exact by IEEE 754."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        (argument,) = args

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            value = argument(columns, length, tick)
            count = 1 if isinstance(value, pa.Scalar) else length
            with np.errstate(invalid="ignore"):
                results = function(numbers(value, count))
            result = from_numbers(results, valid_mask(value, count), pa.float64())
            return result[0] if isinstance(value, pa.Scalar) else result

        return run

    return build


def _signum(values: Any) -> Any:
    return np.where((values == 0) | np.isnan(values), values, np.sign(values))


def _bits(function: Any) -> Build:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        return lambda columns, length, tick: function(*(item(columns, length, tick) for item in args))

    return build


def _shift(left: bool, signed: bool) -> Build:
    """Shifts by the low bits of the distance, as Java shifts."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        kind = kernel_type(call.type)
        bits = 64 if call.type == "bigint" else 32
        half, modulus = 1 << (bits - 1), 1 << bits

        def twin(value: int, distance: int) -> int:
            distance &= bits - 1
            if left:
                value <<= distance
            else:
                value = (value if signed else value & (modulus - 1)) >> distance
            return (value + half) % modulus - half

        return lambda columns, length, tick: rows_of(
            call, twin, [item(columns, length, tick) for item in args], length, kind
        )

    return build


_ROUND = both(literal_args(1), _round_check)
_INTEGRAL = only(*INTEGRAL)

FUNCTIONS: dict[str, Scalar] = {
    "Round": Scalar(_round(decimals.half_up), _ROUND),
    "BRound": Scalar(_round(decimals.half_even), _ROUND),
    "RoundFloor": Scalar(_round(_floor), _ROUND),
    "RoundCeil": Scalar(_round(_ceiling), _ROUND),
    "Floor": Scalar(_to_integral(_floor, np.floor), only(*INTEGRAL, "double", "decimal")),
    "Ceil": Scalar(_to_integral(_ceiling, np.ceil), only(*INTEGRAL, "double", "decimal")),
    "Sqrt": Scalar(_over_doubles(np.sqrt), only("double")),
    "Rint": Scalar(_over_doubles(np.rint), only("double")),
    "Signum": Scalar(_over_doubles(_signum), only("double")),
    "BitwiseAnd": Scalar(_bits(pc.bit_wise_and), _INTEGRAL),
    "BitwiseOr": Scalar(_bits(pc.bit_wise_or), _INTEGRAL),
    "BitwiseXor": Scalar(_bits(pc.bit_wise_xor), _INTEGRAL),
    "BitwiseNot": Scalar(_bits(pc.bit_wise_not), _INTEGRAL),
    "ShiftLeft": Scalar(_shift(True, True), only("int", "bigint")),
    "ShiftRight": Scalar(_shift(False, True), only("int", "bigint")),
    "ShiftRightUnsigned": Scalar(_shift(False, False), only("int", "bigint")),
}
