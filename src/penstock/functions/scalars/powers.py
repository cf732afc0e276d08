"""Exponentials, logarithms and powers, as StrictMath has them, and other functions of one formula: factorials, bits, buckets.

Sines, tangents, roots of the third degree and the like are left to Spark: Java may compute them with instructions of
the processor, whose last bit nothing promises.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Floats
from penstock.functions import fdlibm
from penstock.functions.scalars.arrays import PARAMETER, all_valid, of_values
from penstock.functions.scalars.base import (
    INTEGRAL,
    AnsiError,
    Datum,
    Scalar,
    array,
    bad_row_error,
    from_numbers,
    numbers,
    only,
    row_wise,
    valid_mask,
)
from penstock.plan.expression import Call

_FACTORIALS = np.array([math.factorial(number) for number in range(21)], np.int64)
_LN2 = float(fdlibm.log(np.array([2.0]))[0])


def _doubles(value: Datum, length: int) -> Floats:
    return np.asarray(numbers(array(value, length), length, 1.0), np.float64)


def _valid(length: int, *values: Datum) -> Bools:
    valid = all_valid(length, *values)
    return np.ones(length, np.bool_) if valid is None else valid


def _plain(function: Callable[..., Floats]) -> Scalar:
    def work(call: Call, values: list[Datum], length: int) -> pa.Array:
        with np.errstate(all="ignore"):
            results = function(*(_doubles(value, length) for value in values))
        return from_numbers(results, _valid(length, *values), pa.float64())

    return Scalar(of_values(work), only("double"))


def _logarithm(function: Callable[[Floats], Floats]) -> Scalar:
    """NULL where there is no logarithm."""

    def work(call: Call, values: list[Datum], length: int) -> pa.Array:
        x = _doubles(values[0], length)
        # NaN is not below zero, and has NaN as its logarithm.
        return from_numbers(function(x), _valid(length, values[0]) & ~(x <= 0), pa.float64())

    return Scalar(of_values(work), only("double"))


def _log2(x: Floats) -> Floats:
    return fdlibm.log(x) / _LN2


def _based(call: Call, values: list[Datum], length: int) -> pa.Array:
    base, x = (_doubles(value, length) for value in values)
    with np.errstate(all="ignore"):
        results = fdlibm.log(x) / fdlibm.log(base)
    return from_numbers(results, _valid(length, *values) & ~(base <= 0) & ~(x <= 0), pa.float64())


def _factorial(call: Call, values: list[Datum], length: int) -> pa.Array:
    column = array(values[0], length)
    number = numbers(column, length).astype(np.int64)
    in_range = (number >= 0) & (number <= 20)
    return from_numbers(
        _FACTORIALS[np.where(in_range, number, 0)], in_range & valid_mask(column, length), pa.int64()
    )


def _bit_count(call: Call, values: list[Datum], length: int) -> pa.Array:
    """Negative numbers of every width are counted as 64-bit ones."""
    column = array(values[0], length)
    bits = numbers(column, length, False if pa.types.is_boolean(column.type) else 0).astype(np.int64)
    return from_numbers(
        np.bitwise_count(bits.view(np.uint64)).astype(np.int32), valid_mask(column, length), pa.int32()
    )


def _bit_get(call: Call, values: list[Datum], length: int) -> pa.Array:
    number, place = (numbers(array(value, length), length) for value in values)
    valid = _valid(length, *values)
    width = 8 * number.dtype.itemsize
    outside = valid & ((place < 0) | (place >= width))
    if outside.any():
        error = AnsiError(
            f"there are bits 0 to {width - 1}", PARAMETER, "INVALID_PARAMETER_VALUE.BIT_POSITION_RANGE"
        )
        raise bad_row_error(call, values, int(np.argmax(outside)), error)
    bits = (number.astype(np.int64) >> np.where(valid, place, 0)) & 1
    return from_numbers(bits.astype(np.int8), valid, pa.int8())


def _width_bucket(call: Call, values: list[Datum], length: int) -> pa.Array:
    value, low, high = (_doubles(item, length) for item in values[:3])
    count = numbers(array(values[3], length), length).astype(np.int64)
    valid = _valid(length, *values) & (count > 0) & (count < 2**63 - 1) & ~np.isnan(value)
    valid &= (low != high) & np.isfinite(low) & np.isfinite(high)
    rising = low < high
    lower, upper = np.minimum(low, high), np.maximum(low, high)
    with np.errstate(all="ignore"):
        share = count.astype(np.float64) * np.where(rising, value - lower, upper - value) / (upper - lower)
    inside = valid & (share >= 0) & (share < 2.0**63)
    bucket = np.where(inside, share, 0.0).astype(np.int64) + 1
    # Java's long stops at its end, and one more is its beginning.
    bucket = np.where(share >= 2.0**63, np.int64(-(2**63)), bucket)
    below = np.where(rising, value < lower, value > upper)
    above = np.where(rising, value >= upper, value <= lower)
    bucket = np.where(below, 0, np.where(above, np.where(valid, count, 0) + 1, bucket))
    return from_numbers(bucket, valid, pa.int64())


def _binary_digits(number: int) -> str:
    """The digits of a 64-bit number, a negative one as its complement."""
    return format(number & 0xFFFFFFFFFFFFFFFF, "b")


def _bucket_check(call: Call) -> str | None:
    kinds = [argument.type for argument in call.args]
    return None if kinds == ["double", "double", "double", "bigint"] else f"WIDTH_BUCKET of {kinds[0]}"


FUNCTIONS: dict[str, Scalar] = {
    "Exp": _plain(fdlibm.exp),
    "Pow": _plain(fdlibm.pow),
    "Log": _logarithm(fdlibm.log),
    "Log10": _logarithm(fdlibm.log10),
    "Log2": _logarithm(_log2),
    "Logarithm": Scalar(of_values(_based), only("double")),
    "ToDegrees": _plain(lambda x: x * 57.29577951308232),
    "ToRadians": _plain(lambda x: x * 0.017453292519943295),
    "Factorial": Scalar(of_values(_factorial), only("int")),
    "BitwiseCount": Scalar(of_values(_bit_count), only(*INTEGRAL, "boolean")),
    "Bin": Scalar(row_wise(_binary_digits), only("bigint")),
    "BitwiseGet": Scalar(of_values(_bit_get), only(*INTEGRAL)),
    "WidthBucket": Scalar(of_values(_width_bucket), _bucket_check),
}
