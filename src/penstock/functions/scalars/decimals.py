"""Decimal columns as whole numbers, and Spark's rules for rounding and overflow on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.scalars.base import OVERFLOW, AnsiError, Datum

MOST_DIGITS = 38
_POWERS: list[int] = [10**exponent for exponent in range(120)]


def power(exponent: int) -> int:
    """Ten to the given power."""
    return _POWERS[exponent]


def half_up(numerator: int, denominator: int) -> int:
    """The quotient rounded half away from zero; the denominator may be negative, not zero."""
    if denominator < 0:
        numerator, denominator = -numerator, -denominator
    quotient, rest = divmod(abs(numerator), denominator)
    if rest * 2 >= denominator:
        quotient += 1
    return quotient if numerator >= 0 else -quotient


def half_even(numerator: int, denominator: int) -> int:
    """The quotient rounded to the nearest, ties to even; the denominator is positive."""
    quotient, rest = divmod(abs(numerator), denominator)
    if rest * 2 > denominator or (rest * 2 == denominator and quotient % 2):
        quotient += 1
    return quotient if numerator >= 0 else -quotient


def rescale(value: int, scale: int, to: int) -> int:
    """An unscaled value at another scale, rounded half up."""
    return value * power(to - scale) if to >= scale else half_up(value, power(scale - to))


def significant(value: int, digits: int) -> tuple[int, int]:
    """A value rounded half up to a number of digits, and by how many places it was shortened."""
    excess = len(str(abs(value))) - digits
    if excess <= 0:
        return value, 0
    return half_up(value, power(excess)), excess


def words(column: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """The low and high 64 bits of a decimal128 column; what stands under NULL is arbitrary."""
    data = column.buffers()[1]
    if data is None or len(column) == 0:
        return np.zeros(len(column), np.uint64), np.zeros(len(column), np.int64)
    flat = np.frombuffer(data, np.int64, 2 * len(column), offset=16 * column.offset)
    return flat[0::2].view(np.uint64), flat[1::2]


def small(column: pa.Array) -> npt.NDArray[np.int64] | None:
    """The unscaled values as int64 with 0 for NULL, None when one does not fit."""
    low, high = words(column)
    low_signed = low.view(np.int64)
    fits = high == (low_signed >> 63)
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        if not (fits | ~valid).all():
            return None
        return np.where(valid, low_signed, 0)
    return low_signed if fits.all() else None


def unscaled(value: Datum, length: int) -> list[int | None]:
    """The unscaled values of a decimal column or constant."""
    if isinstance(value, pa.Scalar):
        number = value.as_py()
        return [None if number is None else _unscaled_of(number, value.type.scale)] * length
    low, high = words(value)
    numbers: list[int | None] = [
        (top << 64) | bottom for top, bottom in zip(high.tolist(), low.tolist(), strict=True)
    ]
    if value.null_count:
        for index in np.flatnonzero(value.is_null().to_numpy(zero_copy_only=False)):
            numbers[index] = None
    return numbers


def _unscaled_of(number: Any, scale: int) -> int:
    sign, digits, exponent = number.as_tuple()
    unscaled = int("".join(map(str, digits)) or "0") * power(exponent + scale)
    return -unscaled if sign else unscaled


def from_unscaled(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """A decimal128 column from unscaled values, which must fit the type's precision."""
    flat = np.zeros(2 * len(values), np.uint64)
    mask = (1 << 64) - 1
    valid = np.ones(len(values), bool)
    for index, value in enumerate(values):
        if value is None:
            valid[index] = False
        else:
            flat[2 * index] = value & mask
            flat[2 * index + 1] = (value >> 64) & mask
    return from_words(flat, valid, kind)


def from_small(values: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """A decimal128 column from int64 unscaled values."""
    flat = np.empty(2 * len(values), np.int64)
    flat[0::2] = values
    flat[1::2] = values >> 63
    return from_words(flat, valid, kind)


def from_words(flat: npt.NDArray[Any], valid: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """A decimal128 column from 64-bit words, low word first."""
    nulls = None
    if not valid.all():
        nulls = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(valid), [nulls, pa.py_buffer(flat)])


def bounded(value: int, precision: int, ansi: bool) -> int | None:
    """A value that fits the precision; otherwise an ANSI error or NULL."""
    if -_POWERS[precision] < value < _POWERS[precision]:
        return value
    if ansi:
        raise AnsiError("a decimal is out of range", OVERFLOW)
    return None


def widen(value: Datum, kind: pa.DataType) -> Datum:
    """A decimal in a type that holds all of its values."""
    return value if value.type == kind else pc.cast(value, kind)
